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
from fsabs.backends.hdfs.client import Silence
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
        self.readers = self.broken = 0
        self.clients: list[float] = []

    def RawClient(self, url: str, settings: dict[str, str], *_: Any) -> Any:  # noqa: N802 - the library's name
        self.clients.append(int(settings["dfs.client.socket-timeout"]) / 1000)
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
        return Reader(self, self.readers <= self.broken)

    def transfer(self) -> None:
        self.silent -= 1
        if self.silent >= 0:
            self.released.wait(60)
        else:
            time.sleep(self.slow)


class Reader:
    """An open file of the library; a broken one fails at each read."""

    def __init__(self, library: Library, broken: bool) -> None:
        self._library, self._broken = library, broken

    def file_length(self) -> int:
        return len(self._library.data)

    def read_range(self, offset: int, size: int) -> bytes:
        self._library.transfer()
        if self._broken:
            raise RuntimeError('DataTransferError("All DataNodes failed: []")')
        return self._library.data[offset : offset + size - self._library.short]


TIMEOUT = 1.5
"""Seconds of an operation that no response comes to; where one comes, a busy machine has more."""


def opened(fs: fsabs.FS) -> bytes:
    with fs.open("x", "rb") as file:
        return file.read()


READS: list[Callable[[fsabs.FS], Any]] = [
    opened,
    lambda fs: fs.read_bytes("x"),
    lambda fs: fs.open_blob("x").read_all(),
    lambda fs: next(fs.read_many(["x"])),
]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """What takes the place of hdfs-native."""
    found = Library()
    monkeypatch.setattr(client, "library", lambda: found)
    monkeypatch.setattr(client, "_silence", {})
    yield found
    found.silent = 0
    found.released.set()


@pytest.fixture
def address(library: Library) -> Iterator[str]:
    with Blackhole(connects=True) as server:  # what is connected to before the first call
        yield f"127.0.0.1:{server.port}"


@pytest.fixture
def fs(address: str) -> Hdfs:
    return Hdfs("/", address, timeout=60)


@pytest.mark.parametrize("read", READS)
def test_a_read_without_an_answer_has_a_second_attempt(
    address: str, library: Library, read: Callable[[fsabs.FS], Any]
) -> None:
    library.silent = 1
    assert read(Hdfs("/", address, timeout=4 * TIMEOUT)) == b"content"


@pytest.mark.parametrize("read", READS)
def test_a_read_that_nothing_answers_ends_at_its_deadline(
    address: str, library: Library, read: Callable[[fsabs.FS], Any]
) -> None:
    library.silent = 1000
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        read(Hdfs("/", address, timeout=TIMEOUT))
    assert time.monotonic() - begun < 20, "a minute, if it waited for the library"


def test_the_others_of_a_batch_do_not_wait_for_what_is_silent(address: str, library: Library) -> None:
    library.silent = 2
    begun = time.monotonic()
    fs = Hdfs("/", address, timeout=4 * TIMEOUT)
    assert list(fs.read_many(["x"] * 50, concurrency=2)) == [b"content"] * 50
    assert time.monotonic() - begun < 30, "50 s, if each waited"


def test_a_large_file_may_take_longer_than_one_request(address: str, library: Library) -> None:
    library.data, library.block_size, library.slow = bytes(160 << 20), 1 << 28, 0.6
    begun = time.monotonic()
    assert len(Hdfs("/", address, timeout=3 * TIMEOUT).read_bytes("x")) == 160 << 20
    assert time.monotonic() - begun > 3 * TIMEOUT


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
    fs: Hdfs, library: Library, replication: int, blocks: int, consumed: int, unfinished: bool
) -> None:
    library.data, library.replication, library.consumed = bytes(blocks << 10), replication, consumed << 10
    library.block_size = 1 << 10
    if not unfinished:
        assert fs.read_bytes("x") == library.data
        return
    for read in READS:
        with pytest.raises(OSError, match="another process is writing"):
            read(fs)


def test_a_longer_status_is_an_unfinished_file_whatever_the_size(fs: Hdfs, library: Library) -> None:
    library.data, library.more = bytes(100_001), 1
    for read in READS:
        with pytest.raises(OSError, match="after 100001 bytes, can't be read"):
            read(fs)


def test_fewer_bytes_than_the_file_has_are_an_error(fs: Hdfs, library: Library) -> None:
    library.short = 1
    for read in READS:
        with pytest.raises(fsabs.CorruptFileError, match="6 bytes at offset 0 where 7 were expected"):
            read(fs)


def test_a_reader_that_fails_is_replaced(fs: Hdfs, library: Library) -> None:
    """The library gives up the DataNodes of an open file for good."""
    with fs.open_blob("x") as blob:
        library.broken = library.readers + 1
        client._silence[_key(fs)] = Silence(time.monotonic() + 60)  # so that it is opened anew, and is broken
        assert blob.pread(7, 0) == b"content"


def test_an_open_file_that_is_appended_to_is_refused_at_once_when_it_is_opened_anew(fs: Hdfs, library: Library) -> None:
    with fs.open_blob("x") as blob:
        library.broken, library.more = 1000, 5
        client._silence[_key(fs)] = Silence(time.monotonic() + 60)
        begun = time.monotonic()
        with pytest.raises(OSError, match="another process is writing"):
            blob.pread(7, 0)
        assert time.monotonic() - begun < 20


# ---- silence


def _key(fs: Hdfs) -> tuple[str, ...]:
    return (fs.nameservice,)


class Frozen(Library):
    """A library that waits for a frozen DataNode first, and may then find another replica."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []
        self.needed = 0.0  # seconds that the other DataNodes need

    def RawClient(self, url: str, settings: dict[str, str], *_: Any) -> Any:  # noqa: N802
        seconds = int(settings["dfs.client.socket-timeout"]) / 1000
        frozen = Frozen.__new__(Frozen)
        frozen.__dict__ = {**self.__dict__, "waited": self.waited, "seconds": seconds}
        return frozen

    seconds = 0.0

    def transfer(self) -> None:
        self.waited.append(self.seconds)
        time.sleep(self.seconds)
        if self.seconds < self.needed:
            raise OSError(f"No data received for {self.seconds * 1000:.0f}ms")


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Hdfs, Frozen]]:
    library = Frozen()
    monkeypatch.setattr(client, "library", lambda: library)
    monkeypatch.setattr(client, "_silence", {})
    with Blackhole(connects=True) as server:
        yield Hdfs("/", f"127.0.0.1:{server.port}", timeout=3), library


@pytest.mark.parametrize("way", ["read_bytes", "open", "blob", "read_many"])
def test_a_silent_datanode_is_waited_for_once(frozen: tuple[Hdfs, Frozen], way: str) -> None:
    fs, library = frozen
    for _ in range(6):
        READS[["open", "read_bytes", "blob", "read_many"].index(way)](fs)
    assert library.waited == [0.5] + 5 * [0.1]


def test_an_open_file_is_opened_anew_to_wait_no_longer(frozen: tuple[Hdfs, Frozen]) -> None:
    fs, library = frozen
    with fs.open_blob("x") as blob:
        assert [blob.pread(7, 0) for _ in range(4)] == [b"content"] * 4
    assert library.waited == [0.5] + 3 * [0.1]


def test_silence_is_forgotten(frozen: tuple[Hdfs, Frozen], monkeypatch: pytest.MonkeyPatch) -> None:
    fs, library = frozen
    monkeypatch.setattr(client, "SILENCE_REMEMBERED", 0.3)
    for _ in range(2):
        fs.read_bytes("x")
    time.sleep(0.3)
    fs.read_bytes("x")
    assert library.waited == [0.5, 0.1, 0.5]


def test_datanodes_that_need_longer_have_the_usual_time_after_some_failures(frozen: tuple[Hdfs, Frozen]) -> None:
    fs, library = frozen
    library.needed = 0.3
    client._silence[_key(fs)] = Silence(time.monotonic() + 60)
    assert fs.read_bytes("x") == b"content"
    assert library.waited == [0.1, 0.1, 0.1, 0.1, 0.5]
    assert fs.read_bytes("x") == b"content"


# ---- clients and writing


def test_a_client_that_is_never_answered_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection may be one to a NameNode that was off for a while."""
    made: list[Library] = []

    class Stuck(Library):
        def RawClient(self, *_: Any) -> Any:  # noqa: N802
            made.append(Library() if made else Stuck())
            return made[-1]

        def get_file_info(self, path: str) -> Any:
            time.sleep(8)

    monkeypatch.setattr(client, "library", Stuck)
    with Blackhole(connects=True) as server:
        assert Hdfs("/", f"127.0.0.1:{server.port}", timeout=6).stat("x").size == 7
    assert len(made) == 2


class Writer(Library):
    """A library whose files have one byte less than was written, of the first `short` ones; what is moved is kept."""

    def __init__(self, short: int = 0) -> None:
        super().__init__()
        self.short = short
        self.created = 0
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

    def set_times(self, path: str, modified: int, accessed: int) -> None:
        pass

    def rename(self, src: str, dst: str, overwrite: bool) -> None:
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
        self._library.hidden[self._path] += data

    def close(self) -> None:
        if self._lost:
            del self._library.hidden[self._path][-1]


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Writer:
    """A library that is written to, in the place of hdfs-native."""
    found = Writer()
    monkeypatch.setattr(client, "library", lambda: found)
    return found


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
    address: str, writer: Writer, write: Callable[[fsabs.FS], None]
) -> None:
    writer.short = 2
    write(Hdfs("/", address, timeout=20))
    assert (writer.created, writer.files, writer.hidden) == (3, {"/x": b"new"}, {})


def test_a_stream_that_did_not_arrive_is_not_published(address: str, writer: Writer) -> None:
    writer.short = 1
    file = Hdfs("/", address, timeout=20).open("x", "wb")
    file.write(b"new")
    with pytest.raises(OSError, match="HDFS has 2 of 3 bytes"):
        file.close()
    assert (writer.created, writer.files, writer.hidden) == (1, {"/x": b"old"}, {})


def test_a_content_that_never_arrives_is_an_error_in_time(address: str, writer: Writer) -> None:
    writer.short = 1_000_000
    begun = time.monotonic()
    with pytest.raises(OSError, match="HDFS has 2 of 3 bytes"):
        Hdfs("/", address, timeout=1).write_bytes("x", b"new")
    assert time.monotonic() - begun < 20
    assert (writer.files, writer.hidden) == ({"/x": b"old"}, {})


def test_what_a_namenode_refuses_for_good_is_not_written_again(
    address: str, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: WrittenFile, data: bytes) -> None:
        raise RuntimeError('RPCError("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "too much")')

    monkeypatch.setattr(WrittenFile, "write", refuse)
    with pytest.raises(OSError, match="too much") as caught:
        Hdfs("/", address, timeout=20).write_bytes("x", b"new")
    assert caught.value.errno == errno.EDQUOT
    assert (writer.created, writer.files, writer.hidden) == (1, {"/x": b"old"}, {})


def test_a_large_content_may_take_longer_than_one_request(
    address: str, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = WrittenFile.write

    def slowly(file: WrittenFile, data: bytes) -> None:
        time.sleep(0.01)  # a call has a MiB
        write(file, data)

    monkeypatch.setattr(WrittenFile, "write", slowly)
    begun = time.monotonic()
    Hdfs("/", address, timeout=1.5).write_bytes("x", bytes(160 << 20))
    assert time.monotonic() - begun > 1.5
    assert writer.files == {"/x": bytes(160 << 20)}


def test_a_small_file_that_is_opened_knows_its_version_when_it_is_asked_for_one(fs: Hdfs, library: Library) -> None:
    with fs.open("x", "rb") as file:
        assert (file.read(3), file.raw.blob.version, file.read()) == (b"con", "1-7", b"tent")
    with fs.open("x", "rb") as file:
        library.data = b"another"
        with pytest.raises(fsabs.StaleFileError):
            _ = file.raw.blob.version


class Directories(Library):
    """A library whose NameNode needs 10 ms for each of 100 directories with one file each, or fails for some."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: set[str] = set()
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


def test_directories_are_listed_several_at_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Directories()
    library.fails = {"/007", "/050"}
    monkeypatch.setattr(client, "library", lambda: library)
    expected = [name for number in range(100) for name in (f"{number:03}/", f"{number:03}/file")]
    with Blackhole(connects=True) as server:
        fs = Hdfs("/", f"127.0.0.1:{server.port}", timeout=10)
        assert list(fs.list(recursive=True)) == expected
        assert [stat.filename for stat in fs.list(recursive=True, detail=True)] == expected
        assert 4 <= library.most <= 9, "eight, and one again"
        library.fails = {"/000"}
        walk = fs.list(recursive=True)
        assert [next(walk) for _ in range(3)] == expected[:3]


class Deep(Library):
    """A chain of directories, and nothing else."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth, self.asked = depth, 0

    def list_status(self, path: str, recursive: bool) -> Iterator[Any]:
        if path.count("/d") < self.depth:
            yield SimpleNamespace(path=f"{path.rstrip('/')}/d", isdir=True, modification_time=1, permission=0o755)

    def get_file_info(self, path: str) -> Any:
        self.asked += 1
        if path.strip("/d"):
            raise FileNotFoundError(path)
        return SimpleNamespace(path=path, isdir=True, modification_time=1, permission=0o755)


def test_a_tree_may_be_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Deep(1500)
    monkeypatch.setattr(client, "library", lambda: library)
    with Blackhole(connects=True) as server:
        fs = Hdfs("/", f"127.0.0.1:{server.port}", timeout=10)
        before = threading.active_count()
        assert sum(1 for _ in fs.list(recursive=True)) == 1500
        assert threading.active_count() <= before + 10, "a thread ends with the listing that it was for"
        library.asked = 0
        assert not fs.exists("d/" * 50 + "missing")
        assert library.asked <= 3
        assert not fs.exists("missing/" * 20)
        assert library.asked <= 30
