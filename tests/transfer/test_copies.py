"""Copies: counted, by the store where it can, of what may be followed, and nothing left where there is no room."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import FS, CorruptFileError, FileStat, Local, Memory, StaleFileError
from fsabs.backends.s3 import S3
from fsabs.cli import program
from fsabs.core import hooks
from fsabs.core.fs import keys_of
from fsabs.spi import Blob
from fsabs.transfer.copier import Copier, CopyResult, FileCopy, batches
from fsabs.transfer.trees import TreeEvent, TreePlan, TreeTransfer
from tests import disks
from tests.servers.moto import MotoServer
from tests.servers.shared import unique


class Cut(Memory):
    """A store that says that its files are larger than what can be read of them."""

    def _stat(self, key: str, *how: Any) -> FileStat:
        stat = super()._stat(key, *how)
        return stat if stat.directory else stat._replace(size=stat.size + 5)

    def _list(self, key: str, *how: Any) -> Iterator[FileStat]:
        return (stat if stat.directory else stat._replace(size=stat.size + 5) for stat in super()._list(key, *how))


def moved(source: FS, target: FS, src: str = "s", dst: str = "t") -> list[BaseException]:
    """Move a directory as to another disk, where files are copied and not renamed; return the errors."""
    found: list[BaseException] = []

    def report(event: TreeEvent) -> None:
        if event.error is not None:
            found.append(event.error)

    keys = keys_of(source, [src], "move") + keys_of(target, [dst], "move")
    TreeTransfer(source, keys[0], target, keys[1], TreePlan(move=True), report, lambda size: None).run()
    return found


@pytest.mark.quick
def test_a_source_that_was_written_again_within_a_second_stays() -> None:
    source, target = Memory(), Memory()
    source.write_bytes("x", b"old")
    before = source.stat("x")
    source.write_bytes("x", b"new")
    listed = before._replace(last_modified=source.stat("x").last_modified)  # a store keeps whole seconds
    with Copier(source, target, lambda result: None, lambda size: None, move=True) as copier:
        error = copier.remove_source(FileCopy("x", "y", listed))
    assert isinstance(error, StaleFileError)
    assert source.read_bytes("x") == b"new"


@pytest.mark.quick
@pytest.mark.parametrize("size", [3, 2_000_000])
def test_a_private_file_that_is_moved_stays_private(tmp_path: Path, size: int) -> None:
    source, target = Local(tmp_path / "s", create=True), Local(tmp_path / "t", create=True)
    for fs, content, mode in ((source, bytes(size), 0o600), (target, b"old", 0o644)):
        fs.write_bytes("x", content)
        Path(fs.url("x").removeprefix("file://")).chmod(mode)
    assert moved(source, target, "", "") == []
    assert not source.exists("x")
    assert (tmp_path / "t/x").stat().st_mode & 0o777 == 0o600


@pytest.mark.quick
@pytest.mark.parametrize(("size", "alone"), [(10, True), (3_000_000, False)])
def test_what_a_cache_has_of_an_earlier_version_is_not_moved_in_place_of_the_file(
    size: int, alone: bool, tmp_path: Path
) -> None:
    """Another program has overwritten it within the check interval: its new content would be in neither place."""

    class Far(Memory):
        capabilities = Memory.capabilities._replace(stat_is_request=True)

    store, target = Far(), Local(tmp_path / "target", create=True)
    target.makedirs("t")
    store.makedirs("s")
    store.write_bytes("s/x", b"1" * size)
    source = fsabs.CachedFS(store, tmp_path / "cache", min_free=0)
    assert source.read_bytes("s/x") == b"1" * size
    store.write_bytes("s/x", b"2" * size)
    if alone:
        source.copy("s/x", "t/copied", target)
        assert target.read_bytes("t/copied") == b"2" * size, "it has the time of that content"
    moved(source, target)
    [left] = [fs.read_bytes(name) for fs, name in ((store, "s/x"), (target, "t/x")) if fs.exists(name)]
    assert left == b"2" * size


@pytest.mark.quick
@pytest.mark.parametrize("size", [10, 3_000_000])
def test_fewer_bytes_than_the_store_says_are_an_error_and_a_move_keeps_the_source(size: int, tmp_path: Path) -> None:
    source, target = Cut(), Local(tmp_path)
    source.makedirs("s")
    source.write_bytes("s/x", bytes(size))
    (tmp_path / "t").mkdir()
    (tmp_path / "t/x").write_bytes(b"before")
    (error,) = moved(source, target)
    assert isinstance(error, CorruptFileError)
    assert f"{size} bytes can be read of {size + 5}" in str(error)
    assert (tmp_path / "t/x").read_bytes() == b"before"
    assert source.exists("s/x")
    with pytest.raises(CorruptFileError):
        source.copy("s/x", "y", target)
    with pytest.raises(CorruptFileError):
        fsabs.pack(source.subfs("s"), target, "a.zip")
    assert sorted(os.listdir(tmp_path)) == ["t"]


class Growing(Memory):
    """A store whose file is written to after it was read."""

    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        for found in list(super()._read_many(wanted, *how)):
            self.write_bytes("s/x", b"new and longer")
            yield found


@pytest.mark.quick
def test_a_file_that_changes_while_it_is_moved_stays(tmp_path: Path) -> None:
    source = Growing()
    source.makedirs("s")
    source.write_bytes("s/x", b"old")
    (error,) = moved(source, Local(tmp_path))
    assert isinstance(error, StaleFileError)
    assert source.read_bytes("s/x") == b"new and longer"


class Replaced(Local):
    """A directory in which another program writes a file when it has been opened."""

    def _open_blob(self, key: str, *how: Any) -> Blob:
        blob = super()._open_blob(key, *how)
        self.write_bytes("a", b"new")
        return blob


def test_a_copy_of_what_is_replaced_meanwhile_is_not_taken_for_the_new_content(tmp_path: Path) -> None:
    source, target = Replaced(tmp_path / "s", create=True), Local(tmp_path / "t", create=True)
    source.write_bytes("a", b"old")
    os.utime(tmp_path / "s/a", (1, 1))
    source.copy("a", "a", target)
    assert target.read_bytes("a") == b"old"
    assert source.sync_tree("", "", target).files == 1
    assert target.read_bytes("a") == b"new"


class Full(Local):
    """A disk that is full after a MiB."""

    def _create(self, key: str, exclusive: bool, *how: Any) -> fsabs.spi.Writer:
        writer = super()._create(key, exclusive, *how)
        write, written = writer.write, 0

        def limited(data: bytes) -> None:
            nonlocal written
            if written > 1 << 20:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += len(data)
            write(data)

        writer.write = limited  # type: ignore[method-assign]
        return writer


@pytest.mark.quick
def test_a_full_disk_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s/x").write_bytes(os.urandom(12 << 20))
    for path in (tmp_path / "s", tmp_path / "s/x"):
        os.utime(path, (1e9, 1e9))
    target = Full(tmp_path / "t", create=True)
    with pytest.raises(OSError, match="No space left"):
        Local(tmp_path).copy_tree("s", "", target)
    assert os.listdir(tmp_path / "t") == []


def test_what_a_network_filesystem_reports_at_close_comes_before_the_copy_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = Memory(), Local(tmp_path)
    source.write_bytes("x", os.urandom(2 << 20))
    target.write_bytes("x", b"old")

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        patch.setattr(os, "close", full)
        source.copy_tree("", "", target)
    assert target.read_bytes("x") == b"old"


@pytest.fixture
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The filesystem that everything is on."""
    disks.on(monkeypatch, request.param)
    return str(request.param)


def writing_wrong(monkeypatch: pytest.MonkeyPatch, at: int = 0) -> None:
    """Have the system store one bit as the other, in every write that reaches so far."""
    write = os.write

    def wrong(fd: int, data: bytes) -> int:
        changed = bytearray(data)
        if at < len(changed):
            changed[at] ^= 1
        return write(fd, changed)

    monkeypatch.setattr(os, "write", wrong)


@pytest.mark.quick
@pytest.mark.parametrize(("kind", "size"), [("nfs4", 10), ("nfs4", 20 << 20), ("", 2 << 20)], indirect=["kind"])
def test_wrong_bytes_on_a_network_filesystem_are_an_error(
    kind: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = Memory(), Local(tmp_path)
    source.write_bytes("x", os.urandom(size))
    target.write_bytes("x", b"old")
    writing_wrong(monkeypatch, size % (8 << 20) - 1)  # in the last piece
    with pytest.raises(CorruptFileError) as caught:
        source.copy_tree("", "", target)
    assert caught.value.filename == target.url("x")
    assert os.listdir(tmp_path) == ["x"]
    if size > 1 << 20:
        assert target.read_bytes("x") == b"old"


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["nfs4"], indirect=True)
def test_wrong_bytes_are_an_error_where_a_file_is_written_in_place(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a file is that is mounted: no other one can be moved over it."""
    source, target = Memory(), Local(tmp_path)
    source.write_bytes("x", os.urandom(2 << 20))
    target.write_bytes("x", b"old")

    def mounted(*args: object, **named: object) -> None:
        writing_wrong(monkeypatch)
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(os, "rename", mounted)
    with pytest.raises(CorruptFileError, match="are read with"):
        source.copy_tree("", "", target)


@pytest.mark.quick
@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="the system doesn't count what is read")
@pytest.mark.parametrize("kind", ["ext4", "nfs4"], indirect=True)
def test_only_what_is_written_to_another_machine_is_read_again(kind: str, tmp_path: Path) -> None:
    def bytes_read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    source, target = Memory(), Local(tmp_path)
    for number in range(20):
        source.write_bytes(f"{number}", os.urandom(500_000))
    source.write_bytes("large", os.urandom(10_000_000))
    before = bytes_read()
    source.copy_tree("", "", target)
    assert bytes_read() - before > 20_000_000 if kind == "nfs4" else bytes_read() - before < 1_000_000


@pytest.mark.quick
@pytest.mark.parametrize("links", ["refuse", "inside"])
def test_a_tree_is_copied_over_links_as_its_fs_follows_them(tmp_path: Path, links: str) -> None:
    for name in ("in/d", "out"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "out/secret").write_bytes(b"secret")
    (tmp_path / "in/d/a").write_bytes(b"a")
    (tmp_path / "in/file").symlink_to("../out/secret")
    (tmp_path / "in/dir").symlink_to("../out")
    source = fsabs.from_url(str(tmp_path / "in"), links=links)
    target = Memory()
    for call in (source.copy_tree, source.sync_tree):
        with pytest.raises(PermissionError):
            call("", "", target)
        assert not [name for name in target.list(recursive=True) if "secret" in name or name == "file"]
    other = Memory()
    other.makedirs("dir")
    other.write_bytes("dir/new", b"new")
    other.write_bytes("file", b"new")
    for call in (other.copy_tree, other.sync_tree):
        with pytest.raises((PermissionError, NotADirectoryError)):
            call("", "", source)
        assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {"secret": b"secret"}


@pytest.mark.quick
def test_a_file_is_not_copied_onto_itself(tmp_path: Path) -> None:
    fs = Local(tmp_path)
    fs.write_bytes("a", b"a")
    (tmp_path / "l").symlink_to("a")
    os.link(tmp_path / "a", tmp_path / "hard")
    for source, target in (("a", "a"), ("a", "l"), ("l", "a"), ("a", "hard")):
        with pytest.raises(OSError, match="the same file") as caught:
            fs.copy(source, target, Local(tmp_path) if target == "hard" else None)
        assert caught.value.errno == errno.EINVAL
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"a", "l": b"a", "hard": b"a"}


def test_batches() -> None:
    sizes = [1, 2, 2_000_000, 3, 1_500_000, 4]
    assert list(batches(sizes, int)) == [[1, 2], [2_000_000], [3], [1_500_000], [4]]
    assert list(batches(sizes, int, in_order=False)) == [[2_000_000], [1_500_000], [1, 2, 3, 4]]
    assert list(batches(range(5), int, max_files=2)) == [[0, 1], [2, 3], [4]]
    assert list(batches([5, 5, 5], int, max_bytes=10)) == [[5, 5], [5]]


class Refusing(Memory):
    """A store that refuses one file."""

    def _write_bytes(self, key: str, data: bytes, *how: Any) -> None:
        if key.endswith("/7"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        super()._write_bytes(key, data, *how)


@pytest.mark.quick
def test_the_error_of_one_file_does_not_stop_the_others() -> None:
    source, target = Memory(), Refusing()
    for fs in (source, target):
        fs.mkdir("d")
    source.write_many((f"d/{number}", b"%d" % number) for number in range(300))
    source.remove("d/30")
    results: list[CopyResult] = []
    with Copier(source, target, results.append, lambda size: None) as copier:
        copier.run(FileCopy(f"d/{number}", f"d/{number}", FileStat(str(number), 1)) for number in range(300))
    assert len(results) == 300
    failed = {result.file.src: type(result.error) for result in results if result.error is not None}
    assert failed == {"d/7": PermissionError, "d/30": FileNotFoundError}
    assert len(list(target.list("d"))) == 298


# ---- S3


@pytest.fixture
def buckets(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[S3, S3]]:
    """Two buckets of one store."""
    for name, value in (
        ("S3_ENDPOINT", moto.endpoint),
        ("AWS_ACCESS_KEY_ID", moto.access_key),
        ("AWS_SECRET_ACCESS_KEY", moto.secret_key),
        ("AWS_DEFAULT_REGION", moto.region),
    ):
        monkeypatch.setenv(name, value)
    found = []
    for _ in range(2):
        bucket = unique("transfer")
        moto.create_bucket(bucket)
        found.append(fsabs.from_url(f"s3://{bucket}"))
    one, other = found
    assert isinstance(one, S3)
    assert isinstance(other, S3)
    yield one, other
    one.close()
    other.close()


class Received(hooks.Instrument):
    """Counts the bytes that requests have sent or received."""

    def __init__(self) -> None:
        self.bytes = 0

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: str = "", error: str = "", offset: int = -1
    ) -> None:
        self.bytes += size if kind == "request" else 0


def test_a_copy_within_one_store_passes_no_bytes(buckets: tuple[S3, S3]) -> None:
    one, other = buckets
    content = os.urandom(1_000_000)
    one.write_bytes("d/a", content)
    received = Received()
    before = hooks.install(received)
    try:
        one.copy("d/a", "b")
        one.copy("d/a", "b", other)
        one.copy("d/a", "c", one.subfs("sub"))
        one.subfs("d").copy("a", "d", other)
        fsabs.lazify(lambda: one.subfs("d")).copy("a", "e", other)
        one.copy_tree("d", "tree", other)
    finally:
        hooks.install(before)
    assert received.bytes < len(content)
    for fs, names in ((other, ("b", "d", "e", "tree/a")), (one, ("b", "sub/c"))):
        assert [*fs.read_many(names)] == [content] * len(names)


def test_a_move_to_another_scheme_of_the_same_bucket_keeps_the_data(
    buckets: tuple[S3, S3], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, _ = buckets
    one.write_bytes("x", b"x")
    one.write_bytes("d/y", b"y")
    ini = tmp_path / "pfio.ini"
    ini.write_text("[team]\nscheme=s3\n")
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(ini))
    for name, end in (("x", ""), ("d", "/")):
        for arguments in (
            ("mv", f"s3://{one.bucket}/{name}{end}", f"team://{one.bucket}/{name}{end}"),
            ("sync", "--delete", f"s3://{one.bucket}/d", f"team://{one.bucket}/d"),
        ):
            assert program.run(arguments) == 1
            err = capsys.readouterr().err
            assert any(reason in err for reason in ("are one", "itself", "the source is in the target")), err
            assert (one.read_bytes("x"), one.read_bytes("d/y")) == (b"x", b"y")


def test_sync_compares_the_checksums_of_two_buckets(buckets: tuple[S3, S3]) -> None:
    one, other = buckets
    one.write_bytes("d/a", b"one")
    other.write_bytes("d/a", b"two")  # later, and as large
    done = one.sync_tree("d", "d", other)
    assert (done.files, done.skipped) == (1, 0)
    assert other.read_bytes("d/a") == b"one"
    done = one.sync_tree("d", "d", other)
    assert (done.files, done.skipped) == (0, 1)


def test_a_name_that_is_not_text_is_named(buckets: tuple[S3, S3], tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / os.fsdecode(b"a\xff")).write_bytes(b"x")
    with pytest.raises(OSError, match="no name that is not UTF-8 text") as caught:
        Local(tmp_path).copy_tree("d", "d", buckets[0])
    assert caught.value.filename == f"s3://{buckets[0].bucket}/d/a%FF"


def test_a_sparse_file_stays_sparse(tmp_path: Path) -> None:
    size = 12 << 20
    with open(tmp_path / "x", "wb") as file:
        file.truncate(size)
        file.seek(size // 2)
        file.write(b"data")
    if (tmp_path / "x").stat().st_blocks * 512 >= size:
        pytest.skip("this file system has no holes")
    Local(tmp_path).copy("x", "y")
    assert program.run(["cp", str(tmp_path / "x"), str(tmp_path / "z")]) == 0
    for name in ("y", "z"):
        copy = (tmp_path / name).stat()
        assert (copy.st_size, copy.st_blocks * 512 < size // 2) == (size, True), (name, copy.st_blocks)
        assert (tmp_path / name).read_bytes() == (tmp_path / "x").read_bytes()
