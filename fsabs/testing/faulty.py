"""FaultyFS: a layer that fails on schedule, for tests of code that has to live with a store that does.

    fs = FaultyFS(fs, Fault("read", Raise(TimeoutError(errno.ETIMEDOUT, "no answer")), at=3),
                      Fault("read", Delay(0.5), rate=0.01, seed=7),
                      Fault("write", Kill(after=1_000_000)))

Calls are counted by operation, over all files, threads and `subfs` of the layer; a forked child and a pickled copy go
on counting from where they were made. Nothing goes round the faults: every fast path of the inner FS is taken apart
into single operations.
"""

from __future__ import annotations

import copy
import fnmatch
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple, get_args

from ..core import errors, process
from ..core.blobs import Blob, BlobLayer, Hint
from ..core.fs import FS, FileStat
from ..core.layers import LayerFS
from ..core.writing import LayerWriter, Writer

Operation = Literal["stat", "list", "open", "read", "create", "append", "write", "commit", "mkdir", "rename", "remove"]
"""What a fault meets: the core's methods.

A `read` is one positioned read (`pread` or `pread_many`), a `write` one block handed to the store, a `commit` what
`close()` does at the end. `open` is that of a file to be read or updated.
"""

OPERATIONS: tuple[str, ...] = get_args(Operation)


class Raise(NamedTuple):
    """Raise (a copy of) `exception`; in a `write`, once `after` bytes of the file have reached the store."""

    exception: Exception
    after: int = 0


class Truncate(NamedTuple):
    """A `read` gives only the first `size` bytes, which is a `CorruptFileError`; an `open` finds the file cut short."""

    size: int = 0


class Delay(NamedTuple):
    """Wait `seconds`, then continue."""

    seconds: float


class Stale(NamedTuple):
    """A `read` raises `StaleFileError`; an `open` or a `stat` finds another version than the store has."""


class Kill(NamedTuple):
    """End this process: with `SIGKILL`, or by `os._exit(status)`; in a `write`, once `after` bytes have gone out."""

    after: int = 0
    status: int | None = None


Effect = Raise | Truncate | Delay | Stale | Kill

_ONLY: dict[type, tuple[str, ...]] = {Truncate: ("read", "open"), Stale: ("read", "open", "stat")}


@dataclass(frozen=True, eq=False)
class Fault:
    """A fault and its calls. With none of `at`, `every` and `rate` it is injected at every call."""

    operation: Operation
    effect: Effect
    _: KW_ONLY
    at: int | tuple[int, ...] = ()
    """The number of the call, counted from 1, or several numbers."""
    every: int = 0
    """Every so many calls."""
    rate: float = 0.0
    """The share of calls, at random: the same ones for the same `seed`."""
    seed: int = 0
    path: str = "*"
    """A pattern (as of `fnmatch`) of the keys that it meets; calls with other keys aren't counted."""

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise ValueError(f"no operation is called {self.operation!r}; there are: {', '.join(OPERATIONS)}")
        kind = type(self.effect)
        if self.operation not in _ONLY.get(kind, OPERATIONS):
            raise ValueError(f"{kind.__name__} is for {' and '.join(_ONLY[kind])}, not for {self.operation}")
        if getattr(self.effect, "after", 0) and self.operation != "write":
            raise ValueError(f"only a write goes wrong after so many bytes, not {self.operation}")
        if sum(map(bool, (self.at, self.every, self.rate))) > 1:
            raise ValueError("a fault takes only one of at, every and rate")
        if min(self._calls, default=1) < 1 or self.every < 0 or not 0 <= self.rate <= 1:
            raise ValueError("calls are counted from 1, and a rate lies between 0 and 1")

    @property
    def _calls(self) -> tuple[int, ...]:
        return (self.at,) if isinstance(self.at, int) else self.at

    def meets(self, operation: str, key: str) -> bool:
        """Return whether it counts a call."""
        return operation == self.operation and fnmatch.fnmatchcase(key, self.path)

    def due(self, call: int) -> bool:
        """Return whether it is injected at the call of that number."""
        if self.rate:
            return random.Random(f"{self.seed} {call}").random() < self.rate
        return call in self._calls if self.at else call % (self.every or 1) == 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fault) and repr(self) == repr(other)  # exceptions have no equality

    def __hash__(self) -> int:
        return hash(repr(self))


class Schedule:
    """The faults of a `FaultyFS`, and how often each was met and came; shared by threads."""

    def __init__(self, faults: tuple[Fault, ...], counts: tuple[tuple[int, int], ...] | None = None) -> None:
        self.faults = faults
        # For each fault, the calls that it met and those that it came at; replaced and never mutated, as a fork may
        # come at any moment.
        self.counts = counts or ((0, 0),) * len(faults)
        self._lock = process.Lock()

    def due(self, operation: str, key: str) -> list[Effect]:
        """Count a call, wait for the delays that it meets, and return the other effects."""
        found: list[Effect] = []
        with self._lock:
            counts = list(self.counts)
            for at, fault in enumerate(self.faults):
                if fault.meets(operation, key):
                    met, came = counts[at]
                    comes = fault.due(met + 1)
                    counts[at] = (met + 1, came + comes)
                    if comes:
                        found.append(fault.effect)
            self.counts = tuple(counts)
        for effect in found:
            if isinstance(effect, Delay):
                time.sleep(effect.seconds)
        return [effect for effect in found if not isinstance(effect, Delay)]

    def __reduce__(self) -> tuple[Any, ...]:
        return Schedule, (self.faults, self.counts)


class FaultyFS(LayerFS):
    """A layer around `inner` where things go wrong as `faults` say; of several that come at once, the first does."""

    def __init__(self, inner: FS, *faults: Fault) -> None:
        super().__init__(inner)
        self._schedule = Schedule(faults)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults, as they were given."""
        return self._schedule.faults

    @property
    def injected(self) -> dict[Fault, int]:
        """The number of injections of each fault, in this process and in those that it was forked or unpickled from."""
        return {fault: came for fault, (_, came) in zip(self.faults, self._schedule.counts, strict=True)}

    @property
    def met(self) -> dict[Fault, int]:
        """The number of calls that each fault has counted, whether it was injected or not."""
        return {fault: met for fault, (met, _) in zip(self.faults, self._schedule.counts, strict=True)}

    # The fast paths are taken apart, so that every operation meets its faults.
    _walk = FS._walk
    _remove_tree = FS._remove_tree
    _copy = FS._copy

    def _meet(self, operation: str, key: str) -> Effect | None:
        """Count a call; raise or kill, if that is due, or return the effect that is left to the operation."""
        for effect in self._schedule.due(operation, key):
            if isinstance(effect, Raise | Kill) and not effect.after:
                _fail(effect)
            return effect
        return None

    def _stat(self, key: str, follow: bool = True, /) -> FileStat:
        effect = self._meet("stat", key)
        return _aged(self.inner._stat(key, follow), effect)

    def _list(self, key: str, detail: bool = True, start: str = "", /) -> Iterator[FileStat]:
        self._meet("list", key)
        return self.inner._list(key)

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        effect = self._meet("open", key)
        return FaultyBlob(self, key, self.inner._open_blob(key), effect)

    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        self._meet("open" if update else "append" if append else "create", key)
        return FaultyWriter(self, key, self.inner._create(key, exclusive, append, update))

    def _mkdir(self, key: str, mode: int) -> None:
        self._meet("mkdir", key)
        self.inner._mkdir(key, mode)

    def _rename(self, src: str, dst: str) -> None:
        self._meet("rename", src)
        self.inner._rename(src, dst)

    def _remove(self, key: str) -> None:
        self._meet("remove", key)
        self.inner._remove(key)

    def __repr__(self) -> str:
        return f"FaultyFS({', '.join(map(repr, (self.inner, *self.faults)))})"


class FaultyBlob(BlobLayer):
    """A blob whose reads meet the faults of its FS."""

    __slots__ = ()
    _origin: FaultyFS

    def __init__(self, origin: FaultyFS, key: str, inner: Blob, effect: Effect | None) -> None:
        size = min(inner.size, effect.size) if isinstance(effect, Truncate) else inner.size
        version = _other(inner.version) if isinstance(effect, Stale) else inner.version
        super().__init__(origin, key, inner, size, version)

    def _pread_into(self, view: memoryview, offset: int) -> int:
        return Blob._pread_into(self, view, offset)

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        return None

    def fileno(self) -> int:
        """Raise `UnsupportedOperation`: what is read by a descriptor meets no faults."""
        return Blob.fileno(self)

    def _pread(self, size: int, offset: int) -> bytes:
        effect = self._meet()
        data = self._inner.pread(size, offset)
        return data[: effect.size] if isinstance(effect, Truncate) else data

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        effect = self._meet()
        found = self._inner.pread_many(ranges)
        return [data[: effect.size] for data in found] if isinstance(effect, Truncate) else found

    def _meet(self) -> Effect | None:
        effect = self._origin._meet("read", self._key)
        if isinstance(effect, Stale):
            raise errors.stale(self.url)
        return effect

    def _close(self) -> None:
        self._inner.close()


class FaultyWriter(LayerWriter):
    """A writer whose blocks meet the faults of its FS."""

    def __init__(self, fs: FaultyFS, key: str, inner: Writer) -> None:
        super().__init__(inner)
        self._fs = fs
        self._key = key
        self._written = 0

    def write(self, data: bytes) -> None:
        """Hand `data` on, or what comes before the fault."""
        effect = self._fs._meet("write", self._key)
        if isinstance(effect, Raise | Kill) and self._written + len(data) >= effect.after:
            super().write(data[: max(0, effect.after - self._written)])
            _fail(effect)
        super().write(data)
        self._written += len(data)

    def commit(self) -> None:
        """Commit, or fail to."""
        self._fs._meet("commit", self._key)
        super().commit()


def _fail(effect: Raise | Kill) -> None:
    if isinstance(effect, Raise):
        raise copy.copy(effect.exception)
    if effect.status is not None:
        os._exit(effect.status)
    os.kill(os.getpid(), signal.SIGKILL)


def _aged(stat: FileStat, effect: Effect | None) -> FileStat:
    return stat._replace(version=_other(stat.version)) if isinstance(effect, Stale) else stat


def _other(version: str | None) -> str:
    return f"stale-{version}"
