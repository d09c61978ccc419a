"""S3, and every store that speaks its protocol: a dialect of `backends/objects/`, which sends all requests.

`bucket.py` is the FS and `dialect.py` its requests and responses. `endpoint.py` finds out where a bucket is and how a
process reaches it, and signs. `boto.py` has what only boto3 knows.
"""

from __future__ import annotations

from .bucket import S3

__all__ = ["S3"]
