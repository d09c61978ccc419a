"""Events as a table of pyarrow or pandas, one line an event; for millions of them there is a reader of batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from ...core import errors
from ..schema import Event

AT_ONCE = 65_536
"""Events of a batch."""


def schema() -> Any:
    """The columns, a `pyarrow.Schema`.

    `begin` is a timestamp in UTC, `duration` a duration, both in nanoseconds; `offset` is null where it means nothing,
    `where` and `error` are null where there is none.
    """
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("begin", pa.timestamp("ns", "UTC")), ("duration", pa.duration("ns")), ("kind", word), ("layer", word),
            ("operation", word), ("size", pa.int64()), ("offset", pa.int64()), ("where", pa.string()), ("error", word),
            ("process", pa.int32()), ("thread", pa.int64()),
        ]
    )  # fmt: skip


def reader(events: Iterable[Event], at_once: int = AT_ONCE) -> Any:
    """A `pyarrow.RecordBatchReader` of events, made as they are read: for Parquet, and for more than fits in memory."""
    import pyarrow as pa

    if at_once < 1:
        raise ValueError(f"a batch has at least one event, not {at_once}")
    return pa.RecordBatchReader.from_batches(schema(), _batches(iter(events), at_once))


def table(events: Iterable[Event]) -> Any:
    """A `pyarrow.Table` of all events, in their order: `table(fsabs.trace.events(folder))`."""
    return reader(events).read_all().unify_dictionaries()


def frame(events: Iterable[Event]) -> Any:
    """As `table`, a `pandas.DataFrame`. Without pandas, raises `MissingDependencyError`."""
    errors.required("pandas", "pandas", "pandas", "a DataFrame of events")
    return table(events).to_pandas()


def _batches(events: Iterator[Event], at_once: int) -> Iterator[Any]:
    import pyarrow as pa

    columns = schema()
    while some := list(itertools.islice(events, at_once)):
        rows = [
            (one.begin, one.duration, one.kind, one.layer, one.operation, one.size,
             None if one.offset < 0 else one.offset, one.where or None, one.error or None, one.process, one.thread)
            for one in some
        ]  # fmt: skip
        arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), columns, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=columns)
