"""What the tests' two servers of S3 have in common: their keys, and a side channel that is not the code under test."""

from __future__ import annotations

import abc
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
    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Send one request and return its status and body.

        `path` is "/bucket" or "/bucket/key", unquoted and without a query.
        """

    def create_bucket(self, name: str) -> None:
        """Make the bucket; one of this user's that exists is left as it is."""
        status, body = self.request("PUT", f"/{name}")
        if status not in (200, 409):
            raise OSError(f"bucket {name}: {status} {body[:300]!r}")

    def probe(self) -> bool:
        """Write an object and read it back."""
        self.create_bucket("fsabs-ready")
        put, _ = self.request("PUT", "/fsabs-ready/probe", b"ready")
        return put == 200 and self.request("GET", "/fsabs-ready/probe") == (200, b"ready")
