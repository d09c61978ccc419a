"""The XML of S3: pages of listings, removals, tags. Everything is parsed in linear time.

Pages of objects are parsed in bulk by a regular expression. A store writes the elements of an entry in an order of its
own: the pattern is made from the order in the first entry, and entries of another form are parsed one by one.
"""

from __future__ import annotations

import functools
import html
import re
import urllib.parse
from collections.abc import Iterator, Sequence

from ..objects.bodies import NAMESPACE, entries_of, fields_of, page_text, text_of, unquoted, unreadable
from ..objects.messages import ObjectPage, Response, Text

_FIELDS = ("Key", "LastModified", "ETag", "Size")
_prefixes = re.compile(r"<CommonPrefixes>\s*<Prefix>([^<]*)</Prefix>\s*</CommonPrefixes>")
_prefix = re.compile(r"<Prefix>([^<]*)</Prefix>")
_texts = re.compile(r">[^<]*<")
_element = re.compile(r"<(Key|LastModified|ETag|Size)>([^<]*)</\1>")
_MAX_ENTRY = 16 * 1024
"""Characters of the first entry: a key has 1,024 bytes."""


# ---- pages of objects


def page(response: Response, prefix: str) -> ObjectPage:
    """Return a page of the keys that begin with `prefix`; `CorruptFileError` for what is none."""
    text = page_text(response)
    found = parse(text)
    listed = _prefix.search(text.partition("<Contents>")[0].partition("<CommonPrefixes>")[0])
    # Ceph encodes keys, but not the prefix, and drops what XML can't carry.
    same = listed is None or prefix in (found.decode(listed[1]), html.unescape(listed[1]))
    if not same and prefix.isprintable():
        raise unreadable(f"a page of another prefix where {prefix!r} was asked for")
    return found


def parse(text: str) -> ObjectPage:
    """Parse a page; `CorruptFileError` for what is none, or is cut short."""
    if "<ListBucketResult" not in text or not text.rstrip().endswith("</ListBucketResult>"):
        raise unreadable(f"not a page of a listing: {text[:80]!r}")
    decode = unquoted if "<EncodingType>url</EncodingType>" in text else html.unescape
    token = None
    if "<IsTruncated>true</IsTruncated>" in text:
        found = re.search(r"<NextContinuationToken>([^<]*)</NextContinuationToken>", text)
        if found is None:
            raise unreadable("a page of a listing that goes on, without a token")
        token = html.unescape(found[1])
    return ObjectPage(_objects(text), [decode(found) for found in _prefixes.findall(text)], token, decode)


def _objects(text: str) -> list[Text]:
    count = text.count("<Contents>")
    if not count:
        return []
    first = next(entries_of(text, "Contents"))
    order = tuple(name for name, _ in _element.findall(first)) if len(first) < _MAX_ENTRY else ()
    if sorted(order) == sorted(_FIELDS):
        found: list[Text] = _pattern(_texts.sub("><", first)).findall(text)
        if len(found) == count:
            places = [order.index(name) for name in _FIELDS]
            if places != [0, 1, 2, 3]:
                found = [(e[places[0]], e[places[1]], e[places[2]], e[places[3]]) for e in found]
            return found
    return [_object(entry) for entry in entries_of(text, "Contents")]


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
        raise unreadable(f"an entry of a listing without key or size: {entry[:80]!r}")
    return found["Key"], found.get("LastModified", ""), found.get("ETag", ""), found["Size"]


# ---- removals, tags


def removal(keys: Sequence[str]) -> bytes:
    """Return the body that removes objects."""
    objects = "".join(f"<Object><Key>{html.escape(key, quote=False)}</Key></Object>" for key in keys)
    return f'<Delete xmlns="{NAMESPACE}">{objects}<Quiet>true</Quiet></Delete>'.encode()


def not_removed(body: bytes) -> Iterator[str]:
    """Yield the keys of the objects that were not removed."""
    for entry in entries_of(body.decode("utf-8", "replace"), "Error"):
        yield html.unescape(text_of(entry.encode(), b"Key"))


def tags(response: Response) -> str:
    """Return the tags of an object as `x-amz-tagging` has them."""
    pairs = [fields_of(entry) for entry in entries_of(page_text(response), "Tag")]
    return urllib.parse.urlencode([(pair["Key"], pair.get("Value", "")) for pair in pairs])
