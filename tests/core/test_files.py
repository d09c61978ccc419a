"""Open files beyond what every FS must hold: any sequence of calls is as `builtins.open` has it, at any buffer size."""

from __future__ import annotations

import builtins
import functools
import io
import itertools
import os
import pickle
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fsabs
from fsabs.core.blobs import BytesBlob
from fsabs.core.files import buffered
from fsabs.testing.children import Child
from tests import scarce

pytestmark = pytest.mark.quick

examples = settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

BINARY = st.one_of(
    st.tuples(st.sampled_from(["read", "readline"]), st.one_of(st.none(), st.integers(-1, 40))),
    st.tuples(st.just("readlines"), st.integers(-1, 50)),
    st.tuples(st.just("seek"), st.integers(-5, 80), st.integers(0, 2)),
    st.tuples(st.sampled_from(["next", "pickle"])),
    st.tuples(st.just("readinto"), st.integers(0, 30)),
    st.tuples(st.just("read1"), st.integers(0, 20)),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@examples
@given(st.lists(st.sampled_from([b"a", b"\n", b"bc", b"\r\n"]), max_size=60), st.integers(-5, 70), st.data())
def test_a_binary_file_is_as_builtins_open_has_it(folder: Path, pieces: list[bytes], size: int, data: Any) -> None:
    content = b"".join(pieces)
    (folder / "x").write_bytes(content)
    file: IO[Any] = fsabs.from_url(folder).open("x", "rb", size)
    with builtins.open(folder / "x", "rb") as reference:
        for call in data.draw(st.lists(BINARY, max_size=25)):
            file = _same(file, reference, *call)
            assert file.tell() == reference.tell(), call
    file.close()


def _same(file: IO[Any], reference: IO[Any], name: str, *arguments: Any) -> IO[Any]:
    """Make a call on both, and compare what they give; returns the file to go on with."""
    if name == "pickle":
        return pickle.loads(pickle.dumps(file))  # type: ignore[no-any-return]
    if name == "read1" and isinstance(file, io.RawIOBase):
        return file
    if name == "read1":  # how much it gives is its own affair
        found = file.read1(*arguments)  # type: ignore[attr-defined]
        assert found == reference.read(len(found))
        assert found or not arguments[0] or not reference.read(1)
    else:
        found = _called(file, name, *arguments)
        assert found == _called(reference, name, *arguments), (name, arguments)
        if found is True:
            raise _UndecodableError
    return file


class _UndecodableError(Exception):
    """Both have come to bytes that can't be decoded; what comes after that depends on what was buffered."""


def _called(file: IO[Any], name: str, *arguments: Any) -> object:
    try:
        if name == "next":
            return next(file, None)
        if name == "readinto":
            buffer = bytearray(arguments[0])
            return file.readinto(buffer), buffer  # type: ignore[attr-defined]
        if name == "tell and seek":
            place = file.tell()
            found = file.read(5)
            file.seek(place)
            return found
        return getattr(file, name)(*arguments)
    except (OSError, ValueError) as exc:
        return isinstance(exc, UnicodeError) or "refused"


TEXT = st.one_of(
    st.tuples(st.sampled_from(["read", "readline"]), st.integers(-1, 30)),
    st.tuples(st.sampled_from(["tell and seek", "pickle"])),
    st.tuples(st.just("seek"), st.just(0)),
)
ENCODINGS = ["utf-8", "utf-16", "utf-8-sig", "shift_jis", "iso2022_jp", "gb18030", "utf-7", "latin-1"]


@examples
@given(
    st.text(st.sampled_from(list("ab\n\r é漢😀\ufeff\x85\u2028")), max_size=80),
    st.sampled_from(ENCODINGS),
    st.sampled_from([None, "", "\n", "\r", "\r\n"]),
    st.sampled_from(["strict", "replace", "surrogateescape"]),
    st.integers(2, 30),
    st.integers(0, 3),
    st.lists(TEXT, max_size=15),
)
def test_a_text_file_is_as_builtins_open_has_it(
    folder: Path, text: str, encoding: str, newline: str | None, handler: str, size: int, cut: int, calls: list[Any]
) -> None:
    content = text.encode(encoding, "ignore")
    (folder / "t").write_bytes(content[: len(content) - cut])
    file: IO[Any] = fsabs.from_url(folder).open("t", "r", size, encoding, handler, newline)
    with builtins.open(folder / "t", encoding=encoding, errors=handler, newline=newline) as reference:
        assert file.mode == reference.mode
        try:
            for call in calls:
                file = _same(file, reference, *call)
        except _UndecodableError:
            pass
        except UnicodeError:  # a place in what can't be decoded: neither can tell it
            with pytest.raises(UnicodeError):
                reference.tell()
    file.close()


class CountingBlob(BytesBlob):
    """Notes what is fetched of it."""

    def __init__(self, size: int) -> None:
        super().__init__(fsabs.Memory(), "x", bytes(size))
        self.fetched: list[tuple[int, int]] = []

    def _pread(self, size: int, offset: int) -> bytes:
        self.fetched.append((size, offset))
        return super()._pread(size, offset)

    def _pread_into(self, view: memoryview, offset: int) -> int:
        self.fetched.append((len(view), offset))
        return super()._pread_into(view, offset)


class FarBlob(CountingBlob):
    """One of a store that is far away."""

    smallest_window = 32 * 1024
    largest_window = 1024 * 1024


@pytest.mark.parametrize("kind", [CountingBlob, FarBlob])
def test_what_is_fetched_follows_the_reader(kind: type[CountingBlob]) -> None:
    blob = kind(16 << 20)
    with buffered(blob) as file:
        for number in range(50):  # here and there: little more than was asked for
            file.seek(number * 300_000)
            file.read(100)
        assert sum(size for size, _ in blob.fetched[1:]) <= 49 * blob.smallest_window
        blob.fetched.clear()
        file.seek(1_000_000)
        while file.read(100) and file.tell() < 6_000_000:
            pass
        sizes = [size for size, _ in blob.fetched]
        assert sizes[0] == blob.smallest_window
        assert max(sizes) == max(blob.largest_window if kind is FarBlob else 0, max(sizes))
        assert all(later <= 2 * size for size, later in itertools.pairwise(sizes))
        assert len(sizes) < 5_000_000 / blob.largest_window * 10
        blob.fetched.clear()
        file.seek(100)
        assert len(file.read(5_000_000)) == 5_000_000
        assert len(blob.fetched) <= 3, "what is asked for is not cut into pieces"


@pytest.mark.parametrize("size", [100, 64 << 10, 100_000])
def test_a_scan_of_a_far_file_takes_few_requests_whatever_it_reads_at_once(size: int) -> None:
    """64 KiB is what `shutil.copyfileobj` reads at once."""
    blob = FarBlob(8 << 20)
    with buffered(blob) as file:
        while file.read(size):
            pass
    sizes = [size for size, _ in blob.fetched]
    assert len(sizes) < 16
    assert max(sizes) == blob.largest_window
    blob = FarBlob(8 << 20)
    with buffered(blob, 32 << 10) as file:  # a buffer that was asked for is what is fetched
        while file.read(size):
            pass
    assert max(size for size, _ in blob.fetched) <= max(32 << 10, size)


def test_a_large_read_is_in_memory_once(tmp_path: Path) -> None:
    """As by builtin open: what comes after a small read is joined with what that has left in the buffer."""
    size = 100 << 20
    with (tmp_path / "large").open("wb") as file:
        file.truncate(size)
    for way, times in (
        ("file.read()", 1),
        ("file.read(1); file.read()", 2),
        (f"file.read(1); file.read({size - 1})", 1),
        (f"file.read(1); file.readinto(bytearray({size - 1}))", 1),
        ("fs.read_bytes('large')", 1),
    ):
        script = (
            f"import fsabs, resource; fs = fsabs.Local({str(tmp_path)!r}); file = fs.open('large', 'rb');"
            "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
            f"{way}; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
        assert int(done.stdout) * 1024 < 1.1 * times * size, way


@pytest.mark.parametrize("buffering", [-1, 0])
def test_what_is_no_number_or_no_buffer_is_refused(buffering: int, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    file: Any
    with fsabs.from_url(tmp_path).open("x", "rb", buffering) as file:
        calls: list[Callable[[], object]] = [lambda: file.seek(1.5), lambda: file.seek("1"), lambda: file.read("1")]
        calls += [lambda: file.seek(0, 1.0), lambda: file.readline(5.3), lambda: file.readinto(b"read-only")]
        for call in calls:
            with pytest.raises(TypeError):
                call()
            assert file.tell() == 0
        assert file.readinto(np.zeros((0, 3))) == 0
        assert file.read() == b"0123456789"


def test_a_small_file_is_no_zip_file(tmp_path: Path) -> None:
    """`zipfile` seeks to before its start, and takes an `OSError` for an answer."""
    (tmp_path / "x").write_bytes(b"nine byte")
    with fsabs.from_url(tmp_path).open("x", "rb") as file:
        assert not zipfile.is_zipfile(file)


@pytest.mark.parametrize("buffering", [-1, 0, 16])
def test_large_buffers_of_any_kind_are_copied_whole(buffering: int, tmp_path: Path) -> None:
    numbers: Any = np.arange(700_000, dtype="f8").reshape(1000, 700)
    others: Any = numbers.astype(">f8"), np.zeros(300_000, dtype=[("a", "i4"), ("b", "f8")])
    with fsabs.from_url(tmp_path).open("x", "wb", buffering) as file:
        for data in (
            b"head",
            memoryview(numbers),
            bytearray(numbers),
            np.zeros((0, 3)),
            *others,
            b"tail",
        ):
            assert file.write(data) == memoryview(data).nbytes
        with pytest.raises(TypeError):
            file.write("text")  # type: ignore[arg-type]
        position = file.tell()
    whole = numbers.tobytes()
    expected = b"head" + whole + whole + b"".join(each.tobytes() for each in others) + b"tail"
    assert (tmp_path / "x").read_bytes() == expected
    assert position == len(expected)


def test_an_unbuffered_file_is_written_at_once(tmp_path: Path) -> None:
    fs = fsabs.from_url(tmp_path)
    with fs.open("x", "ab", 0) as file:
        file.write(b"012345")
        assert (tmp_path / "x").read_bytes() == b"012345"
    with fs.open("x", "r+b", 0) as raw:
        assert isinstance(raw, io.RawIOBase)
        raw.write(b"ab")
        assert (tmp_path / "x").read_bytes() == b"ab2345"
        with pytest.raises(TypeError):
            pickle.dumps(raw)
        with pytest.raises(AssertionError, match="UnsupportedOperation"):
            Child("a child", functools.partial(raw.write, b"x"), 20).result()
    with pytest.raises(ValueError):
        raw.read(1)


def test_a_blob_that_is_dropped_leaves_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    fs = fsabs.from_url(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        fs.open_blob("x").fileno()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_thread_in_a_file_holds_up_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock that the thread holds is the child's to find open: of a file that is written in place, too, and whatever
    else was opened and detached."""
    fs = fsabs.from_url(tmp_path)
    (tmp_path / "x").write_bytes(b"0123456789")
    began, go = threading.Semaphore(0), threading.Event()

    def slow(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                began.release()
                go.wait(30)
            return function(*arguments)

        return call

    others = [fs.open("x", mode) for mode in ("rb", "r+b") * 20]
    with fs.open("x", "r+b") as updated, fs.open("x", "rb") as read, monkeypatch.context() as patch:
        raws = [other.detach() for other in others]  # type: ignore[attr-defined]
        updated.write(b"ab")
        patch.setattr(os, "pwrite", slow(os.pwrite))
        patch.setattr(os, "pread", slow(os.pread))
        threads = [threading.Thread(target=function) for function in (updated.flush, read.read)]
        for thread in threads:
            thread.start()
        for _ in threads:
            began.acquire(timeout=30)

        def child() -> Any:
            return [updated.read(3), updated.seek(0), updated.read(2), updated.close(), read.read(2)]

        assert Child("a child", child, 20).result() == [b"234", 0, b"01", None, b"01"]
        go.set()
        for thread in threads:
            thread.join()
    assert (tmp_path / "x").read_bytes() == b"ab23456789"
    for raw in raws:
        raw.close()


def test_what_is_updated_in_place_is_named_in_errors(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    fs = fsabs.from_url(tmp_path)
    with fs.open("x", "r+b") as file:
        assert (file.name, file.mode) == (fs.url("x"), "rb+")
        assert (file.read(3), file.seek(-2, os.SEEK_END), file.truncate(), file.read()) == (b"012", 8, 8, b"")
        with scarce.file_size(20), pytest.raises(OSError) as caught:
            file.write(b"x" * 1_000_000)
    assert (caught.value.filename, caught.value.operation) == (fs.url("x"), "write")  # type: ignore[attr-defined]


def test_positions_of_numpys_integers(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(range(256)) * 4)
    file: Any
    with fsabs.open_url(tmp_path / "x", "rb", buffering=0) as file:
        file.seek(250)
        assert [file.seek(np.uint8(10), 1), len(file.read(np.uint8(100))), file.tell()] == [260, 100, 360]
        assert [file.seek(np.int8(-10), 2), file.read(np.int8(2))] == [1014, b"\xf6\xf7"]


def test_a_local_copy_that_is_only_read_can_not_be_written_to() -> None:
    with fsabs.Memory() as fs:
        fs.write_bytes("a.bin", b"1")
        with fs.as_local("a.bin") as local:
            assert os.stat(local).st_mode & 0o222 == 0
