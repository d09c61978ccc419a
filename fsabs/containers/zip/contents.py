"""From a member's entry to its content: checks of the entry, its local header, and its CRC-32."""

from __future__ import annotations

import time

from ...core import errors, hooks
from ...core.blobs import Blob, Origin
from ...core.limits import UNSUSPICIOUS_BYTES, Limits
from . import decoders, records
from .decoders import DamagedError, crc32
from .entries import ENCRYPTION, SLACK, UNREADABLE, Whole, ZipEntry


def is_fine(entry: ZipEntry) -> bool:
    """Return whether a quick check finds nothing wrong with a member; `refuse` does the full one."""
    compressed, size = entry.compressed, entry.size
    return (
        not entry.flags & UNREADABLE
        and entry.method in decoders.READABLE
        and entry.offset + 30 + compressed <= entry.limit
        and (compressed == size if entry.method == records.STORED else size <= UNSUSPICIOUS_BYTES)
    )


def refuse(entry: ZipEntry, origin: Origin, key: str, limits: Limits) -> None:
    """Raise what is wrong with a member, before anything of it is read, if anything is: `is_fine` doesn't know all."""
    url = origin._url(key)
    if entry.flags & ENCRYPTION:
        raise errors.unsupported("open", url, "the member is encrypted, and fsabs reads no encrypted members")
    if entry.flags & records.FLAG_PATCH:
        raise errors.unsupported(
            "open", url, "the member is a patch of another file (PKWARE's compressed patched data)"
        )
    if entry.method not in decoders.READABLE:
        name = records.METHODS.get(entry.method, "unknown")
        reason = f"the member's compression method is {entry.method} ({name}), which fsabs doesn't read"
        raise errors.unsupported("open", url, reason)
    check_room(entry, origin, key, records.LOCAL.size)
    if entry.method == records.STORED and entry.compressed != entry.size:
        reason = f"a stored member of {entry.size} bytes that takes {entry.compressed} bytes"
        raise errors.corrupt(url, reason, "open")
    if limits.declares_too_much(entry.size, entry.compressed):
        what = f"a decompression bomb, as it seems: {entry.compressed} bytes that say they are {entry.size}"
        raise limits.error("max_ratio", what, "open", url)


def request(entry: ZipEntry) -> tuple[int, int]:
    """The `(size, offset)` in the archive that holds the local header and all of the data, if the guess is right."""
    return entry.header + SLACK + entry.compressed, entry.offset


def checked(answer: bytes, how: Whole, origin: Origin, key: str) -> bytes | None:
    """The content of a small member, from what was read as `how` says; None if anything is other than expected.

    What that is, `content` tells: most reads are done without the time that it takes.
    """
    _, _, lead, name, most, compressed, size, crc, method, flags = how
    stop = 30 + len(name)
    if not answer.startswith(lead) or answer[30:stop] != name:
        return None
    start = stop + answer[28] + (answer[29] << 8)
    if start > most:
        return None
    data = answer[start : start + compressed]
    if method:
        try:
            data = _decoded(data, method, flags, size, origin, key)
        except DamagedError:
            return None
    return data if crc32(data) == crc else None


def content(answer: bytes, entry: ZipEntry, archive: Blob, origin: Origin, key: str) -> bytes:
    """The content of a member, checked, from what `request` gave; reads the rest if that was too little."""
    start = header_size(answer, entry, origin, key)
    data = answer[start : start + entry.compressed]
    if len(data) < entry.compressed:
        data += archive.pread(entry.compressed - len(data), entry.offset + start + len(data))
    if entry.method != records.STORED:
        try:
            data = _decoded(data, entry.method, entry.flags, entry.size, origin, key)
        except DamagedError as exc:
            raise damaged(entry, origin._url(key), exc) from exc
    if crc32(data) != entry.crc:
        raise wrong_crc(entry, origin._url(key), crc32(data))
    return data


def _decoded(data: bytes, method: int, flags: int, size: int, origin: Origin, key: str) -> bytes:
    begin = time.monotonic_ns() if hooks.active is not None else 0
    data = decoders.decode(data, method, flags, size)
    if (instrument := hooks.active) is not None:
        instrument.record_span("decompress", decoders.NAMES[method], begin, len(data), origin._url(key))
    return data


def damaged(entry: ZipEntry, url: str, exc: DamagedError) -> OSError:
    """The error for a compressed stream that isn't right."""
    return errors.corrupt(url, f"the member at offset {entry.offset} of the archive can't be decompressed: {exc}")


def wrong_crc(entry: ZipEntry, url: str, found: int) -> OSError:
    """The error for a CRC-32 that isn't the directory's."""
    reason = f"CRC-32 {found:08x} of the member at offset {entry.offset} where {entry.crc:08x} was expected"
    return errors.corrupt(url, reason)


def header_size(answer: bytes, entry: ZipEntry, origin: Origin, key: str) -> int:
    """The size of the local header that `answer` starts with, which must be this entry's."""
    name = entry.name
    # In the common case both headers tell the same; a member that was written as a stream has its sizes elsewhere.
    if answer[4:28] != entry.fields or answer[30 : 30 + len(name)] != name or answer[:4] != records.LOCAL_SIGNATURE:
        _check_header(answer, entry, origin, key)
    size = 30 + answer[26] + (answer[27] << 8) + answer[28] + (answer[29] << 8)
    if entry.offset + size + entry.compressed > entry.limit:
        check_room(entry, origin, key, size)
    return size


def _check_header(answer: bytes, entry: ZipEntry, origin: Origin, key: str) -> None:
    """Raise what is wrong with a local header that is other than was expected, if it is.

    The two names may be in two encodings: a program that adds to an archive writes the directory anew, in UTF-8.
    """
    if len(answer) < records.LOCAL.size or answer[:4] != records.LOCAL_SIGNATURE:
        found = f"{answer[:4]!r} where PK\\3\\4 was expected"
        raise errors.corrupt(origin._url(key), f"no local header at offset {entry.offset} of the archive: {found}")
    _, _, flags, method, _, _, _, _, length, _ = records.LOCAL.unpack_from(answer)
    if method != entry.method or (flags ^ entry.flags) & records.FLAG_ENCRYPTED:
        fields = f"method {method}, flags {flags:#x} where {entry.method}, {entry.flags:#x} was expected"
        reason = f"the local header at offset {entry.offset} is not the directory's: {fields}"
        raise errors.corrupt(origin._url(key), reason)
    name = answer[records.LOCAL.size : records.LOCAL.size + length]
    if name != entry.name and _text(name, flags) != _text(entry.name, entry.flags):
        reason = f"is of {name[:100]!r}, which is not the name in the directory"
        raise errors.corrupt(origin._url(key), f"the local header at offset {entry.offset} {reason}")


def _text(name: bytes, flags: int) -> str:
    return name.decode("utf-8" if flags & records.FLAG_UTF8 else "cp437", "surrogateescape")


def find(entry: ZipEntry, archive: Blob, origin: Origin, key: str) -> int:
    """Return the offset of a member's data in the archive, from the local header alone."""
    answer = archive.pread(entry.header + SLACK, entry.offset)
    return entry.offset + header_size(answer, entry, origin, key)


def check_room(entry: ZipEntry, origin: Origin, key: str, header: int) -> None:
    stop = entry.offset + header + entry.compressed
    if stop > entry.limit:
        limit = f"what follows starts at {entry.limit}" if entry.limit else "another entry starts there, too"
        reason = f"overlapping entries: the member takes the bytes from {entry.offset} to {stop}, and {limit}"
        raise errors.corrupt(origin._url(key), reason, "open")
