"""The XML of S3: pages of listings, uploads and parts, removals, errors. Everything is parsed in linear time.

Pages of objects are parsed in bulk by a regular expression. A store writes the elements of an entry in an order of its
own: the pattern is made from the order in the first entry, and entries of another form are parsed one by one.
"""

from __future__ import annotations

import functools
import html
import re
import urllib.parse
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from errno import EBADMSG
from typing import Any

from ...core import errors
from ..objects.messages import ObjectPage, Response, StoredPart, StoredUpload, Text

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_FIELDS = ("Key", "LastModified", "ETag", "Size")
_prefixes = re.compile(r"<CommonPrefixes>\s*<Prefix>([^<]*)</Prefix>\s*</CommonPrefixes>")
_prefix = re.compile(r"<Prefix>([^<]*)</Prefix>")
_texts = re.compile(r">[^<]*<")
_element = re.compile(r"<(Key|LastModified|ETag|Size)>([^<]*)</\1>")
_any_element = re.compile(r"<([A-Za-z0-9]+)>([^<]*)</\1>")
_MAX_ENTRY = 16 * 1024
"""Characters of the first entry: a key has 1,024 bytes."""
_MAX_SIZE = 64 * 1024 * 1024
"""Bytes of a page of at most 1,000 entries that came compressed."""


def query_of(**parameters: object) -> str:
    """Return the canonical query string of parameters; `_` in a name stands for `-`, and None leaves one out."""
    pairs = ((name.replace("_", "-"), str(value)) for name, value in parameters.items() if value is not None)
    return "&".join(sorted(f"{name}={urllib.parse.quote(value, safe='~')}" for name, value in pairs))


def text_of(body: bytes, name: bytes) -> str:
    """Return the text of the first element `name`, as it stands there; empty if there is none."""
    start = body.find(b"<" + name + b">")
    end = body.find(b"</" + name + b">", start)
    return body[start + len(name) + 2 : end].decode("utf-8", "replace") if 0 <= start < end else ""


def entries_of(text: str, name: str) -> Iterator[str]:
    """Yield what is in the elements `name`, which don't nest; `CorruptFileError` for one that does not end."""
    start = 0
    while (start := text.find(f"<{name}>", start)) >= 0:
        end = text.find(f"</{name}>", start)
        if end < 0:
            raise unreadable(f"a page with a {name} that does not end")
        yield text[start + len(name) + 2 : end]
        start = end


def unreadable(text: str) -> OSError:
    """Return the error for a response that can't be understood."""
    return errors.CorruptFileError(EBADMSG, text)


# ---- pages of objects


def page(response: Response, prefix: str) -> ObjectPage:
    """Return a page of the keys that begin with `prefix`; `CorruptFileError` for what is none."""
    text = _text(response)
    found = parse(text)
    listed = _prefix.search(text.partition("<Contents>")[0].partition("<CommonPrefixes>")[0])
    # Ceph encodes keys, but not the prefix, and drops what XML can't carry.
    same = listed is None or prefix in (found.decode(listed[1]), html.unescape(listed[1]))
    if not same and prefix.isprintable():
        raise unreadable(f"a page of another prefix where {prefix!r} was asked for")
    return found


def _text(response: Response) -> str:
    """Return the text of a response; `CorruptFileError` for what is none."""
    body = response.body
    try:
        if (response.head.header(b"content-encoding") or "").lower() == "gzip":  # of a proxy: none was asked for
            decompressor = zlib.decompressobj(wbits=31)
            body = decompressor.decompress(body, _MAX_SIZE)
            if not decompressor.eof:
                raise unreadable(f"a page that is cut short, or larger than {_MAX_SIZE} bytes")
        return body.decode()
    except (UnicodeDecodeError, zlib.error) as exc:
        raise unreadable(f"not a page of a listing: {exc}") from exc


def parse(text: str) -> ObjectPage:
    """Parse a page; `CorruptFileError` for what is none, or is cut short."""
    if "<ListBucketResult" not in text or not text.rstrip().endswith("</ListBucketResult>"):
        raise unreadable(f"not a page of a listing: {text[:80]!r}")
    decode = _unquoted if "<EncodingType>url</EncodingType>" in text else html.unescape
    token = None
    if "<IsTruncated>true</IsTruncated>" in text:
        found = re.search(r"<NextContinuationToken>([^<]*)</NextContinuationToken>", text)
        if found is None:
            raise unreadable("a page of a listing that goes on, without a token")
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


# ---- uploads and parts


def completion(receipts: Sequence[str]) -> bytes:
    """Return the body that completes an upload of these parts."""
    return f'<CompleteMultipartUpload xmlns="{NAMESPACE}">{"".join(receipts)}</CompleteMultipartUpload>'.encode()


def part_element(number: int, etag: str, checksum: tuple[str, str] | None) -> str:
    """Return the element of a part in a completion; with its checksum, by algorithm."""
    element = f"<PartNumber>{number}</PartNumber>"
    if checksum is not None:
        element += f"<Checksum{checksum[0]}>{checksum[1]}</Checksum{checksum[0]}>"
    return f"<Part>{element}<ETag>{html.escape(etag, quote=False)}</ETag></Part>"


def _fields(entry: str) -> dict[str, str]:
    return {name: html.unescape(value) for name, value in _any_element.findall(entry)}


def uploads_page(response: Response) -> tuple[list[StoredUpload], Any]:
    """Return the uploads of a page of ListMultipartUploads, and the markers of the next one."""
    text = _text(response)
    decode = _unquoted if "<EncodingType>url</EncodingType>" in text else str
    found = []
    for entry in entries_of(text, "Upload"):
        fields = _fields(entry)
        begun = datetime.fromisoformat(fields["Initiated"].replace("Z", "+00:00")).timestamp()
        found.append(StoredUpload(decode(fields["Key"]), fields["UploadId"], begun))
    if "<IsTruncated>true</IsTruncated>" not in text:
        return found, None
    head = _fields(text.partition("<Upload>")[0] + text.rpartition("</Upload>")[2])
    return found, (decode(head.get("NextKeyMarker", "")), head.get("NextUploadIdMarker", ""))


def parts_page(response: Response) -> tuple[list[StoredPart], Any]:
    """Return the parts of a page of ListParts, and the marker of the next one."""
    text = _text(response)
    found = []
    for entry in entries_of(text, "Part"):
        fields = _fields(entry)
        sums = {name[8:]: value for name, value in fields.items() if name.startswith("Checksum")}
        found.append(StoredPart(int(fields["PartNumber"]), int(fields["Size"]), fields["ETag"].strip('"'), sums))
    marker = _fields(text.partition("<Part>")[0] + text.rpartition("</Part>")[2]).get("NextPartNumberMarker")
    return found, marker if "<IsTruncated>true</IsTruncated>" in text else None


# ---- removals, tags


def removal(keys: Sequence[str]) -> bytes:
    """Return the body that removes objects."""
    objects = "".join(f"<Object><Key>{html.escape(key, quote=False)}</Key></Object>" for key in keys)
    return f'<Delete xmlns="{NAMESPACE}">{objects}<Quiet>true</Quiet></Delete>'.encode()


def not_removed(body: bytes) -> tuple[str, str, str] | None:
    """Return key, code and message of the first object that was not removed."""
    start = body.find(b"<Error>")
    if start < 0:
        return None
    entry = body[start : start + _MAX_ENTRY]
    key, code, message = (html.unescape(text_of(entry, name)) for name in (b"Key", b"Code", b"Message"))
    return key, code, message


def tags(response: Response) -> str:
    """Return the tags of an object as `x-amz-tagging` has them."""
    pairs = [_fields(entry) for entry in entries_of(_text(response), "Tag")]
    return urllib.parse.urlencode([(pair["Key"], pair.get("Value", "")) for pair in pairs])
