"""PFIO's caches in a web server, whose items are what PFIO keeps there: the bytes, or pickles, themselves.

`fsabs.cache.HTTPCache` keeps items with a name and a checksum, which PFIO can't read.
"""

from __future__ import annotations

import pickle
import urllib.parse
from typing import Any

from .... import cache


class HTTPConnector(cache.HTTPConnector):
    """GET and PUT below a URL.

    Args:
        url: `http://` or `https://`; without a scheme it is http.
        bearer_token_path: a file with a token; `$PFIO_HTTP_BEARER_TOKEN_PATH` if none is given.
        timeout: seconds.
        trace: PFIO's; a trace of `fsabs.trace` sees every cache.
    """

    def __init__(self, url: str, bearer_token_path: str | None = None, timeout: int = 3, trace: bool = False) -> None:
        super().__init__(url, bearer_token_path, timeout)
        self.trace = trace

    def item_path(self, suffix: str) -> str:
        """Return the path of an item on the server; PFIO's names of files have empty segments (`file://tmp/a`)."""
        return urllib.parse.urlsplit(self.url).path + urllib.parse.quote(suffix, safe="/:~")


class HTTPCache(cache.Cache):
    """Items in a web server: the item `i` is at `url/i`.

    Args:
        length: how many items there can be.
        url: below which the server keeps them; no other cache may use it.
        bearer_token_path: a file with a token.
        do_pickle: store pickles of objects; else items are bytes. Reading a pickle runs what is in it: the server has
            to be trusted.
        trace: PFIO's; a trace of `fsabs.trace` sees every cache.
    """

    def __init__(
        self,
        length: int,
        url: str,
        bearer_token_path: str | None = None,
        do_pickle: bool = False,
        trace: bool = False,
    ) -> None:
        if length <= 0:
            raise ValueError(f"length has to be at least 1, and is {length}")
        self.length, self.do_pickle, self.trace = length, do_pickle, trace
        self.connector = HTTPConnector(url, bearer_token_path, trace=trace)

    def __len__(self) -> int:
        return self.length

    @property
    def multiprocess_safe(self) -> bool:
        """True: processes may share the cache."""
        return True

    @property
    def multithread_safe(self) -> bool:
        """True: threads may share the cache."""
        return True

    def put(self, i: int, data: Any) -> bool:
        """Store an item; return whether the server took it."""
        name = self._name(i)
        return self.connector.put(name, pickle.dumps(data) if self.do_pickle else data)

    def get(self, i: int) -> Any:
        """Return an item; None if the server does not have it."""
        data = self.connector.get(self._name(i))
        return pickle.loads(data) if self.do_pickle and data is not None else data

    def _name(self, i: int) -> str:
        if not 0 <= i < self.length:
            raise IndexError(f"index {i} out of range ([0, {self.length - 1}])")
        return str(i)
