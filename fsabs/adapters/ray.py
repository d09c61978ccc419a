"""`read_fsabs`: RecordIO files, or whole files of trees and archives, as a data set of Ray Data."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa

from ..core import errors
from .splits import SCHEMAS, SPLIT_BYTES, Split, matching, plan_splits, read_split

try:
    import ray.data
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask
except ImportError:
    raise errors.missing("Ray Data", "ray", "read_fsabs") from None


def read_fsabs(
    url: str,
    *,
    kind: str = "auto",
    shards: str | None = None,
    split_bytes: int = SPLIT_BYTES,
    concurrency: int | None = None,
) -> ray.data.Dataset:
    """Return the data set at a URL as one of Ray's.

    Args:
        url: a directory, an archive or a file, as a URL or path that every node can open: credentials are given by the
            environment or the configuration of the nodes.
        kind: `recordio`: a row for each record, with the columns `shard`, `number` and `record`; `files`: a row for
            each file, with `path`, `modificationTime`, `length` and `content`; `auto` looks at the first file.
        shards: a glob pattern of the paths below the URL that are read.
        split_bytes: about how much a task reads.
        concurrency: how many tasks read at once, by default as Ray decides.
    """
    source = FsabsDatasource(url, kind=kind, shards=shards, split_bytes=split_bytes)
    dataset: ray.data.Dataset = ray.data.read_datasource(source, concurrency=concurrency)
    return dataset


class FsabsDatasource(Datasource):
    """The data source behind `read_fsabs`; it lists the data set when it is made."""

    def __init__(
        self, url: str, *, kind: str = "auto", shards: str | None = None, split_bytes: int = SPLIT_BYTES
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._plan = plan_splits(url, kind, keep=matching(shards), split_bytes=split_bytes)

    def get_name(self) -> str:
        """Return the name that Ray shows."""
        return "fsabs"

    def estimate_inmemory_data_size(self) -> int:
        """Return the bytes of all splits."""
        return sum(split.bytes for split in self._plan.splits)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Return a task for each split; `parallelism` is Ray's wish, and the splits are what they are."""
        schema = SCHEMAS[self._plan.kind]
        return [
            ReadTask(
                partial(_blocks, split),
                BlockMetadata(num_rows=split.rows, size_bytes=split.bytes, exec_stats=None, input_files=(split.url,)),
                schema=schema,
                per_task_row_limit=per_task_row_limit,
            )
            for split in self._plan.splits
        ]


def _blocks(split: Split) -> Iterable[pa.Table]:
    for batch in read_split(split):
        yield pa.Table.from_batches([batch])
