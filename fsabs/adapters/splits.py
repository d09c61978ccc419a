"""A data set as splits for engines that read in parallel: listed once on the driver, read as Arrow on the workers.

Two kinds of data sets: the records of RecordIO files, and whole files, of a tree or in an archive. A split is some
whole shards, a run of records of a large one, or some files; it names its data set by URL, and each worker opens that
for itself: credentials don't travel.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from ..core import redaction
from ..core.errors import stale
from ..core.fs import FileStat
from ..readers.data.files import Files
from ..readers.locate import check_one_run
from ..readers.recordio import Index, RecordReader

Kind = Literal["recordio", "files"]
KINDS = ("recordio", "files")
SPLIT_BYTES = 128 << 20
_BATCH_BYTES, _BATCH_ROWS = 16 << 20, 4096
_MAGIC = bytes([4, 3, 2, 1])

SCHEMAS: dict[str, pa.Schema] = {
    "recordio": pa.schema([("shard", pa.string()), ("number", pa.int64()), ("record", pa.binary())]),
    "files": pa.schema(
        [
            ("path", pa.string()),
            ("modificationTime", pa.timestamp("us", tz="UTC")),
            ("length", pa.int64()),
            ("content", pa.binary()),
        ]
    ),
}
"""The columns of the rows: of whole files, those of Spark's `binaryFile`."""


class SplitItem(NamedTuple):
    """A file, or a run of records of a shard."""

    path: str
    size: int
    """Of the whole file, in bytes."""
    modified: float | None
    start: int = 0
    stop: int = 0
    """The run of records; 0 and 0 for a whole file."""


class Split(NamedTuple):
    """The part of a data set that one task reads."""

    url: str
    kind: Kind
    items: tuple[SplitItem, ...]
    rows: int
    bytes: int


class SplitPlan(NamedTuple):
    """All splits of a data set."""

    kind: Kind
    splits: list[Split]


Keep = Callable[[str], bool]


def matching(pattern: str | None) -> Keep:
    """Return what decides whether a shard or file is read: its path below the data set matches a glob pattern."""
    return (lambda path: True) if pattern is None else (lambda path: fnmatch.fnmatchcase(path, pattern))


def check(url: str, kind: str) -> None:
    """Raise `ValueError` for a kind that is not known, and for a URL with credentials."""
    if kind not in (*KINDS, "auto"):
        raise ValueError(f"kind is 'recordio', 'files' or 'auto', not {kind!r}")
    if redaction.without_secrets(url) != url:
        raise ValueError("credentials in a URL would be seen in the plan: give them by the environment or pfio.ini")


def kind_of(url: str, kind: str = "auto") -> Kind:
    """Return the kind of the data set at a URL; `auto` looks at the first bytes of its first file."""
    check(url, kind)
    if kind != "auto":
        return "recordio" if kind == "recordio" else "files"
    files = Files(url)
    try:
        for stat in files.list():
            if stat.size:
                with files.fs.open_blob(stat.filename) as blob:
                    return "recordio" if blob.pread(4, 0) == _MAGIC else "files"
        return "files"
    finally:
        files.close()


def plan_splits(url: str, kind: str = "auto", *, keep: Keep | None = None, split_bytes: int = SPLIT_BYTES) -> SplitPlan:
    """List a data set, and cut it into splits of about `split_bytes` bytes.

    Args:
        url: a directory, an archive or one file, as a URL or path.
        kind: `recordio`, `files` or `auto`.
        keep: called with the path of each shard or file below the data set; False leaves it out, unread.
        split_bytes: files are read together up to this size, and RecordIO files above it are cut into runs of records.
    """
    if split_bytes < 1:
        raise ValueError(f"split_bytes must be at least 1, not {split_bytes}")
    chosen = kind_of(url, kind)
    files = Files(url)
    try:
        stats = [stat for stat in files.list() if keep is None or keep(stat.filename)]
        if chosen == "files":
            items: Iterable[tuple[SplitItem, int, int]] = (
                (SplitItem(stat.filename, stat.size, stat.last_modified), 1, stat.size) for stat in stats
            )
        else:
            check_one_run([stat.filename for stat in stats], files.fs.url())
            items = (item for stat in stats for item in _runs(files, stat, split_bytes))
        return SplitPlan(chosen, list(_grouped(url, chosen, items, split_bytes)))
    finally:
        files.close()


def _runs(files: Files, stat: FileStat, split_bytes: int) -> Iterator[tuple[SplitItem, int, int]]:
    """Yield the runs of records of a shard, each with its rows and bytes."""
    records = Index.load(files.fs, stat.filename).records
    count = max(1, min(records, -(-stat.size // split_bytes)))
    for number in range(count):
        start, stop = records * number // count, records * (number + 1) // count
        if stop > start:
            yield SplitItem(stat.filename, stat.size, None, start, stop), stop - start, stat.size // count


def _grouped(url: str, kind: Kind, items: Iterable[tuple[SplitItem, int, int]], split_bytes: int) -> Iterator[Split]:
    group: list[SplitItem] = []
    rows = size = 0
    for item, item_rows, item_bytes in items:
        if group and size + item_bytes > split_bytes:
            yield Split(url, kind, tuple(group), rows, size)
            group, rows, size = [], 0, 0
        group.append(item)
        rows += item_rows
        size += item_bytes
    if group:
        yield Split(url, kind, tuple(group), rows, size)


# ---- on the workers


def read_split(split: Split) -> Iterator[pa.RecordBatch]:
    """Read a split as record batches of its schema; `StaleFileError` for a file that has changed size since."""
    files = Files(split.url)
    try:
        rows = _records(files, split) if split.kind == "recordio" else _files(files, split)
        yield from _batches(rows, SCHEMAS[split.kind])
    finally:
        files.close()


def _records(files: Files, split: Split) -> Iterator[tuple[Any, ...]]:
    for item in split.items:
        with RecordReader(files.fs, item.path) as reader:
            _check_size(files, item, reader.index.size)
            reader.index.assume_counts()
            for number, record in enumerate(reader.scan(item.start, item.stop), item.start):
                yield item.path, number, record


def _files(files: Files, split: Split) -> Iterator[tuple[Any, ...]]:
    contents = files.fs.read_many([item.path for item in split.items])
    for item, content in zip(split.items, contents, strict=True):
        _check_size(files, item, len(content))
        modified = None if item.modified is None else round(item.modified * 1e6)
        yield files.fs.url(item.path), modified, len(content), content


def _check_size(files: Files, item: SplitItem, size: int) -> None:
    if size != item.size:
        reason = f"the file has {size} bytes, and had {item.size} when it was listed"
        raise stale(files.fs.url(item.path), reason)


def _batches(rows: Iterator[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows, the last column of which is binary, as batches of bounded size."""
    batch: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row[-1])
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_ROWS:
            yield _batch(batch, schema)
            batch, size = [], 0
    if batch:
        yield _batch(batch, schema)


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
