"""One client of object stores, for all of them: the engine, which knows no store.

`dialect.py` says what a store is to the engine: its requests, and what its responses mean; `access.py` how it is
reached. `store.py` is the FS, a tree of names over keys; `reading.py` reads objects, `writing.py` writes them,
`listing.py` lists them.

`client.py` sends one request at a time, `pipeline.py` many from one thread. Both take connections from
`connections.py`, and share an exchange in `http1.py`, which parses a response and holds it to its request;
`failures.py` has what may come of one, and how often it is sent again.
"""

from __future__ import annotations

from .access import Access, Endpoint
from .dialect import Dialect
from .store import ObjectStore

__all__ = ["Access", "Dialect", "Endpoint", "ObjectStore"]
