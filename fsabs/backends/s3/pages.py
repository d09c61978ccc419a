"""Pages of ListObjectsV2: requested over our own connections, and parsed in bulk by regular expressions.

A store writes the elements of an entry in an order of its own: the pattern is made from the order in the first entry,
and entries of another form are parsed one by one.
"""

from __future__ import annotations

import functools
import html
import re
import urllib.parse
import zlib
from collections.abc import Callable
from datetime import datetime
from errno import EBADMSG
from typing import NamedTuple

from ... import errors
from ...stats import FileStat
from .access import BucketAccess
from .messages import Request, Response
from .requests import query_of, send

_FIELDS = ("Key", "LastModified", "ETag", "Size")
_contents = re.compile(r"<Contents>(.*?)</Contents>", re.DOTALL)
_prefixes = re.compile(r"<CommonPrefixes>\s*<Prefix>([^<]*)</Prefix>\s*</CommonPrefixes>")
_prefix = re.compile(r"<Prefix>([^<]*)</Prefix>")
_texts = re.compile(r">[^<]*<")
_element = re.compile(r"<(Key|LastModified|ETag|Size)>([^<]*)</\1>")
is_plain = re.compile("[^/.\ud800-\udfff][^/\ud800-\udfff]*(?:/[^/.\ud800-\udfff][^/\ud800-\udfff]*)*").fullmatch
"""Matches most of the names that a path can have, in less time than `keys.is_key` takes."""
_MAX_SIZE = 64 * 1024 * 1024
"""Bytes of a page of at most 1,000 entries that came compressed."""
_new = functools.partial(tuple.__new__, FileStat)
_MODE = FileStat("", 0).mode
Text = tuple[str, str, str, str]
"""Key, time, ETag and size of an object, as the page has them."""


class ObjectPage(NamedTuple):
    """One page of a listing."""

    objects: list[Text]
    prefixes: list[str]
    token: str | None
    """What continues the listing; None if this is the last page."""
    decode: Callable[[str], str]
    """Decodes a key."""

    def key(self, number: int) -> str:
        """Return the key of an object."""
        return self.decode(self.objects[number][0])

    def keys(self) -> list[str]:
        """Return the keys of all objects."""
        return list(map(self.decode, (entry[0] for entry in self.objects)))


def fetch(
    fs: BucketAccess,
    prefix: str,
    delimiter: str | None = None,
    token: str | None = None,
    after: str | None = None,
    most: int | None = None,
) -> ObjectPage:
    """Return a page of what is below `prefix`.

    Args:
        fs: of the bucket.
        prefix: of the keys.
        delimiter: keys with one behind the prefix are summed up as common prefixes.
        token: of the page before.
        after: the key behind which the page begins.
        most: how many entries it has at most; 1,000 unless given.
    """
    query = query_of(
        list_type=2,
        encoding_type="url",
        prefix=prefix,
        delimiter=delimiter,
        continuation_token=token,
        start_after=after,
        max_keys=most,
    )
    text = _text(send(fs, Request("GET", "", query, fs.bucket_headers)))
    page = parse(text)
    listed = _prefix.search(text.partition("<Contents>")[0].partition("<CommonPrefixes>")[0])
    # Ceph encodes keys, but not the prefix, and drops what XML can't carry.
    same = listed is None or prefix in (page.decode(listed[1]), html.unescape(listed[1]))
    if not same and prefix.isprintable():
        raise errors.CorruptFileError(EBADMSG, f"a page of another prefix where {prefix!r} was asked for")
    return page


def _text(response: Response) -> str:
    """Return the text of a response; `CorruptFileError` for what is none."""
    body = response.body
    try:
        if (response.head.header(b"content-encoding") or "").lower() == "gzip":  # of a proxy: none was asked for
            decompressor = zlib.decompressobj(wbits=31)
            body = decompressor.decompress(body, _MAX_SIZE)
            if not decompressor.eof:
                raise errors.CorruptFileError(EBADMSG, f"a page that is cut short, or larger than {_MAX_SIZE} bytes")
        return body.decode()
    except (UnicodeDecodeError, zlib.error) as exc:
        raise errors.CorruptFileError(EBADMSG, f"not a page of a listing: {exc}") from exc


def parse(text: str) -> ObjectPage:
    """Parse a page; `CorruptFileError` for what is none, or is cut short."""
    if "<ListBucketResult" not in text or not text.rstrip().endswith("</ListBucketResult>"):
        raise errors.CorruptFileError(EBADMSG, f"not a page of a listing: {text[:80]!r}")
    decode = _unquoted if "<EncodingType>url</EncodingType>" in text else html.unescape
    token = None
    if "<IsTruncated>true</IsTruncated>" in text:
        found = re.search(r"<NextContinuationToken>([^<]*)</NextContinuationToken>", text)
        if found is None:
            raise errors.CorruptFileError(EBADMSG, "a page of a listing that goes on, without a token")
        token = html.unescape(found[1])
    return ObjectPage(_objects(text), [decode(found) for found in _prefixes.findall(text)], token, decode)


def _unquoted(key: str) -> str:
    if "&" in key:
        key = html.unescape(key)
    return urllib.parse.unquote_plus(key, errors="surrogateescape") if "%" in key or "+" in key else key


def _objects(text: str) -> list[Text]:
    count = text.count("<Contents>")
    if not count:
        return []
    first = _contents.search(text)
    if first is None:
        raise errors.CorruptFileError(EBADMSG, "a page of a listing with an entry that does not end")
    order = tuple(name for name, _ in _element.findall(first[1]))
    if sorted(order) == sorted(_FIELDS):
        found: list[Text] = _pattern(_texts.sub("><", first[1])).findall(text)
        if len(found) == count:
            places = [order.index(name) for name in _FIELDS]
            if places != [0, 1, 2, 3]:
                found = [(e[places[0]], e[places[1]], e[places[2]], e[places[3]]) for e in found]
            return found
    return [_object(entry) for entry in _contents.findall(text)]


@functools.lru_cache(maxsize=16)
def _pattern(form: str) -> re.Pattern[str]:
    """Return the pattern of entries of this form: an entry without its texts."""
    elements = re.escape(form)
    for name in _FIELDS:
        elements = elements.replace(f"<{name}></{name}>", f"<{name}>([^<]*)</{name}>")
    elements = elements.replace("></", ">[^<]*</").replace("><", r">\s*<")
    return re.compile(rf"<Contents>\s*{elements}\s*</Contents>")


def _object(entry: str) -> Text:
    found = dict(_element.findall(entry))
    if "Key" not in found or not found.get("Size", "").isdigit():
        raise errors.CorruptFileError(EBADMSG, f"an entry of a listing without key or size: {entry[:80]!r}")
    return found["Key"], found.get("LastModified", ""), found.get("ETag", ""), found["Size"]


def to_stat(name: str, entry: Text) -> FileStat:
    """Return the stat of an object under the name that its listing gives it."""
    _, written, etag, size = entry
    version = etag[6:-6] if etag[:6] == "&quot;" == etag[-6:] else html.unescape(etag).strip('"')
    stat: FileStat = _new((name, int(size), False, _seconds(written[:19]), _MODE, version or None))
    return stat


@functools.lru_cache(maxsize=4096)
def _seconds(text: str) -> float | None:
    """Return the time in seconds; whole ones, since some stores list milliseconds where a HEAD has seconds."""
    return float(int(datetime.fromisoformat(text + "+00:00").timestamp())) if text else None
