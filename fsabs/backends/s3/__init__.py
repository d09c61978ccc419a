"""S3, and every store that speaks its protocol: the FS of a bucket.

Here is what a bucket looks like as a tree. `client.py` has the client of boto3, one for each process, and turns its
errors into Python's; `objects.py` reads and writes single objects.
"""

from __future__ import annotations

from .bucket import S3

__all__ = ["S3"]
