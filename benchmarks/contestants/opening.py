"""Opening an archive, each time in a new process: `python -m benchmarks.contestants.opening WITH PATH NAME` is one."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import Run, library


def _again(how: str, path: str, name: str, *, forget: bool) -> dict[str, float]:
    """One process."""
    kept = Path(os.environ["FSABS_CACHE_DIR"])
    if forget:
        shutil.rmtree(kept, ignore_errors=True)
    command = [sys.executable, "-m", "benchmarks.contestants.opening", how, path, name]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    figures: dict[str, float] = json.loads(text)
    return figures


def fsabs_mapped(path: str, name: str) -> Run:
    """With the index that an earlier process has kept."""
    os.environ["FSABS_CACHE_DIR"] += "-mapped"
    return functools.partial(_again, "mapped", path, name, forget=False)


def fsabs_first(path: str, name: str) -> Run:
    """With nothing kept."""
    os.environ["FSABS_CACHE_DIR"] += "-first"
    return functools.partial(_again, "fsabs", path, name, forget=True)


def zipfile(path: str, name: str) -> Run:
    """The standard library's."""
    return functools.partial(_again, "zipfile", path, name, forget=False)


# ---- in the new process


def memory() -> tuple[float, float]:
    """Bytes: private to this process and written to, and the peak of what was resident."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    private = sum(int(size) for size in re.findall(r"^Private_Dirty:\s+(\d+) kB", rollup, re.MULTILINE))
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return private * 1024.0, int(found[1]) * 1024.0 if found else 0.0


def open_it(how: str, path: str, name: str) -> object:
    """Open, and find a member; what is open."""
    if how == "zipfile":
        archive = library("zipfile").ZipFile(path)
        archive.getinfo(name)
        return archive
    fs = library("fsabs").from_url(path)
    if not fs.exists(name):
        raise RuntimeError(f"{name} is not found")
    return fs


def pay_for_imports(how: str) -> None:
    """With a small archive; a mapped index needs fewer modules than one that is made, NumPy not among them."""
    with tempfile.TemporaryDirectory() as folder:
        if how == "mapped":
            library("fsabs.containers.zip")
            library("fsabs").from_url(folder).close()
            return
        small = Path(folder, "small.zip")
        with library("zipfile").ZipFile(small, "w") as archive:
            archive.writestr("a", b"")
        open_it(how, str(small), "a")


def main(how: str, path: str, name: str) -> None:
    """Measure opening `path`, the imports being paid for."""
    pay_for_imports(how)
    before, peak = memory()
    start = time.perf_counter()
    opened = open_it(how, path, name)
    seconds = time.perf_counter() - start
    private, highest = memory()
    figures = {"seconds": seconds, "private": private, "grown": private - before, "peak": highest - peak}
    sys.stdout.write(json.dumps(figures))
    del opened


if __name__ == "__main__":
    main(*sys.argv[1:])
