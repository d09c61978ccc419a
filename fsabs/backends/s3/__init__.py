"""S3, and every store that speaks its protocol: the FS of a bucket.

`bucket.py` is what a bucket looks like as a tree. `boto.py` has the client of boto3, one for each process, and turns
its errors into Python's. `reading.py` reads objects and `writes.py` writes them; `listing.py` lists many pages,
`pages.py` requests and parses one, and `requests.py` sends what is about the bucket.

Frequent requests don't go through boto3. `client.py` sends one request at a time, `pipeline.py` many from one thread;
both take connections from `connections.py`, receive with `receive.py` and retry as `retry.py` and `throttle.py` have
it. A response is parsed in `http1.py` and held to its request in `contract.py` and `duplicates.py`. `endpoint.py` and
`signing.py` are about where requests go and how they are signed; `failures.py` has what may come of them. What only
boto3 can do is in `fallback.py`, under the same contract.
"""

from __future__ import annotations

from .bucket import S3

__all__ = ["S3"]
