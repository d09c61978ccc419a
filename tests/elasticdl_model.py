"""A model definition file as ElasticDL's documents have it, with custom data readers of both of their interfaces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import fsabs
from fsabs.readers import recordio
from fsabs.readers.data import Mode


class Reader:
    """What the documents write as `self.reader = ...`: records by number, None behind the last one."""

    def __init__(self) -> None:
        self._at = -1

    def read(self, source: str, start: int, offset: int) -> bytes | None:
        """Return the next record of a task, None at its end."""
        self._at = start if self._at < start else self._at + 1
        return b"%s/%d" % (source.encode(), self._at) if self._at < offset else None


class EarlierAbstractDataReader:
    """The interface of the earlier document."""

    def __init__(self, *kwargs: Any) -> None:
        pass

    @abstractmethod
    def read_records(self, task: Any) -> Iterator[Any]:
        """Read the records of a task."""

    @abstractmethod
    def create_shards(self, mode: str) -> Any:
        """Return the number of records of each shard."""


class EarlierDataReader(EarlierAbstractDataReader):
    """The custom reader of the earlier document."""

    def read_records(self, task: Any) -> Iterator[Any]:
        """Read the records of a task, as the document has it."""
        reader = Reader()
        while True:
            record = reader.read(source=task.shard_name, start=task.start, offset=task.end)
            if record:
                yield record
            else:
                break

    def create_shards(self, mode: str) -> dict[str, int]:
        """Return shards by mode, as the document has it."""
        if mode == Mode.TRAINING:
            return {"train": 30}
        elif mode == Mode.EVALUATION:
            return {"eval": 10}
        else:
            return {"predict": 5}


class AbstractDataReader(ABC):
    """The interface of the later document."""

    def __init__(self, **kwargs: Any) -> None:  # noqa: B027 - the document's
        pass

    @abstractmethod
    def read_records(self, task: Any) -> Iterator[Any]:
        """Read the records of a task."""

    @abstractmethod
    def create_shards(self) -> Any:
        """Return the shards."""


class CustomDataReader(AbstractDataReader):
    """The custom reader of the later document, over RecordIO files."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs

    def read_records(self, task: Any) -> Iterator[Any]:
        """Read the records of a task."""
        with recordio.RecordReader(fsabs.from_url("/"), task.shard_name) as reader:
            yield from reader.scan(task.start, task.end)

    def create_shards(self) -> dict[str, int]:
        """Return the number of records of each file, as the document has it."""
        data_dir = self._kwargs["data_dir"]
        if not data_dir:
            return {}
        fs = fsabs.from_url(data_dir)
        f_records = {}
        for f in fs.list():
            p = f"{data_dir}/{f}"
            with closing(recordio.RecordReader(fs, f)) as rio:
                f_records[p] = len(rio)
        return f_records


class TuplesDataReader(CustomDataReader):
    """As the docstring of the later interface says it: tuples of the starting index and the number of records."""

    def create_shards(self) -> dict[str, tuple[int, int]]:  # type: ignore[override]
        """Return the shards without their first records."""
        return {name: (2, count - 2) for name, count in super().create_shards().items()}
