"""HDFS over a library that misbehaves: it gets no response, is slow, breaks, or tells what is not so."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import fsabs
from fsabs import CachedFS
from fsabs.backends.hdfs import Hdfs, client
from fsabs.testing.children import forked
from tests.servers.network import Blackhole

pytestmark = pytest.mark.quick


class Library:
    """What takes the place of hdfs-native: one file, whose first `silent` transfers of data get no response."""

    def __init__(self, silent: int = 0) -> None:
        self.silent = silent
        self.released = threading.Event()  # ends the silence
        self.slow = 0.0
        self.data = b"content"
        self.replication, self.block_size, self.consumed = 1, 1 << 20, 0
        self.short = 0  # bytes that a read lacks
        self.more = 0  # bytes of a block that is not complete
        self.readers = 0
        self.broken = 0  # the first so many readers fail at each read

    def RawClient(self, *_: Any) -> Any:  # noqa: N802 - the library's name
        return self

    def WriteOptions(self, **_: Any) -> None:  # noqa: N802
        return None

    def get_file_info(self, path: str) -> Any:
        length = len(self.data) + self.more
        more = {"permission": 0o644, "blocksize": self.block_size, "replication": self.replication}
        return SimpleNamespace(path=path, length=length, isdir=False, modification_time=1, **more)

    def get_content_summary(self, path: str) -> Any:
        return SimpleNamespace(space_consumed=self.consumed)

    def read(self, path: str) -> Any:
        self.readers += 1
        return Reader(self, self.readers)

    def transfer(self) -> None:
        self.silent -= 1
        if self.silent >= 0:
            self.released.wait(60)
        else:
            time.sleep(self.slow)


class Reader:
    """An open file of the library."""

    def __init__(self, library: Library, number: int) -> None:
        self._library, self._number = library, number

    def file_length(self) -> int:
        return len(self._library.data)

    def read_range(self, offset: int, size: int) -> bytes:
        self._library.transfer()
        if self._number <= self._library.broken:
            raise RuntimeError('DataTransferError("All DataNodes failed: []")')
        return self._library.data[offset : offset + size - self._library.short]


TIMEOUT = 1.5
"""Seconds of an operation that no response comes to; where one comes, a busy machine has more."""
Opener = Callable[..., Hdfs]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    """What opens an FS over a library in the place of hdfs-native."""
    with Blackhole(connects=True) as server:  # what is connected to before the first call

        def open_over(library: Library, timeout: float = 60) -> Hdfs:
            monkeypatch.setattr(client, "library", lambda: library)
            return Hdfs("/", f"127.0.0.1:{server.port}", timeout=timeout)

        yield open_over


@pytest.fixture
def library() -> Iterator[Library]:
    found = Library()
    yield found
    found.silent = 0
    found.released.set()


# ---- reading


def _opened_and_read(fs: fsabs.FS) -> bytes:
    with fs.open("x", "rb") as file:
        return file.read()


READS: list[Callable[[fsabs.FS], Any]] = [
    _opened_and_read,
    lambda fs: fs.read_bytes("x"),
    lambda fs: fs.open_blob("x").read_all(),
    lambda fs: next(fs.read_many(["x"])),
]


@pytest.mark.parametrize("read", READS)
def test_a_read_without_an_answer_has_a_second_attempt_until_its_deadline(
    opened: Opener, library: Library, read: Callable[[fsabs.FS], Any]
) -> None:
    library.silent = 1
    assert read(opened(library, 4 * TIMEOUT)) == b"content"
    library.silent = 1000
    with pytest.raises(TimeoutError):
        read(opened(library, TIMEOUT))


def test_the_others_of_a_batch_do_not_wait_for_what_is_silent(opened: Opener, library: Library) -> None:
    """If each of them waited, they would take minutes."""
    library.silent = 2
    assert list(opened(library, 4 * TIMEOUT).read_many(["x"] * 500, concurrency=2)) == [b"content"] * 500


def test_a_large_file_may_take_longer_than_one_request(opened: Opener, library: Library) -> None:
    library.data, library.block_size, library.slow = bytes(160 << 20), 1 << 28, 0.4
    begun = time.monotonic()
    assert len(opened(library, 2 * TIMEOUT).read_bytes("x")) == 160 << 20
    assert time.monotonic() - begun > 2 * TIMEOUT


@pytest.mark.parametrize(
    ("replication", "blocks", "consumed", "unfinished"),
    [
        (3, 2, 6, False),
        (3, 2, 9, True),
        (1, 0, 1, True),
        (1, 0, 0, False),
        (1, 1, 2, True),
        (1, 2, 3, False),  # erasure coded, with half as much parity as data
        (1, 4, 6, False),
        (1, 4, 5, True),
    ],
)
def test_the_space_that_is_reserved_tells_of_a_block_that_was_begun(
    opened: Opener, library: Library, replication: int, blocks: int, consumed: int, unfinished: bool
) -> None:
    library.data, library.replication, library.consumed = bytes(blocks << 10), replication, consumed << 10
    library.block_size = 1 << 10
    fs = opened(library)
    if not unfinished:
        assert fs.read_bytes("x") == library.data
        return
    for read in READS:
        with pytest.raises(OSError, match="another process is writing"):
            read(fs)


def test_a_content_of_another_length_than_told_is_an_error(opened: Opener, library: Library) -> None:
    fs, library.short = opened(library), 1
    for read in READS:
        with pytest.raises(fsabs.CorruptFileError, match="6 bytes at offset 0 where 7 were expected"):
            read(fs)
    library.short, library.data, library.more = 0, bytes(100_001), 1
    for read in READS:
        with pytest.raises(OSError, match="after 100001 bytes, can't be read"):
            read(fs)


def test_a_reader_that_fails_is_replaced(opened: Opener, library: Library) -> None:
    """The library gives up the DataNodes of an open file for good."""
    with opened(library).open_blob("x") as blob:
        library.broken = library.readers
        assert blob.pread(7, 0) == b"content"
        library.broken, library.more = library.readers, 5
        with pytest.raises(OSError, match="another process is writing"):
            blob.pread(7, 0)


def test_a_small_file_that_is_opened_knows_its_version_when_it_is_asked_for_one(
    opened: Opener, library: Library
) -> None:
    fs = opened(library)
    with fs.open("x", "rb") as file:
        assert (file.read(3), file.raw.blob.version, file.read()) == (b"con", "1-7", b"tent")
    with fs.open("x", "rb") as file:
        library.data = b"another"
        with pytest.raises(fsabs.StaleFileError):
            _ = file.raw.blob.version


# ---- silence


class Frozen(Library):
    """A library that waits for a frozen DataNode first, and may then find another replica."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []
        self.needed = 0.0  # seconds that the other DataNodes need

    def RawClient(self, url: str, settings: dict[str, str], *_: Any) -> Any:  # noqa: N802
        return FrozenClient(self, int(settings["dfs.client.socket-timeout"]) / 1000)


class FrozenClient(Library):
    """A client that waits so many seconds for each DataNode."""

    def __init__(self, library: Frozen, seconds: float) -> None:
        super().__init__()
        self._library, self._seconds = library, seconds

    def transfer(self) -> None:
        self._library.waited.append(self._seconds)
        time.sleep(self._seconds)
        if self._seconds < self._library.needed:
            raise OSError(f"No data received for {self._seconds * 1000:.0f}ms")


@pytest.mark.parametrize("read", READS)
def test_a_silent_datanode_is_waited_for_once_until_it_is_forgotten(
    opened: Opener, read: Callable[[fsabs.FS], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    library, clock = Frozen(), time.monotonic
    fs = opened(library, 3)
    for _ in range(4):
        read(fs)
    assert library.waited == [0.5] + 3 * [0.1]
    assert forked("a child of the reader", [lambda: (read(fs), library.waited[4:])], 30) == [(b"content", [0.1])]
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 61)
    read(fs)
    assert library.waited[4:] == [0.5]


def test_an_open_file_is_opened_anew_to_wait_no_longer(opened: Opener) -> None:
    library = Frozen()
    with opened(library, 3).open_blob("x") as blob:
        assert [blob.pread(7, 0) for _ in range(4)] == [b"content"] * 4
    assert library.waited == [0.5] + 3 * [0.1]


def test_datanodes_that_need_longer_have_the_usual_time_after_some_failures(opened: Opener) -> None:
    library = Frozen()
    fs = opened(library, 3)
    fs.read_bytes("x")
    library.needed = 0.3
    assert fs.read_bytes("x") == b"content"
    assert library.waited == [0.5, 0.1, 0.1, 0.1, 0.1, 0.5]


def test_a_client_that_is_never_answered_is_replaced(opened: Opener) -> None:
    """Its connection may be one to a NameNode that was off for a while."""
    made: list[Library] = []

    class Stuck(Library):
        def RawClient(self, *_: Any) -> Any:  # noqa: N802
            made.append(Library() if made else Stuck())
            return made[-1]

        def get_file_info(self, path: str) -> Any:
            time.sleep(8)

    assert opened(Stuck(), 6).stat("x").size == 7
    assert len(made) == 2


# ---- writing


class Writer(Library):
    """A library whose files have one byte less than was written, of the first `short` ones; what is moved is kept."""

    def __init__(self, short: int = 0) -> None:
        super().__init__()
        self.short = short
        self.created = 0
        self.write: Callable[[bytes], None] = lambda data: None  # called for each write
        self.hidden: dict[str, bytearray] = {}
        self.files: dict[str, bytes] = {"/x": b"old"}

    def create(self, path: str, options: Any) -> Any:
        self.created += 1
        self.hidden[path] = bytearray()
        return WrittenFile(self, path, lost=self.created <= self.short)

    def get_file_info(self, path: str) -> Any:
        found = {"/": b"", **self.files, **self.hidden}
        if path not in found:
            raise FileNotFoundError(path)
        status = {"length": len(found[path]), "isdir": path == "/", "modification_time": 1, "permission": 0o600}
        return SimpleNamespace(path=path, owner="me", group="us", **status)

    def set_permission(self, path: str, mode: int) -> None:
        pass

    def set_times(self, path: str, modified: int, accessed: int) -> None:
        pass

    def rename(self, src: str, dst: str, overwrite: bool) -> None:
        if src not in self.hidden:
            raise FileNotFoundError(f"File does not exist: {src}")
        if dst in self.files and not overwrite:
            raise FileExistsError(f"{dst} already exists")
        self.files[dst] = bytes(self.hidden.pop(src))

    def list_status(self, path: str, recursive: bool) -> Iterator[Any]:
        return iter(())

    def delete(self, path: str, recursive: bool) -> bool:
        return self.hidden.pop(path, None) is not None


class WrittenFile:
    """A file that is written; of one that is `lost`, the last byte does not arrive, and nothing is said."""

    def __init__(self, library: Writer, path: str, lost: bool) -> None:
        self._library, self._path, self._lost = library, path, lost

    def write(self, data: bytes) -> None:
        self._library.write(data)
        self._library.hidden[self._path] += data

    def close(self) -> None:
        if self._lost:
            del self._library.hidden[self._path][-1]


def source() -> fsabs.FS:
    """Return an FS with a file `x`."""
    found = fsabs.Memory("source")
    found.write_bytes("x", b"new")
    return found


@pytest.mark.parametrize(
    "write",
    [
        lambda fs: fs.write_bytes("x", b"new"),
        lambda fs: fs.write_many({"x": b"new"}),
        lambda fs: CachedFS(fs).write_bytes("x", b"new"),
        lambda fs: source().copy("x", "x", fs),
        lambda fs: source().copy_tree("", "", fs),
    ],
    ids=["write_bytes", "write_many", "through a cache", "copy", "copy_tree"],
)
def test_a_whole_content_that_did_not_arrive_is_written_again_under_another_name(
    opened: Opener, write: Callable[[fsabs.FS], None]
) -> None:
    library = Writer(short=2)
    write(opened(library, 20))
    assert (library.created, library.files, library.hidden) == (3, {"/x": b"new"}, {})


def test_a_stream_that_did_not_arrive_is_not_published(opened: Opener) -> None:
    library = Writer(short=1)
    file = opened(library, 20).open("x", "wb")
    file.write(b"new")
    with pytest.raises(OSError, match="HDFS has 2 of 3 bytes"):
        file.close()
    assert (library.created, library.files, library.hidden) == (1, {"/x": b"old"}, {})


def test_a_content_that_never_arrives_is_an_error_in_time(opened: Opener) -> None:
    library = Writer(short=1_000_000)
    with pytest.raises(OSError, match="HDFS has 2 of 3 bytes"):
        opened(library, 1).write_bytes("x", b"new")
    assert (library.files, library.hidden) == ({"/x": b"old"}, {})


def test_what_a_namenode_refuses_for_good_is_not_written_again(opened: Opener) -> None:
    def refuse(data: bytes) -> None:
        raise RuntimeError('RPCError("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "too much")')

    library = Writer()
    library.write = refuse
    with pytest.raises(OSError, match="too much") as caught:
        opened(library, 20).write_bytes("x", b"new")
    assert caught.value.errno == errno.EDQUOT
    assert (library.created, library.files, library.hidden) == (1, {"/x": b"old"}, {})


def test_a_large_content_may_take_longer_than_one_request(opened: Opener) -> None:
    library = Writer()
    library.write = lambda data: time.sleep(0.1)  # a call has a MiB
    begun = time.monotonic()
    opened(library, 10).write_bytes("x", bytes(160 << 20))
    assert time.monotonic() - begun > 10
    assert library.files == {"/x": bytes(160 << 20)}


class Lossy(Writer):
    """A library whose responses to `rename` get lost, after the request was executed or before."""

    def __init__(self, executed: list[bool]) -> None:
        super().__init__()
        self.files, self.executed = {}, executed

    def rename(self, src: str, dst: str, overwrite: bool) -> None:
        lost = bool(self.executed)
        if not lost or self.executed.pop(0):
            super().rename(src, dst, overwrite)
        if lost:
            time.sleep(0.01)
            raise OSError(errno.ECONNRESET, "RPC listener disconnected")


@pytest.mark.parametrize("mode", ["wb", "xb"])
@pytest.mark.parametrize("executed", [[True], [False, False], [False, True], [False, False, False, True]], ids=str)
def test_a_file_is_published_once_whatever_is_lost(opened: Opener, executed: list[bool], mode: str) -> None:
    library = Lossy(list(executed))
    with opened(library, 20).open("x", mode) as file:
        file.write(b"new")
    assert (library.files, library.hidden, library.executed) == ({"/x": b"new"}, {}, [])


def test_a_file_whose_publication_is_never_answered_is_an_error(opened: Opener) -> None:
    library = Lossy([False] * 1000)
    with pytest.raises((ConnectionError, TimeoutError)):
        opened(library, 1).write_bytes("x", b"new")
    assert library.files == {}


# ---- listing


class Directories(Library):
    """A library whose NameNode needs 10 ms for each of 100 directories with one file each, or fails for some."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = {"/007", "/050"}
        self.now = self.most = 0

    def list_status(self, path: str, recursive: bool) -> Iterator[Any]:
        self.now += 1
        self.most = max(self.most, self.now)
        time.sleep(0.01)
        self.now -= 1
        if path in self.fails:
            self.fails.discard(path)
            raise OSError("Connection reset by peer (os error 104)")
        names = ["file"] if path != "/" else [f"{number:03}" for number in range(100)]
        for name in names:
            status = self.get_file_info(f"{path.rstrip('/')}/{name}")
            status.isdir = name != "file"
            yield status


def test_directories_are_listed_several_at_once_and_in_order(opened: Opener) -> None:
    library = Directories()
    expected = [name for number in range(100) for name in (f"{number:03}/", f"{number:03}/file")]
    fs = opened(library, 10)
    assert list(fs.list(recursive=True)) == expected
    assert 4 <= library.most <= 9, "eight, and one again"
    library.fails = {"/000"}
    walk = fs.list(recursive=True)
    assert [next(walk) for _ in range(3)] == expected[:3]


class Deep(Library):
    """A chain of directories, and nothing else."""

    depth, asked = 1500, 0

    def list_status(self, path: str, recursive: bool) -> Iterator[Any]:
        if path.count("/d") < self.depth:
            yield self.get_file_info(f"{path.rstrip('/')}/d")

    def get_file_info(self, path: str) -> Any:
        self.asked += 1
        if path.strip("/d"):
            raise FileNotFoundError(path)
        return SimpleNamespace(path=path, isdir=True, modification_time=1, permission=0o755)


def test_a_tree_may_be_deep(opened: Opener) -> None:
    library = Deep()
    fs = opened(library, 10)
    before = threading.active_count()
    assert sum(1 for _ in fs.list(recursive=True)) == 1500
    assert threading.active_count() <= before + 10, "a thread ends with the listing that it was for"
    library.asked = 0
    assert not fs.exists("d/" * 50 + "missing")
    assert library.asked <= 3
    assert not fs.exists("missing/" * 20)
    assert library.asked <= 30
