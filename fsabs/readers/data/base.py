"""The interface of data readers, and the types of ElasticDL's: Task, TaskType, Mode, Shard, Metadata.

The interface is that of ElasticDL's `elasticdl/python/data/reader/data_reader.py`, so that a reader written for it
works here as it stands.
"""

from __future__ import annotations

import abc
import enum
import hashlib
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ...core import errors
from ...core.errors import CorruptFileError
from ..recordio.index import OnError as OnError
from ..recordio.index import check_on_error as check_on_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from .order import EpochOrder


class Mode:
    """The use that shards are made for: training, evaluation or prediction."""

    TRAINING: Literal["training"] = "training"
    EVALUATION: Literal["evaluation"] = "evaluation"
    PREDICTION: Literal["prediction"] = "prediction"


class TaskType(enum.IntEnum):
    """The kind of a task, with the numbers of ElasticDL's protocol."""

    NONE = 0
    TRAINING = 1
    EVALUATION = 2
    PREDICTION = 3
    WAIT = 4
    TRAIN_END_CALLBACK = 5


class Shard(NamedTuple):
    """A named run of records."""

    name: str
    start: int
    """The number of the first record."""
    count: int  # type: ignore[assignment]  # tuple's method of that name is of no use here

    @property
    def end(self) -> int:
        """The number after the last record."""
        return self.start + self.count


class _Lost:
    """The type of `LOST`."""

    def __repr__(self) -> str:
        return "LOST"


LOST = _Lost()
"""Stands for a record that is damaged (see `AbstractDataReader.read_available`)."""


class ShardContent(NamedTuple):
    """The identity of a shard, independent of where the data set is."""

    name: str
    """Below the root of the data set."""
    size: int | None = None
    """In bytes, if it is known."""
    digest: str | None = None
    """Of the shard's index: the checksums, sizes and places of what it holds, as far as the format has them."""


def digest_of(*parts: Buffer) -> str:
    """Return a digest of an index, for `ShardContent`."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


class TaskShard(NamedTuple):
    """The records of a task as ElasticDL's later code asks for them: `task.shard.name`."""

    name: str
    start: int
    end: int
    indices: tuple[int, ...] = ()


class Task(NamedTuple):
    """A piece of a shard: its records `start` to `end` (exclusive), or only those numbered `indices`."""

    task_id: int = 0
    shard_name: str = ""
    start: int = 0
    end: int = 0
    type: TaskType = TaskType.TRAINING
    model_version: int = -1
    indices: tuple[int, ...] | None = None
    """Numbers of records of the shard, in the order they are wanted; None for all from `start` to `end`."""

    @property
    def shard(self) -> TaskShard:
        """The same as one object, as ElasticDL's protocol has it."""
        return TaskShard(self.shard_name, self.start, self.end, self.indices or ())

    def numbers(self) -> Sequence[int]:
        """The numbers of the records, in order."""
        return numbers_of(self)


def shard_name_of(task: Any) -> str:
    """Return the name of a task's shard: its `shard_name`, or `task.shard.name` of ElasticDL's later tasks."""
    name = getattr(task, "shard_name", None)
    return str(task.shard.name if name is None else name)


def numbers_of(task: Any) -> Sequence[int]:
    """Return the numbers of a task's records, in order: its `indices`, if any, or from `start` to `end`.

    They stand in the task, or in `task.shard` as ElasticDL's later tasks have them.
    """
    where = task if hasattr(task, "start") else task.shard
    indices = getattr(where, "indices", None)
    return indices if indices is not None and len(indices) else range(where.start, where.end)


class Metadata:
    """The names and types of the records' columns, or None."""

    def __init__(self, column_names: list[str] | None = None, column_dtypes: list[Any] | None = None) -> None:
        self.column_names = column_names
        self.column_dtypes = column_dtypes

    def __repr__(self) -> str:
        return f"Metadata({self.column_names!r}, {self.column_dtypes!r})"


Shards: TypeAlias = Mapping[str, tuple[int, int]] | Mapping[str, int] | Iterable[tuple[str, int, int]]


class _CheckedOptions(abc.ABCMeta):
    """Classes whose unknown keyword options are a `TypeError` that names the nearest known one."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        check_options(cls, options)
        return super().__call__(*args, **options)


class AbstractDataReader(metaclass=_CheckedOptions):
    """The interface of a data reader. Subclasses implement `read_records` and `create_shards`.

    Its constructor takes what `create_data_reader` and the command line (`--custom_data_reader_params`) hand to it;
    one that takes `**kwargs`, as ElasticDL's do, is given everything.
    """

    on_error: OnError = "raise"
    """What is done about a damaged record: "raise" a `CorruptFileError`, or "skip" it. A data set over this reader goes
    by it, too."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs

    @abc.abstractmethod
    def read_records(self, task: Any) -> Iterator[Any]:
        """Read the records of a `Task`: of the shard `task.shard_name`, from `task.start` to `task.end` (exclusive)."""

    @abc.abstractmethod
    def create_shards(self, *args: Any, **kwargs: Any) -> Any:
        """The shards there are: `[(name, start, count)]`, `{name: (start, count)}` or `{name: count}`.

        A count of None is that of a file, called by its URL or path: its records are counted once for each version of
        it, by `read_records` of a task up to `sys.maxsize`, which several threads call for different files.

        May take the mode ("training", "evaluation", "prediction") as its argument, or nothing. The signature here is
        open so that a type checker takes either.
        """

    @property
    def records_output_types(self) -> Any:
        """The types of a record's parts, as `tf.data.Dataset.from_generator` takes them, or None."""
        return None

    @property
    def metadata(self) -> Metadata:
        """The metadata of the records' columns."""
        return Metadata()

    def read_at(self, shard_name: str, numbers: Sequence[int]) -> Iterator[Any]:
        """The records of a shard with these numbers (ascending), in order: runs of them by `read_records`.

        `CorruptFileError` where the reader gives fewer or more than it was asked for.
        """
        for start, end in runs(numbers):
            records = self.read_records(Task(0, shard_name, start, end))
            yield from exactly(records, shard_name, range(start, end))

    def read_available(self, shard_name: str, numbers: Sequence[int]) -> Iterator[Any]:
        """Read the records of a shard with these numbers, with `LOST` in the place of each one that is damaged."""
        try:
            records = list(self.read_at(shard_name, numbers))
        except CorruptFileError:
            if len(numbers) == 1:
                yield LOST
                return
        else:
            yield from records
            return
        middle = len(numbers) // 2
        yield from self.read_available(shard_name, numbers[:middle])
        yield from self.read_available(shard_name, numbers[middle:])

    def order(self, shards: Sequence[Shard], seed: int | None, window: int) -> EpochOrder | None:
        """Return the orders of the epochs over shards, of a format whose records are shuffled in windows of chunks.

        None for a format that has no chunks, or whose records are found without them.
        """
        return None

    def content_of(self, shard_name: str) -> ShardContent:
        """Return the identity of a shard's content; here, its name alone."""
        return ShardContent(shard_name)

    def set_order(self, shard_names: Iterable[str]) -> None:
        """Receive the shards that are read next by all workers, in order, so that a cache below knows what to keep."""

    @property
    def reads_ahead(self) -> bool:
        """True if its records may be read by a thread ahead of their use, and if that gains time."""
        return False

    def close(self) -> None:
        """Free what is held in this process; may be called again, and reading opens anew."""


def check_options(owner: Any, options: Mapping[str, Any]) -> None:
    """`TypeError` for a keyword that the callable `owner` has not; one with `**kwargs` takes them all."""
    parameters = parameters_of(owner)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = [name for name, one in parameters.items() if one.kind is not one.POSITIONAL_ONLY and name != "self"]
    for name in options:
        if name not in known:
            raise TypeError(errors.unknown_option(name, known, owner.__name__))


def parameters_of(maker: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, or of a class's constructor."""
    return inspect.signature(maker.__init__ if inspect.isclass(maker) else maker).parameters


def runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The runs `(start, end)` of consecutive numbers, in order."""
    if isinstance(numbers, range) and numbers.step == 1:
        if numbers:
            yield numbers.start, numbers.stop
        return
    start = end = None
    for number in numbers:
        if end is not None and number == end:
            end += 1
            continue
        if start is not None and end is not None:
            yield start, end
        start, end = number, number + 1
    if start is not None and end is not None:
        yield start, end


def exactly(records: Iterable[Any], shard_name: str, numbers: Sequence[int]) -> Iterator[Any]:
    """`records`, of which there must be just as many as there are `numbers`; else a `CorruptFileError`."""
    given = 0
    for record in records:
        if given == len(numbers):
            reason = f"the reader gave more than {given} records, up to record {numbers[-1]}"
            raise errors.corrupt(shard_name, reason, "read_records")
        yield record
        given += 1
    if given < len(numbers):
        reason = f"the reader ended before record {numbers[given]}: {given} of {len(numbers)} records came"
        raise errors.corrupt(shard_name, reason, "read_records")


def check_numbers(shard_name: str, numbers: Sequence[int], total: int) -> None:
    """`CorruptFileError` if a shard of `total` records has not those with these numbers."""
    if not len(numbers):
        return
    first, last = (numbers[0], numbers[-1]) if isinstance(numbers, range) else (min(numbers), max(numbers))
    if first < 0:
        raise ValueError(f"no range of records: {first} to {last + 1} of {shard_name}")
    if last >= total:
        reason = f"record {max(first, total)} is asked for, and there are {total}"
        raise errors.corrupt(shard_name, reason, "read_records")


def check_skipped(skipped: int, most: int | None, name: str) -> None:
    """`CorruptFileError` if more damaged records were skipped than may be; `name` is that of a shard."""
    if most is not None and skipped > most:
        reason = f"{skipped} damaged records were skipped, and {most} may be (max_skipped)"
        raise errors.corrupt(name, reason, "read_records")


class SlicedDataReader(AbstractDataReader):
    """The base of readers of one sequence of records, whose shards are runs of it: `NAME:shard_0` and so on.

    A shard has `records_per_task` records, the last one the rest; or all of them if that is None. A subclass implements
    `__len__`, the number of records, and `_read`.
    """

    def __init__(self, name: str, records_per_task: int | None, url: str = "") -> None:
        """`url` is what errors name, `name` if it is empty."""
        super().__init__()
        self._name = name
        self._url = url or name
        self._records_per_task = records_per_task

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of records."""

    @abc.abstractmethod
    def _read(self, numbers: Sequence[int]) -> Iterator[Any]:
        """Read the records with these numbers, which are there, in the order given."""

    def create_shards(self, mode: str = Mode.TRAINING) -> list[Shard]:
        """Runs of the records, called as ElasticDL calls them: `NAME:shard_0` and so on."""
        total = len(self)
        size = total if self._records_per_task is None else self._records_per_task
        if size < 1 and self._records_per_task is not None:
            raise ValueError(f"records_per_task must be at least 1, not {size}")
        return [
            Shard(f"{self._name}:shard_{number}", start, min(size, total - start))
            for number, start in enumerate(range(0, total, max(1, size)))
        ]

    def read_records(self, task: Task) -> Iterator[Any]:
        """The records of a task."""
        shard_name = shard_name_of(task)
        base, _, number = shard_name.rpartition(":shard_")
        if shard_name != self._name and not (base == self._name and number.isdecimal()):
            raise ValueError(f"no shard of {self._name}: {shard_name!r}")
        numbers = numbers_of(task)
        check_numbers(self._url, numbers, len(self))
        yield from self._read(numbers)
