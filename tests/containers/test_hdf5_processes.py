"""Hdf5 in forked children, threads and pickles, and at the end of the interpreter."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest

from fsabs import Local
from fsabs.containers.hdf5 import Hdf5

from .forks import all_end_well, forked
from .hdf5files import BLOB, built, opened, tree
from .tarballs import contents


@pytest.fixture(params=["raw", "g/packed"])
def half_read(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    (tmp_path / "a.h5").write_bytes(built(tree))
    hdf5 = Hdf5(Local(tmp_path), "a.h5")
    file = hdf5.open(request.param, "rb")
    assert file.read(100_000) == BLOB[:100_000]
    return HalfRead(hdf5, file)


class HalfRead(NamedTuple):
    """A file of which 100,000 bytes have been read."""

    hdf5: Hdf5
    file: Any


def test_half_read_files_go_on_in_parent_and_children_at_once(half_read: HalfRead) -> None:
    inherited = half_read.hdf5.dataset("g/packed")

    def goes_on() -> bool:
        right = half_read.file.read() == BLOB[100_000:]
        right = right and half_read.hdf5.read_bytes("g/text") == "héllo".encode()
        return right and inherited[:100].tobytes() == BLOB[:100]

    children = [forked(goes_on) for _ in range(2)]
    assert goes_on()
    assert all_end_well(*children)


def test_pickles(half_read: HalfRead) -> None:
    with pickle.loads(pickle.dumps(half_read.file)) as twin:
        assert twin.read() == BLOB[100_000:]
    assert half_read.file.read() == BLOB[100_000:]
    assert contents(pickle.loads(pickle.dumps(half_read.hdf5.subfs("g")))) == {
        "packed": BLOB,
        "sub/empty": b"",
        "text": "héllo".encode(),
    }


def test_a_fork_while_threads_read() -> None:
    hdf5 = opened(tree)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            hdf5.read_bytes("g/packed")

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(15):
            assert all_end_well(forked(lambda: hdf5.read_bytes("g/packed") == hdf5.read_bytes("raw") == BLOB))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_threads_read() -> None:
    hdf5 = opened(tree)
    wrong: list[int] = []

    def read(seed: int) -> None:
        order = random.Random(seed)
        for _ in range(30):
            with hdf5.open(order.choice(["raw", "g/packed"]), "rb") as file:
                file.seek(offset := order.randrange(300_000))
                if file.read(5000) != BLOB[offset : offset + 5000]:
                    wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


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


@pytest.mark.parametrize("how", ["leave", "close", "fork", "scarce"])
def test_the_interpreter_ends_well_with_files_open(how: str, tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(built(tree))
    ended = subprocess.run([sys.executable, "-c", END, tmp_path, how], capture_output=True, text=True, timeout=50)
    lost = f"fsabs: never closed, so not written: file://{tmp_path}/b.h5\n" if how == "leave" else ""
    assert (ended.returncode, ended.stderr) == (5, lost)
    many = {f"y{number}": b"2" for number in range(1000)}
    written = {"leave": None, "close": {"x": b"1"}, "fork": {"x": b"1", "y": b"2"}, "scarce": {"x": b"1", **many}}[how]
    if written is None:
        assert os.listdir(tmp_path) == ["a.h5"]
    else:
        assert contents(Local(tmp_path).open_container("b.h5")) == written


def test_an_h5py_object_outlives_the_fs() -> None:
    dataset = opened(tree).dataset("raw")
    assert dataset[:5].tobytes() == BLOB[:5]


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

    for _ in range(10):
        assert all_end_well(forked(read_together))
