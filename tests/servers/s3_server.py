"""What the tests' two servers of S3 have in common: their keys, and a side channel that is not the code under test."""

from __future__ import annotations

import abc
import html
import re
import urllib.parse
from typing import Any

from tests.servers.process import HTTPServer


class S3Server(HTTPServer):
    """A server with one user, who has `access_key` and `secret_key`; any region will do to sign."""

    access_key = "fsabsaccess"
    secret_key = "fsabssecret"
    region = "us-east-1"

    @property
    def options(self) -> dict[str, Any]:
        """The options of `from_url` that lead to this server."""
        keys = {"aws_access_key_id": self.access_key, "aws_secret_access_key": self.secret_key}
        return {"endpoint": self.endpoint, "region": self.region, **keys}

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which `s3://` is this server."""
        keys = {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        return {"S3_ENDPOINT": self.endpoint, "AWS_DEFAULT_REGION": self.region, **keys}

    @abc.abstractmethod
    def request(self, method: str, path: str, body: bytes | None = None, query: str = "") -> tuple[int, bytes]:
        """Send one request and return its status and body.

        `path` is "/bucket" or "/bucket/key", unquoted; of the `query`, nothing is signed.
        """

    def create_bucket(self, name: str) -> None:
        """Make the bucket; one of this user's that exists is left as it is."""
        status, body = self.request("PUT", f"/{name}")
        if status not in (200, 409):
            raise OSError(f"bucket {name}: {status} {body[:300]!r}")

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Make an object."""
        self._content("PUT", f"/{bucket}/{key}", data)

    def get(self, bucket: str, key: str) -> bytes:
        """Return the content of an object."""
        return self._content("GET", f"/{bucket}/{key}")

    def list(self, bucket: str, prefix: str) -> list[str]:
        """Return the names of all objects that begin with `prefix`."""
        query = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
        found: list[str] = []
        while True:
            page = self._content("GET", f"/{bucket}", query=urllib.parse.urlencode(query)).decode()
            found += [urllib.parse.unquote(html.unescape(name)) for name in re.findall("<Key>([^<]*)</Key>", page)]
            following = re.search("<NextContinuationToken>([^<]*)</NextContinuationToken>", page)
            if following is None:
                return found
            query["continuation-token"] = html.unescape(following[1])

    def _content(self, method: str, path: str, data: bytes | None = None, query: str = "") -> bytes:
        status, body = self.request(method, path, data, query)
        if status != 200:
            raise OSError(f"{method} {path}: {status} {body[:300]!r}")
        return body

    def probe(self) -> bool:
        """Write an object and read it back."""
        self.create_bucket("fsabs-ready")
        self.put("fsabs-ready", "probe", b"ready")
        return self.get("fsabs-ready", "probe") == b"ready"
