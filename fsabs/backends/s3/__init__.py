"""S3, and every store that speaks its protocol: the FS of a bucket.

`bucket.py` is what a bucket looks like as a tree. `boto.py` has the client of boto3, one for each process, and turns
its errors into Python's; `reading.py` and `objects.py` read and write single objects. Plain GETs go past boto3: what is
asked and answered is in `answers.py`, `signing.py` and `checksums.py`, one request at a time in `wire.py`, many at once
in `flight.py`.
"""

from __future__ import annotations

from .bucket import S3

__all__ = ["S3"]
