"""A bucket that keeps its own books: it serves as slowly as planned, refuses as planned, and says what it did.

Run as a program it takes a plan as JSON, prints its port, and serves `GET` and `HEAD /bucket/<size>-<n>` (`size`
bytes), `GET /bucket?list-type=2` (the plan's `objects` of `size` bytes, in whatever folder), the files of the plan's
folder, and `GET /books`: what it has counted and timed. What it is given is counted and thrown away. The first
segments of a longer key, `/bucket/<client>/<size>-<n>`, are whose request it is: `GET /clients` has the time of each
client's GETs.
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
import urllib.parse
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
    slow: int = 0
    """Each so many-th request for an object ..."""
    slow_latency: float = 0.0
    """... takes so many seconds until the first byte."""
    cuts: int = 0
    """The connection of each so many-th request for an object is closed in place of a response."""
    writing: float = 0.0
    """Seconds of each object that is written."""
    folder: str = ""
    """The files of this folder are objects, too."""
    clients: tuple[str, ...] = ()
    """Whose folders a listing shows, as a bucket does; without any, whichever folder is listed has the objects."""
    objects: int = 100
    size: int = 10_000


class ClientBook:
    """The time of one client, each moment of which is at most one cause: the one of these that stands first."""

    CAUSES = ("transfer", "first_byte", "held")

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(self.CAUSES, 0.0)
        self._under_way = dict.fromkeys(self.CAUSES, 0)
        self._since = time.monotonic()
        self._held: set[str] = set()

    def change(self, cause: str, by: int, at: float | None = None) -> None:
        """Count that something begins (1) or ends (-1): now, or where nothing has changed since, before."""
        now = time.monotonic() if at is None else max(at, self._since)
        cause_before = next((one for one in self.CAUSES if self._under_way[one]), "")
        if cause_before:
            self.seconds[cause_before] += now - self._since
        self._since = now
        self._under_way[cause] += by

    def hold(self, name: str, held: bool) -> None:
        """Count an object that was refused, or is asked for again."""
        if held != (name in self._held):
            self._held ^= {name}
            self.change("held", 1 if held else -1)


class Handler(BaseHTTPRequestHandler):
    """Serves objects and listings."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    plan = Plan()
    books: dict[str, float]
    clients: dict[str, ClientBook]
    client: ClientBook
    under_way = ""
    arrived = 0.0
    lock = threading.Condition()
    asked = 0
    serving = 0

    def parse_request(self) -> bool:
        """Note when a request came: its headers are still to be read."""
        self.arrived = time.monotonic()
        return super().parse_request()

    def do_HEAD(self) -> None:
        self._object(False)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.plan.writing)
        self._count("puts", 0, self.plan.writing)
        self._send(200, b"", [("ETag", '"e"')])

    def do_GET(self) -> None:
        if self.path == "/books":
            with self.lock:
                self.lock.wait_for(lambda: not self.serving, 5)  # objects are counted when they have been sent
                self._send(200, json.dumps(self.books).encode(), [])
        elif self.path == "/clients":
            with self.lock:
                found = {name: client.seconds for name, client in self.clients.items()}
            self._send(200, json.dumps(found).encode(), [])
        elif "list-type" in self.path:
            time.sleep(self.plan.listing)
            self._count("lists", 0, self.plan.listing)
            query = urllib.parse.parse_qs(self.path.partition("?")[2])
            token, prefix, after = (
                query.get(name, [""])[0] for name in ("continuation-token", "prefix", "start-after")
            )
            self._send(200, self._page(int(token or 0), prefix, after), [])
        else:
            self._object(True)

    def _object(self, body: bool) -> None:
        begin, key = self.arrived, self.path.partition("?")[0].removeprefix("/bucket/")
        of_whom, _, name = key.rpartition("/")
        with self.lock:
            self.client = self.clients.setdefault(of_whom, ClientBook()) if body else ClientBook()
            self.client.hold(name, False)
            self.client.change("first_byte", 1, begin)
            type(self).asked += 1
            type(self).serving += 1
            asked, plan = self.asked, self.plan
        self.under_way = "first_byte"
        try:
            self._serve(name, body, begin, asked, plan)
        finally:
            self._enter("")
            with self.lock:
                type(self).serving -= 1
                self.lock.notify_all()

    def _enter(self, cause: str) -> None:
        with self.lock:
            self.client.change(self.under_way, -1)
            if cause:
                self.client.change(cause, 1)
        self.under_way = cause

    def _serve(self, name: str, body: bool, begin: float, asked: int, plan: Plan) -> None:
        size = self._size(name)
        if size < 0:
            self._count("missing", 0, 0)
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>", [], body)
            return
        time.sleep(plan.slow_latency if plan.slow and asked % plan.slow == 0 else plan.latency)
        if (plan.refused and asked % plan.refused == 0) or (plan.cuts and asked % plan.cuts == 0):
            self._count("refused", 0, 0)
            with self.lock:
                self.client.hold(name, True)
            if plan.cuts:
                self.close_connection = True
            else:
                self._send(503, b"<Error><Code>SlowDown</Code></Error>", [])
            return
        first, last, status, headers = 0, size - 1, 200, [("ETag", '"e"'), ("Accept-Ranges", "bytes")]
        headers.append(("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT"))
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last, status = int(wanted[1]), min(size - 1, int(wanted[2] or size - 1)), 206
            headers.append(("Content-Range", f"bytes {first}-{last}/{size}"))
        self._send(status, self._range(name, first, last + 1), headers, body)
        self._count("gets" if body else "heads", last - first + 1 if body else 0, time.monotonic() - begin)

    def _size(self, name: str) -> int:
        """Return the size of an object; -1 for none."""
        size = name.partition("-")[0]
        if size.isdigit():
            return int(size)
        path = os.path.join(self.plan.folder, name)
        return os.path.getsize(path) if self.plan.folder and os.path.isfile(path) else -1

    def _range(self, name: str, begin: int, end: int) -> bytes:
        if name.partition("-")[0].isdigit():
            return bytes(end - begin)
        with open(os.path.join(self.plan.folder, name), "rb") as file:
            file.seek(begin)
            return file.read(end - begin)

    def _send(self, status: int, data: bytes, headers: list[tuple[str, str]], body: bool = True) -> None:
        self.send_response(status)
        for name, value in [*headers, ("Content-Length", str(len(data))), ("x-amz-request-id", os.urandom(8).hex())]:
            self.send_header(name, value)
        if self.plan.closes:
            self.send_header("Connection", "close")
        self.end_headers()
        if not body:
            return
        bandwidth = self.plan.bandwidth if status < 300 else 0.0
        piece = max(1, int(bandwidth / 100)) if bandwidth else len(data) or 1
        if self.under_way:
            self._enter("transfer")
        for at in range(0, len(data), piece):
            if bandwidth:
                time.sleep(len(data[at : at + piece]) / bandwidth)
            self.wfile.write(data[at : at + piece])

    def _page(self, start: int, prefix: str, after: str) -> bytes:
        names = [f"{self.plan.size}-{number:06}" for number in range(self.plan.objects)]
        names += sorted(os.listdir(self.plan.folder)) if self.plan.folder else []
        folders = [f"{one}/" for one in self.plan.clients] or [prefix[: prefix.rfind("/") + 1]]
        sizes = {f"{folder}{name}": self._size(name) for folder in folders for name in names}
        keys = sorted(key for key, size in sizes.items() if key.startswith(prefix) and key > after and size >= 0)
        end = min(start + 1000, len(keys))
        entries = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;e&quot;</ETag><Size>{sizes[key]}</Size></Contents>"
            for key in keys[start:end]
        )
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{end}</NextContinuationToken>"
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>bucket</Name><KeyCount>{end - start}</KeyCount><EncodingType>url</EncodingType>"
            f"{more if end < len(keys) else '<IsTruncated>false</IsTruncated>'}{entries}</ListBucketResult>"
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

    def clients(self) -> dict[str, dict[str, float]]:
        """Return the seconds of each client, by `ClientBook.CAUSES`."""
        with urllib.request.urlopen(f"{self.endpoint}/clients", timeout=10) as response:
            found: dict[str, dict[str, float]] = json.loads(response.read())
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
    Handler.plan, Handler.books, Handler.clients = Plan(**plan), {}, {}
    server = _Server(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
