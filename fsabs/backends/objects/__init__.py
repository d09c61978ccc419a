"""One client of object stores, for all of them: the engine, which knows no store.

`dialect.py` says what a store is to the engine: its requests, and what its responses mean. `store.py` is the FS, a tree
of names over keys; `reading.py` reads objects, `writing.py` and `uploads.py` write them, `listing.py` lists many pages.

`client.py` sends one request at a time, `pipeline.py` many from one thread. Both take connections from
`connections.py`, receive with `receiver.py` and decide on what failed by `retry.py`. A response is parsed in `http1.py`
and held to its request in `contract.py`; `failures.py` has what may come of one.
"""

from __future__ import annotations

from .dialect import Access, Dialect, Endpoint
from .store import ObjectStore

__all__ = ["Access", "Dialect", "Endpoint", "ObjectStore"]
