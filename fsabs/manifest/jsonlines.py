"""Manifests as JSON lines: a heading, an entry a line in the order of their names, and a last line that counts them.

A name is found by bisection in the file itself, so that a manifest of any length takes a bounded amount of memory.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from ..core import errors
from ..core.blobs import Blob
from ..core.limits import parse_json
from .entries import ManifestEntry, ManifestTable

HEADING = b'{"manifest":"fsabs","format":1}\n'
_OTHER_FORMAT = b'{"manifest":"fsabs","format":'
_BLOCK = 64 * 1024
_REMOTE_BLOCK = 1024 * 1024
_KEPT = 64 * 1024 * 1024  # bytes of blocks that are kept in memory
_PROBES = 100_000  # lines of bisections that are remembered
_NAME = b'{"name":"'
_LONGEST = 1024 * 1024  # bytes of a line


def write(file: BinaryIO, entries: Iterable[ManifestEntry]) -> tuple[int, int]:
    """Write entries, which come in order; return how many they are, and the sum of their sizes."""
    file.write(HEADING)
    count = total = 0
    for entry in entries:
        file.write(entry.encode())
        count, total = count + 1, total + entry.size
    file.write(_footer(count, total))
    return count, total


def _footer(count: int, total: int) -> bytes:
    return b'{"entries":%d,"bytes":%d}\n' % (count, total)


class JsonLinesTable(ManifestTable):
    """The entries of a file of JSON lines."""

    def __init__(self, blob: Blob, remote: bool) -> None:
        super().__init__(blob)
        self._size = _REMOTE_BLOCK if remote else _BLOCK
        self._block = functools.lru_cache(_KEPT // self._size)(functools.partial(_read_block, blob, self._size))
        self._probe = functools.lru_cache(_PROBES)(self._line_after)
        if (heading := blob.pread(len(HEADING), 0)) != HEADING:
            if heading.startswith(_OTHER_FORMAT):
                form = heading[len(_OTHER_FORMAT) :].partition(b"}")[0].decode("ascii", "replace")
                raise errors.corrupt(blob.url, f"a manifest of format {form}, which this version can't read", "open")
            raise errors.corrupt(blob.url, "it does not begin as a manifest of JSON lines does", "open")
        self._start = len(HEADING)
        self._end, self.entries, self.bytes = self._read_footer()

    def _read_footer(self) -> tuple[int, int, int]:
        """Return where the last line begins, and the counts in it."""
        tail = self._blob.pread(200, max(0, self._blob.size - 200))
        last = tail[tail.rfind(b"\n", 0, -1) + 1 :]
        try:
            values = parse_json(last)
            count, total = values["entries"], values["bytes"]
            if last == _footer(count, total):
                return self._blob.size - len(last), count, total
        except (ValueError, KeyError, TypeError):
            pass
        raise errors.corrupt(
            self._blob.url, "its last line, which counts the entries, is missing: it was cut off", "open"
        )

    def scan(self, name: str = "") -> Iterator[ManifestEntry]:
        """Yield the entries from the first whose name is `name` or comes after it; all of them are counted."""
        at = self._position(name) if name else self._start
        count = total = 0
        while at < self._end:
            line = self._line(at)
            entry = self._entry(at, line)
            count, total = count + 1, total + entry.size
            at += len(line)
            yield entry
        if not name and (count, total) != (self.entries, self.bytes):
            reason = f"{count} entries of {total} bytes, where its last line has {self.entries} of {self.bytes}"
            raise errors.corrupt(self._blob.url, reason)

    def _position(self, name: str) -> int:
        """Return where the first line begins whose name is `name` or comes after it."""
        wanted = _comparable(name)
        found, low, high = self._end, self._start, self._end
        while low < high:
            middle = (low + high) // 2 if high - low > 512 else low
            start, line_name, end = self._named_line(low) if middle == low else self._probe(middle)
            if start >= high:
                high = middle
            elif line_name < wanted:
                low = end
            else:
                found, high = start, middle
        return found

    def _line_after(self, offset: int) -> tuple[int, bytes, int]:
        """Return start, name and end of the first line that begins at or after `offset`, which may be the footer."""
        start = offset - 1 + len(self._line(offset - 1))
        return self._named_line(start) if start < self._end else (self._end, b"", self._end)

    def _named_line(self, offset: int) -> tuple[int, bytes, int]:
        line = self._line(offset)
        end = line.find(b'"', len(_NAME))
        name = line[len(_NAME) : end]
        if not line.startswith(_NAME) or b"\\" in name:
            name = _comparable(self._entry(offset, line).name)
        return offset, name, offset + len(line)

    def _entry(self, offset: int, line: bytes) -> ManifestEntry:
        try:
            return ManifestEntry.decode(line)
        except ValueError as exc:
            raise errors.corrupt(self._blob.url, f"at offset {offset}: {exc}") from None

    def _line(self, offset: int) -> bytes:
        """Return the bytes from `offset` to the end of the line."""
        found = b""
        while len(found) < _LONGEST and offset + len(found) < self._blob.size:
            at = offset + len(found)
            block = self._block(at // self._size)
            begin = at % self._size
            end = block.find(b"\n", begin) + 1
            if end:
                return found + block[begin:end]
            found += block[begin:]
        raise errors.corrupt(self._blob.url, f"a line without an end at offset {offset}")


def _read_block(blob: Blob, size: int, number: int) -> bytes:
    return blob.pread(size, number * size)


def _comparable(name: str) -> bytes:
    """Return bytes that have the order of names."""
    return name.encode("utf-8", "surrogatepass")
