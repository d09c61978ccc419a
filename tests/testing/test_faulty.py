"""FaultyFS: each effect on each operation, at the calls that it was asked for, wherever the FS goes."""

from __future__ import annotations

import errno
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsabs import FS, CorruptFileError, FileStat, StaleFileError
from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.testing import Delay, Fault, FaultyFS, Kill, Raise, Stale, Truncate
from fsabs.testing.children import forked, threaded

pytestmark = pytest.mark.quick

DATA = bytes(range(256)) * 1000
LOST = ConnectionResetError(errno.ECONNRESET, "connection lost")


def faulty(*faults: Fault) -> FaultyFS:
    inner = Memory()
    inner.makedirs("dir")
    for name in ("a.bin", "b.bin", "dir/c.bin"):
        inner.write_bytes(name, DATA)
    return FaultyFS(inner, *faults)


def outcomes(call: Callable[[], object], times: int) -> str:
    """One letter for each call: `x` for one that lost its connection, `t` for another error, `.` for none."""
    found = ""
    for _ in range(times):
        try:
            call()
            found += "."
        except OSError as exc:
            found += "x" if isinstance(exc, ConnectionResetError) else "t"
    return found


# ---- when


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({}, "xxxxxxxx"),
        ({"at": 1}, "x......."),
        ({"at": (2, 5)}, ".x..x..."),
        ({"every": 3}, "..x..x.."),
        ({"rate": 1.0}, "xxxxxxxx"),
    ],
)
def test_when_a_fault_comes(when: dict[str, Any], expected: str) -> None:
    fault = Fault("stat", Raise(LOST), **when)
    fs = faulty(fault)
    assert outcomes(lambda: fs.stat("a.bin"), 8) == expected
    assert (fs.injected, fs.met) == ({fault: expected.count("x")}, {fault: 8})


def test_a_rate_is_about_met_and_the_same_for_the_same_seed() -> None:
    def run(seed: int) -> str:
        fs = faulty(Fault("stat", Raise(LOST), rate=0.2, seed=seed))
        return outcomes(lambda: fs.stat("a.bin"), 1000)

    assert 140 < run(1).count("x") < 260
    assert run(1) == run(1) != run(2)


def test_a_path_selects_what_is_met_and_counted() -> None:
    fault = Fault("open", Raise(LOST), at=2, path="dir/*")
    fs = faulty(fault)
    assert outcomes(lambda: fs.read_bytes("a.bin"), 3) == "..."
    assert outcomes(lambda: fs.read_bytes("dir/c.bin"), 3) == ".x."
    assert fs.met == {fault: 3}


def test_faults_are_counted_apart_and_the_first_wins() -> None:
    first = Fault("stat", Raise(LOST), every=2)
    second = Fault("stat", Raise(TimeoutError(errno.ETIMEDOUT, "")), every=3)
    fs = faulty(first, second)
    assert outcomes(lambda: fs.stat("a.bin"), 6) == ".xtx.x"
    assert fs.injected == {first: 3, second: 2}


# ---- what


def _pread_many(fs: FaultyFS) -> list[bytes]:
    with fs.open("a.bin", "rb") as file:
        return file.raw.blob.pread_many([(1000, 0), (10, 5000)])


OPERATIONS: list[tuple[str, Callable[[FaultyFS], object]]] = [
    ("stat", lambda fs: fs.stat("a.bin")),
    ("stat", lambda fs: fs.exists("a.bin")),
    ("list", lambda fs: list(fs.list())),
    ("list", lambda fs: list(fs.list(recursive=True))),
    ("list", lambda fs: list(fs.glob("*"))),
    ("list", lambda fs: list(fs.walk())),
    ("open", lambda fs: fs.open("a.bin", "rb").close()),
    ("open", lambda fs: fs.read_bytes("a.bin")),
    ("open", lambda fs: list(fs.read_many(["a.bin", "b.bin"], concurrency=2))),
    ("open", lambda fs: fs.copy("a.bin", "new.bin")),
    ("read", lambda fs: fs.read_bytes("a.bin")),
    ("read", lambda fs: fs.open("a.bin", "rb").read(10)),
    ("read", lambda fs: fs.open("a.bin").read(1)),
    ("read", _pread_many),
    ("read", lambda fs: fs.copy("a.bin", "new.bin", Memory())),
    ("create", lambda fs: fs.open("new.bin", "wb")),
    ("create", lambda fs: fs.write_bytes("new.bin", b"x")),
    ("append", lambda fs: fs.open("a.bin", "ab")),
    ("write", lambda fs: fs.write_bytes("new.bin", DATA)),
    ("commit", lambda fs: fs.write_bytes("new.bin", DATA)),
    ("commit", lambda fs: fs.copy("a.bin", "new.bin")),
    ("mkdir", lambda fs: fs.mkdir("new")),
    ("mkdir", lambda fs: fs.makedirs("new/er")),
    ("rename", lambda fs: fs.rename("a.bin", "new.bin")),
    ("remove", lambda fs: fs.remove("a.bin")),
    ("remove", lambda fs: fs.remove("dir", recursive=True)),
]


def tree(fs: FS) -> list[tuple[FileStat, bytes]]:
    """All that is there."""
    found = fs.list("", recursive=True, detail=True)
    return [(stat, b"" if stat.directory else fs.read_bytes(stat.filename)) for stat in found]


@pytest.mark.parametrize(("operation", "call"), OPERATIONS)
def test_every_operation_may_raise(operation: Any, call: Callable[[FaultyFS], object]) -> None:
    fs = faulty(Fault(operation, Raise(LOST)))
    before = tree(fs.inner)
    with pytest.raises(ConnectionResetError, match="connection lost") as raised:
        call(fs)
    assert raised.value is not LOST, "each is an exception of its own"
    assert raised.value.filename.startswith("memory://"), "it is named as any other"
    assert raised.value.operation  # type: ignore[attr-defined]
    assert tree(fs.inner) == before, "nothing was done"
    assert LOST.filename is None, "the exception of the fault stays as it was"


@pytest.mark.parametrize(
    "call",
    [
        lambda fs: fs.read_bytes("a.bin"),
        lambda fs: fs.open("a.bin", "rb").read(),
        lambda fs: list(fs.read_many(["a.bin"])),
        _pread_many,
        lambda fs: fs.copy("a.bin", "new.bin", Memory()),
    ],
)
def test_a_read_is_short_or_stale(call: Callable[[FaultyFS], object]) -> None:
    with pytest.raises(CorruptFileError, match="100 bytes at offset 0 where"):
        call(faulty(Fault("read", Truncate(100))))
    with pytest.raises(StaleFileError):
        call(faulty(Fault("read", Stale())))


def test_a_file_that_was_cut_on_the_store() -> None:
    fs = faulty(Fault("open", Truncate(100)))
    assert fs.read_bytes("a.bin") == DATA[:100]
    with fs.open("a.bin", "rb") as file:
        assert file.read(150) == DATA[:100]


def test_another_version_than_there_was() -> None:
    fs = faulty(Fault("stat", Stale(), at=2), Fault("open", Stale(), at=2))
    version = fs.stat("a.bin").version
    assert fs.stat("a.bin").version == f"stale-{version}"
    assert fs.stat("a.bin").version == version
    with fs.open("a.bin", "rb") as first, fs.open("a.bin", "rb") as second:
        assert (first.raw.blob.version, second.raw.blob.version) == (version, f"stale-{version}")
        with pytest.raises(StaleFileError):
            pickle.loads(pickle.dumps(second))


def test_a_delay_passes_and_things_go_on() -> None:
    fs = faulty(Fault("read", Delay(0.05), at=(1, 2)), Fault("read", Raise(LOST), at=2))
    start = time.monotonic()
    assert fs.read_bytes("a.bin") == DATA
    with pytest.raises(ConnectionResetError):
        fs.read_bytes("a.bin")
    assert time.monotonic() - start >= 0.1


def test_a_connection_that_is_lost_in_the_middle_of_a_write() -> None:
    seen: list[bytes] = []

    class Seeing(Memory):
        def _create(self, key: str, exclusive: bool, *how: Any) -> Any:
            writer: Any = super()._create(key, exclusive, *how)
            writer.write = seen.append
            return writer

    fs = FaultyFS(Seeing(), Fault("write", Raise(LOST, after=1_234_567)))
    with pytest.raises(ConnectionResetError), fs.open("new.bin", "wb") as file:
        for _ in range(20):
            file.write(DATA)
    assert len(b"".join(seen)) == 1_234_567, "what comes before it reaches the store"
    assert not fs.exists("new.bin")
    fs.write_bytes("small.bin", DATA)


@pytest.mark.parametrize(("status", "expected"), [(None, -9), (7, 7)])
def test_a_process_that_ends_in_the_middle_of_a_write(tmp_path: Path, status: int | None, expected: int) -> None:
    fs = FaultyFS(Local(tmp_path), Fault("write", Kill(after=3_000_000, status=status)))
    pid = os.fork()
    if not pid:
        try:
            with fs.open("new.bin", "wb") as file:
                while True:
                    file.write(DATA)
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == expected
    assert list(fs.list()) == []


# ---- where it goes


def test_a_subfs_shares_the_faults() -> None:
    fault = Fault("stat", Raise(LOST), at=2)
    fs = faulty(fault)
    sub = fs.subfs("dir")
    fs.stat("a.bin")
    with pytest.raises(ConnectionResetError):
        sub.stat("c.bin")
    assert fs.injected == sub.injected == {fault: 1}


def test_threads_share_the_counts() -> None:
    fault = Fault("stat", Raise(LOST), every=10)
    fs = faulty(fault)
    found = threaded("a thread", [lambda: outcomes(lambda: fs.stat("a.bin"), 250)] * 8, 20)
    assert "".join(found).count("x") == 200
    assert (fs.injected, fs.met) == ({fault: 200}, {fault: 2000})


def test_pickles_and_forked_children_go_on_counting() -> None:
    fault = Fault("stat", Raise(LOST), at=3)
    fs = faulty(fault)
    assert outcomes(lambda: fs.stat("a.bin"), 2) == ".."
    again = pickle.loads(pickle.dumps(fs))
    assert outcomes(lambda: again.stat("a.bin"), 2) == "x."
    assert forked("a child", [lambda: outcomes(lambda: fs.stat("a.bin"), 2)], 20) == ["x."]
    assert (again.injected, fs.injected) == ({fault: 1}, {fault: 0})
    assert outcomes(lambda: fs.stat("a.bin"), 2) == "x."


def test_a_half_read_file_pickles_with_its_faults() -> None:
    fs = faulty(Fault("read", Raise(LOST), at=3))
    with fs.open("a.bin", "rb", 1000) as file:
        assert file.read(1000) == DATA[:1000]
        with pickle.loads(pickle.dumps(file)) as again:
            assert again.read(1000) == DATA[1000:2000]
            with pytest.raises(ConnectionResetError):
                again.read()


def test_local_files_have_no_way_round(tmp_path: Path) -> None:
    fs = FaultyFS(Local(tmp_path), Fault("open", Raise(LOST), at=3))
    fs.write_bytes("a.bin", DATA)
    with fs.open("a.bin", "rb") as file, pytest.raises(OSError, match="descriptor"):
        file.fileno()
    fs.open("a.bin", "r+b").close()
    with pytest.raises(ConnectionResetError):
        fs.open("a.bin", "r+b")


# ---- faults as such


def test_faults_are_values() -> None:
    fault = Fault("read", Raise(LOST), at=3)
    assert fault == Fault("read", Raise(ConnectionResetError(errno.ECONNRESET, "connection lost")), at=3)
    assert fault != Fault("read", Raise(LOST), at=4)
    assert len({fault, pickle.loads(pickle.dumps(fault))}) == 1
    assert repr(faulty(fault)).startswith("FaultyFS(Memory(")


@pytest.mark.parametrize(
    ("operation", "effect", "when", "message"),
    [
        ("fetch", Delay(1), {}, "no operation is called 'fetch'"),
        ("write", Truncate(1), {}, "Truncate is for read and open, not for write"),
        ("list", Stale(), {}, "Stale is for read and open and stat, not for list"),
        ("read", Raise(LOST, after=10), {}, "only a write goes wrong after so many bytes"),
        ("read", Delay(1), {"at": 1, "every": 2}, "one of at, every and rate"),
        ("read", Delay(1), {"at": (1, 0)}, "counted from 1"),
        ("read", Delay(1), {"every": -1}, "counted from 1"),
        ("read", Delay(1), {"rate": 1.5}, "between 0 and 1"),
    ],
)
def test_faults_that_make_no_sense_are_refused(operation: Any, effect: Any, when: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Fault(operation, effect, **when)
