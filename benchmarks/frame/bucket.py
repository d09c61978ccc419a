"""A bucket of many keys that nobody stores: the tests' synthetic bucket, its pages made before they are asked for."""

from __future__ import annotations

import functools
from http.server import ThreadingHTTPServer

from tests.servers import synthetic_bucket

from . import serving


def serve(total: int) -> None:
    """Print the port, and serve `total` keys for ever; all pages are made before, so that the client's time counts."""
    synthetic_bucket.Handler.total = total
    synthetic_bucket.page = functools.cache(synthetic_bucket.page)
    for start in range(0, total, 1000):
        synthetic_bucket.page(start, total)
    server = ThreadingHTTPServer(("127.0.0.1", 0), synthetic_bucket.Handler)
    serving.announce(server.server_port)
    server.serve_forever()
