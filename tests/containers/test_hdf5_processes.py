"""Hdf5 in forked children, threads and pickles, and at the end of the interpreter."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest

from fsabs import Local
from fsabs.containers.hdf5 import Hdf5

from .forks import all_end_well, forked
from .hdf5files import BLOB, built, opened, tree
from .tarballs import contents


def test_half_read_files_go_on_in_parent_children_and_pickles(tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(built(tree))
    hdf5 = Hdf5(Local(tmp_path), "a.h5")
    files = [hdf5.open(name, "rb") for name in ("raw", "g/packed")]
    assert [file.read(100_000) for file in files] == [BLOB[:100_000]] * 2
    inherited = hdf5.dataset("g/packed")
    copies, copy = pickle.loads(pickle.dumps((files, hdf5.subfs("g"))))

    def goes_on() -> bool:
        right = [file.read() for file in files] == [BLOB[100_000:]] * 2
        right = right and hdf5.read_bytes("g/text") == "héllo".encode()
        return right and inherited[:100].tobytes() == BLOB[:100]

    children = [forked(goes_on) for _ in range(2)]
    assert goes_on()
    assert all_end_well(*children)
    assert [file.read() for file in copies] == [BLOB[100_000:]] * 2
    assert contents(copy) == {"packed": BLOB, "sub/empty": b"", "text": "héllo".encode()}
    outlives_its_fs = opened(tree).dataset("raw")
    assert outlives_its_fs[:5].tobytes() == BLOB[:5]


END = """
import os, resource, sys
from fsabs import Local
fs = Local(sys.argv[1])
read = fs.open_container("a.h5")
data = read.dataset("raw")[:3]
written = fs.open_container("b.h5", "w")
written.write_bytes("x", b"1")
if sys.argv[2] == "fork":
    pid = os.fork()
    if pid == 0:
        read.read_bytes("g/packed")
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    written.write_bytes("y", b"2")
if sys.argv[2] == "scarce":  # the child has no descriptor left when it has to put its copy aside
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    ready, go = os.pipe()
    held = []
    try:
        while True:
            held.append(os.dup(0))
    except OSError:
        pass
    pid = os.fork()
    if pid == 0:
        os.read(ready, 1)
        sys.exit(7)
    for fd in held:
        os.close(fd)
    for number in range(1000):
        written.write_bytes(f"y{number}", b"2")
    os.write(go, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
if sys.argv[2] != "leave":
    written.close()
del fs
sys.exit(5)
"""


@pytest.mark.parametrize("how", ["leave", "fork", "scarce"])
def test_the_interpreter_ends_well_with_files_open(how: str, tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(built(tree))
    ended = subprocess.run([sys.executable, "-c", END, tmp_path, how], capture_output=True, text=True, timeout=50)
    lost = f"fsabs: never closed, so not written: file://{tmp_path}/b.h5\n" if how == "leave" else ""
    assert (ended.returncode, ended.stderr) == (5, lost)
    many = {f"y{number}": b"2" for number in range(1000)}
    written = {"leave": None, "fork": {"x": b"1", "y": b"2"}, "scarce": {"x": b"1", **many}}[how]
    if written is None:
        assert os.listdir(tmp_path) == ["a.h5"]
    else:
        assert contents(Local(tmp_path).open_container("b.h5")) == written


def test_a_file_in_a_dataset_of_another_in_threads_of_a_new_process() -> None:
    inner = built(tree)

    def build(file: h5py.File) -> None:
        file.create_dataset("x", data=np.frombuffer(BLOB, "u1"), chunks=(5000,), compression="gzip")
        file.create_dataset("i.h5", data=np.frombuffer(inner, "u1"), chunks=(5000,), compression="gzip")

    outer = opened(build)
    nested = Hdf5(outer, "i.h5")

    def read_together() -> bool:
        reads = [(outer, "x"), (nested, "g/packed"), (outer, "x"), (nested, "raw")]
        right: list[bool] = []
        together = threading.Barrier(len(reads))

        def read(fs: Hdf5, name: str) -> None:
            together.wait()
            right.append(fs.read_bytes(name) == BLOB)

        threads = [threading.Thread(target=read, args=one) for one in reads]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return right == [True] * len(reads)

    for _ in range(4):
        assert all_end_well(forked(read_together))
