"""Buckets as they were resolved: their address and how requests are signed, as `endpoint` or `boto` found them."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core import redaction
from ..objects.access import Endpoint

SIGV4 = "s3v4"
EXPRESS = "v4-s3express"
DEFAULT_REGION = "us-east-1"
"""A store of one's own has no regions, but a signature needs the name of one."""


class ResolvedBucket(NamedTuple):
    """A bucket's address, and how requests to it are signed. Plain data: it belongs to no process."""

    endpoint: Endpoint
    store: str
    """The URL of the store, without the bucket."""
    region: str
    """The region of the credential scope."""
    signing_name: str = "s3"
    """The service of the credential scope: `s3`, `s3express`, `s3-outposts`, `s3-object-lambda`."""
    signature: str | None = SIGV4
    """`SIGV4`, `EXPRESS` (with the credentials of a session of S3 Express), or None for unsigned requests."""
    sign_payload: bool | None = None
    """Whether a body's hash is signed; None: where neither TLS nor a checksum protects it."""
    checksums: bool = True
    """Whether written bodies carry a checksum that the store verifies."""
    credentials: Any = None
    """Credentials of botocore, which refreshes them, or `Credentials`; None where there are none."""

    def __repr__(self) -> str:
        return redaction.representation("ResolvedBucket", self._asdict())
