"""A web server with the habits that web servers have, each to be chosen by what a path begins with."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.server
import re
import ssl
import threading
import urllib.parse
from email.utils import formatdate
from typing import Any, Self

BODY = bytes(range(256)) * 1200
"""Of more bytes than a file is first asked for."""


class WebServer:
    """Serves `files`, by their paths as they are written; a habit before the path changes how.

    `/norange`: no ranges. `/chunked`: no ranges, and no length. `/weak`, `/dated`, `/plain`: a weak ETag, a
    Last-Modified alone, neither. `/nohead`: no HEAD. `/gzip`: compressed, unasked. `/moved`, `/found`: a redirect,
    permanent or not, to the rest of the path at `elsewhere`, if that is set. `/signed`: one to an address that is
    signed. `/auth`: a user `me` with the password `secret`. `/status/NUMBER`: that status.

    With the file of a `certificate` and its key it is one of https.
    """

    def __init__(self, files: dict[str, bytes] | None = None, certificate: str = "") -> None:
        self.files = dict(files or {})
        self.elsewhere = ""
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.sent = 0
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.seen.append((self.command, self.path, headers))
                server.answer(self, self.path, headers)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def paths(self, method: str) -> list[str]:
        """The paths that were asked for by a method."""
        return [path for name, path, _ in self.seen if name == method]

    def answer(self, handler: Any, path: str, headers: dict[str, str]) -> None:
        """Send the response to a request."""
        _, habit, rest = f"{path}/".split("/", 2)
        rest = f"/{rest[:-1]}"
        if habit in ("moved", "found", "signed"):
            where = f"{self.elsewhere}{rest}"
            if habit == "signed":
                where += f"?Expires={2**33}&Signature=abc"
            return self.send(handler, 301 if habit == "moved" else 302, b"elsewhere", {"Location": where})
        if habit == "status":
            return self.send(handler, int(rest[1:].partition("/")[0]), b"", {})
        if habit == "auth" and headers.get("authorization") != f"Basic {base64.b64encode(b'me:secret').decode()}":
            return self.send(handler, 401, b"", {"WWW-Authenticate": "Basic"})
        if habit == "nohead" and handler.command == "HEAD":
            return self.send(handler, 405, b"", {})
        habits = ("norange", "chunked", "weak", "dated", "plain", "nohead", "gzip", "auth")
        plain = rest if habit in habits else path
        plain = re.sub(r"[?&](Expires|Signature)=[^&]*", "", plain)
        data = self.files.get(plain)
        if data is None:
            return self.send(handler, 404, b"nothing", {})
        etag = f'"{hashlib.md5(data).hexdigest()}"'
        dated = {"Last-Modified": formatdate(1_700_000_000 + sum(data[:64]), usegmt=True)}
        fields = {"ETag": etag, **dated}
        if habit == "weak":
            fields["ETag"] = f"W/{etag}"
        elif habit in ("dated", "plain"):
            fields = dated if habit == "dated" else {}
        if headers.get("if-match", etag) != etag:
            return self.send(handler, 412, b"", {})
        if habit == "gzip":
            return self.send(handler, 200, gzip.compress(data), {**fields, "Content-Encoding": "gzip"})
        if habit == "chunked":
            return self.send(handler, 200, data, fields, chunked=True)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
        if asked is None or habit == "norange":
            ranges = {} if habit == "norange" else {"Accept-Ranges": "bytes"}
            return self.send(handler, 200, data, {**fields, **ranges})
        start, end = int(asked[1]), min(int(asked[2]), len(data) - 1)
        if start >= len(data):
            return self.send(handler, 416, b"", {"Content-Range": f"bytes */{len(data)}"})
        fields["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
        return self.send(handler, 206, data[start : end + 1], fields)

    def send(self, handler: Any, status: int, body: bytes, fields: dict[str, str], chunked: bool = False) -> None:
        """Send a response with these header fields; a test may put another function in its place."""
        handler.send_response(status)
        for name, value in fields.items():
            handler.send_header(name, value)
        handler.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(body)))))
        handler.end_headers()
        if handler.command == "HEAD":
            return
        try:
            chunk = b"%x\r\n%s\r\n" % (len(body), body) if chunked and body else body
            handler.wfile.write(chunk + b"0\r\n\r\n" if chunked else chunk)
            self.sent += len(body)
        except OSError:  # a client that has read enough
            handler.close_connection = True


def quoted(path: str) -> str:
    """A path as it stands in a URL."""
    return urllib.parse.quote(path)
