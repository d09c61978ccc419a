"""Patched libraries open URLs, and leave everything else as it was; results are those of local files."""

from __future__ import annotations

import builtins
import glob
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import h5py
import imageio.v3
import numpy
import pandas
import pytest
import soundfile
import torch
from PIL import Image

import fsabs
from fsabs.adapters.patch import applied
from fsabs.testing import Fault, FaultyFS, Raise
from tests.adapters import stores

ALL = ("PIL", "cv2", "h5py", "imageio", "numpy", "pandas", "soundfile", "torch")
PICTURE = numpy.random.default_rng(1).integers(0, 255, (24, 32, 3), dtype=numpy.uint8)
TABLE = pandas.DataFrame({"a": range(5), "b": list("abcde")})


@pytest.fixture(autouse=True)
def _unpatched() -> Iterator[None]:
    yield
    fsabs.unpatch()
    assert not hasattr(cv2.imread, "__fsabs_original__")


@pytest.fixture(params=["local", "corp", "zip on s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty directory, or an empty zip, of each kind of store."""
    with stores.opened(request.param, request, tmp_path) as url:
        stores.fill(url, {".keep": b""})
        yield url


Pair = tuple[Callable[[str], Any], Callable[[str], Any]]


def _picture(path: Any, *flags: int) -> Any:
    return cv2.imread(path, *flags)


def _npz(path: str) -> Any:
    with numpy.load(path) as file:
        return file["x"].tolist()


def _h5(path: str) -> Any:
    with h5py.File(path, "r") as file:
        return file["x"][:].tolist()


def _write_h5(path: str) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = numpy.arange(5)


PAIRS: dict[str, Pair] = {
    "a.png": (lambda p: cv2.imwrite(p, PICTURE), lambda p: _picture(p).tolist()),
    "b.jpg": (lambda p: cv2.imwrite(p, PICTURE), lambda p: _picture(p, cv2.IMREAD_GRAYSCALE).tolist()),
    "c.tiff": (lambda p: cv2.imwritemulti(p, [PICTURE] * 2), lambda p: [x.tolist() for x in cv2.imreadmulti(p)[1]]),
    "f.jpg": (lambda p: Image.fromarray(PICTURE).save(p), lambda p: numpy.asarray(Image.open(p)).tolist()),
    "g.tiff": (lambda p: Image.fromarray(PICTURE).save(p), lambda p: numpy.asarray(Image.open(p)).tolist()),
    "h.npy": (lambda p: numpy.save(p, numpy.arange(9)), lambda p: numpy.load(p).tolist()),
    "i.npz": (lambda p: numpy.savez(p, x=numpy.arange(9)), _npz),
    "j.txt.gz": (lambda p: numpy.savetxt(p, numpy.arange(9)), lambda p: numpy.loadtxt(p).tolist()),
    "k.bin": (lambda p: numpy.savez_compressed(p, x=1), lambda p: numpy.fromfile(p + ".npz", "u1").size > 100),
    "l.h5": (_write_h5, _h5),
    "m.csv": (lambda p: TABLE.to_csv(p, index=False), lambda p: pandas.read_csv(p).to_dict()),
    "n.csv.gz": (lambda p: TABLE.to_csv(p, index=False), lambda p: pandas.read_csv(p).to_dict()),
    "o.parquet": (lambda p: TABLE.to_parquet(p), lambda p: pandas.read_parquet(p).to_dict()),
    "p.json": (lambda p: TABLE.to_json(p), lambda p: pandas.read_json(p).to_dict()),
    "q.hdf": (lambda p: TABLE.to_hdf(p, key="k"), lambda p: pandas.read_hdf(p, "k").to_dict()),
    "r.pkl": (lambda p: TABLE.to_pickle(p), lambda p: pandas.read_pickle(p).to_dict()),
    "s.pt": (lambda p: torch.save({"x": torch.arange(4)}, p), lambda p: torch.load(p)["x"].tolist()),
    "t.pt": (lambda p: torch.save({"x": torch.arange(4)}, p), lambda p: torch.load(p, mmap=True)["x"].tolist()),
    "u.wav": (lambda p: soundfile.write(p, numpy.zeros((9, 2)), 8000), lambda p: soundfile.read(p)[0].tolist()),
    "v.png": (lambda p: imageio.v3.imwrite(p, PICTURE), lambda p: imageio.v3.imread(p).tolist()),
}


def test_results_are_those_of_local_files(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(copies))
    in_zip = url.endswith(".zip")
    with fsabs.patch(*ALL):
        for name, (write, _) in PAIRS.items():
            write(str(tmp_path / name))
            if not in_zip:
                write(f"{url}/{name}")
        if in_zip:
            with pytest.raises(io.UnsupportedOperation, match="into a container"):
                numpy.save(f"{url}/x.npy", PICTURE)
            with fsabs.from_url(url, mode="a") as archive:
                fsabs.from_url(tmp_path).copy_tree("", "", archive)
        for name, (_, read) in PAIRS.items():
            if in_zip and name.startswith("l."):
                continue  # `l.h5` in a path is a container to walk into, as everywhere
            assert read(f"{url}/{name}") == read(str(tmp_path / name)), name
    assert not os.listdir(copies)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[str]:
    """A directory in memory."""
    with stores.opened("memory", None, tmp_path) as url:
        stores.fill(url, {"a.txt": b"text", "d/b.txt": b"x", "d/e f.txt": b"y"})
        yield url


@pytest.mark.quick
def test_a_path_of_fsabs_is_opened(tree: str, tmp_path: Path) -> None:
    with fsabs.patch("numpy", "cv2"), fsabs.from_url(tree) as fs:
        numpy.save(fsabs.Path("x.npy", fs=fs), numpy.arange(3))
        assert numpy.load(fsabs.Path(tree) / "x.npy").tolist() == [0, 1, 2]
        cv2.imwrite(fsabs.Path("x.png", fs=fs), PICTURE)
        assert (_picture(fsabs.Path(tree, "x.png")) == PICTURE).all()
        numpy.save(tmp_path / "x.npy", numpy.arange(3))
        assert numpy.load(fsabs.Path(tmp_path) / "x.npy", mmap_mode="r").tolist() == [0, 1, 2]


@pytest.mark.quick
def test_errors_are_ours_or_the_librarys(tree: str, tmp_path: Path) -> None:
    with fsabs.patch("cv2", "numpy", "PIL", "pandas"):
        with pytest.warns(RuntimeWarning, match=r"cv2.imread returns None: .*none.png") as caught:
            assert cv2.imread(f"{tree}/none.png") is None
        assert caught[0].filename == __file__
        assert cv2.imread(f"{tree}/a.txt") is None
        for function in (numpy.load, Image.open, pandas.read_csv, pandas.read_hdf):
            with pytest.raises(FileNotFoundError, match="none"):
                function(f"{tree}/none.x")
            with pytest.raises(FileNotFoundError, match="none"):
                function(str(tmp_path / "none.x"))
        with pytest.raises(OSError, match="as_local"):
            numpy.load(f"{tree}/x.npy", mmap_mode="r")
        with pytest.raises(OSError, match="as_local"):
            numpy.memmap(f"{tree}/x.npy")
        with pytest.raises(ValueError, match="unknown file extension"):
            Image.fromarray(PICTURE).save(f"{tree}/x.none")
        with pytest.raises(FileNotFoundError):
            numpy.load("nonesuch://x/y.npy")  # no scheme of ours: the original's error


@pytest.mark.quick
def test_what_fails_leaves_nothing(tree: str) -> None:
    before = sorted(fsabs.Path(tree).rglob("*"))
    with fsabs.patch("h5py", "pandas", "torch", "soundfile"):
        with pytest.raises(KeyError), h5py.File(f"{tree}/x.dat", "w") as file:
            file["x"] = 1
            raise KeyError
        with pytest.raises(KeyError), soundfile.SoundFile(f"{tree}/x.wav", "w", 8000, 1):
            raise KeyError
        with pytest.raises(Exception, match="pickle"):
            torch.save({"x": lambda: None}, f"{tree}/x.pt")
        with pytest.raises(TypeError):
            TABLE.to_csv(f"{tree}/x.csv", nonesuch=1)
    assert sorted(fsabs.Path(tree).rglob("*")) == before


@pytest.mark.quick
def test_files_are_added_to(tree: str) -> None:
    with fsabs.patch("h5py", "pandas"):
        for key in ("x", "y"):
            with h5py.File(f"{tree}/x.dat", "a") as file:
                file[key] = 1
        with h5py.File(f"{tree}/x.dat") as file:
            assert list(file) == ["x", "y"]
        with pytest.raises(FileExistsError):
            h5py.File(f"{tree}/x.dat", "x")
        for header in (True, False):
            TABLE.to_csv(f"{tree}/x.csv", mode="w" if header else "a", header=header, index=False)
        assert len(pandas.read_csv(f"{tree}/x.csv")) == 10


@pytest.mark.quick
def test_pythons_own(tree: str, tmp_path: Path) -> None:
    assert not os.path.exists(f"{tree}/a.txt")
    with fsabs.patch("builtins", "os", "glob", "pathlib"):
        with open(f"{tree}/new.txt", "w", encoding="utf-8") as file:
            file.write("grüße")
        with io.open(f"{tree}/new.txt", encoding="utf-8") as file:  # noqa: UP020 - the name is what is tested
            assert file.read() == "grüße"
        assert (os.path.lexists(f"{tree}/d"), os.path.lexists(f"{tree}/none")) == (True, False)
        with os.scandir(f"{tree}/d") as entries:
            assert sorted((entry.name, entry.is_file()) for entry in entries) == [("b.txt", True), ("e f.txt", True)]
        walked = [(at, dirs, sorted(files)) for at, dirs, files in os.walk(tree)]
        assert walked[1] == (f"{tree}/d", [], ["b.txt", "e f.txt"])
        assert glob.glob(f"{tree}/d/?.txt") == [f"{tree}/d/b.txt"]
        assert list(glob.iglob(f"{tree}/**/e*", recursive=True)) == [f"{tree}/d/e f.txt"]
        assert glob.glob(f"{tree}/none/*") == []
        with pytest.raises(ValueError, match="include_hidden is for local files"):
            glob.glob(f"{tree}/*", include_hidden=True)
        assert pathlib.Path(tree, "a.txt").read_text() == "text"
        assert type(pathlib.Path(tmp_path)) is pathlib.PosixPath
        with pytest.raises(FileNotFoundError), open(tmp_path / "none"):
            pass
        with pytest.raises(FileNotFoundError):
            os.listdir(f"{tree}/none")
    assert builtins.open is io.open
    assert not os.path.exists(f"{tree}/a.txt")


@pytest.mark.quick
def test_for_good_in_a_block_and_as_a_decorator(tree: str) -> None:
    original = numpy.load
    patched = fsabs.patch("numpy")
    assert numpy.load is not original
    with fsabs.patch("numpy"), fsabs.patch("numpy", "PIL"):
        assert applied() == ["PIL", "numpy"]
    assert applied() == ["numpy"]
    patched.undo()
    patched.undo()
    assert numpy.load is original

    @fsabs.patch("numpy")
    def inside() -> bool:
        return numpy.load is original

    assert numpy.load is original
    assert inside() is False
    assert numpy.load is original
    for _ in range(3):
        fsabs.patch("numpy", "torch")
    fsabs.unpatch("numpy")
    assert (numpy.load is original, applied()) == (True, ["torch"])
    fsabs.unpatch()


@pytest.mark.quick
def test_everything_else_is_untouched(tmp_path: Path) -> None:
    buffer, file_class = io.BytesIO(), h5py.File
    numpy.save(buffer, numpy.arange(3))
    with fsabs.patch(*ALL):
        buffer.seek(0)
        assert numpy.load(buffer).tolist() == [0, 1, 2]
        cv2.imwrite(str(tmp_path / "x.png"), PICTURE)
        assert (_picture(str(tmp_path / "x.png")) == PICTURE).all()
        assert h5py.File is file_class
        assert pandas.read_json(io.StringIO('{"a": {"0": "s3://x"}}')).shape == (1, 1)
        with pytest.raises(TypeError):
            numpy.load()  # type: ignore[call-arg]
        assert numpy.load.__name__ == "load"


@pytest.mark.quick
def test_a_patch_of_others_above_ours_stays(tree: str) -> None:
    original = numpy.load
    with fsabs.patch("numpy"):
        ours = numpy.load
        numpy.load = lambda *args, **kwargs: ours(*args, **kwargs)
        theirs = numpy.load
    try:
        assert numpy.load is theirs
        with pytest.raises(FileNotFoundError):
            numpy.load(f"{tree}/a.txt")  # the original, which knows no URL
    finally:
        numpy.load = original


@pytest.mark.quick
def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="cv2, glob"):
        fsabs.patch("cv3")
    with pytest.raises(TypeError, match="names of libraries"):
        fsabs.patch()
    monkeypatch.delitem(sys.modules, "PIL")
    monkeypatch.setattr(sys, "path", [])  # as where it is not installed
    with pytest.raises(fsabs.MissingDependencyError, match="pip install pillow"):
        fsabs.patch("PIL")
    assert applied() == []


LATER = """
import fsabs, os, sys, threading
fsabs.from_url("memory://later/x", create=True)
fsabs.patch("numpy", "PIL", "cv2", "h5py")
assert not {"numpy", "PIL", "cv2", "h5py"} & sys.modules.keys()
threads = [threading.Thread(target=__import__, args=(name,)) for name in ("numpy", "h5py", "PIL.Image")]
[thread.start() for thread in threads], [thread.join() for thread in threads]
import numpy, cv2, h5py
from PIL import Image
numpy.save("memory://later/x/a.npy", numpy.arange(3))
assert numpy.load("memory://later/x/a.npy").tolist() == [0, 1, 2]
cv2.imwrite("memory://later/x/a.png", numpy.zeros((3, 3, 3), "u1"))
assert cv2.imread("memory://later/x/a.png").shape == (3, 3, 3) and Image.open("memory://later/x/a.png").size == (3, 3)
pid = os.fork()
if not pid:
    os._exit(int(numpy.load("memory://later/x/a.npy").sum()) != 3)
assert os.waitpid(pid, 0)[1] == 0
"""


def test_modules_that_are_imported_later() -> None:
    subprocess.run([sys.executable, "-c", LATER], check=True, timeout=60)


IN_A_BLOCK = """
import sys, fsabs
assert not {"cv2", "imageio"} & sys.modules.keys()
url = "memory://blocks/x"
fsabs.from_url(url, create=True)
for _ in range(3):
    with fsabs.patch("cv2", "imageio"):
        import cv2, imageio, imageio.v3, numpy
        picture = numpy.zeros((3, 4, 3), "u1")
        assert cv2.imwrite(url + "/a.png", picture) and cv2.imread(url + "/a.png").shape == (3, 4, 3)
        with fsabs.patch("cv2"):
            assert cv2.imwrite(url + "/b.png", picture)
        assert cv2.imread(url + "/b.png").shape == (3, 4, 3)
        imageio.mimwrite(url + "/b.gif", [picture])
        imageio.v3.imwrite(url + "/c.png", picture)
        assert len(imageio.mimread(url + "/b.gif")) == 1 and imageio.v2.imread(url + "/c.png").shape == (3, 4, 3)
    for function in (cv2.imread, imageio.mimread, imageio.v2.mimread, imageio.v3.imread):
        assert not hasattr(function, "__fsabs_patched__"), function
    assert cv2.imread(url + "/a.png") is None
"""


def test_a_library_that_is_imported_in_a_block_is_patched_by_the_next_ones() -> None:
    subprocess.run([sys.executable, "-c", IN_A_BLOCK], check=True, timeout=60)


SLOW = """
import sys, threading, fsabs
sys.path.insert(0, sys.argv[1])
entered, go_on = threading.Event(), threading.Event()
sys.entered, sys.go_on = entered, go_on
with fsabs.patch("soundfile"):
    importing = threading.Thread(target=__import__, args=("soundfile",), daemon=True)
    importing.start()
    assert entered.wait(20)
patching = threading.Thread(target=lambda: fsabs.patch("soundfile"), daemon=True)
patching.start()
patching.join(0.2)
go_on.set()
importing.join(10), patching.join(10)
assert not importing.is_alive() and not patching.is_alive()
import soundfile
try:
    soundfile.SoundFile("memory://none/x")
except FileNotFoundError:
    sys.exit(0)
"""


def test_a_module_that_is_being_imported_is_waited_for_by_both_threads(tmp_path: Path) -> None:
    (tmp_path / "soundfile.py").write_text(
        "import sys\nsys.entered.set()\nassert sys.go_on.wait(20)\n"
        "class SoundFile:\n    def __init__(self, file, mode='r'): pass\n"
        "    def close(self): pass\n    def __exit__(self, *exc): pass\n"
    )
    subprocess.run([sys.executable, "-c", SLOW, str(tmp_path)], check=True, timeout=60)


def test_links_are_copied_as_links_while_os_is_patched(tmp_path: Path) -> None:
    (source := tmp_path / "source").mkdir()
    (source / "link").symlink_to("nowhere")
    before = set(os.supports_fd), set(os.supports_follow_symlinks)
    with fsabs.patch("os"):
        assert {os.stat, os.listdir, os.scandir} <= os.supports_fd
        shutil.copytree(source, tmp_path / "copy", symlinks=True)
    assert (set(os.supports_fd), set(os.supports_follow_symlinks)) == before
    assert os.readlink(tmp_path / "copy/link") == "nowhere"


def test_a_driver_of_hdf5_reads_a_copy() -> None:
    url = "memory://drivers/x.h5"
    with fsabs.patch("h5py"):
        with h5py.File(url, "w") as file:
            file["a"] = [1, 2]
        for driver in ("core", "fileobj"):
            with h5py.File(url, "r", driver=driver) as file:
                assert (file.driver, list(file["a"])) == (driver, [1, 2])


@pytest.mark.quick
def test_a_copy_into_a_directory_has_the_name_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("d", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "100%25.txt").write_bytes(b"x")
    with fsabs.Memory("copies") as fs, fsabs.patch("shutil", "os"):
        fs.makedirs("d")
        target = shutil.copy("100%25.txt", fsabs.Path("d", fs=fs))
        assert (str(target), fs.read_bytes("d/100%25.txt")) == ("d/100%25.txt", b"x")
        assert not list((tmp_path / "d").iterdir())  # of the same name on the local disk
        fs.remove("d/100%25.txt")
        assert shutil.copy(tmp_path / "100%25.txt", "memory://copies/d") == "memory://copies/d/100%2525.txt"
        assert list(fs.list("d")) == ["100%25.txt"]
        assert shutil.copy("memory://copies/d/100%2525.txt", tmp_path / "out") == str(tmp_path / "out/100%25.txt")
        with os.scandir(fsabs.Path("d", fs=fs)) as entries:
            assert [(entry.name, entry.stat().st_size) for entry in entries] == [("100%25.txt", 1)]
        assert os.listdir(fsabs.Path("memory://copies/d")) == ["100%25.txt"]
        assert os.listdir("memory://copies/d") == ["100%2525.txt"]
        fs.write_bytes("d/a#b?.txt", b"xy")
        names = sorted(os.listdir("memory://copies/d"))
        assert [os.path.getsize(f"memory://copies/d/{name}") for name in names] == [1, 2]


def test_a_sound_file_of_mode_x_is_new(tmp_path: Path) -> None:
    (tmp_path / "x.wav").write_bytes(b"kept")
    for mode in ("x", "x+"):
        with fsabs.patch("soundfile"), pytest.raises(FileExistsError):
            soundfile.SoundFile((tmp_path / "x.wav").as_uri(), mode, 8000, 1)
    assert (tmp_path / "x.wav").read_bytes() == b"kept"


def test_a_file_is_not_copied_to_itself_by_its_url(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"kept")
    (tmp_path / "link").symlink_to(path)
    with fsabs.patch("shutil"):
        for source, target in ((path.as_uri(), path), (str(path), path.as_uri()), (path.as_uri(), tmp_path / "link")):
            with pytest.raises(shutil.SameFileError):
                shutil.copy(source, str(target))
    assert path.read_bytes() == b"kept"


def test_a_download_that_fails_leaves_the_local_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (target := tmp_path / "a#b?.zip").write_bytes(b"old")
    target.chmod(0o640)
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "d").mkdir()
    monkeypatch.chdir(tmp_path)
    with fsabs.Memory("downloads") as fs, fsabs.patch("shutil"):
        fs.write_bytes("big", bytes(5 << 20))
        fs.write_bytes("new", b"new")
        for copy, name in ((shutil.copyfile, target.name), (shutil.copy, "link"), (shutil.copy2, "d")):
            broken = FaultyFS(fs, Fault("read", Raise(ConnectionResetError("the network")), at=2))
            with pytest.raises(ConnectionResetError):
                copy(fsabs.Path("big", fs=broken), name)
        assert (target.read_bytes(), list((tmp_path / "d").iterdir())) == (b"old", [])
        assert sorted(os.listdir()) == ["a#b?.zip", "d", "link"]
        assert shutil.copy("memory://downloads/new", "link") == "link"
        assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"new", 0o640)
        assert (tmp_path / "link").is_symlink()
        with pytest.raises(FileNotFoundError, match="none"):
            shutil.copyfile("memory://downloads/new", "none/x")
        with pytest.raises(IsADirectoryError, match="d"):
            shutil.copyfile("memory://downloads/new", "d")
        shutil.copyfile("memory://downloads/new", b"bytes")
        assert Path("bytes").read_bytes() == b"new"
        shutil.copyfile("memory://downloads/new", os.devnull)
        assert not os.path.isfile(os.devnull)


DROPPED = """
import sys, weakref
weakref.finalize(weakref, int)  # the first in the process, before fsabs is imported
import fsabs, h5py, numpy, soundfile
url = sys.argv[1]
fsabs.patch("h5py", "soundfile")
def written(name):
    file = h5py.File(f"{url}/{name}.h5", "w")
    rows = file.create_dataset("x", data=[1, 2])
    rows[0] = 3
    sound = soundfile.SoundFile(f"{url}/{name}.wav", "w", 8000, 1)
    sound.write(numpy.zeros(9))
    return file, rows, sound
written("dropped")
assert len(list(fsabs.from_url(url).list())) == 2
at_exit = written("at_exit")
"""


def test_what_is_dropped_unclosed_is_kept(tmp_path: Path) -> None:
    """Also what is still open at the end of the interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", DROPPED, tmp_path.as_uri()], check=True, timeout=60, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("", "")
    for name in ("dropped", "at_exit"):
        with h5py.File(tmp_path / f"{name}.h5") as file:
            assert file["x"][:].tolist() == [3, 2]
        assert len(soundfile.read(tmp_path / f"{name}.wav")[0]) == 9


@pytest.mark.quick
def test_a_data_set_does_not_keep_its_file_open(tree: str) -> None:
    def rows() -> Any:
        return h5py.File(f"{tree}/x.dat", "w").create_dataset("x", data=[1, 2])

    with fsabs.patch("h5py"):
        kept = rows()
        with pytest.raises((RuntimeError, ValueError)):  # and is not lost in silence
            kept[0] = 3
        with h5py.File(f"{tree}/x.dat") as file:
            assert file["x"][:].tolist() == [1, 2]


def test_pandas_reads_what_it_has_written_by_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("b.csv").write_text("another\n1\n")
    with fsabs.Memory("pandas-names") as fs, fsabs.patch("pandas"):
        for place in (tmp_path.as_uri(), fsabs.Path(tmp_path.as_uri()), fsabs.Path("", fs=fs)):
            for name in ("a.csv", "a.csv.gz", "a.csv.zip", "A.CSV.BZ2", "a.pkl.xz", "a::b.csv", "a::b.pkl.gz"):
                path: Any = f"{place}/{name}" if isinstance(place, str) else place / name
                if "pkl" in name:
                    TABLE.to_pickle(path)
                    assert pandas.read_pickle(path).equals(TABLE), path
                else:
                    TABLE.to_csv(path, index=False)
                    assert pandas.read_csv(path).equals(TABLE), path
        assert [len(rows) for rows in pandas.read_csv(fsabs.Path("a.csv.gz", fs=fs), chunksize=3)] == [3, 2]
