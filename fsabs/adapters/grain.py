"""Sources for Grain (github.com/google/grain): records and files of any FS by number, as `RandomAccessDataSource`.

They have the two methods that Grain's protocol asks for, and can be pickled, used by threads and after a fork. Grain is
not imported here, so that any library that reads by number can use them.
"""

from __future__ import annotations

import itertools
import operator
import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from ..core.fs import FS
from ..readers.data import AbstractDataReader, shards_of
from ..readers.data.base import digest_of, exactly
from ..readers.data.factory import reader_of
from ..readers.data.files import Files, Location
from ..urls import opening

if TYPE_CHECKING:
    import pyarrow.compute as pc


class RecordSource:
    """The records of a data reader's shards, by number: of Parquet, JSON lines, RecordIO, tokens, MDS, tar and zip.

    Args:
        source: a data reader (`fsabs.readers.data`: `TokenDataReader` for windows of tokens), or a directory, pattern
            or file that `ShardedDataset` takes.
        columns, filters: of Parquet files, see `ParquetDataReader`.

    Its `repr`, by which Grain compares a checkpoint with the pipeline it is loaded into, has a digest of the shards'
    names, sizes and indexes: a checkpoint of other data is refused.

    Rows of Parquet files are decoded by row groups, of which the last 64 MiB are kept. A global shuffle of rows decodes
    a row group for nearly every row: give those a `ShardedDataset`, or shuffle windows (`WindowShuffleMapDataset`).
    """

    def __init__(
        self,
        source: AbstractDataReader | Location,
        *,
        columns: Sequence[str] | None = None,
        filters: Sequence[Any] | pc.Expression | None = None,
    ) -> None:
        self.reader = reader_of(source, "raise", columns, filters)
        self._shards = [shard for shard in shards_of(self.reader) if shard.count]
        self._ends = list(itertools.accumulate(shard.count for shard in self._shards))
        contents = [(shard.start, shard.count, self.reader.content_of(shard.name)) for shard in self._shards]
        self._digest = digest_of(repr((contents, columns)).encode())

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, record_key: SupportsIndex) -> Any:
        index = operator.index(record_key)
        if not 0 <= index < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        number = bisect_right(self._ends, index)
        shard = self._shards[number]
        record = index - (self._ends[number] - shard.count) + shard.start
        (found,) = exactly(self.reader.read_at(shard.name, [record]), shard.name, [record])
        return found

    def __repr__(self) -> str:
        return f"RecordSource({len(self)} records, {self._digest})"


class FileSource:
    """The contents of files of an FS, by number: of a zip, a tar, a directory or a store.

    Args:
        fs: an FS, or its URL.
        paths: of the files; None for all, sorted, but those that begin with a dot or are below such a directory.
    """

    def __init__(self, fs: FS | str | os.PathLike[str], paths: Iterable[str] | None = None) -> None:
        self.fs = fs if isinstance(fs, FS) else opening.from_url(fs)
        if paths is None:
            sizes = [(one.filename, one.size) for one in Files(self.fs).list()]
            self.paths = [path for path, _ in sizes]
        else:
            self.paths = list(paths)
            sizes = [(path, self.fs.stat(path).size) for path in self.paths]
        self._digest = digest_of(repr(sizes).encode("utf-8", "surrogatepass"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, record_key: SupportsIndex) -> bytes:
        index = operator.index(record_key)
        if not 0 <= index < len(self):
            raise IndexError(f"file {index} of {len(self)}")
        return self.fs.read_bytes(self.paths[index])

    def __repr__(self) -> str:
        return f"FileSource({len(self)} files, {self._digest})"
