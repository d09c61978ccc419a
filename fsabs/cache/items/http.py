"""PFIO's `HTTPCache`: items that a web server keeps."""

from __future__ import annotations

import os
import urllib.parse
from typing import Any

from ...core import identity
from ..http import MAX_ITEM_BYTES, TIMEOUT, HTTPConnector
from ..single_flight import MISSING
from .base import ItemCache
from .codecs import Codec

_NONE, _BYTES = b"N", b"B"


class HTTPCache(ItemCache):
    """Items in a web server, for all machines that reach it; item `i` lies at `url/i`, in a frame that checks it.

    Whatever the server does wrong is a miss and one warning. The frame (see `frames`) names the item's path, the codec
    and the fingerprint: an item of another one is a miss.

    Args:
        length: how many items there can be.
        url, bearer_token_path, timeout: as of `HTTPConnector`.
        do_pickle: pickle items.
        codec: store what a codec makes of items, as `FileCache` does.
        fingerprint: what the items are derived from, a URL and version say.
        max_item_bytes: the largest item that is accepted.
        raw: items are their bytes and nothing else, as PFIO has them. **Nothing checks them**: whatever the server
            sends with status 200 is taken for the item. None can't be stored.
    """

    def __init__(
        self,
        length: int,
        url: str,
        bearer_token_path: str | os.PathLike[str] | None = None,
        do_pickle: bool = False,
        *,
        codec: str | Codec | None = None,
        timeout: float = TIMEOUT,
        fingerprint: str | bytes = b"",
        max_item_bytes: int = MAX_ITEM_BYTES,
        raw: bool = False,
    ) -> None:
        super().__init__(length, do_pickle, codec, cache_size_limit=None)
        self.connector: HTTPConnector = HTTPConnector(url, bearer_token_path, timeout)
        source = fingerprint.hex() if isinstance(fingerprint, bytes) else fingerprint
        self._name = (urllib.parse.urlsplit(self.connector.url).path, self.codec.name, source)
        self._max_item_bytes = max_item_bytes
        self.raw = raw

    @property
    def multiprocess_safe(self) -> bool:
        """True: processes meet at the server only."""
        return True

    def put(self, i: int, data: Any) -> bool:
        """Store an item in place of an earlier one; return whether the server accepted it."""
        suffix = self._suffix(i)
        if self.raw:
            stored = (data is not None or self.do_pickle) and self.connector.put(suffix, self.codec.encode(data))
        else:
            body = _NONE if data is None and not self.do_pickle else _BYTES + self.codec.encode(data)
            stored = self.connector.put_framed(suffix, identity.encode(suffix, *self._name), body)
        self._puts += stored
        return stored

    def _look(self, i: int) -> Any:
        suffix = self._suffix(i)
        if self.raw:
            body = self.connector.get(suffix, self._max_item_bytes)
        else:
            name = identity.encode(suffix, *self._name)
            body = self.connector.get_framed(suffix, name, self._max_item_bytes + len(_BYTES))
            if body == _NONE:
                return None
            body = body[len(_BYTES) :] if body is not None else None
        if body is None:
            return MISSING
        try:
            return self.codec.decode(body)
        except Exception as exc:  # a codec may raise anything for another program's item
            self.connector.warn(f"has no item of codec {self.codec.name!r}: {type(exc).__name__}: {exc}")
            return MISSING

    def _suffix(self, i: int) -> str:
        return str(self._check(i))

    def close(self) -> None:
        """Close this process's connections."""
        self.connector.close()
