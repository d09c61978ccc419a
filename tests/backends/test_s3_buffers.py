"""The buffers of large bodies: what is received into them is in memory once, and what does not fit is an error."""

from __future__ import annotations

import contextlib
import errno
import gc
import http.server
import random
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import IO, ClassVar

import pytest

from fsabs.backends.objects.messages import Request
from fsabs.backends.objects.pipeline import send_many
from fsabs.backends.s3 import S3
from fsabs.core.buffers import BytesBuffer
from tests.backends.s3_clients import MIB, opened

pytestmark = pytest.mark.quick


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


BLOCK = random.Random(1).randbytes(1_000_003) * 4
HUGE = 1 << 52
"""4 PB: no process can have a buffer of that."""


class _Sized(http.server.BaseHTTPRequestHandler):
    """A store whose objects have the size that their name is, made of one block, which is what it has in memory."""

    protocol_version = "HTTP/1.1"
    requests: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.requests.append(self.command)
        size = int(self.path.rpartition("/")[2])
        first, last = 0, size - 1
        if asked := self.headers.get("Range"):
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
        self.send_response(206 if asked else 200)
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.close_connection = size == HUGE
        if self.command == "HEAD" or size == HUGE:
            return
        with contextlib.suppress(ConnectionError):  # more than was wanted
            for at in range(first, last + 1, 1_000_003):
                self.wfile.write(memoryview(BLOCK)[at % 1_000_003 :][: min(1_000_003, last + 1 - at)])

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def fs() -> Iterator[S3]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Sized) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        with opened(f"http://127.0.0.1:{server.server_address[1]}") as fs:
            yield fs
        server.shutdown()
        thread.join(10)


class _Peak:
    """The most memory that was in use meanwhile, beyond that of before."""

    def __enter__(self) -> _Peak:
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *exc: object) -> None:
        self.bytes = tracemalloc.get_traced_memory()[1] - self._before
        tracemalloc.stop()


SIZE = 96 * MIB


def _readinto(file: IO[bytes]) -> bytearray:
    content = bytearray(SIZE)
    assert file.readinto(content) == len(content)  # type: ignore[attr-defined]
    return content


def _rest(file: IO[bytes], *sizes: int) -> bytes:
    """Return what `read()` gives after reads of these sizes."""
    start = [file.read(size) for size in sizes]
    content = file.read()
    assert b"".join(start) == BLOCK[: sum(sizes)]
    return content


READS: dict[str, Callable[[S3], bytes | bytearray]] = {
    "read_bytes": lambda fs: fs.read_bytes(f"{SIZE}"),
    "read": lambda fs: _rest(fs.open(f"{SIZE}", "rb")),
    "raw, within a stream": lambda fs: _rest(fs.open(f"{SIZE}", "rb", buffering=0), *[1_000_000] * 4),
    "into memory": lambda fs: _readinto(fs.open(f"{SIZE}", "rb")),
}


@pytest.mark.parametrize("read", READS)
def test_a_large_object_is_in_memory_once(fs: S3, read: str) -> None:
    with _Peak() as peak:
        content = READS[read](fs)
    start = SIZE - len(content)
    for at in range(0, len(content), 1_000_003):
        part = memoryview(content)[at : at + 1_000_003]
        assert part == BLOCK[(start + at) % 1_000_003 :][: len(part)]
    assert peak.bytes < 1.1 * SIZE


def test_a_batch_of_large_objects_is_bounded(fs: S3) -> None:
    with _Peak() as peak:
        for outcome in send_many(fs.http, [Request("GET", "3000000")] * 24, 16, max_bytes=10_000_000):
            assert not isinstance(outcome, OSError)
            assert outcome.body == BLOCK[:3_000_000]
    assert peak.bytes < 30_000_000, "all that 16 connections bring are 48 MB"


@pytest.mark.parametrize(
    "read",
    [
        lambda fs: fs.read_bytes(f"{HUGE}"),
        lambda fs: fs.open_blob(f"{HUGE}").read_all(),
        lambda fs: fs.open_blob(f"{HUGE}").pread_many([(HUGE, 0)]),
        lambda fs: list(fs.read_many([f"{HUGE}"] * 2)),
    ],
    ids=["read_bytes", "read_all", "pread_many", "read_many"],
)
def test_an_object_that_does_not_fit_into_memory_is_an_error_that_names_its_size(
    fs: S3, read: Callable[[S3], object]
) -> None:
    _Sized.requests.clear()
    with pytest.raises(OSError, match="4,503,599,627,370,496 bytes do not fit into memory") as caught:
        read(fs)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOMEM, f"s3://bucket/{HUGE}")
    assert len(_Sized.requests) <= 4  # it is not tried again
