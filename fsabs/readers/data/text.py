"""TextDataReader: the rows of a CSV file, of any FS, read by ranges.

Rows are what Python's `csv` says they are, so that a newline in quotes does not end one. The file is scanned once to
count them; of every 64th row the offset is kept, and a range is read from the nearest one before it.
"""

from __future__ import annotations

import csv
import errno
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ...core import errors, keys
from ...core.blobs import Blob
from ...core.files import ReadFile
from .base import Metadata, ShardContent, SlicedDataReader, digest_of, runs
from .files import Files

CHUNK = 1024 * 1024  # bytes read at once
STRIDE = 64  # rows to each offset that is kept
_BOM = b"\xef\xbb\xbf"


class _Index(NamedTuple):
    """The positions of the rows."""

    rows: int
    offsets: array[int]
    """Of the rows 0, 64, 128 ..., and the end of the file."""
    size: int
    version: str | None


class TextDataReader(SlicedDataReader):
    """The rows of the CSV file `filename` (a URL or a path).

    A record is the text of a row with its line end as `\\n`; every row is one, the header, too. With `columns`, the
    first row names the columns and is no record, blank lines aren't either, and a record is the list of the texts in
    those `columns`, in their order. A shard has `records_per_task` records (the last one the rest), or all of them if
    that is None.

    The text is UTF-8. Raises `CorruptFileError` for what `csv` can't read, `StaleFileError` when the file changed since
    its rows were counted, and `ValueError` for columns that the file has not.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        records_per_task: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        sep: str = ",",
    ) -> None:
        if len(sep) != 1 or not sep.isascii():
            raise ValueError(f"sep is one ASCII character, not {sep!r}")
        self._files = Files(filename)
        self._path = self._files.one()
        super().__init__(self._files.name(self._path), records_per_task)
        self._columns = None if columns is None else list(columns)
        self._sep = sep
        self._index: _Index | None = None
        self._picked: list[int] | None = None
        self._digest: str | None = None

    def content_of(self, shard_name: str) -> ShardContent:
        """Return the file's own name, its size, and a digest of where its rows lie."""
        rows = self._rows()
        if self._digest is None:
            self._digest = digest_of(rows.offsets)
        return ShardContent(keys.name(self._path) + shard_name.removeprefix(self._name), rows.size, self._digest)

    def __len__(self) -> int:
        """The number of records."""
        return max(0, self._rows().rows - self._header_rows)

    def _read(self, numbers: Sequence[int]) -> Iterator[Any]:
        for start, end in runs(numbers):
            yield from self._read_run(start, end)

    @property
    def records_output_types(self) -> str:
        """The type of a record: text."""
        return "string"

    @property
    def metadata(self) -> Metadata:
        """The names of the columns, if any were given."""
        return Metadata(self._columns)

    def close(self) -> None:
        """Free what the FS holds in this process."""
        self._files.close()

    @property
    def _header_rows(self) -> int:
        return 0 if self._columns is None else 1

    def _read_run(self, start: int, end: int) -> Iterator[Any]:
        start, end = start + self._header_rows, end + self._header_rows
        with self._open() as file:
            blob = file.raw.blob
            picked = self._pick(blob)
            for text, fields in self._between(blob, start, end):
                if picked is None:
                    yield text
                    continue
                try:
                    yield [fields[column] for column in picked]
                except IndexError:
                    reason = f"a row has {len(fields)} columns, fewer than the header: {text[:80]!r}"
                    raise errors.corrupt(blob.url, reason, "read_records") from None

    def _pick(self, blob: Blob) -> list[int] | None:
        """The places of the chosen columns in a row."""
        if self._columns is None or self._picked is not None:
            return self._picked
        header = next((fields for _, fields in self._between(blob, 0, 1)), [])
        absent = [name for name in self._columns if name not in header]
        if absent:
            raise ValueError(f"{self._name} has no columns {absent}; its first row has {header}")
        self._picked = [header.index(name) for name in self._columns]
        return self._picked

    def _counts(self, fields: list[str]) -> bool:
        """Return whether a line counts as a row: a blank line does where rows are text."""
        return bool(fields) or self._columns is None

    # ---- rows and their offsets

    def _rows(self) -> _Index:
        if self._index is None:
            with self._files.fs.open(self._path, "rb") as file:
                self._index = _scan(file.raw.blob, self._sep, self._counts)
        return self._index

    def _open(self) -> ReadFile:
        index = self._rows()
        file = self._files.fs.open(self._path, "rb")
        if (file.raw.blob.size, file.raw.blob.version) != (index.size, index.version):
            file.close()
            raise errors.stale(file.name, "the file changed since its rows were counted", "read_records")
        return file

    def _between(self, blob: Blob, start: int, end: int) -> Iterator[tuple[str, list[str]]]:
        """Text and fields of the rows `start` to `end`."""
        index = self._rows()
        at = start // STRIDE * STRIDE
        first, last = index.offsets[start // STRIDE], index.offsets[min(-(-end // STRIDE), len(index.offsets) - 1)]
        lines = _Lines(blob, first, last)
        try:
            for fields in csv.reader(lines, delimiter=self._sep):
                text = lines.taken()
                if not self._counts(fields):
                    continue
                if at >= start:
                    yield text, fields
                at += 1
                if at == end:
                    return
        except csv.Error as exc:
            raise _unreadable(blob.url, at, exc, "read_records") from None


def _unreadable(url: str, row: int, exc: csv.Error, operation: str) -> OSError:
    """Return the error for a row that `csv` can't read; a field over its limit is no damage."""
    if "field limit" in str(exc):
        return errors.error(errno.EFBIG, operation, url, f"row {row}: {exc}; csv.field_size_limit() sets it")
    return errors.corrupt(url, f"row {row}: {exc}", operation)


class _Lines(Iterator[str]):
    """The lines of a blob from `start` to `end`, with their ends; knows what was taken since last asked."""

    def __init__(self, blob: Blob, start: int, end: int) -> None:
        self._blob = blob
        self._start = start
        self._lines = _lines(blob, start, end)
        self._taken: list[str] = []

    def __next__(self) -> str:
        line = next(self._lines)
        if line.startswith(_BOM) and not self._start:
            line = line[len(_BOM) :]
        self._start = -1
        try:
            text = line.decode()
        except UnicodeDecodeError as exc:
            raise errors.corrupt(self._blob.url, f"not UTF-8: {exc}", "read_records") from None
        self._taken.append(text)
        return text

    def taken(self) -> str:
        """The text of the lines since the last call, ended by `\\n`; line ends further in, in quotes, are kept."""
        text = "".join(self._taken)
        self._taken.clear()
        return text.removesuffix("\n").removesuffix("\r") + "\n"


def _lines(blob: Blob, start: int, end: int) -> Iterator[bytes]:
    """The lines from one offset to another, with their ends (`\\n`, `\\r\\n`, `\\r`)."""
    rest: list[bytes] = []  # of a line that goes on: joined when its end is there, so that a long one is not slow
    for offset in range(start, end, CHUNK):
        lines = blob.pread(min(CHUNK, end - offset), offset).splitlines(keepends=True)
        # A line may go on in the next chunk, and so may a line end that has come as far as its \r.
        going_on = lines.pop() if not lines[-1].endswith(b"\n") else b""
        if lines:
            yield from b"".join([*rest, lines[0]]).splitlines(keepends=True)
            yield from lines[1:]
            rest = []
        rest.append(going_on)
    yield from b"".join(rest).splitlines(keepends=True)


def _scan(blob: Blob, sep: str, counts: Callable[[list[str]], bool]) -> _Index:
    """Count the rows and note where they begin."""
    offsets = array("Q")
    at = rows = 0

    def lines() -> Iterator[str]:
        nonlocal at
        for line in _lines(blob, 0, blob.size):
            at += len(line)
            text = line[len(_BOM) :] if at == len(line) and line.startswith(_BOM) else line
            yield text.decode(errors="replace")  # reading a row says what is not UTF-8

    begin = 0
    try:
        for fields in csv.reader(lines(), delimiter=sep):
            if not counts(fields):
                begin = at
                continue
            if rows % STRIDE == 0:
                offsets.append(begin)
            rows += 1
            begin = at
    except csv.Error as exc:
        raise _unreadable(blob.url, rows, exc, "create_shards") from None
    offsets.append(blob.size)
    return _Index(rows, offsets, blob.size, blob.version)
