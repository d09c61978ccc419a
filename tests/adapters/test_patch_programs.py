"""Small programs: on local paths as Python runs them, and on URLs under patches: the same results and exceptions."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import functools
import http.server
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import fsspec
import pandas
import pytest

import fsabs
from tests import soak
from tests.adapters import stores

LIBRARIES = (
    *("builtins", "os", "shutil", "glob", "pathlib"),
    *("numpy", "PIL", "cv2", "imageio", "torch", "pandas", "h5py", "safetensors"),
)
FILES = {
    "a.txt": b"one\ntwo\nthree\n",
    "empty": b"",
    "d/b.json": b'{"x": [1, 2]}',
    "d/t.csv": b"a,b\n1,2\n3,4\n",
    "d/e/f g.txt": b"deep",
    "d/a%41.txt": b"percent",
}
SETUP = """
import csv, glob, io, json, os, pathlib, pickle, shutil
import cv2, h5py, imageio.v2, imageio.v3, numpy, pandas, safetensors.numpy, safetensors.torch, torch
from PIL import Image
J = lambda *names: "/".join((ROOT, *names))
PICTURE = numpy.arange(48, dtype="u1").reshape(4, 4, 3)
def put(name, text, mode="w"):
    with open(J(name), mode) as file: file.write(text)
def content(name, mode="rb"):
    with open(J(name), mode) as file: return file.read()
def two_pages():
    for append in (False, True): Image.fromarray(PICTURE).save(J("p.pdf"), append=append)
    return content("p.pdf").count(b"/Page ") + content("p.pdf").count(b"/Page\\n")
def dataset():
    with h5py.File(J("w.h5"), "w") as file: file["x"] = [1, 2]
    with h5py.File(J("w.h5"), "a") as file: file["y"] = 3
    with h5py.File(J("w.h5")) as file: return sorted(file) == ["x", "y"]
"""
PROGRAMS = """
content("a.txt")
content("nosuch")
content("d")
open(J("a.txt"), "x")
open(J("a.txt"), "rw")
open(J("a.txt"), "rb", encoding="utf-8")
put("new", "text", "x") or content("new")
put("a.txt", "text", "x")
put("a.txt", "more", "a") or content("a.txt")
put("fresh", "more", "a") or content("fresh")
[line.strip() for line in io.open(J("a.txt"), "rb")]
(lambda file: (file.seek(4), file.read(3), file.tell(), file.close(), file.closed))(open(J("a.txt"), "rb"))
open(J("a.txt"), "rb").write(b"x")
os.path.exists(J("a.txt"))
os.path.isfile(J("a.txt")), os.path.isfile(J("d")), os.path.isdir(J("d")), os.path.isdir(J("a.txt"))
os.path.getsize(J("nosuch"))
os.stat(J("a.txt")).st_size
os.stat(J("nosuch"))
sorted(os.listdir(ROOT))
os.listdir(J("nosuch"))
os.listdir(J("a.txt"))
[open(os.path.join(top, name)).read() for top, _, names in os.walk(ROOT) for name in sorted(names)]
[dirs.clear() for _, dirs, _ in os.walk(ROOT)]
list(os.walk(J("nosuch")))
sorted(entry.is_dir() for entry in os.scandir(ROOT))
sorted(open(entry.path).read() for entry in os.scandir(J("d")) if entry.is_file())
sorted(entry.stat().st_size for entry in os.scandir(J("d")) if entry.is_file())
os.remove(J("a.txt")) or sorted(os.listdir(ROOT))
os.remove(J("nosuch"))
os.unlink(J("empty")) or os.path.exists(J("empty"))
os.makedirs(J("x", "y")) or os.path.isdir(J("x", "y"))
os.makedirs(J("d"))
os.makedirs(J("d"), exist_ok=True)
os.mkdir(J("d"))
os.mkdir(J("no", "such"))
os.rmdir(J("d"))
os.mkdir(J("n")) or os.rmdir(J("n")) or os.path.exists(J("n"))
os.rename(J("a.txt"), J("z.txt")) or (content("z.txt"), os.path.exists(J("a.txt")))
os.replace(J("a.txt"), J("empty")) or content("empty")
os.rename(J("nosuch"), J("z.txt"))
shutil.copy(J("a.txt"), J("copy.txt")) and content("copy.txt")
shutil.copy(J("a.txt"), J("d")) and content("d/a.txt")
shutil.copyfile(J("a.txt"), J("empty")) and content("empty")
shutil.copy2(J("nosuch"), J("copy.txt"))
len(glob.glob(J("**", "*"), recursive=True))
[open(name).read() for name in sorted(glob.glob(J("d", "*.txt")))]
glob.glob(J("nosuch", "*"))
len(list(glob.iglob(J("d", "*"))))
len(glob.glob(J("a.txt")))
pathlib.Path(J("nosuch")).read_bytes()
pathlib.Path(J("p")).write_text("new") and content("p")
sorted(path.name for path in pathlib.Path(J("d")).iterdir() if path.is_file())[1]
pathlib.Path(ROOT, "d", "b.json").exists(), pathlib.Path(ROOT, "d").is_dir(), pathlib.Path(J("d")).is_file()
pathlib.Path(J("a.txt")).stat().st_size
pathlib.Path(J("a.txt")).suffix, pathlib.Path(J("a.txt")).stem, (pathlib.Path(J("d")) / "b.json").name
pathlib.Path(J("a.txt")).unlink() or os.path.exists(J("a.txt"))
pathlib.Path(J("a.txt")).open().readline()
json.dump([1], open(J("w.json"), "w")) or json.load(open(J("w.json")))
pickle.dump({"x": 1}, open(J("w.pkl"), "wb")) or pickle.load(open(J("w.pkl"), "rb"))
pickle.load(open(J("empty"), "rb"))
list(csv.reader(open(J("d", "t.csv"), newline="")))
Image.fromarray(PICTURE).save(J("p.png")) or numpy.asarray(Image.open(J("p.png"))).tolist()
Image.open(J("nosuch"))
Image.open(J("a.txt"))
Image.fromarray(PICTURE).save(J("p.nosuch"))
two_pages() > 1
cv2.imwrite(J("c.nosuch"), PICTURE)
cv2.imread(J("a.txt"))
numpy.save(J("n"), PICTURE) or numpy.load(J("n.npy")).tolist()
numpy.load(J("nosuch.npy"))
numpy.load(J("a.txt"))
numpy.savetxt(J("n.txt"), numpy.ones((2, 2))) or numpy.loadtxt(J("n.txt")).tolist()
numpy.savez(J("n.npz"), x=PICTURE) or numpy.load(J("n.npz"))["x"].tolist()
numpy.fromfile(J("a.txt"), "u1").tolist()
numpy.genfromtxt(J("d", "t.csv"), delimiter=",", skip_header=1).tolist()
torch.load(J("nosuch"))
torch.load(J("a.txt"))
put("a.txt", b"XX", "r+b") or content("a.txt")
put("nosuch", b"XX", "r+b")
put("u.txt", "h\\u00e9llo\\n") or open(J("u.txt"), encoding="utf-8").read()
put("d", "x")
put("a.txt", 5)
open(J("a.txt"), "rb", 0).read(3)
open(file=J("a.txt")).read()
open(J("a.txt"), encoding="nosuch")
(lambda file: (file.readable(), file.writable(), file.seekable()))(open(J("a.txt"), "rb"))
(lambda file: (file.seek(-3, 2), file.read()))(open(J("a.txt"), "rb"))
(lambda file: file.seek(-1))(open(J("a.txt"), "rb"))
os.path.getmtime(J("nosuch"))
[sorted(dirs) for _, dirs, _ in os.walk(ROOT, topdown=False)][-1]
[entry.is_symlink() for entry in os.scandir(J("d", "e"))]
os.scandir(J("nosuch"))
os.stat(J("d")).st_mode // 0o1000
os.remove(J("d"))
os.rmdir(J("nosuch"))
os.rmdir(J("a.txt"))
os.makedirs(J("a.txt", "x"))
os.makedirs(J("x", "y"), exist_ok=True) or os.makedirs(J("x", "y"), exist_ok=True) or sorted(os.listdir(J("x")))
os.rename(J("d", "e"), J("e")) or sorted(os.listdir(J("e")))
os.replace(J("nosuch"), J("a.txt"))
shutil.copyfile(J("a.txt"), J("a.txt"))
shutil.copyfile(J("nosuch"), J("a.txt"))
shutil.copyfile(J("d"), J("a.txt"))
shutil.copy(J("a.txt"), J("nosuch", "x"))
sorted(os.path.basename(name) for name in glob.glob(J("[a-c]*")))
sorted(os.path.basename(name) for name in glob.glob(J("**", "*.txt"), recursive=True))
[os.path.getsize(name) for name in sorted(glob.glob(J("d", "*")))  if os.path.isfile(name)]
pathlib.Path(J("d")).read_bytes()
pathlib.Path(J("p")).write_bytes(b"new") and content("p")
sorted(path.name for path in pathlib.Path(ROOT).glob("*.txt"))
sorted(path.name for path in pathlib.Path(ROOT).rglob("*.txt"))
sorted(path.name for path in pathlib.Path(J("nosuch")).iterdir())
pathlib.Path(J("nosuch")).unlink()
pathlib.Path(J("nosuch")).unlink(missing_ok=True)
pathlib.Path(J("d")).mkdir()
pathlib.Path(J("d")).mkdir(exist_ok=True) or pathlib.Path(J("d")).is_dir()
pathlib.Path(J("x", "y")).mkdir(parents=True) or pathlib.Path(J("x", "y")).is_dir()
pathlib.Path(J("a.txt")).rename(J("q.txt")) and content("q.txt")
pathlib.Path(J("a.txt")).with_suffix(".md").name, pathlib.Path(J("a.txt")).parent.name == pathlib.Path(ROOT).name
pathlib.Path(J("d", "e")).parent == pathlib.Path(J("d")), pathlib.Path(J("a.txt")).exists()
json.loads(pathlib.Path(J("d", "b.json")).read_text())
json.load(open(J("nosuch")))
json.dump({"a": {1}}, open(J("w.json"), "w"))
Image.fromarray(PICTURE).save(J("no", "such", "p.png"))
Image.open(J("d"))
cv2.imread(J("nosuch.png"))
cv2.imwrite(J("c.jpg"), PICTURE) and cv2.imread(J("c.jpg"), cv2.IMREAD_GRAYSCALE).shape
cv2.imwrite(J("c.png"), PICTURE) and cv2.imread(J("c.png"), flags=cv2.IMREAD_UNCHANGED).shape
cv2.imwrite(filename=J("c.png"), img=PICTURE) and cv2.haveImageReader(J("c.png"))
cv2.imwritemulti(J("m.tif"), [PICTURE, PICTURE]) and cv2.imcount(J("m.tif"))
numpy.savez_compressed(J("n.npz"), x=PICTURE) or sorted(numpy.load(J("n.npz")).files)
numpy.load(J("empty"))
numpy.loadtxt(J("nosuch"))
numpy.fromfile(J("nosuch"), "u1")
pandas.read_csv(J("nosuch.csv"))
pandas.read_csv(J("empty"))
pandas.read_csv(J("d", "t.csv"), chunksize=1).get_chunk().to_dict()
pandas.DataFrame({"a": [1]}).to_csv(J("d", "t.csv"), mode="x")
pandas.DataFrame({"a": [1]}).to_csv(J("new.csv"), mode="x") or content("new.csv")
pandas.DataFrame({"a": [1]}).to_csv(J("d", "t.csv"), mode="a", header=False, index=False) or content("d/t.csv")
pandas.DataFrame({"a": [1]}).to_csv(J("w.csv.gz")) or pandas.read_csv(J("w.csv.gz")).to_dict()
pandas.DataFrame({"a": [1]}).to_json(J("w.json")) or pandas.read_json(J("w.json")).to_dict()
pandas.DataFrame({"a": [1]}).to_pickle(J("w.pkl")) or pandas.read_pickle(J("w.pkl")).to_dict()
pandas.DataFrame({"a": [1]}).to_parquet(J("w.parquet")) or pandas.read_parquet(J("w.parquet")).to_dict()
pandas.read_parquet(J("nosuch.parquet"))
pandas.read_parquet(J("a.txt"))
pandas.DataFrame({"a": [1]}).to_feather(J("w.feather")) or pandas.read_feather(J("w.feather")).to_dict()
pandas.read_table(J("d", "t.csv"), sep=",").shape
pandas.Series([1, 2]).to_csv(J("s.csv")) or content("s.csv")
pandas.DataFrame({"a": [1]}).to_hdf(J("w.h5"), key="k") or pandas.read_hdf(J("w.h5"), "k").to_dict()
h5py.File(J("nosuch.h5"), "r")
h5py.File(J("a.txt"), "r")
dataset() and h5py.File(J("w.h5"))["x"][:].tolist()
torch.save({"x": torch.arange(3)}, f=J("k.pt")) or torch.load(f=J("k.pt"), weights_only=True)["x"].tolist()
torch.save({"x": torch.arange(3)}, J("k.pt")) or torch.load(J("k.pt"), mmap=True)["x"].tolist()
torch.save(lambda: None, J("bad.pt"))
torch.load(J("empty"))
safetensors.numpy.save_file({"x": PICTURE}, J("s.st")) or safetensors.numpy.load_file(J("s.st"))["x"].tolist()
safetensors.torch.save_file({"x": torch.ones(2)}, J("s.st")) or safetensors.torch.load_file(J("s.st"))["x"].tolist()
safetensors.numpy.load_file(J("nosuch"))
safetensors.torch.load_file(J("a.txt"))
imageio.v3.imwrite(J("i.png"), PICTURE) or imageio.v3.imread(J("i.png")).shape
imageio.v2.imread(J("nosuch.png"))
""".strip().splitlines()


def run(program: str, root: str) -> Any:
    """Return the result of a program, or the type of its exception."""
    names: dict[str, Any] = {"ROOT": root}
    exec(SETUP, names)
    try:
        found = eval(program, names)
    except Exception as exc:
        return type(exc), getattr(exc, "errno", None)
    if hasattr(found, "read"):
        found.close()
        return "a file"
    return repr(found).replace(root, "ROOT").replace("%2541", "%41")  # as a name is written that is joined to a URL


def same(found: Any, expected: Any) -> bool:
    """Return whether two results are equal, of exceptions the types; errors of libraries may have no errno."""
    if isinstance(found, tuple) and isinstance(expected, tuple) and expected[1] is None:
        return bool(found[0] is expected[0])
    return bool(found == expected)


def in_thread(program: Callable[[], Any]) -> Any:
    """Run in a thread."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(program()))
    thread.start()
    thread.join(50)
    return found[0]


def in_fork(program: Callable[[], Any]) -> Any:
    """Run in a forked child."""
    with get_context("fork").Pool(1) as pool:
        return pool.apply_async(_called, [pickle.dumps(program)]).get(50)


def _called(program: bytes) -> Any:
    return pickle.loads(program)()


def decorated(program: Callable[[], Any]) -> Any:
    """Run by a decorated generator, which is patched while it runs."""

    @fsabs.patch(*LIBRARIES)
    def made() -> Iterator[Any]:
        yield program()

    return next(made())


PLACES: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "here": lambda program: program(),
    "thread": in_thread,
    "fork": in_fork,
    "decorated": decorated,
}


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", PLACES)
def test_programs(place: str, tmp_path: Path) -> None:
    different: list[str] = []
    programs = PROGRAMS
    if place in ("fork", "decorated"):  # each of which starts a process, or patches anew
        programs = PROGRAMS[:: max(1, len(PROGRAMS) // soak.rounds(15))]
    if place == "thread":  # whose files are in memory, where none is updated; pandas has a memory:// of its own
        programs = [program for program in programs if not any(word in program for word in ("pandas", "r+b"))]
    for number, program in enumerate(programs):
        (local := tmp_path / f"{number}").mkdir()
        stores.fill(f"file://{local}", FILES)
        url = f"memory://programs/{number}" if place == "thread" else f"file://{tmp_path}/url{number}"
        fsabs.from_url(url, create=True)
        stores.fill(url, FILES)
        expected = run(program, str(local))
        with contextlib.nullcontext() if place == "decorated" else fsabs.patch(*LIBRARIES):
            found = PLACES[place](functools.partial(run, program, url))
        if not same(found, expected):
            different.append(f"{program}: {found}, not {expected}")
    soak.count("patched programs", len(programs))
    assert not different, "\n".join(different)


# ---- what patches leave as it was


@pytest.fixture
def tree() -> Iterator[str]:
    """A directory in memory."""
    with stores.opened("memory", None, Path()) as url:
        stores.fill(url, FILES)
        yield url


def test_functions_that_are_patched_are_pickled_bound_and_named(tmp_path: Path) -> None:
    local = tmp_path / "x"
    local.write_text("text")
    with fsabs.patch("builtins", "os"):
        for function in (open, os.listdir, os.path.getsize, os.stat, os.walk):
            assert pickle.loads(pickle.dumps(function)) is function
        with get_context("fork").Pool(1) as pool:
            assert pool.map(os.path.getsize, [str(local)]) == [4]

        class Owner:
            opener = open
            size = os.path.getsize

        owner: Any = Owner()
        with owner.opener(local) as file:  # a builtin does not bind
            assert file.read() == "text"
        with pytest.raises(TypeError):
            owner.size(local)  # a function does, as it did before
        assert (open.__name__, os.listdir.__doc__ == os.scandir.__doc__) == ("open", False)
        pickled = pickle.dumps(os.path.getsize)
    assert pickle.loads(pickled) is os.path.getsize


def test_nested_blocks_threads_and_wraps(tree: str) -> None:
    def opens() -> bool:
        try:
            with open(f"{tree}/a.txt"):
                return True
        except OSError:
            return False

    patched = fsabs.patch("builtins")
    with patched:
        with patched:
            assert opens()
        assert opens()
        ended = threading.Event()

        def block() -> None:
            with patched:
                pass
            ended.set()

        threading.Thread(target=block).start()
        assert ended.wait(10)
        assert opens()
    assert not opens()
    original = builtins.open
    try:
        with fsabs.patch("builtins"):
            theirs = functools.wraps(builtins.open)(lambda *given, **named: original(*given, **named))
            builtins.open = theirs
        with fsabs.patch("builtins"):
            assert opens()
    finally:
        builtins.open = original


def test_generators_and_coroutines_are_patched_while_they_run(tree: str) -> None:
    def first() -> str:
        with open(f"{tree}/a.txt") as file:
            return file.readline()

    @fsabs.patch("builtins")
    def generated() -> Iterator[str]:
        yield first()

    @fsabs.patch("builtins")
    async def awaited() -> str:
        return first()

    @fsabs.patch("builtins")
    async def streamed() -> Any:
        yield first()

    async def all_of_them() -> list[str]:
        return [await awaited(), *[line async for line in streamed()]]

    assert [*generated(), *asyncio.run(all_of_them())] == ["one\n"] * 3
    with pytest.raises(FileNotFoundError):
        first()


def test_pandas_opens_what_is_its_own() -> None:
    fsspec.filesystem("memory").pipe_file("/own/x.csv", b"a\n1\n")
    with fsabs.patch("pandas"):
        assert pandas.read_csv("memory://own/x.csv").to_dict() == {"a": {0: 1}}
        assert pandas.read_csv("memory://own/x.csv", storage_options={"skip_instance_cache": True}).shape == (1, 1)
    with contextlib.closing(fsabs.Memory("own-pandas")):
        pass


def test_an_unknown_name_in_the_environment_is_one_line() -> None:
    environment = {**os.environ, "FSABS_PATCH": "nosuch,builtins", "PYTHONPATH": str(stores.ROOT)}
    code = "import fsabs, sys; print(fsabs.adapters.patch.applied(), 'fsabs.paths' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=50)
    assert done.stdout == "['builtins'] False\n"  # what opens URLs is loaded with the first one
    assert len(done.stderr.splitlines()) == 1
    assert "'nosuch' can't be patched" in done.stderr


def test_urls_of_web_servers_are_sent_as_they_are_written() -> None:
    asked: list[str] = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"hello")

        do_HEAD = do_GET  # noqa: N815 - of http.server

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            with fsabs.patch("builtins"):
                for path in ("/a%2Fb", "/d/?f=1", "/d/x?x=a%20b&y=/z", "/?q=a/b"):
                    asked.clear()
                    with open(f"http://127.0.0.1:{server.server_port}{path}", "rb") as file:
                        assert file.read() == b"hello"
                    assert set(asked) == {path}
        finally:
            server.shutdown()
