"""A real Azure Blob service for tests: Azurite, which npm installs into the tests' cache.

Nothing here imports pytest or fsabs: `AzuriteServer` has a side channel of its own, which signs by the account's key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import os
import re
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.parse
from pathlib import Path

from tests.servers.hdfs_jvm import cache_dir
from tests.servers.process import HTTPServer, locked

VERSION = "3.37.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""That which Azurite's documents publish."""
_BLOB = "node_modules/azurite/dist/src/blob"
_PROGRAM = f"{_BLOB}/main.js"
_SESSION = """
require("{blob}/utils/constants.js").DEFAULT_GC_INTERVAL_MS = 24 * 60 * 60 * 1000;
require("{blob}/main.js");
"""
"""It answers nothing while it frees what removed blobs held, else every ten minutes: a minute for 20,000 of them."""


def _folder() -> Path:
    return cache_dir() / f"azurite-{VERSION}"


def missing() -> str | None:
    """Return None if Azurite can be started here, else a sentence that says what is missing."""
    if shutil.which("node") is None:
        return "Azurite needs Node.js: run `apt-get install -y --no-install-recommends nodejs npm` as root."
    if not (_folder() / _PROGRAM).is_file():
        return f"Azurite is not in {_folder()}: run `python -m tests.servers install`."
    return None


def install() -> None:
    """Install Azurite into the cache, where it is not there; safe in several processes at once and to kill."""
    folder = _folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock")):
        for killed in folder.parent.glob("azurite-download-*"):
            shutil.rmtree(killed, ignore_errors=True)
        if folder.is_dir():
            return
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="azurite-download-") as tmp:
            fresh = Path(tmp, "fresh")
            command = ["npm", "install", "--prefix", str(fresh), "--no-audit", "--no-fund", f"azurite@{VERSION}"]
            trusted = {
                "NODE_EXTRA_CA_CERTS": ssl.get_default_verify_paths().cafile or ""
            }  # as pip does; Node has its own
            done = subprocess.run(
                command,
                env={**trusted, **os.environ},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")
            fresh.rename(folder)


class AzuriteServer(HTTPServer):
    """One server, with the account and the key that its documents publish."""

    missing = staticmethod(missing)
    name = "azurite"
    account, key = ACCOUNT, KEY

    @property
    def endpoint(self) -> str:
        """The URL of the account's blob service."""
        return f"{super().endpoint}/{ACCOUNT}"

    def launch(self) -> None:
        """Start it: it keeps all in memory, and takes newer versions of the API than it knows."""
        argv = ["node", "--eval", _SESSION.format(blob=_folder() / _BLOB), "--"]
        argv += ["blob", "--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
        self.spawn(self.name, [*argv, "--blobHost", "127.0.0.1", "--blobPort", str(self._port)])

    def probe(self) -> bool:
        """Write a blob and read it back."""
        self.create_container("fsabs-ready")
        self.put("fsabs-ready", "probe", b"ready")
        return self.get("fsabs-ready", "probe") == b"ready"

    # ---- the side channel

    def create_container(self, name: str) -> None:
        """Make a container; one that exists is left as it is."""
        self.request("PUT", f"/{name}", {"restype": "container"}, ok=(201, 409))

    def discard(self, container: str) -> None:
        """Remove a container with its blobs."""
        self.request("DELETE", f"/{container}", {"restype": "container"}, ok=(202,))

    def put(self, container: str, key: str, data: bytes, **metadata: str) -> None:
        """Make a blob."""
        fields = {f"x-ms-meta-{name}": value for name, value in metadata.items()}
        self.request("PUT", f"/{container}/{key}", {}, data, {"x-ms-blob-type": "BlockBlob", **fields}, ok=(201,))

    def get(self, container: str, key: str) -> bytes:
        """Return the content of a blob."""
        return self.request("GET", f"/{container}/{key}", {}, ok=(200,))

    def list(self, container: str, prefix: str) -> list[str]:
        """Return the names of all blobs that begin with `prefix`."""
        found, marker = [], ""
        while True:
            query = {"restype": "container", "comp": "list", "prefix": prefix, "marker": marker}
            text = self.request("GET", f"/{container}", query, ok=(200,)).decode()
            found += [html.unescape(name) for name in re.findall("<Blob><Name>([^<]*)</Name>", text)]
            (marker,) = re.findall("<NextMarker>([^<]*)</NextMarker>", text) or [""]
            if not marker:
                return found

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        ok: tuple[int, ...] = (),
    ) -> bytes:
        """Send one request, signed; return the body of a response with a status that is `ok`."""
        quoted = f"/{ACCOUNT}{urllib.parse.quote(path)}"
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        fields = {"x-ms-date": date, "x-ms-version": "2021-12-02", **(headers or {})}
        own = "".join(f"{name}:{value}\n" for name, value in sorted(fields.items()))
        parameters = "".join(f"\n{name}:{value}" for name, value in sorted(query.items()))
        text = f"{method}\n\n\n{len(body) or ''}\n\n\n\n\n\n\n\n\n{own}/{ACCOUNT}{quoted}{parameters}"
        signed = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
        target = quoted + ("?" + urllib.parse.urlencode(query) if query else "")
        fields["Authorization"] = f"SharedKey {ACCOUNT}:{signed}"
        status, content = self.send(method, target, body, fields)
        if status not in ok:
            raise OSError(f"{method} {path}: {status} {content[:300]!r}")
        return content
