"""The data readers of users: any object with the interface's two methods, and the three shapes of its shards.

A shard whose records such a reader does not count is a file, called by its URL or path. All of them are read once, and
their number is kept by the file's version and the reader, for all processes of the user.
"""

from __future__ import annotations

import errno
import inspect
import marshal
import pickle
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...core import errors
from ...core.threads import in_threads
from ..locate import locate
from .base import AbstractDataReader, Metadata, Mode, Shard, Task, digest_of
from .files import derived, with_progress

_COUNT = struct.Struct("<Q")
_AT_ONCE = 16
"""Files that are counted at once."""
_Described = tuple[str, int, int | None]
"""The name of a shard, its first record, and the count, if it is known."""


class _Foreign(AbstractDataReader):
    """A reader that has the interface's two methods, and is no subclass of ours: ElasticDL's own, say."""

    def __init__(self, reader: Any) -> None:
        super().__init__()
        self.reader = reader

    def read_records(self, task: Any) -> Iterator[Any]:
        return iter(self.reader.read_records(task))

    def create_shards(self, mode: str = Mode.TRAINING) -> Any:
        return _created(self.reader, mode)

    @property
    def records_output_types(self) -> Any:
        return getattr(self.reader, "records_output_types", None)

    @property
    def metadata(self) -> Any:
        return getattr(self.reader, "metadata", None) or Metadata()


def adopt(reader: Any) -> AbstractDataReader:
    """Any object with `read_records` and `create_shards` as a data reader; `TypeError` for another."""
    if isinstance(reader, AbstractDataReader):
        return reader
    for method in ("read_records", "create_shards"):
        if not callable(getattr(reader, method, None)):
            raise TypeError(f"{reader!r} is no data reader: it has no {method}()")
    return _Foreign(reader)


def shards_of(reader: AbstractDataReader, mode: str = Mode.TRAINING) -> list[Shard]:
    """The shards of a reader, whichever of the three shapes its `create_shards` has, with the records counted.

    `TypeError` for anything else, and for a shard without a count that can't be counted; `ValueError` for a name that
    comes twice or a negative number.
    """
    given = _created(reader, mode)
    who = f"{type(_own(reader)).__name__}.create_shards()"
    if isinstance(given, Mapping):
        items = [_of_item(name, value, who) for name, value in given.items()]
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        items = [_of_triple(item, who) for item in given]
    else:
        raise TypeError(f"{who} gave {given!r}; {_SHAPES}")
    counts = _counted(reader, [(name, start) for name, start, count in items if count is None], who)
    shards = [Shard(name, start, next(counts) if count is None else count) for name, start, count in items]
    seen: set[tuple[str, int]] = set()
    for shard in shards:
        if shard.start < 0 or shard.count < 0:
            raise ValueError(f"{who}: a negative number in {tuple(shard)}")
        if not shard.count:
            continue
        if shard[:2] in seen:
            raise ValueError(f"{who}: {tuple(shard)} comes twice")
        seen.add(shard[:2])
    return shards


_SHAPES = (
    "a list of (name, start, count), a dict {name: (start, count)} or a dict {name: count} is expected; a count is "
    "None where it is not known"
)


def _created(reader: Any, mode: str) -> Any:
    return reader.create_shards(mode) if _takes_mode(reader) else reader.create_shards()


def _takes_mode(reader: Any) -> bool:
    parameters = inspect.signature(reader.create_shards).parameters.values()
    kinds = [one.kind for one in parameters]
    return any(kind in (kind.POSITIONAL_ONLY, kind.POSITIONAL_OR_KEYWORD, kind.VAR_POSITIONAL) for kind in kinds)


def _own(reader: AbstractDataReader) -> Any:
    return reader.reader if isinstance(reader, _Foreign) else reader


def _of_item(name: Any, value: Any, who: str) -> _Described:
    return _of_triple((name, *value) if isinstance(value, tuple | list) else (name, 0, value), who)


def _of_triple(item: Any, who: str) -> _Described:
    if isinstance(item, tuple | list) and len(item) == 3:
        name, start, count = item
        if isinstance(name, str) and _is_number(start) and (count is None or _is_number(count)):
            return name, int(start), None if count is None else int(count)
    raise TypeError(f"{who} gave {item!r}; {_SHAPES}")


def _is_number(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


# ---- records that are not counted


def _counted(reader: AbstractDataReader, shards: Sequence[tuple[str, int]], who: str) -> Iterator[int]:
    """Yield how many records each shard has from a number on."""
    if not shards:
        return
    try:
        code = marshal.dumps(type(_own(reader)).read_records.__code__, 2)
        kind = f"counts-{digest_of(pickle.dumps(_own(reader)), code)}"
    except Exception as exc:  # whatever its class does
        reason = f"{who} gave no count of {shards[0][0]!r}, and what is counted can't be kept for this reader"
        raise TypeError(f"{reason}: {type(exc).__name__}: {exc}") from exc
    found = in_threads(partial(_count_of, reader, kind), shards, min(_AT_ONCE, len(shards)))
    yield from with_progress(found, len(shards), shards[0][0])


def _count_of(reader: AbstractDataReader, kind: str, shard: tuple[str, int]) -> int:
    name, start = shard
    fs, path = locate(name)
    with fs:
        try:
            blob = fs.open_blob(path)
        except FileNotFoundError as exc:
            reason = "create_shards gave no count of this shard, and there is no file of this name to count records in"
            raise errors.error(errno.ENOENT, "create_shards", name, reason) from exc
        with blob:
            records = partial(reader.read_records, Task(0, name, start, sys.maxsize))
            count = derived(f"{kind}-{start}", blob, lambda: [_COUNT.pack(sum(1 for _ in records()))])
            return int(_COUNT.unpack(count)[0])
