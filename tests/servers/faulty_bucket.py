"""A bucket behind a server that fails: it resets, cuts bodies short, garbles them, says 503, drips, lies
about lengths, hangs up.

Run as a program it takes the rate of faults, a number to begin chance with and optionally a certificate's file (TLS),
prints its port and serves `GET` and `HEAD /bucket/<size>-<n>`: `size` bytes that `content` makes from the key, so that
every answer can be checked. Each fault is chosen by chance for each request.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import random
import re
import socket
import ssl
import struct
import sys
import threading
import time
import zlib
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType

import google_crc32c

FAULTS = ("reset", "cut head", "short", "longer", "503", "drip", "hang up", "close", "garbled")
CHECKSUMS = {
    "crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "crc32c": lambda data: int(google_crc32c.value(data)).to_bytes(4, "big"),
    "sha1": lambda data: hashlib.sha1(data).digest(),
    "sha256": lambda data: hashlib.sha256(data).digest(),
}


@functools.lru_cache(maxsize=4)  # many ranges of one large object
def content(key: str) -> bytes:
    """The object of a key "<size>-<n>"."""
    size = int(key.partition("-")[0])
    block = hashlib.sha512(key.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


class Handler(BaseHTTPRequestHandler):
    """Serves objects, or fails."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a head and a body are two packets: 40 ms, otherwise
    rate = 0.0
    chance = random.Random(0)
    lock = threading.Lock()

    def do_HEAD(self) -> None:
        self._answer(content(self._key()), b"")

    def do_GET(self) -> None:
        whole = data = content(self._key())
        more: dict[str, str] = {}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked:
            data = whole[int(asked[1]) : int(asked[2]) + 1]
            more["Content-Range"] = f"bytes {asked[1]}-{int(asked[1]) + len(data) - 1}/{len(whole)}"
        else:
            more = self._checksum(whole)
        with self.lock:
            fault = self.chance.choice(FAULTS) if self.chance.random() < self.rate else ""
        if fault == "garbled" and not (more and data and "Content-Range" not in more):
            fault = "reset"  # nobody could tell
        if fault == "":
            self._answer(data, data, 206 if asked else 200, more)
        else:
            self._fail(fault, data, 206 if asked else 200, more)

    def _key(self) -> str:
        return self.path.rpartition("/")[2].partition("?")[0]

    def _checksum(self, data: bytes) -> dict[str, str]:
        """The header that a key "<size>-<kind>..." asks for; "bad" and "composite" ones are no checksum of the data."""
        if self.headers.get("x-amz-checksum-mode") != "ENABLED":
            return {}
        kind, _, how = self._key().partition("-")[2].partition("-")
        if kind not in CHECKSUMS:
            return {}
        value = base64.b64encode(CHECKSUMS[kind](b"other" if how in ("bad", "composite") else data)).decode()
        return {f"x-amz-checksum-{kind}": value + ("-3" if how == "composite" else "")}

    def _answer(
        self,
        announced: bytes,
        body: bytes,
        status: int = 200,
        more: Mapping[str, str] = MappingProxyType({}),
        extra: int = 0,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(announced) + extra))
        self.send_header("ETag", f'"{hashlib.md5(self._key().encode()).hexdigest()}"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _fail(self, fault: str, data: bytes, status: int, more: Mapping[str, str]) -> None:
        if fault == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif fault == "cut head":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-")
        elif fault == "short":
            self._answer(data, data[: len(data) // 2], status, more)
        elif fault == "longer":
            self._answer(data, data, status, more, extra=10)
        elif fault == "garbled":
            self._answer(data, data[:-1] + bytes([data[-1] ^ 1]), status, more)
            return
        elif fault == "503":
            self._answer(b"", b"", 503)
            return
        elif fault == "drip":
            self._answer(data, data[:10], status, more)
            for start in range(10, len(data), max(1, len(data) // 5)):
                time.sleep(0.002)
                self.wfile.write(data[start : start + max(1, len(data) // 5)])
            return
        elif fault == "close":
            self._answer(data, data, status, more)  # and close, though it said nothing of it
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        """Says nothing."""


class Server(ThreadingHTTPServer):
    """Without a word about clients that hang up."""

    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, *args: object) -> None:
        """Says nothing."""


if __name__ == "__main__":
    Handler.rate = float(sys.argv[1])
    Handler.chance = random.Random(int(sys.argv[2]))
    server = Server(("127.0.0.1", 0), Handler)
    if len(sys.argv) > 3:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[3])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
