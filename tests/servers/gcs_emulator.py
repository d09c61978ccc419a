"""An emulator of Google Cloud Storage for tests: `gcp-storage-emulator`, a package of the extra `test`.

It is run with what the service has and the emulator has not: threads, the generation of an object in the response to a
download, `ifGenerationMatch` of an upload, and pages of a listing. What is left is its own reading of Google's
documents. What only takes time is left out: the description of every object, written anew for each change, and waits
for the client's acknowledgement between the two parts of a response.
Nothing here imports pytest or fsabs.
"""

from __future__ import annotations

import http.server
import importlib.util
import json
import sys
import urllib.parse
from typing import Any

from tests.servers.process import HTTPServer


def missing() -> str | None:
    """Return None if the emulator can be started here, else a sentence that names the command to run."""
    if importlib.util.find_spec("gcp_storage_emulator") is not None:
        return None
    return (
        f"the emulator of Google Cloud Storage is missing: run `{sys.executable} -m pip install gcp-storage-emulator`."
    )


class GcsEmulator(HTTPServer):
    """One emulator."""

    missing = staticmethod(missing)
    name = "gcs"

    def launch(self) -> None:
        """Start this module."""
        self.spawn(self.name, [sys.executable, "-m", "tests.servers.gcs_emulator", str(self._port)])

    def probe(self) -> bool:
        """Write an object and read it back."""
        self.create_bucket("fsabs-ready")
        self.put("fsabs-ready", "probe", b"ready")
        return self.get("fsabs-ready", "probe") == b"ready"

    # ---- the side channel

    def create_bucket(self, name: str) -> None:
        """Make a bucket; one that exists is left as it is."""
        body = json.dumps({"name": name}).encode()
        self._request("POST", "/storage/v1/b?project=p", body, "application/json", ok=(200, 409))

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Make an object."""
        about = json.dumps({"name": key}).encode()
        parts = (b"Content-Type: application/json\r\n\r\n" + about, b"Content-Type: text/plain\r\n\r\n" + data)
        body = b"".join(b"--=x=\r\n%b\r\n" % part for part in parts) + b"--=x=--"
        target = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart"
        self._request("POST", target, body, "multipart/related; boundary==x=", ok=(200,))

    def get(self, bucket: str, key: str) -> bytes:
        """Return the content of an object."""
        return self._request("GET", f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(key, safe='')}?alt=media", ok=(200,))

    def list(self, bucket: str, prefix: str) -> list[str]:
        """Return the names of all objects that begin with `prefix`."""
        found: list[str] = []
        token = ""
        while True:
            query = urllib.parse.urlencode({"prefix": prefix, **({"pageToken": token} if token else {})})
            page = json.loads(self._request("GET", f"/storage/v1/b/{bucket}/o?{query}", ok=(200,)))
            found += [item["name"] for item in page.get("items", ())]
            token = page.get("nextPageToken", "")
            if not token:
                return found

    def _request(
        self, method: str, target: str, body: bytes = b"", kind: str = "text/plain", ok: tuple[int, ...] = ()
    ) -> bytes:
        status, content = self.send(method, target, body, {"Content-Type": kind})
        if status not in ok:
            raise OSError(f"{method} {target}: {status} {content[:300]!r}")
        return content


def main(port: int) -> None:
    """Serve for ever."""
    from gcp_storage_emulator.handlers import objects  # type: ignore[import-untyped]

    download, insert, ls = objects.download, objects.insert, objects.ls

    def there(request: Any, storage: Any, key: str) -> Any:
        try:
            return storage.get_file_obj(request.params["bucket_name"], key)
        except Exception:
            return None

    def downloaded(request: Any, response: Any, storage: Any, *args: Any, **kwargs: Any) -> None:
        if (found := there(request, storage, request.params["object_id"])) is not None:
            response["x-goog-generation"] = found["generation"]
        download(request, response, storage, *args, **kwargs)

    def inserted(request: Any, response: Any, storage: Any, *args: Any, **kwargs: Any) -> None:
        wanted = request.query.get("ifGenerationMatch")
        if wanted is not None:
            key = request.query["name"][0] if "name" in request.query else request.data["meta"]["name"]
            found = there(request, storage, key)
            if wanted[0] != (found["generation"] if found is not None else "0"):
                response.status = http.HTTPStatus.PRECONDITION_FAILED
                return
        insert(request, response, storage, *args, **kwargs)

    def listed(request: Any, response: Any, storage: Any, *args: Any, **kwargs: Any) -> None:
        ls(request, response, storage, *args, **kwargs)
        if response.status != http.HTTPStatus.OK:
            return
        page = json.loads(response._content)
        found = dict.fromkeys(page["prefixes"]) | {item["name"]: item for item in page["items"]}
        start, token = (request.query.get(name, [""])[0] for name in ("startOffset", "pageToken"))
        most = int(request.query.get("maxResults", ["1000"])[0])
        entries = [(name, found[name]) for name in sorted(found) if name >= start and name > token]
        answer: dict[str, Any] = {"kind": page["kind"]}
        answer["items"] = [item for _, item in entries[:most] if item is not None]
        answer["prefixes"] = [name for name, item in entries[:most] if item is None]
        if len(entries) > most:
            answer["nextPageToken"] = entries[most - 1][0]
        response.json(answer)

    objects.download, objects.insert, objects.ls = downloaded, inserted, listed
    from gcp_storage_emulator import server, storage  # type: ignore[import-untyped]

    storage.Storage._write_config_to_file = lambda self: None  # of all objects, which nothing reads again from memory
    server.RequestHandler.disable_nagle_algorithm = True
    server.server.HTTPServer = http.server.ThreadingHTTPServer  # else a connection without a request blocks all others
    server.create_server("127.0.0.1", port, in_memory=True).run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
