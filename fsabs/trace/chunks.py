"""The format of a trace file: chunks that are appended, each complete in itself.

A file begins with `RESERVED` bytes: a chunk that describes the process, and room that is taken from the disk at once,
for the last counts of a process whose disk is full. After that comes a chunk for each flush. A chunk is

    magic `FST2`, bytes of the payload, bytes of the content, CRC-32 of the payload   (`<4sIII`)
    payload: the content, compressed by zlib

and its content, all little-endian,

    length of the head (`<I`), the head as JSON; then columns of events, those of one name after those of another:
    begin, duration, size, offset, thread: int64 each; where: uint32, of the texts;
    then the texts: base: uint16 each, an index of `bases`, and UTF-8 with NUL between them

The head has `names` (kind, name, error of each), `counts` (events of each), `texts` (how many), `bases` (pairs of the
URLs of an FS's current directory and of its root, to which a text is a path; the first is for texts that are URLs), and
where there are any, `process` (`schema.Header`), `tally` (`schema.TALLY_FIELDS`) and `end`. A process that is
killed in the middle of a chunk leaves a torn one at the end. Credentials, queries and fragments of URLs are removed
before they are written (`clean_url`).
"""

from __future__ import annotations

import collections
import json
import re
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from ..core.fs import FS
from ..core.limits import parse_json

MAGIC = b"FST2"
RESERVED = 16 * 1024
_FRAME = struct.Struct("<4sIII")
_LENGTH = struct.Struct("<I")
MAX_CONTENT = 32 * 1024 * 1024
"""Bytes of a chunk's content at most."""
MAX_HEAD = 16 * 1024 * 1024
MAX_TEXT = 1024
"""Characters of a URL that are kept."""
MAX_NAME = 200
"""Characters of a name that are kept."""
EVENT_BYTES = 5 * 8 + 4

Row = tuple[int, int, int, int, int, Any, str, str, str]
"""begin, duration, size, offset, thread, where, kind, name, error."""
Groups = Mapping[tuple[str, str, str], Sequence[Sequence[Any]]]
"""The first columns of rows, up to `where`, by kind, name and error."""


def framed(content: bytes) -> bytes:
    """Return a chunk of the content; other threads run meanwhile."""
    payload = zlib.compress(content, 1)
    return _FRAME.pack(MAGIC, len(payload), len(content), zlib.crc32(payload)) + payload


def grouped(rows: Iterable[Row]) -> Groups:
    """Return the columns of rows."""
    groups = collections.defaultdict[tuple[str, str, str], list[Row]](list)
    for row in rows:
        groups[row[6:]].append(row)
    return {key: list(zip(*some, strict=True))[:6] for key, some in groups.items()}


def content(groups: Groups, **more: Any) -> bytes:
    """Return the content of a chunk. Raises `TypeError`, `ValueError` or `OverflowError` for what makes no sense."""
    columns = [array("q") for _ in range(5)]
    texts: dict[Any, int] = {}
    places = array("I")
    for *numbers, wheres in groups.values():
        for column, values in zip(columns, numbers, strict=True):
            column.extend(values)
        places.extend([texts.setdefault(where, len(texts)) for where in wheres])
    bases: dict[int, int] = {}
    urls, of_base, written = [("", "")], array("H"), []
    for where in texts:
        base, text = 0, where
        if not isinstance(where, str):
            fs, path = where
            if (known_base := bases.get(id(fs))) is None:
                urls.append(_urls(fs))
                known_base = bases[id(fs)] = len(urls) - 1
            base, text = known_base, path if type(path) is str else _path(path)
        of_base.append(base)
        text = clean_url(text) if not base or urls[base][1].startswith("http") else text
        written.append(text[:MAX_TEXT].replace("\0", "\ufffd"))
    head = {
        "names": [(kind, cleaned(name), failure[:MAX_NAME]) for kind, name, failure in groups],
        "counts": [len(some[0]) for some in groups.values()],
        "texts": len(texts),
        "bases": urls,
        **more,
    }
    described = json.dumps(head).encode()
    return b"".join(
        (
            _LENGTH.pack(len(described)),
            described,
            *columns,
            places,
            of_base,
            "\0".join(written).encode("utf-8", "backslashreplace"),
        )
    )


def cleaned(name: str) -> str:
    """Return a name without secrets, and not too long."""
    return (clean_url(name) if "://" in name else name)[:MAX_NAME]


def _urls(fs: FS) -> tuple[str, str]:
    try:
        return clean_url(fs.url("")), clean_url(fs._url(""))
    except Exception:  # an FS that can't be made any more: its paths are kept
        return "", ""


def _path(path: Any) -> str:
    return str(path.decode("utf-8", "backslashreplace") if isinstance(path, bytes) else path)


class Chunk(NamedTuple):
    """A chunk that was read; arrays of numpy, one element an event."""

    at: int
    """Where in its file it begins."""
    head: dict[str, Any]
    begin: Any
    """Nanoseconds of the process's monotonic clock."""
    duration: Any
    size: Any
    offset: Any
    thread: Any
    name: Any
    """Indexes of `names`."""
    where: Any
    """Indexes of `texts`."""
    names: Sequence[tuple[str, str, str]]
    """Kind, name, error."""
    texts: Sequence[tuple[str, str, str]]
    """A URL, or a path and the URLs that it is relative and absolute to."""


def read(file: BinaryIO) -> Iterator[Chunk]:
    """Yield the chunks of a file, from where it is on.

    Raises `ValueError` at what is torn or damaged, and `OSError`.
    """
    at = file.tell()
    while frame := file.read(_FRAME.size):
        if len(frame) < _FRAME.size:
            raise ValueError(f"torn from byte {at} on")
        magic, length, size, crc = _FRAME.unpack(frame)
        if at < RESERVED and magic == bytes(4):
            at = file.seek(RESERVED)
            continue
        if magic != MAGIC or size > MAX_CONTENT or length > MAX_CONTENT:
            raise ValueError(f"no chunk of a trace at byte {at}")
        payload = file.read(length)
        if len(payload) != length:
            raise ValueError(f"torn from byte {at} on")
        try:
            found = zlib.decompressobj().decompress(payload, size + 1)
            if zlib.crc32(payload) != crc or len(found) != size:
                raise ValueError("its checksum or its size is wrong")
            chunk = _parsed(at, found)
        except (ValueError, KeyError, TypeError, struct.error, zlib.error) as exc:
            raise ValueError(f"the chunk at byte {at} is damaged: {exc}") from None
        at += len(frame) + length
        yield chunk


def _parsed(at_file: int, found: bytes) -> Chunk:
    import numpy as np

    (length,) = _LENGTH.unpack_from(found)
    if length > MAX_HEAD:
        raise ValueError("a head that is too long")
    at = _LENGTH.size + length
    head = parse_json(found[_LENGTH.size : at])
    counts, texts = [_count(count) for count in head["counts"]], _count(head["texts"])
    events = sum(counts)
    if texts > events or at + events * EVENT_BYTES + 2 * texts > len(found):
        raise ValueError("fewer bytes than events")
    columns = []
    for _ in range(5):
        columns.append(np.frombuffer(found, "<i8", events, at))
        at += 8 * events
    where = np.frombuffer(found, "<u4", events, at)
    base = np.frombuffer(found, "<u2", texts, at + 4 * events)
    written = found[at + 4 * events + 2 * texts :].decode("utf-8", "replace").split("\0") if texts else []
    name = np.repeat(np.arange(len(counts)), counts)
    order = np.argsort(columns[0] + columns[1], kind="stable")  # by their ends
    names = [tuple(_text(part) for part in one) for one in head["names"]]
    bases = [tuple(_text(part) for part in one) for one in head["bases"]]
    if (
        len(written) != texts
        or len(counts) != len(names)
        or any(len(one) != 3 for one in names)
        or any(len(one) != 2 for one in bases)
    ):
        raise ValueError("names or texts don't fit")
    for column, limit in ((where, texts), (base, len(bases))):
        if len(column) and int(column.max()) >= limit:
            raise ValueError("an index is out of range")
    for key in ("process", "tally"):
        if not isinstance(head.get(key, {}), dict):
            raise ValueError(f"{key} is no object")
    placed = [(text, *bases[number]) for text, number in zip(written, base.tolist(), strict=True)]
    return Chunk(at_file, head, *(one[order] for one in (*columns, name, where)), names, placed)  # type: ignore[call-arg,arg-type] # five columns


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("no count")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    return escaped(value)


def escaped(value: str) -> str:
    """Return a text that can be encoded: JSON may have half of a surrogate pair."""
    return value.encode("utf-8", "backslashreplace").decode()


_USER = re.compile(r"(//|^)[^/]*@")


def clean_url(where: str) -> str:
    """`where` without what may be a secret: everything from `?` or `#` on, and what stands before an `@`.

    In a URL these characters mean nothing else (in a path they are written as %3F, %23); in one of fsspec's chains,
    `zip://a::https://...`, each of its parts is looked at.
    """
    if "?" not in where and "#" not in where and "@" not in where:
        return where
    return "::".join(_part(part) for part in where.split("::"))


def _part(text: str) -> str:
    text = re.split(r"[?#]", text, maxsplit=1)[0]
    return _USER.sub(r"\1", text) if "@" in text else text
