"""Archives of all formats, written: whole or not at all, by many at once, nested, with what Hypothesis thinks of."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import tarfile
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsabs import FS, Local, Memory
from fsabs.spi import LayerFS, LayerWriter, Writer
from tests import scarce

from .forks import all_end_well, forked
from .hdf5files import as_h5py
from .tarballs import COMPRESS, DECOMPRESS, contents, tarball
from .zips import METHODS, STORED, read_by_zipfile, zipped

pytestmark = pytest.mark.quick

NAMES = ("a.zip", "a.tar", "a.tar.gz", "a.h5")
ONE_OF_EACH = pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.h5"])


class Lost(Exception):
    """What ends a block."""


def read(fs: FS, name: str) -> dict[str, bytes]:
    with fs.open_container(name) as archive:
        return contents(archive)


# ---- what is there while an archive is written


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_listed_and_not_read(name: str) -> None:
    fs = Memory()
    with fs.open_container(name, "w") as archive:
        archive.write_bytes("d/e/x", b"123")
        archive.mkdir("m")
        archive.makedirs("needs/no")
        archive.makedirs("needs/no", exist_ok=True)
        with archive.open("open", "wb") as file:
            file.write(b"x")
            assert not archive.exists("open")
        everything = ["d/", "d/e/", "d/e/x", "m/", "needs/", "needs/no/", "open"]
        assert list(archive.list(recursive=True)) == everything
        assert list(archive.list("d")) == ["e/"]
        assert list(archive.list("m")) == []
        assert [member.size for member in archive.list("d/e", detail=True)] == [3]
        assert (archive.isdir("d/e"), archive.isdir(""), archive.stat("open").size) == (True, True, 1)
        assert list(archive.glob("**/x")) == ["d/e/x"]
        for path, kind in (("no", FileNotFoundError), ("open/x", NotADirectoryError)):
            for look in (archive.list, archive.stat):
                with pytest.raises(kind):
                    look(path)
        refused: list[Callable[[], object]] = [
            lambda: archive.open("d/e/x"),
            lambda: archive.read_bytes("d/e/x"),
            lambda: list(archive.read_many(["d/e/x"])),
            lambda: archive.rename("d/e/x", "y"),
            lambda: archive.verify(),  # type: ignore[attr-defined]
        ]
        for use in refused:
            with pytest.raises(io.UnsupportedOperation):
                use()
        assert archive.capabilities.read is False
        assert "entries" not in archive.info()
    assert list(fs.open_container(name).list(recursive=True)) == everything


@pytest.mark.parametrize("name", NAMES)
def test_one_name_is_one_member(name: str) -> None:
    fs = Memory()
    replaces = name == "a.h5"
    with fs.open_container(name, "w") as archive:
        archive.write_bytes("x", b"first")
        archive.write_bytes("d/y", b"")
        assert archive.capabilities.replace == replaces
        mistakes: list[tuple[type[OSError], Callable[[], object]]] = [
            (FileExistsError, lambda: archive.open("x", "xb")),
            *((IsADirectoryError, lambda path=path: archive.open(path, "wb")) for path in ("d", "")),
            (NotADirectoryError, lambda: archive.write_bytes("x/deeper", b"")),
            *((FileExistsError, lambda path=path: archive.mkdir(path)) for path in ("d", "x", "")),
            (NotADirectoryError, lambda: archive.mkdir("x/deeper")),
        ]
        if not replaces:
            mistakes.append((FileExistsError, lambda: archive.open("x", "wb")))
        for kind, call in mistakes:
            with pytest.raises(kind) as caught:
                call()
            assert caught.value.filename.startswith(archive.url(""))
        one, two = archive.open("one", "wb"), archive.open("two", "wb")
        for i in range(100):
            one.write(b"1" * i)
            two.write(b"2" * i)
        two.close()
        one.close()
        if replaces:
            archive.write_bytes("x", b"second")
    found = {"x": b"second" if replaces else b"first", "d/y": b"", "one": b"1" * 4950, "two": b"2" * 4950}
    assert read(fs, name) == found


# ---- whole or not at all


@pytest.mark.parametrize("name", NAMES)
def test_an_exception_in_a_member_leaves_no_member(name: str) -> None:
    fs = Memory()
    with fs.open_container(name, "w") as archive:
        archive.write_bytes("first", b"1")
        for size in (0, 10, 10 << 20):
            with pytest.raises(Lost), archive.open("lost", "wb") as file:
                file.write(bytes(size))
                raise Lost
        archive.write_bytes("last", b"2")
    assert read(fs, name) == {"first": b"1", "last": b"2"}
    assert fs.stat(name).size < 20_000


@pytest.mark.parametrize("name", [*NAMES, "a.tbz2", "a.TXZ", "a.tar.zst"])
def test_an_exception_leaves_no_archive_and_an_old_one_as_it_was(name: str, tmp_path: Path) -> None:
    fs, modes = Local(tmp_path), "wa" if name in ("a.zip", "a.tar", "a.h5") else "w"
    for mode in (*modes, "x"):
        with pytest.raises(Lost), fs.open_container(name, mode) as archive:
            archive.write_bytes("new", b"n" * 100_000)
            raise Lost
        assert os.listdir(tmp_path) == []
    with fs.open_container(name, "x") as archive:
        archive.write_bytes("old", b"o")
    old = fs.read_bytes(name)
    for mode in modes:
        with pytest.raises(Lost), fs.open_container(name, mode) as archive:
            archive.write_bytes("new", b"n")
            raise Lost
    with pytest.raises(FileExistsError):
        fs.open_container(name, "x").close()
    assert fs.read_bytes(name) == old
    assert os.listdir(tmp_path) == [name]


class Failing(LayerFS):
    """A store that takes nothing while it is `away`."""

    away = False

    def _create(self, key: str, exclusive: bool, *how: Any) -> Writer:
        return FailingWriter(self, super()._create(key, exclusive, *how))


class FailingWriter(LayerWriter):
    def __init__(self, fs: Failing, inner: Writer) -> None:
        super().__init__(inner)
        self._fs = fs

    def write(self, data: bytes) -> None:
        if self._fs.away:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(data)


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_of_the_store_is_raised_at_close(name: str) -> None:
    fs = Failing(Memory())
    archive = fs.open_container(name, "w")
    fs.away = True
    with contextlib.suppress(OSError):
        archive.write_bytes("x", os.urandom(3_000_000))
    if name == "a.tar":
        fs.away = False
        with pytest.raises(OSError, match="No space"):  # half of a member may have come through
            archive.write_bytes("y", b"1")
    with pytest.raises(OSError, match="No space") as caught:
        archive.close()
    assert caught.value.errno == errno.ENOSPC
    assert not fs.exists(name)


@ONE_OF_EACH
def test_a_full_disk_below_a_large_member_is_an_error_of_the_write(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    fs = Memory()
    with fs.open_container(name, "w") as archive:
        with scarce.file_size(9 << 20), pytest.raises(OSError, match="too large"), archive.open("x", "wb") as file:
            for _ in range(12):
                file.write(bytes(1 << 20))
        archive.write_bytes("y", b"1")
    assert read(fs, name) == {"y": b"1"}
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", NAMES)
def test_an_archive_is_not_closed_over_an_open_member(name: str) -> None:
    fs = Memory()
    archive = fs.open_container(name, "w")
    archive.write_bytes("x", b"x")
    late = archive.open("late", "wb")
    with pytest.raises(OSError, match="1 members are still open for writing.*: late") as caught:
        archive.close()
    assert caught.value.errno == errno.EBUSY
    with pytest.raises(ValueError, match="closed"):
        late.close()
    archive.close()
    assert not fs.exists(name)


@ONE_OF_EACH
def test_an_archive_with_a_member_that_was_dropped_unclosed_is_not_stored(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fs = Memory()
    archive = fs.open_container(name, "w")
    archive.write_bytes("whole", b"1")
    print("x", file=archive.open("dropped", "w"))
    gc.collect()
    with pytest.raises(OSError, match="dropped unclosed: dropped") as caught:
        archive.close()
    assert (caught.value.errno, caught.value.filename) == (errno.EBUSY, f"memory:///{name}")
    assert f"never closed, so not written: memory:///{name}/dropped" in capsys.readouterr().err
    assert not fs.exists(name)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_closed_takes_and_gives_nothing(name: str) -> None:
    fs = Memory()
    archive: Any = fs.open_container(name, "w")
    archive.write_bytes("x", b"x" * 100_000)
    archive.close()
    archive.close()
    writes: list[Callable[[], object]] = [lambda: archive.open("y", "wb"), lambda: archive.mkdir("y")]
    for use in writes:
        with pytest.raises(ValueError, match="closed"):
            use()
    archive = fs.open_container(name)
    file = archive.open("x", "rb")
    assert archive.read_bytes("x") == b"x" * 100_000
    archive.close()
    archive.close()
    for use in (archive.list, lambda: archive.read_bytes("x"), lambda: archive.stat("x"), archive.verify, file.read):
        with pytest.raises(ValueError, match="closed"):
            use()


# ---- processes and threads


@pytest.mark.parametrize("name", NAMES)
def test_a_forked_child_adds_nothing(name: str, tmp_path: Path) -> None:
    fs = Local(tmp_path)
    with fs.open_container(name, "w") as archive:
        archive.write_bytes("before", b"1" * 300_000)
        half = archive.open("half", "wb")
        half.write(b"half")

        def child() -> bool:
            for use in (lambda: archive.write_bytes("child", b"2"), lambda: archive.mkdir("child")):
                with pytest.raises(io.UnsupportedOperation):
                    use()
            with contextlib.suppress(io.UnsupportedOperation):
                half.close()
            archive.close()
            return True

        assert all_end_well(forked(child))
        assert not fs.exists(name)
        half.close()
    assert read(fs, name) == {"before": b"1" * 300_000, "half": b"half"}


@pytest.mark.parametrize("name", NAMES)
def test_threads_write_members(name: str, tmp_path: Path) -> None:
    """One of them is so large that it goes through a temporary file."""
    fs = Local(tmp_path)
    expected = {f"t{i}/{j}": os.urandom(3000 * j) for i in range(6) for j in range(8)}
    expected["t0/large"] = bytes(9 << 20)
    with fs.open_container(name, "w") as archive:

        def write(i: int) -> None:
            for path, data in expected.items():
                if path.startswith(f"t{i}/"):
                    with archive.open(path, "wb") as one, archive.open(f"empty/{path}", "wb"):
                        for at in range(0, len(data), 1 << 20):
                            one.write(data[at : at + (1 << 20)])

        threads = [threading.Thread(target=write, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert read(fs, name) == expected | {f"empty/{path}": b"" for path in expected}


# ---- archives in archives


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("o.tar", "i.tar.xz"), ("o.tar.gz", "i.tar"), ("o.tar", "i.h5"), ("o.zip", "i.zip"), ("o.zip", "i.tar.gz")],
)
def test_archives_in_archives(outer: str, inner: str) -> None:
    fs = Memory()
    with fs.open_container(outer, "w") as out:
        out.write_bytes("first", b"1")
        with out.subfs("d").open_container(inner, "w") as nested:
            nested.write_bytes("x/y", b"deep" * 1000)
            with nested.open_container("k.tar", "w") as third:
                third.write_bytes("z", b"deeper")
        with pytest.raises(Lost), out.open_container("lost.tar", "w") as lost:
            lost.write_bytes("x", b"")
            raise Lost
        out.write_bytes("last", b"2")
    with fs.open_container(outer) as out, out.open_container("d/" + inner) as nested:
        assert list(out.list(recursive=True)) == ["d/", "d/" + inner, "first", "last"]
        assert nested.read_bytes("x/y") == b"deep" * 1000
        assert nested.url("x/y") == f"memory:///{outer}/d/{inner}/x/y"
        assert nested.open_container("k.tar").read_bytes("z") == b"deeper"
    closing = fs.open_container(outer, "w")
    nested = closing.open_container(inner, "w")
    with pytest.raises(OSError, match=f"still open for writing.*: {inner}"):
        closing.close()
    with pytest.raises(ValueError, match="closed"):
        nested.close()


# ---- Hypothesis

_segment = st.text(st.characters(codec="utf-8", exclude_characters="/\0\\:"), min_size=1, max_size=20)
_path = st.lists(_segment.filter(lambda name: name not in (".", "..")), min_size=1, max_size=4).map("/".join)


def by_tarfile(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {m.name: getattr(archive.extractfile(m), "read")() for m in archive}  # noqa: B009


FORMS: dict[str, tuple[str, dict[str, Any], Callable[[bytes], dict[str, bytes]]]] = {
    **{kind: ("a.zip", {"compression": kind}, read_by_zipfile) for kind in ("stored", "deflated", "bzip2", "lzma")},
    **{
        kind: ("a.tar", {"compression": kind}, lambda data, unpack=unpack: by_tarfile(unpack(data)))  # type: ignore[misc]
        for kind, unpack in DECOMPRESS.items()
    },
    "chunks": ("a.h5", {"compression": "gzip"}, as_h5py),
    "hdf5": ("a.h5", {}, as_h5py),
}
"""The ways to write an archive, and who reads it."""


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(_path, st.binary(max_size=2000)), max_size=12), st.sampled_from(list(FORMS)), st.integers(0, 4)
)
def test_any_archive_that_we_write(members: list[tuple[str, bytes]], form: str, added: int) -> None:
    """Others read it, and so do we, in one go or added to."""
    (name, options, theirs), fs = FORMS[form], Memory()
    written: dict[str, bytes] = {}
    added = added if form in ("stored", "deflated", "none", "hdf5") else 0
    for mode, some in (("w", members[added:]), *([("a", members[:added])] if added else [])):
        with fs.open_container(name, mode, **(options if mode == "w" else {})) as archive:
            for path, data in some:
                try:
                    archive.write_bytes(path, data)
                except (FileExistsError, IsADirectoryError, NotADirectoryError):
                    continue
                written[path] = data
    with fs.open_container(name) as archive:
        assert contents(archive) == written
    assert theirs(fs.read_bytes(name)) == written


BY_OTHERS: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    **{f"zip {method}": lambda files, method=method: zipped(files, method) for method in METHODS},  # type: ignore[misc]
    "zip in a file": lambda files: b"#!/bin/sh\n" + zipped(files, STORED, b"comment"),
    **{
        f"tar {kind}": lambda files, pack=pack: pack(tarball(files, tarfile.PAX_FORMAT))  # type: ignore[misc]
        for kind, pack in COMPRESS.items()
    },
    "tar of GNU": lambda files: tarball(files, tarfile.GNU_FORMAT),
}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(_path, st.binary(max_size=2000), max_size=8), st.sampled_from(list(BY_OTHERS)))
def test_any_archive_that_others_write(files: dict[str, bytes], form: str) -> None:
    fs = Memory()
    fs.write_bytes("a." + form[:3], BY_OTHERS[form](files))
    with fs.open_container("a." + form[:3]) as archive:
        assert contents(archive) == files
        assert {problem.kind for problem in archive.verify()} <= {"conflict"}  # type: ignore[attr-defined]
