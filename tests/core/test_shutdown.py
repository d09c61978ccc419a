"""What is still open when the interpreter ends is freed without a word, after the modules have lost their names."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

SCRIPT = """
import sys
import warnings

import fsabs

warnings.simplefilter("ignore", RuntimeWarning)  # that of a cache around local files
folder = sys.argv[1]
fs = fsabs.Local(folder)
fs.write_bytes("a", bytes(100_000))
fs.write_bytes("b", b"line\\n" * 100_000)
open_things = []
for name in ("c.zip", "c.tar", "c.tar.gz", "c.h5"):
    with fs.open_container(name, "w") as container:
        container.write_bytes("member", bytes(10_000))
    open_things.append(fs.open_container(name))
    open_things.append(open_things[-1].open("member", "rb"))
    open_things.append(fs.open_container("new" + name, "w"))
    open_things.append(open_things[-1].open("x", "wb"))
    open_things[-1].write(bytes(1000))
open_things += [fs.open("b", mode) for mode in ("rb", "r", "wb", "w", "ab", "a", "r+b", "r+")]
for file in open_things[-2:]:
    file.write(b"B" if "b" in file.mode else "B")
open_things[-8].fileno()
for file in open_things[-8:-6]:
    file.readline()
open_things += [fs.open("new", "wb"), fs.open("log", "ab"), fs.list(), fs.walk()]
next(open_things[-2])
next(open_things[-1])
open_things += [fs.subfs(""), fsabs.Memory("end"), fsabs.from_url(folder, cache=folder + "-cache")]
open_things.append(fsabs.Memory("end").open("x", "wb"))
open_things.append(open_things[-2].open("b", "rb"))
open_things[-1].read(10)
# The names of `sys` that begin with one underscore go after those of all other modules, and before stderr.
sys._open_things = open_things
"""
JOB = """
import sys

import fsabs.core.process
import csv  # loaded after that, and before what the job needs: modules lose their names in the opposite order

from fsabs.dispatch import TaskDispatcher

csv.job = TaskDispatcher.create(sys.argv[1], training={"a": (0, 10)}, records_per_task=10)
csv.job.get("worker")
sys._modules = list(sys.modules.values())  # they lose their names one by one
"""
# Threads that read ahead don't run any more when what is half read is freed.
READER = """
import functools

from fsabs.readers import paddle

instances = functools.partial(iter, range(1000))
half_read = [paddle.buffered(instances, 4)(), *(paddle.xmap_readers(abs, instances, 2, 4, o)() for o in (True, False))]
for reader in half_read:
    next(reader)
"""


def said(script: str, *arguments: str) -> list[str]:
    """Run a program; return the lines that it wrote to standard error."""
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr.splitlines()


def test_what_is_open_at_the_end_is_freed_silently(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    lines = said(SCRIPT, str(folder))
    assert [line for line in lines if not line.startswith("fsabs: never closed, so not written: ")] == []
    assert len(lines) == len(set(lines)) + 1, "each file once; one was opened twice"
    assert (folder / "b").read_bytes()[:5] == b"Bine\n"  # what was written in place is there
    assert {path.name for path in folder.iterdir()} == {"a", "b", "c.zip", "c.tar", "c.tar.gz", "c.h5", "log"}


def test_jobs_and_threads_that_read_ahead_are_freed_silently(tmp_path: Path) -> None:
    assert said(JOB, f"sqlite:///{tmp_path}/job.db") == []
    assert said(READER) == []
