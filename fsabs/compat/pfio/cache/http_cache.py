"""PFIO's caches in a web server, whose items are what PFIO keeps there: the bytes, or pickles, themselves.

`fsabs.cache.HTTPCache` keeps items with a name and a checksum, which PFIO can't read, unless they are `raw`.
"""

from __future__ import annotations

import urllib.parse

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


class HTTPCache(cache.HTTPCache):
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
        super().__init__(length, url, bearer_token_path, do_pickle, raw=True)
        self.connector = HTTPConnector(url, bearer_token_path, trace=trace)
        self.trace = trace
