"""The formats of bodies that several stores share: XML, the messages of uploads in parts,
which stores have as S3 has them, and batches. Everything is parsed in linear time.
"""

from __future__ import annotations

import functools
import html
import re
import secrets
import urllib.parse
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from errno import EBADMSG
from typing import Any

from ...core import errors
from .failures import Mismatch, mismatched
from .messages import Request, Response, StoredUpload

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_RESULTS = {"uploads": b"InitiateMultipartUploadResult", "delete": b"DeleteResult"}
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_reference = re.compile("&(?:#([x0-9a-fA-F]{1,8});|([^;&]{0,8};?))")
_ENTITIES = {"amp;": "&", "lt;": "<", "gt;": ">", "quot;": '"', "apos;": "'"}
_any_element = re.compile(r"<([A-Za-z0-9]+)>([^<]*)</\1>")
_MAX_SIZE = 64 * 1024 * 1024
"""Bytes of a page of at most 1,000 entries that came compressed."""


def query_of(**parameters: object) -> str:
    """Return the canonical query string of parameters; `_` in a name stands for `-`, and None leaves one out."""
    pairs = ((name.replace("_", "-"), str(value)) for name, value in parameters.items() if value is not None)
    return "&".join(sorted([f"{name}={_quoted(value)}" for name, value in pairs]))


@functools.lru_cache(maxsize=256)  # of a request for each of many objects, most are the same
def _quoted(value: str) -> str:
    return urllib.parse.quote(value, safe="~")


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


def page_text(response: Response) -> str:
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


def unescaped(text: str) -> str:
    """Return a text of XML without its references; `CorruptFileError` for one that XML does not have."""
    return _reference.sub(_referred, text) if "&" in text else text


def _referred(match: re.Match[str]) -> str:
    number = match[1]
    if not number:
        if (found := _ENTITIES.get(match[2])) is None:
            raise unreadable(f"a reference that XML does not have: {match[0]!r}")
        return found
    try:
        return chr(int(number[1:], 16) if number[0] == "x" else int(number))
    except (ValueError, OverflowError):
        raise unreadable(f"a character that there is not: {match[0]!r}") from None


def unquoted(key: str) -> str:
    """Return a key that a page has in the encoding `url`."""
    key = unescaped(key)
    return urllib.parse.unquote_plus(key, errors="surrogateescape") if "%" in key or "+" in key else key


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


def fields_of(entry: str) -> dict[str, str]:
    """Return the texts of the elements in an entry, by name."""
    return {name: unescaped(value) for name, value in _any_element.findall(entry)}


def uploads_page(response: Response) -> tuple[list[StoredUpload], Any]:
    """Return the uploads of a page of ListMultipartUploads, and the markers of the next one."""
    text = page_text(response)
    if "<ListMultipartUploads" not in text:  # that of a proxy has no entries
        raise unreadable(f"not a page of uploads: {text[:80]!r}")
    decode = unquoted if "<EncodingType>url</EncodingType>" in text else str
    found = []
    for entry in entries_of(text, "Upload"):
        fields = fields_of(entry)
        begun = datetime.fromisoformat(fields["Initiated"].replace("Z", "+00:00")).timestamp()
        found.append(StoredUpload(decode(fields["Key"]), fields["UploadId"], begun))
    if "<IsTruncated>true</IsTruncated>" not in text:
        return found, None
    head = fields_of(text.partition("<Upload>")[0] + text.rpartition("</Upload>")[2])
    return found, (decode(head.get("NextKeyMarker", "")), head.get("NextUploadIdMarker", ""))


def check_posted(request: Request, body: bytes) -> Mismatch | None:
    """Check the result of a POST; one that names an object names that of the request.

    A response that the store sends unasked, or late, would else be taken for the end of an upload that it has not
    completed.
    """
    element = _RESULTS.get(request.query.rstrip("="), b"CompleteMultipartUploadResult")
    if element not in body:
        return mismatched(f"a body without {element.decode()}")
    named = _KEY.search(body) if request.key and request.key.isprintable() else None  # else XML may not have it
    if named is not None and (key := unescaped(named[1].decode("utf-8", "replace"))) != request.key:
        return mismatched(f"the result of an upload to {key!r}")
    return None


# ---- batches: many requests in the body of one, as `multipart/mixed`, whose response has one in each part

_answer = re.compile(
    rb"^(?:Content-ID: *<?(?:response-)?([0-9]{1,9})|HTTP/1\.1 ([0-9]{3}))", re.IGNORECASE | re.MULTILINE
)
"""Finds the number of a part, and the status of the response in it, which follows."""


def batch(calls: Iterable[str], name: str) -> tuple[str, bytes]:
    """Return the header field and the body of a batch; a call is a request's line and header lines.

    Each has a `name` with its number, as the store wants it.
    """
    boundary = f"batch_{secrets.token_hex(16)}"
    parts = (
        f"--{boundary}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n"
        f"Content-ID: {name.format(number)}\r\n\r\n{call}\r\n\r\n"
        for number, call in enumerate(calls)
    )
    return f"content-type:multipart/mixed; boundary={boundary}", f"{''.join(parts)}--{boundary}--\r\n".encode()


def not_removed(keys: Sequence[str], body: bytes) -> list[str]:
    """Return the keys whose call in a batch of removals is not answered, or neither by a success nor by a 404."""
    done = set[int]()
    number: int | None = None
    position = 0
    for named, status in _answer.findall(body):
        if named:
            number = int(named)
            continue
        if status == b"404" or status.startswith(b"2"):
            done.add(number if number is not None else position)
        number, position = None, position + 1
    return [key for number, key in enumerate(keys) if number not in done]
