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

from tests.servers.s3_server import S3Server


def missing() -> str | None:
    """Returns None when moto's server can be started here, else a sentence that names the command to run."""
    absent = [name for name in ("moto", "flask", "werkzeug") if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    return f"moto's server needs {', '.join(absent)}: run `{sys.executable} -m pip install 'moto[s3,server]>=5'`."


class MotoServer(S3Server):
    """One server."""

    missing = staticmethod(missing)
    name = "moto"

    def launch(self) -> None:
        """Start it, in an environment in which no setting of a user's changes what the tests see."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MOTO_", "AWS_"))}
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        self.spawn(self.name, command, {**kept, "PYTHONWARNINGS": "ignore"})

    def request(self, method: str, path: str, body: bytes | None = None, query: str = "") -> tuple[int, bytes]:
        """Send one request; without credentials a private object is refused, and what they are is not checked."""
        scope = f"{self.access_key}/20260101/{self.region}/s3/aws4_request"
        signed = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=unchecked"
        target = urllib.parse.quote(path)
        return self.send(method, f"{target}?{query}" if query else target, body, {"Authorization": signed})
