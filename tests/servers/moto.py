"""moto's S3 server for quick tests, in a process of its own so that a fork in a test inherits none of its threads.

It offers what `tests.servers.ceph.CephGateway` offers and starts in about a second, but it is an imitation: it checks
no signature, so tests of credentials belong on the gateway. Its talk goes to a file that is shown only when it fails
to start; nothing here imports pytest.
"""

from __future__ import annotations

import http.client
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path

from tests.servers.process import Service, check_alive, free_port, spawn, stop, wait_until


def missing() -> str | None:
    """Returns None when moto's server can be started here, else a sentence that names the command to run."""
    absent = [name for name in ("moto", "flask", "werkzeug") if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    return f"moto's server needs {', '.join(absent)}: run `{sys.executable} -m pip install 'moto[s3,server]>=5'`."


class MotoServer(Service):
    """One server, empty at `start`; the attributes are those of `CephGateway`."""

    access_key = "fsabsaccess"
    secret_key = "fsabssecret"
    region = "us-east-1"

    def __init__(self) -> None:
        self._port = 0
        self._root: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The URL to give to a client."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns once an object was written and read back; raises RuntimeError with what the server said."""
        if (reason := missing()) is not None:
            raise RuntimeError(reason)
        self._port = free_port()
        self._root = Path(tempfile.mkdtemp(prefix="fsabs-moto-"))
        argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        try:
            self._process = spawn(argv, self._root / "moto.out", _environment())
            wait_until(self._works, 60, "an object to come back from moto")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the server and removes its folder; harmless when not started."""
        if self._process is not None:
            stop(self._process)
            self._process = None
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    def create_bucket(self, name: str) -> None:
        """Makes the bucket; one that exists is left as it is."""
        status, body = self.request("PUT", f"/{name}")
        if status not in (200, 409):
            raise RuntimeError(f"bucket {name}: {status} {body[:300]!r}")

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Sends one request and returns its status and body; `path` is "/bucket" or "/bucket/key", unquoted."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, urllib.parse.quote(path), body, {"Authorization": self._authorization})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    @property
    def _authorization(self) -> str:
        # Without one a private object is refused; what it says is used to tell the account and the region, no more.
        scope = f"{self.access_key}/20260101/{self.region}/s3/aws4_request"
        return f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=unchecked"

    def _works(self) -> bool:
        assert self._process is not None
        assert self._root is not None
        check_alive(self._process, self._root / "moto.out")
        try:
            self.create_bucket("fsabs-ready")
            put, _ = self.request("PUT", "/fsabs-ready/probe", b"ready")
            return put == 200 and self.request("GET", "/fsabs-ready/probe") == (200, b"ready")
        except (OSError, http.client.HTTPException):
            return False


def _environment() -> dict[str, str]:
    # A user's settings of moto or AWS must not change what the tests see.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MOTO_", "AWS_"))}
    return {**kept, "PYTHONWARNINGS": "ignore"}
