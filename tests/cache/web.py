"""A web server in a thread that answers as it is told: what a shared cache may do wrong, for tests."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    """What was asked."""

    method: str
    path: str
    token: str | None
    body: bytes


class Reply(NamedTuple):
    """What to answer; `announced` is the length that is claimed, and None for the true one."""

    status: int = 200
    body: bytes = b""
    announced: int | None = None


class Web:
    """A running server: its URL, every request so far, and the number of connections."""

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.pause = 0.0
        """Seconds between two pieces, of 64 KiB, of a body that is taken."""
        self.answer = answer
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                web.connections += 1
                super().setup()

            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                body = bytearray()
                while piece := self.rfile.read(min(1 << 16, size - len(body))):
                    body += piece
                    time.sleep(web.pause)
                request = Request(self.command, self.path, self.headers.get("Authorization"), bytes(body))
                web.requests.append(request)
                reply = web.answer(request)
                self.send_response(reply.status)
                announced = len(reply.body) if reply.announced is None else reply.announced
                if reply.status != 204:
                    self.send_header("Content-Length", str(announced))
                self.end_headers()
                self.wfile.write(reply.body)
                self.close_connection = announced != len(reply.body)

            def do_PUT(self) -> None:
                self.do_GET()

            def log_message(self, *args: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        """The URL of its root."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def asked(self, method: str) -> list[str]:
        """The paths that were asked for by a method."""
        return [request.path for request in self.requests if request.method == method]


@contextlib.contextmanager
def serving(answer: Callable[[Request], Reply]) -> Iterator[Web]:
    """A server that answers each request by `answer`."""
    web = Web(answer)
    thread = threading.Thread(target=web.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        web.server.shutdown()
        web.server.server_close()
        thread.join()
