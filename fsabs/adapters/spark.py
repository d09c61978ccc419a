"""A data source for Spark: `spark.read.format("fsabs")`, after `register(spark)`. Needs pyspark 4.

Options: `path`, or the argument of `load`: a directory, an archive or a file, as a URL; `kind`: `recordio`, `files` or
`auto`; `shards`: a glob pattern of paths below it; `split_bytes`: about how much a task reads. Rows of RecordIO files
have the columns `shard`, `number` and `record`, those of whole files the columns of Spark's `binaryFile`. Filters on
`shard` decide which shards are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..core import errors
from ..prepare.spark import ship_package
from .splits import SPLIT_BYTES, Split, check, kind_of, matching, plan_splits, read_split

try:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
except ImportError:
    raise errors.missing("pyspark 4", "spark", "Spark's data source 'fsabs'") from None

_SCHEMAS = {
    "recordio": "shard string, number bigint, record binary",
    "files": "path string, modificationTime timestamp, length bigint, content binary",
}
_OPTIONS = ("path", "kind", "shards", "split_bytes")
_PRUNED_BY = "shard"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register the format `fsabs` in a session, and send this package to its executors.

    The session's `spark.sql.python.filterPushdown.enabled` is set: pyspark 4.1 and later refuse a format that takes
    filters without it.
    """
    ship_package(spark.sparkContext)
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(FsabsDataSource)


class FsabsDataSource(DataSource):
    """The format `fsabs`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "fsabs"

    def schema(self) -> str:
        """Return the columns."""
        return _SCHEMAS[kind_of(*self._location())]

    def reader(self, schema: Any) -> FsabsReader:
        """Return a reader of the data set."""
        url, kind = self._location()
        split_bytes = int(self.options.get("split_bytes", SPLIT_BYTES))
        return FsabsReader(url, kind_of(url, kind), self.options.get("shards"), split_bytes)

    def _location(self) -> tuple[str, str]:
        unknown = [name for name in self.options if name.lower() not in _OPTIONS]
        if unknown:
            raise ValueError(f"unknown option {unknown[0]!r}; known: {', '.join(_OPTIONS)}")
        if not self.options.get("path"):
            raise ValueError("the format fsabs needs a path: load('s3://bucket/data')")
        url, kind = self.options["path"], self.options.get("kind", "auto")
        check(url, kind)
        return url, kind


class SplitPartition(InputPartition):
    """A split as a partition of Spark's."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)


class FsabsReader(DataSourceReader):
    """Plans the partitions of a data set and reads them."""

    def __init__(self, url: str, kind: str, pattern: str | None, split_bytes: int) -> None:
        self._url, self._kind, self._pattern, self._split_bytes = url, kind, pattern, split_bytes
        self._wanted: set[str] | None = None
        self._prefixes: list[str] = []

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Take note of which shards are wanted; yield all filters, since Spark may check them again."""
        for one in filters:
            if getattr(one, "attribute", None) == (_PRUNED_BY,):
                values = _values(one)
                if values is not None:
                    self._wanted = values if self._wanted is None else self._wanted & values
                elif type(one).__name__ == "StringStartsWith":
                    self._prefixes.append(one.value)
            yield one

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each split."""
        plan = plan_splits(self._url, self._kind, keep=self._keep(), split_bytes=self._split_bytes)
        return [SplitPartition(split) for split in plan.splits]

    def _keep(self) -> Callable[[str], bool]:
        pattern, wanted, prefixes = matching(self._pattern), self._wanted, self._prefixes
        return lambda path: (
            pattern(path) and (wanted is None or path in wanted) and all(path.startswith(prefix) for prefix in prefixes)
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read a partition as Arrow's record batches."""
        return read_split(partition.value)


def _values(filter: Any) -> set[str] | None:
    """Return the values that a filter leaves a column, or None if it is no list of them."""
    kind = type(filter).__name__
    if kind in ("EqualTo", "EqualNullSafe"):
        return {filter.value}
    return set(filter.value) if kind == "In" else None
