"""moto's S3 server for quick tests, in a process of its own so that a fork in a test inherits none of its threads.

It offers what `tests.servers.ceph.CephGateway` offers and starts in about a second, but it is an imitation: it checks
no signature, so tests of credentials belong on the gateway. Its talk goes to a file that is shown only when it fails
to start; nothing here imports pytest.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import urllib.parse

from tests.servers.process import HTTPServer


def missing() -> str | None:
    """Returns None when moto's server can be started here, else a sentence that names the command to run."""
    absent = [name for name in ("moto", "flask", "werkzeug") if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    return f"moto's server needs {', '.join(absent)}: run `{sys.executable} -m pip install 'moto[s3,server]>=5'`."


class MotoServer(HTTPServer):
    """One server; the attributes are those of `CephGateway`."""

    missing = staticmethod(missing)
    name = "moto"
    access_key = "fsabsaccess"
    secret_key = "fsabssecret"
    region = "us-east-1"

    def command(self, port: int) -> list[str]:
        """Return the command."""
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]

    def environment(self) -> dict[str, str]:
        """Return an environment in which no setting of a user's changes what the tests see."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MOTO_", "AWS_"))}
        return {**kept, "PYTHONWARNINGS": "ignore"}

    def probe(self) -> bool:
        """Write an object and read it back."""
        self.create_bucket("fsabs-ready")
        put, _ = self.request("PUT", "/fsabs-ready/probe", b"ready")
        return put == 200 and self.request("GET", "/fsabs-ready/probe") == (200, b"ready")

    def create_bucket(self, name: str) -> None:
        """Makes the bucket; one that exists is left as it is."""
        status, body = self.request("PUT", f"/{name}")
        if status not in (200, 409):
            raise RuntimeError(f"bucket {name}: {status} {body[:300]!r}")

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Sends one request and returns its status and body; `path` is "/bucket" or "/bucket/key", unquoted."""
        return self.send(method, urllib.parse.quote(path), body, {"Authorization": self._authorization})

    @property
    def _authorization(self) -> str:
        # Without one a private object is refused; what it says is used to tell the account and the region, no more.
        scope = f"{self.access_key}/20260101/{self.region}/s3/aws4_request"
        return f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=unchecked"
