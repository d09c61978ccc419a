"""The index cache: indexes by kind and identity, bounded, and never a wrong index or an error."""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsabs.core import errors
from fsabs.core.identity import Identity
from fsabs.disk import folders, indexes
from fsabs.testing.children import forked, threaded
from tests import disks

pytestmark = pytest.mark.quick

URL = "s3://bucket/a.zip"
FINGERPRINT = Identity("s3 https://s3.example bucket", URL, "v", 7).encode("kind-1")
LARGE = bytes(range(256)) * 4096  # 1 MiB: mapped


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory of one test."""
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "indexes"


def of(url: str = URL, version: str | None = "v", size: int = 7) -> Identity | None:
    """The identity of a file."""
    return None if version is None else Identity("s3 https://s3.example bucket", url, version, size)


def loaded(url: str = URL, version: str | None = "v") -> bytes | None:
    """What was saved, as bytes."""
    found = indexes.load("kind-1", of(url, version))
    return None if found is None else bytes(found)


def kept_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def test_what_is_saved_is_loaded(folder: Path) -> None:
    assert loaded() is None
    several: list[list[Any]] = [[], [b""], [b"abc", bytearray(b"def")], [LARGE[:70_000], memoryview(LARGE)[70_000:]]]
    for parts in several:
        assert indexes.save("kind-1", of(), iter(parts))
        found = indexes.load("kind-1", of())
        assert found is not None
        assert found.readonly
        assert bytes(found) == b"".join(parts)
        kept = indexes.lookup("kind-1", of())
        assert kept is not None
        assert kept.raw[kept.start : kept.start + 3] == b"".join(parts)[:3]
        (file,) = kept_files(folder)
        assert file.stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == 0o700


def test_an_index_is_of_one_kind_and_identity() -> None:
    right = Identity("store", URL, "v", 7, "ours")
    assert indexes.save("kind-1", right, [b"abc"])
    assert bytes(indexes.load("kind-1", right) or b"") == b"abc"
    assert indexes.load("kind-2", right) is None
    for other in (
        right._replace(store="other"),
        right._replace(url=URL + "x"),
        right._replace(version="w"),
        right._replace(size=8),
        right._replace(namespace=""),
    ):
        assert indexes.load("kind-1", other) is None


def test_another_version_replaces_the_one_before(folder: Path) -> None:
    indexes.save("kind-1", of(version="old"), [LARGE])
    mapped = indexes.load("kind-1", of(version="old"))
    assert mapped is not None
    indexes.save("kind-1", of(version="new"), [b"abc"])
    assert len(kept_files(folder)) == 1
    assert loaded(version="old") is None
    assert loaded(version="new") == b"abc"
    assert mapped == LARGE  # what is mapped stays


def test_nothing_is_kept_without_a_version_or_a_place(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def parts() -> Iterator[bytes]:
        raise AssertionError("nothing should have been asked for")
        yield b""

    assert not indexes.save("kind-1", of(URL, None), parts())
    assert loaded(version=None) is None
    monkeypatch.setenv("FSABS_CACHE_DIR", "")
    assert not indexes.save("kind-1", of(), parts())
    assert loaded() is None
    assert not folder.exists()


def test_where_it_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FSABS_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folders.cache_directory() == tmp_path / "xdg" / "fsabs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folders.cache_directory() == tmp_path / ".cache" / "fsabs"


@pytest.mark.parametrize("payload", [b"small" * 9, LARGE])
def test_every_damage_is_a_miss(payload: bytes, folder: Path) -> None:
    indexes.save("kind-1", of(), [payload])
    (file,) = kept_files(folder)
    right = file.read_bytes()
    unused = range(right.index(FINGERPRINT) + len(FINGERPRINT), 192)
    for at in [*range(0, 130, 3), len(right) // 2, len(right) - 5, len(right) - 1]:
        if at < len(right) and at not in unused:
            file.write_bytes(right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :])
            assert loaded() is None, at
    for wrong in (right[:-1], right + b"x", right[: len(right) // 2], right[:10], b""):
        file.write_bytes(wrong)
        assert indexes.lookup("kind-1", of()) is None
    file.write_bytes(right)
    assert loaded() == payload


def test_what_was_mapped_is_checked_by_blocks(folder: Path) -> None:
    indexes.save("kind-1", of(), [LARGE])
    (file,) = kept_files(folder)
    with file.open("r+b") as out:
        out.seek(500_000)
        out.write(b"!")
    kept = indexes.lookup("kind-1", of())
    assert kept is not None
    assert kept.check(0, 100_000)
    assert kept.check(600_000)
    assert not kept.check(499_000, 499_950)
    assert not kept.check()
    assert 0 < sum(kept.good) < len(kept.good)
    assert loaded() is None


def test_another_users_file_is_not_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    indexes.save("kind-1", of(), [b"abc"])
    (file,) = kept_files(folder)
    for mode in (0o620, 0o602):
        file.chmod(mode)
        assert loaded() is None
    file.chmod(0o600)
    assert loaded() == b"abc"
    other = tmp_path / "elsewhere"
    file.rename(other)
    file.symlink_to(other)
    assert loaded() is None
    file.unlink()
    other.rename(file)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert loaded() is None


def test_what_can_not_be_written_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*args: object, **named: object) -> int:
        raise OSError(28, "No space left on device")

    for name in ("write", "pwrite", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            assert not indexes.save("kind-1", of(), [b"abc"])
        assert list(folder.iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "file"))
    assert not indexes.save("kind-1", of(), [b"abc"])
    assert loaded() is None


def test_an_error_of_the_parts_is_raised(folder: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield b"abc"
        raise errors.corrupt(URL, "as a test")

    with pytest.raises(errors.CorruptFileError):
        indexes.save("kind-1", of(), parts())
    assert list(folder.iterdir()) == []


def test_the_least_recently_used_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    clock = itertools.count(now + 1000, 1000)  # so late that each save looks for what has to go
    monkeypatch.setattr(time, "time", clock.__next__)
    for n in range(5):
        indexes.save("kind-1", of(f"{URL}{n}"), [LARGE])
        indexes.lookup("kind-1", of(f"{URL}{n}"))
        newest = max(kept_files(folder), key=lambda path: path.stat().st_mtime)
        os.utime(newest, (now - 10_000 + n, now - 10_000 + n))
    assert loaded(f"{URL}0") is not None  # which is noted
    debris, under_way = folder / ".kind-1-0.0123.fsabs-partial", folder / ".kind-1-1.0123.fsabs-partial"
    for path in (debris, under_way):
        path.write_bytes(b"half")
    os.utime(under_way, (now + 100_000, now + 100_000))
    clock = itertools.count(now + 90_000, 1000)  # more than a day later
    monkeypatch.setattr(time, "time", clock.__next__)
    monkeypatch.setenv("FSABS_CACHE_MAX_BYTES", str(3_500_000))
    indexes.save("kind-1", of(f"{URL}5"), [LARGE])
    assert [loaded(f"{URL}{n}") is not None for n in range(6)] == [
        True, False, False, False, True, True
    ]  # fmt: skip
    assert [path for path in folder.iterdir() if path.name.endswith("partial")] == [under_way]
    monkeypatch.setenv("FSABS_CACHE_MAX_BYTES", "1000")
    assert not indexes.save("kind-1", of(f"{URL}6"), [LARGE])  # larger than all that may be
    monkeypatch.setenv("FSABS_CACHE_MAX_BYTES", "a lot")
    with pytest.warns(RuntimeWarning, match="FSABS_CACHE_MAX_BYTES"):
        assert indexes.save("kind-1", of(f"{URL}6"), [b"abc"])


def test_a_read_only_disk_gives_what_it_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    indexes.save("kind-1", of(), [b"payload"])
    (file,) = kept_files(folder)
    os.utime(file, (0, 0))

    def read_only(*arguments: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", read_only)
    assert loaded() == b"payload"


def test_a_mapping_goes_on_in_a_forked_child() -> None:
    indexes.save("kind-1", of(), [LARGE])
    kept = indexes.lookup("kind-1", of())
    assert kept is not None
    indexes.save("kind-1", of(URL, "w"), [b"abc"])
    assert forked("a child", [lambda: kept.check() and kept.view == LARGE], 20) == [True]
    assert kept.view == LARGE


def test_on_a_network_filesystem_nothing_is_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    indexes.save("kind-1", of(), [LARGE])
    disks.on(monkeypatch, "nfs4")
    kept = indexes.lookup("kind-1", of())
    assert kept is not None
    assert type(kept.raw) is bytes
    assert kept.view == LARGE


def test_many_save_the_same_at_once() -> None:
    def save_and_load() -> list[bool]:
        return [indexes.save("kind-1", of(), [LARGE]) and loaded() == LARGE for _ in range(10)]

    assert threaded("saving", [save_and_load] * 4, 30) == [[True] * 10] * 4
