"""PFIO's helpers for tests: zip files, random names, a web server in memory."""

from __future__ import annotations

import contextlib
import functools
import http.server
import pathlib
import secrets
import string
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

_LETTERS = string.ascii_letters + string.digits


class ZipForTest:
    """A zip file with the files of a nested dict, written at once."""

    def __init__(self, destfile: str, data: dict[str, Any] | None = None) -> None:
        self.data: dict[str, Any] = {"file": b"foo", "dir": {"f": b"bar"}} if data is None else data
        self.destfile = destfile
        with zipfile.ZipFile(destfile, "w") as archive:
            for name, content in _files(self.data, ""):
                archive.writestr(name, content)

    def content(self, path: str) -> Any:
        """Return the content of a file of the zip; None if there is none."""
        found: Any = self.data
        for name in path.split("/"):
            if not isinstance(found, dict):
                return found
            found = found.get(name)
        return found if not isinstance(found, dict) else None


def _files(data: dict[str, Any], above: str) -> Iterator[tuple[str, bytes]]:
    for name, content in data.items():
        if isinstance(content, dict):
            yield from _files(content, f"{above}{name}/")
        else:
            yield above + name, content


def make_zip(zipfilename: str, root_dir: str, base_dir: str) -> None:
    """Write what is below `root_dir/base_dir` to a zip file; names in it are relative to `root_dir`."""
    root = pathlib.Path(root_dir)
    with zipfile.ZipFile(zipfilename, "w") as archive:
        for path in sorted((root / base_dir).rglob("*")):
            archive.write(path, path.relative_to(root))


def make_random_str(n: int) -> str:
    """Return a text of `n` random letters and digits."""
    return "".join(secrets.choice(_LETTERS) for _ in range(n))


def randstring(length: int = 16) -> str:
    """Return a text of `length` random letters and digits."""
    return make_random_str(length)


def patch_subprocess(stdout: Any, stderr: Any = b"") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator: while the function runs, `subprocess.run` gives this output, and runs nothing."""

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            done = subprocess.CompletedProcess("", 0, stdout, stderr)
            with mock.patch.object(subprocess, "run", autospec=True, return_value=done):
                return function(*args, **kwargs)

        return wrapper

    return decorator


class OnMemoryHTTPServerForTest(http.server.BaseHTTPRequestHandler):
    """Answers a GET with what was PUT at that path."""

    files: dict[str, bytes] = {}  # noqa: RUF012 - PFIO's: of all servers of the process

    def do_GET(self) -> None:
        """Send the content of a path."""
        content = self.files.get(self.path)
        self.send_response_only(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def do_PUT(self) -> None:
        """Keep the content of a path."""
        length = self.headers.get("Content-Length")
        if length is not None:
            self.files[self.path] = self.rfile.read(int(length))
        self.send_response_only(501 if length is None else 201)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextlib.contextmanager
def make_http_server() -> Iterator[tuple[http.server.HTTPServer, int]]:
    """Run a server of `OnMemoryHTTPServerForTest` for this machine alone; yield it and its port."""
    OnMemoryHTTPServerForTest.files.clear()
    with http.server.HTTPServer(("127.0.0.1", 0), OnMemoryHTTPServerForTest) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server, server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
