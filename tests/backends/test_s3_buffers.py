"""The buffers of large bodies: the bytes that were filled, without a copy, in huge pages where the system has them."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import http.server
import mmap
import random
import re
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, ClassVar

import numpy as np
import pytest

import fsabs
from fsabs.core.buffers import MIN_ADVISED, BytesBuffer

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("size", [0, 2, 5000, MIN_ADVISED - 1, MIN_ADVISED, MIN_ADVISED + 12_345])
def test_the_bytes_are_those_that_were_filled(size: int) -> None:
    buffer = BytesBuffer(size)
    assert len(buffer.view) == size
    for start in range(0, size, 1 << 20):
        part = buffer.view[start : start + (1 << 20)]
        part[:] = bytes([start >> 20 & 255]) * len(part)
        part.release()
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer.view)) if size else 0
    content = buffer.release()
    assert type(content) is bytes
    assert len(content) == size
    assert not size or np.frombuffer(content, np.uint8).ctypes.data == address, "it was copied"
    assert all(content[start] == start >> 20 & 255 for start in range(0, size, 1 << 20))


@pytest.mark.skipif(
    not (hasattr(mmap, "MADV_HUGEPAGE") and Path("/sys/kernel/mm/transparent_hugepage").exists()),
    reason="a kernel without huge pages",
)
def test_large_ones_ask_for_huge_pages() -> None:
    buffer = BytesBuffer(MIN_ADVISED)
    assert "hg" in _flags(ctypes.addressof(ctypes.c_char.from_buffer(buffer.view)) + MIN_ADVISED // 2)
    buffer.release()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_one_that_is_given_up_with_its_views_is_freed_silently() -> None:
    class Failure(Exception):
        """Refers to a buffer, to a view of it, and to itself."""

    failure = Failure()
    buffer = BytesBuffer(5000)
    failure.__dict__ |= {"itself": failure, "buffer": buffer, "part": buffer.view[10:20]}
    freed = weakref.ref(buffer)
    del buffer, failure
    gc.collect()
    assert freed() is None


def _flags(address: int) -> list[str]:
    """Return the flags of the mapping that an address lies in (proc(5), `VmFlags`)."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            found = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif found and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise AssertionError(f"no mapping has {address:x}")


class _Claiming(http.server.BaseHTTPRequestHandler):
    """A store that says of its object that it has 4 PB; no process can have a buffer of that."""

    protocol_version = "HTTP/1.1"
    requests: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.requests.append(self.command)
        size, (first, last) = 1 << 52, (0, (1 << 52) - 1)
        if asked := self.headers.get("Range"):
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
        self.send_response(206 if asked else 200)
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.close_connection = True

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *arguments: object) -> None:
        pass


class _Patterned(_Claiming):
    """A store whose objects have 96 MiB, made of one block, which is what it has in memory."""

    size = 96 << 20
    block = memoryview(random.Random(1).randbytes(1_000_003) * 4)

    def do_GET(self) -> None:
        first, last = 0, self.size - 1
        if asked := self.headers.get("Range"):
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
        self.send_response(206 if asked else 200)
        self.send_header("Content-Range", f"bytes {first}-{last}/{self.size}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # more than was wanted
            for at in range(first, last + 1, 1_000_003):
                self.wfile.write(self.block[at % 1_000_003 :][: min(1_000_003, last + 1 - at)])


def _readinto(file: IO[bytes]) -> bytearray:
    content = bytearray(_Patterned.size)
    assert file.readinto(content) == len(content)  # type: ignore[attr-defined]
    return content


def _rest(file: IO[bytes], *sizes: int) -> bytes:
    """Return what `read()` gives after reads of these sizes."""
    start = [file.read(size) for size in sizes]
    content = file.read()
    assert b"".join(start) == _Patterned.block[: sum(sizes)]
    return content


READS: dict[str, Callable[[fsabs.FS], bytes | bytearray]] = {
    "read_bytes": lambda fs: fs.read_bytes("x"),
    "read": lambda fs: _rest(fs.open("x", "rb")),
    "raw": lambda fs: _rest(fs.open("x", "rb", buffering=0)),
    "raw, after a byte": lambda fs: _rest(fs.open("x", "rb", buffering=0), 1),
    "raw, within a stream": lambda fs: _rest(fs.open("x", "rb", buffering=0), *[1_000_000] * 4),
    "into memory": lambda fs: _readinto(fs.open("x", "rb")),
    "into memory, raw": lambda fs: _readinto(fs.open("x", "rb", buffering=0)),
}


@pytest.fixture
def patterned() -> Iterator[fsabs.FS]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Patterned) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        with fsabs.S3("bucket", endpoint=endpoint, aws_access_key_id="x", aws_secret_access_key="y") as fs:
            yield fs
        server.shutdown()
        thread.join(10)


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
def test_a_large_object_is_in_memory_once(patterned: fsabs.FS, read: Callable[[fsabs.FS], bytes | bytearray]) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        content = read(patterned)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    start = _Patterned.size - len(content)
    for at in range(0, len(content), 1_000_003):
        part = memoryview(content)[at : at + 1_000_003]
        assert part == _Patterned.block[(start + at) % 1_000_003 :][: len(part)]
    assert peak < 1.1 * _Patterned.size


def test_an_object_that_does_not_fit_into_memory_is_an_error_that_names_its_size() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Claiming) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        fs = fsabs.S3("bucket", endpoint=endpoint, aws_access_key_id="x", aws_secret_access_key="y")
        for read in (
            lambda: fs.read_bytes("x"),
            lambda: fs.open_blob("x").read_all(),
            lambda: fs.open_blob("x").pread_many([(1 << 52, 0)]),
            lambda: list(fs.read_many(["x", "x"])),
        ):
            _Claiming.requests.clear()
            with pytest.raises(OSError, match="4,503,599,627,370,496 bytes do not fit into memory") as caught:
                read()
            assert (caught.value.errno, caught.value.filename) == (errno.ENOMEM, "s3://bucket/x")
            assert len(_Claiming.requests) <= 4  # it is not tried again
        server.shutdown()
        thread.join(10)
