"""The names of entries, from the bytes in the archive to keys: encodings, and what a name must not be.

A name that would lead out of the archive (`../x`, `/x`, `C:\\x`) is refused. One that is only not normal is brought
into its normal form: `./a//b` is `a/b`, and a backslash in an archive made on Windows is a separator, as Info-ZIP's
`unzip` has it; elsewhere it is a character like any other. A name that isn't flagged as UTF-8 is in code page 437, but
for what Info-ZIP's and macOS's tools write: UTF-8 without the flag, made on Unix.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from . import records

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MIX = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_SUSPECT = (b"\\", b"\0", b"//", b"/.")  # what is in a name that needs a closer look
_SUSPECT_START = b"/."
_DRIVE = re.compile(r"[A-Za-z]:[/\\]").match
_DRIVE_IN_DOS = re.compile(r"[A-Za-z]:").match


class Names(NamedTuple):
    """The names of the entries of an archive, as UTF-8; a directory's ends in `/`."""

    blob: bytes
    """All of them; the rows of the entries tell where each is."""
    refused: dict[int, tuple[str, str]]
    """Entries that can't be read by name: the name, and why."""
    changed: dict[int, str]
    """Entries whose name was not as it should be, and how."""


def normal(blob: bytes, rows: NDArray[Any], unicode: dict[int, bytes]) -> Names:
    """The names of the entries, made from their bytes in the directory.

    `rows` are the entries, `name` and `length` telling where each has its name in `blob`; where it has to be another,
    they are changed. `unicode` holds the UTF-8 names of some entries.
    """
    found = Names(blob, {}, {})
    fresh = dict(unicode)
    for at in _not_ascii(blob, rows):
        if at not in unicode:
            name, complaint = _decoded(_name(blob, rows, at), int(rows["flags"][at]), int(rows["host"][at]))
            fresh[at] = name.encode()
            if complaint:
                found.changed[at] = complaint
    for at in sorted(_suspects(blob, rows) | set(unicode)):
        name = fresh.get(at, _name(blob, rows, at)).decode()
        settled, refusal = judge(name, rows["host"][at] in records.HOSTS_WITH_BACKSLASH)
        if refusal is not None:
            found.refused[at] = (name, refusal)
        elif settled != name:
            found.changed[at] = f"it is not normal: {name!r} is read as {settled!r}"
            fresh[at] = settled.encode()
    return found._replace(blob=_put(blob, rows, fresh))


def judge(name: str, dos: bool = False) -> tuple[str, str | None]:
    """The normal form of an entry's name, and why the name is refused, or None.

    With `dos` the entry was made on a system where the backslash separates.
    """
    if "\0" in name:
        return name, "it holds a NUL"
    text = name.replace("\\", "/") if dos else name
    if text.startswith(("/", "\\")):
        return name, "it is absolute"
    if _DRIVE(text) or (dos and _DRIVE_IN_DOS(text)):
        return name, "it names a drive"
    if ".." in re.split(r"[/\\]", text):
        return name, "it leads out of its directory by '..'"
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts:
        return name, "it names nothing"
    return "/".join(parts) + "/" * text.endswith(("/", "/.")), None


def _name(blob: bytes, rows: NDArray[Any], at: int) -> bytes:
    start = int(rows["name"][at])
    return blob[start : start + int(rows["length"][at])]


def _put(blob: bytes, rows: NDArray[Any], fresh: dict[int, bytes]) -> bytes:
    """Put the names that have changed behind the others."""
    end = len(blob)
    for at, name in fresh.items():
        rows["name"][at], rows["length"][at] = end, len(name)
        end += len(name)
    return b"".join([blob, *fresh.values()]) if fresh else blob


def _decoded(name: bytes, flags: int, host: int) -> tuple[str, str | None]:
    """A name, and what is wrong with how it is written."""
    flagged = flags & records.FLAG_UTF8
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return name.decode("cp437"), "it is flagged as UTF-8 and is not: read as code page 437" if flagged else None
    if flagged:
        return text, None
    if host in records.HOSTS_OF_UNIX:
        return text, "it is UTF-8 and not flagged as such"
    return name.decode("cp437"), None


def _not_ascii(blob: bytes, rows: NDArray[Any]) -> list[int]:
    """The entries whose names must be decoded: not those of ASCII alone, nor of good UTF-8 that is flagged as such."""
    import numpy as np

    if blob.isascii():
        return []
    buffer = np.frombuffer(blob, np.uint8)
    starts = rows["name"][rows["length"] > 0]
    held = np.flatnonzero(rows["length"])[np.maximum.reduceat(buffer, starts) >= 0x80]
    flagged = bool((rows["flags"][held] & records.FLAG_UTF8).all())
    if flagged and not (buffer[starts] & 0xC0 == 0x80).any():  # no name starts in the middle of a character
        try:
            blob.decode()
            return []
        except UnicodeDecodeError:
            pass
    return [int(at) for at in held]


def _suspects(blob: bytes, rows: NDArray[Any]) -> set[int]:
    """The entries whose names need a closer look (and a few more), found without looking at each."""
    import numpy as np

    starts, lengths = rows["name"], rows["length"]
    found = set(np.flatnonzero(lengths == 0).tolist())
    if not blob:
        return found
    buffer = np.frombuffer(blob, np.uint8)
    last = len(blob) - 1
    first = buffer[np.minimum(starts, last)]
    second = buffer[np.minimum(starts + 1, last)]
    found.update(np.flatnonzero(np.isin(first, list(_SUSPECT_START)) | (second == ord(":"))).tolist())
    for needle in _SUSPECT:
        places = []
        at = blob.find(needle)
        while at >= 0:
            places.append(at)
            at = blob.find(needle, at + 1)
        found.update((np.searchsorted(starts, places, "right") - 1).tolist() if places else ())
    return found


def hash_of(name: bytes) -> int:
    """A name's hash: its words of 8 bytes, little-endian, mixed in one after another."""
    words = struct.unpack(f"<{-(-len(name) // 8)}Q", name + bytes(-len(name) % 8))
    value = len(name)
    for word in words:
        value = (value ^ word) * _MIX & _MASK
        value ^= value >> 29
    return value


def hashes_of(blob: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The hashes of many names at once."""
    import numpy as np

    words = np.ndarray((len(blob) + 1,), "<u8", blob + bytes(8), strides=(1,))
    values = lengths.astype(np.uint64)
    left = np.flatnonzero(lengths > 0)
    for at in range(0, int(lengths.max(initial=0)), 8):
        left = left[lengths[left] > at]
        unused = np.maximum(0, 64 - 8 * (lengths[left] - at)).astype(np.uint64)
        found = words[starts[left] + at] << unused >> unused
        found = (values[left] ^ found) * np.uint64(_MIX)
        values[left] = found ^ (found >> np.uint64(29))
    return values
