"""Small uses of paths in a zip in a zip: the results are those on the local disk, or an error says what to write."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

import fsabs

LIBRARIES = (
    *("builtins", "os", "shutil", "glob", "pathlib"),
    *("numpy", "PIL", "cv2", "imageio", "torch", "pandas", "h5py", "safetensors", "pyarrow", "soundfile"),
)
FILES = {"a.txt": b"one\ntwo\n", "d/t.csv": b"a,b\n1,2\n3,4\n", "d/e%20f.txt": b"deep", "x.bin": bytes(range(64))}
SETUP = """
import bz2, codecs, csv, fileinput, filecmp, fnmatch, glob, gzip, hashlib, io, json, linecache, lzma, mmap, os, pathlib
import pickle, shutil, stat, tarfile, tempfile, tokenize, zipfile
import numpy, pandas, safetensors, torch
from pathlib import Path
J = lambda *names: "/".join((ROOT, *names))
P = lambda *names: Path(ROOT, *names)
"""
USES = """
os.path.join(P(), "a.txt") == J("a.txt")
open(os.path.join(P("d"), "e%20f.txt")).read()
[open(os.path.join(P("d"), name)).read() for name in sorted(os.listdir(P("d")))]
[(P("d") / name).read_text() for name in sorted(os.listdir(P("d")))]
[open(entry).read() for entry in sorted(os.scandir(P("d")), key=lambda entry: entry.name)]
[open(entry.path).read() for entry in sorted(os.scandir(J("d")), key=lambda entry: entry.name)]
[os.path.isfile(entry) for entry in os.scandir(ROOT)].count(True)
[os.stat(entry).st_size for entry in sorted(os.scandir(J("d")), key=lambda entry: entry.name)]
os.path.splitext(P("a.txt"))[1], os.path.basename(P("d", "t.csv")), os.path.dirname(P("d", "t.csv")) == J("d")
sorted(len(open(name).read()) for name in glob.glob(glob.escape(str(P("d"))) + "/*"))
sorted(len(open(name).read()) for name in glob.glob(os.path.join(P(), "d", "*")))
sorted(len(path.read_text()) for path in P("d").glob("*"))
[len(open(os.path.join(top, name)).read()) for top, _, names in os.walk(P("d")) for name in sorted(names)]
os.access(J("a.txt"), os.R_OK), os.access(P("a.txt"), os.F_OK), os.access(J("none"), os.R_OK)
os.lstat(J("a.txt")).st_size, os.lstat(P("d")).st_mode & 0o170000 == stat.S_IFDIR
os.lstat(J("none"))
os.path.isabs(J("a.txt")), os.path.isabs(P())
os.path.exists(os.path.abspath(J("a.txt"))), os.path.exists(os.path.realpath(P("d")))
open(os.path.normpath(J("d", "..", "a.txt"))).read()
os.path.abspath(P("a.txt")) == os.path.abspath(J("a.txt"))
os.path.relpath(J("d", "t.csv"), ROOT), os.path.relpath(P("d", "t.csv"), P())
os.path.samefile(J("a.txt"), P("a.txt")), os.path.samefile(J("a.txt"), J("x.bin"))
os.path.islink(J("a.txt")), os.path.ismount(J("d"))
os.path.getsize(P("a.txt"))
os.fspath(P("a.txt")) == J("a.txt")
os.open(J("a.txt"), os.O_RDONLY) > 2
os.chdir(P("d"))
os.readlink(J("a.txt"))
os.statvfs(J("a.txt")).f_bsize > 0
tarfile.open(J("a.txt"))
tarfile.open(J("a.txt"), "r|")
zipfile.is_zipfile(J("a.txt")), tarfile.is_tarfile(J("a.txt"))
bz2.open(J("a.txt")).read()
gzip.open(P("a.txt")).read()
lzma.open(J("a.txt")).read()
tokenize.open(J("a.txt")).read()
linecache.getline(J("a.txt"), 2)
codecs.open(J("a.txt"), encoding="utf-8").read()
list(fileinput.input([J("a.txt")]))
filecmp.cmp(J("a.txt"), P("a.txt"), shallow=False)
hashlib.file_digest(open(P("a.txt"), "rb"), "md5").hexdigest()
mmap.mmap(open(J("a.txt"), "rb").fileno(), 0, access=mmap.ACCESS_READ)[:3]
numpy.memmap(J("x.bin"), "u1", "r").tolist()
numpy.load(J("x.bin"), mmap_mode="r")
numpy.fromfile(P("x.bin"), "u1").tolist()
open(shutil.copy(P("a.txt"), tempfile.mkdtemp())).read()
open(shutil.copyfile(J("a.txt"), os.path.join(tempfile.mkdtemp(), "x"))).read()
io.open(P("a.txt"), "rb").read()
pandas.read_csv(P("d", "t.csv")).to_dict()
list(csv.reader(open(P("d", "t.csv"), newline="")))
json.load(open(P("a.txt")))
pickle.load(P("a.txt").open("rb"))
fnmatch.filter(os.listdir(J("d")), "*.csv")
Path(os.path.join(ROOT, "d")).joinpath("t.csv").stat().st_size
Path(P("a.txt")).read_bytes() == (P() / "a.txt").read_bytes()
sorted(path.relative_to(P()).as_posix() for path in P().rglob("*.csv"))
P("a.txt").with_suffix(".csv").exists(), P("d").parent == P(), P("a.txt").is_file()
str(P("d", "t.csv")).replace(str(P()), "") + str(P("d", "t.csv")).rsplit(".", 1)[0][-1]
torch.load(P("a.txt"))
""".strip().splitlines()


def _run(use: str, root: str) -> Any:
    """Return the result of a use, or its exception."""
    names: dict[str, Any] = {"ROOT": root}
    exec(SETUP, names)
    try:
        return eval(use, names)
    except Exception as exc:
        return exc


@pytest.mark.filterwarnings("ignore")
def test_each_use_is_right_or_says_what_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pfio.ini").write_text(f"[corp]\nscheme = file\nprefix = {tmp_path}\n")
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "pfio.ini"))
    with zipfile.ZipFile(tmp_path / "inner.zip", "w") as archive:
        for name, data in FILES.items():
            (tmp_path / "local" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "local" / name).write_bytes(data)
            archive.writestr(name, data)
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as archive:
        archive.write(tmp_path / "inner.zip", "in/inner.zip")
    wrong = []
    for use in USES:
        expected = _run(use, str(tmp_path / "local"))
        os.chdir(tmp_path)
        with fsabs.patch(*LIBRARIES):
            found = _run(use, "corp:///outer.zip/in/inner.zip")
        is_refused = isinstance(found, OSError) and "as_local" in str(found)
        is_same = type(found) is type(expected) if isinstance(expected, Exception) else found == expected
        if not (is_same or is_refused):
            wrong.append(f"{use}: {found!r}, not {expected!r}")
    assert not wrong, "\n".join(wrong)
