"""A bucket behind a server that fails: it resets, cuts bodies short, says 503, drips, lies about lengths, hangs up.

Run as a program it takes the rate of faults, a number to begin chance with and optionally a certificate's file (TLS),
prints its port and serves `GET` and `HEAD /bucket/<size>-<n>`: `size` bytes that `content` makes from the key, so that
every answer can be checked. Each fault is chosen by chance for each request.
"""

from __future__ import annotations

import hashlib
import random
import re
import socket
import ssl
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ("reset", "cut head", "short", "longer", "503", "drip", "hang up", "close")


def content(key: str) -> bytes:
    """The object of a key "<size>-<n>"."""
    size = int(key.partition("-")[0])
    block = hashlib.sha512(key.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


class Handler(BaseHTTPRequestHandler):
    """Serves objects, or fails."""

    protocol_version = "HTTP/1.1"
    rate = 0.0
    chance = random.Random(0)
    lock = threading.Lock()

    def do_HEAD(self) -> None:
        self._answer(content(self._key()), b"")

    def do_GET(self) -> None:
        data = content(self._key())
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            data = data[int(asked[1]) : int(asked[2]) + 1]
        with self.lock:
            fault = self.chance.choice(FAULTS) if self.chance.random() < self.rate else ""
        if fault == "":
            self._answer(data, data, 206 if asked else 200)
        else:
            self._fail(fault, data, 206 if asked else 200)

    def _key(self) -> str:
        return self.path.rpartition("/")[2].partition("?")[0]

    def _answer(self, announced: bytes, body: bytes, status: int = 200, extra: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(announced) + extra))
        self.send_header("ETag", f'"{hashlib.md5(self._key().encode()).hexdigest()}"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def _fail(self, fault: str, data: bytes, status: int) -> None:
        if fault == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif fault == "cut head":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-")
        elif fault == "short":
            self._answer(data, data[: len(data) // 2], status)
        elif fault == "longer":
            self._answer(data, data, status, extra=10)
        elif fault == "503":
            self._answer(b"", b"", 503)
            return
        elif fault == "drip":
            self._answer(data, data[:10], status)
            for start in range(10, len(data), max(1, len(data) // 5)):
                time.sleep(0.002)
                self.wfile.write(data[start : start + max(1, len(data) // 5)])
            return
        elif fault == "close":
            self._answer(data, data, status)  # and close, though it said nothing of it
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
