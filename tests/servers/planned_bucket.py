"""A bucket that keeps its own books: it serves as slowly as planned, refuses as planned, and says what it did.

Run as a program it takes a plan as JSON, prints its port, and serves `GET` and `HEAD /bucket/<size>-<n>` (`size`
bytes), `GET /bucket?list-type=2` (the plan's `objects` of `size` bytes), and `GET /books`: what it has counted and
timed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Plan(NamedTuple):
    """How the bucket serves."""

    latency: float = 0.0
    """Seconds until the first byte of an object."""
    bandwidth: float = 0.0
    """Bytes a second of one connection; 0 is no bound."""
    refused: int = 0
    """Each so many-th request for an object gets 503 (slow down)."""
    listing: float = 0.0
    """Seconds of each page of 1,000 names."""
    closes: bool = False
    """Whether each connection is closed after its response."""
    objects: int = 100
    size: int = 10_000


class Handler(BaseHTTPRequestHandler):
    """Serves objects and listings."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    plan = Plan()
    books: dict[str, float]
    lock = threading.Lock()
    asked = 0

    def do_HEAD(self) -> None:
        self._object(False)

    def do_GET(self) -> None:
        if self.path == "/books":
            with self.lock:
                self._send(200, json.dumps(self.books).encode(), [])
        elif "list-type" in self.path:
            time.sleep(self.plan.listing)
            self._count("lists", 0, self.plan.listing)
            found = re.search(r"continuation-token=(\d+)", self.path)
            self._send(200, self._page(int(found[1]) if found else 0), [])
        else:
            self._object(True)

    def _object(self, body: bool) -> None:
        begin, name = time.monotonic(), self.path.partition("?")[0].rpartition("/")[2].partition("-")[0]
        if not name.isdigit():
            self._count("missing", 0, 0)
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>", [], body)
            return
        size = int(name)
        with self.lock:
            type(self).asked += 1
            refuse = self.plan.refused and self.asked % self.plan.refused == 0
        time.sleep(self.plan.latency)
        if refuse:
            self._count("refused", 0, 0)
            self._send(503, b"<Error><Code>SlowDown</Code></Error>", [])
            return
        first, last, status, headers = 0, size - 1, 200, [("ETag", '"e"'), ("Accept-Ranges", "bytes")]
        headers.append(("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT"))
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last, status = int(wanted[1]), min(size - 1, int(wanted[2] or size - 1)), 206
            headers.append(("Content-Range", f"bytes {first}-{last}/{size}"))
        self._send(status, bytes(last - first + 1), headers, body)
        self._count("gets" if body else "heads", last - first + 1 if body else 0, time.monotonic() - begin)

    def _send(self, status: int, data: bytes, headers: list[tuple[str, str]], body: bool = True) -> None:
        self.send_response(status)
        for name, value in [*headers, ("Content-Length", str(len(data))), ("x-amz-request-id", os.urandom(8).hex())]:
            self.send_header(name, value)
        if self.plan.closes:
            self.send_header("Connection", "close")
        self.end_headers()
        piece = max(1, int(self.plan.bandwidth / 100)) if self.plan.bandwidth and status < 300 else len(data) or 1
        for at in range(0, len(data) if body else 0, piece):
            self.wfile.write(data[at : at + piece])
            if piece < len(data):
                time.sleep(len(data[at : at + piece]) / self.plan.bandwidth)

    def _page(self, start: int) -> bytes:
        end = min(start + 1000, self.plan.objects)
        entries = "".join(
            f"<Contents><Key>{self.plan.size}-{number:06}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;e&quot;</ETag><Size>{self.plan.size}</Size></Contents>"
            for number in range(start, end)
        )
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{end}</NextContinuationToken>"
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>bucket</Name><KeyCount>{end - start}</KeyCount><EncodingType>url</EncodingType>"
            f"{more if end < self.plan.objects else '<IsTruncated>false</IsTruncated>'}{entries}</ListBucketResult>"
        ).encode()

    def _count(self, what: str, size: int, seconds: float) -> None:
        with self.lock:
            for name, value in ((what, 1), ("bytes", size), ("seconds", seconds)):
                self.books[name] = self.books.get(name, 0) + value

    def log_message(self, *args: object) -> None:
        """Says nothing."""


class Served(NamedTuple):
    """A running bucket."""

    endpoint: str

    def books(self) -> dict[str, float]:
        """Return what it has counted: `gets`, `heads`, `lists`, `refused`, `bytes`, and `seconds` of objects."""
        with urllib.request.urlopen(f"{self.endpoint}/books", timeout=10) as response:
            found: dict[str, float] = json.loads(response.read())
        return found


@contextlib.contextmanager
def serving(plan: Plan) -> Iterator[Served]:
    """Serve in a process of its own."""
    command = [sys.executable, "-m", "tests.servers.planned_bucket", json.dumps(plan._asdict())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield Served(f"http://127.0.0.1:{int(server.stdout.readline())}")
        finally:
            server.kill()


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


def main(plan: dict[str, Any]) -> None:
    """Serve until killed."""
    Handler.plan, Handler.books = Plan(**plan), {}
    server = _Server(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
