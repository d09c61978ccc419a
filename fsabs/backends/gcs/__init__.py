"""Google Cloud Storage: a dialect of `backends/objects/`, which sends all requests.

`bucket.py` is the FS with its requests and responses, and `access.py` how a process reaches a bucket: by tokens that
google-auth fetches.
"""

from __future__ import annotations

from .bucket import GCS

__all__ = ["GCS"]
