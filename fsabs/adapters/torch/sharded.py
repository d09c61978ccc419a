"""ShardedDataset: shards as an iterable data set that ranks and workers share, and that resumes exactly mid-epoch.

What is read when is a function of (shards, seed, epoch): `readers.data.order`. What remains is a plan: `plan`. A worker
counts the samples it gave; the main process learns of the count with each batch (`loader`), so that samples that were
fetched ahead and not consumed are still to come.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from ... import process
from ...fs import FS
from ...readers.data import AbstractDataReader, ArchiveDataReader, Mode, RecordIODataReader, shards_of
from ...readers.data.base import adopt, exactly
from ...readers.data.files import Files, Location
from ...readers.data.order import Epoch, Interval, Order, length
from ...readers.prefetch import Ahead
from .files import Transform
from .loader import Collate, Tag, Tagged
from .plan import Place, Plan, Progress, SharedPlan, Uneven, plan_of, state_of

_ARCHIVES = (".tar", ".zip", ".tar.gz", ".tgz")
_CHUNK = 256  # records that are handed from the thread that reads ahead at once


class ShardedDataset(IterableDataset[Any]):
    """The records of a data reader's shards, each once an epoch, whichever rank and worker it falls to.

    Args:
        source: a data reader (`fsabs.readers.data`), or a directory of RecordIO, tar or zip files.
        transform: makes a sample of a record, in the worker.
        seed: shuffles the shards, and their records within a buffer, anew in each epoch; None leaves the order alone.
        buffer_size: how many records are shuffled among each other; all of them are in memory at once. 0 shuffles only
            the shards.
        block_size: shards are cut into blocks of so many records for the shuffle of shards: smaller ones mix better and
            read shorter runs. None leaves shards whole.
        rank, ranks: which of how many training processes this is; as torch.distributed has it, if it is initialized.
        uneven: "keep" every sample, so that a rank may have one more than another; or "drop" the last ones of the epoch
            so that all ranks have as many.
        mode: of the shards: "training", "evaluation", "prediction".
        max_bytes: so much is read ahead by a thread of each worker; None reads when asked.

    Iterate it, or give it to a `Loader`. An iteration is one epoch, or what a loaded state left of it; the next one is
    the next epoch. A state that was made at the last sample, before the loop had ended, leaves an iteration of nothing:
    so the ranks stay in one epoch. `state_dict()` costs some microseconds: it is which positions of the epoch's order
    remain. It can be loaded with any number of workers, and the states of all ranks with any number of ranks; with the
    same numbers, the samples come in the very order in which they would have come. After an error, the next sample that
    is asked for is the one that failed.
    """

    def __init__(
        self,
        source: AbstractDataReader | Location,
        transform: Transform | None = None,
        *,
        seed: int | None = None,
        buffer_size: int = 0,
        block_size: int | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        uneven: Uneven = "keep",
        mode: str = Mode.TRAINING,
        max_bytes: int | None = None,
    ) -> None:
        if uneven not in ("keep", "drop"):
            raise ValueError(f"uneven is 'keep' or 'drop', not {uneven!r}")
        self.reader = _reader_of(source)
        self.transform = transform
        self._rank, self._ranks = _where(rank, ranks)
        self._order = Order(shards_of(self.reader, mode), seed, block_size, buffer_size)
        self._fingerprint = self._order.fingerprint()
        self._uneven: Uneven = uneven
        self._max_bytes = max_bytes
        self._plan = Plan.whole(0, self._order.total)
        self._serial = 0
        self._shared = SharedPlan()
        self._shared.write(self._serial, self._plan)
        self._progress: Progress | None = None
        self._finished = False  # the next iteration is of the next epoch
        self._loaded = False  # a state was, and nothing has been read since

    # ---- epochs and states

    @property
    def epoch(self) -> int:
        """The number of the epoch that is being read, or is read next."""
        return self._plan.epoch

    def set_epoch(self, epoch: int) -> None:
        """Read epoch `epoch` from now on; a state of that epoch that was just loaded stays in force."""
        if epoch < 0:
            raise ValueError(f"epoch must not be negative: {epoch}")
        if epoch == self._plan.epoch and self._loaded:
            self._finished = False  # what the state left of it is read, even if that is nothing
        elif epoch != self._plan.epoch or self._finished:
            self._set(Plan.whole(epoch, self._order.total))

    def state_dict(self) -> dict[str, Any]:
        """Which samples this rank has still to consume in this epoch: plain data, for JSON, `torch.save`, or pickle.

        In a worker it is the worker's, as torchdata's `StatefulDataLoader` asks for it.
        """
        place, in_worker = self._place()
        progress, plan = self._progress, self._current()
        if in_worker:
            mine = progress.remaining(place.worker) if progress else plan.of_worker(place, self._uneven)
            return state_of(plan.epoch, self._fingerprint, place, [mine], "worker", not mine)
        if progress is not None:
            parts = progress.parts()
        else:
            parts = [list(one) for one in plan.parts] if plan.scope == "rank" else [plan.of_rank(place, self._uneven)]
        return state_of(plan.epoch, self._fingerprint, place, parts, "rank", self._finished)

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Go on from a state: this rank's own, or a list of those of all ranks, whose number may have been another.

        Raises `ValueError` for a state of other shards, another seed or another shuffle, and for states that are not
        all of a job's.
        """
        states = [state_dict] if isinstance(state_dict, Mapping) else list(state_dict)
        place, in_worker = self._place()
        plan = plan_of(states, self._fingerprint, self._order.total, place, in_worker)
        if in_worker:
            self._plan, self._progress = plan, None  # this worker's alone
            return
        self._set(plan)
        self._loaded = True
        self._finished = all(state.get("ended") for state in states)

    def _set(self, plan: Plan) -> None:
        self._plan = plan
        self._serial += 1
        self._shared.write(self._serial, plan)
        self._progress, self._finished, self._loaded = None, False, False

    def _current(self) -> Plan:
        """The plan, which a worker that lives longer than an epoch learns from the main process."""
        if self._shared.serial != self._serial:
            self._plan, self._serial = self._shared.read(), self._shared.serial
            self._progress = None
        return self._plan

    def _place(self) -> tuple[Place, bool]:
        info = get_worker_info()
        if info is None:
            return Place(self._rank, self._ranks, 0, 1), False
        return Place(self._rank, self._ranks, info.id, info.num_workers), True

    # ---- samples

    def __len__(self) -> int:
        """How many samples this rank has in a whole epoch."""
        return length(Plan.whole(0, self._order.total).of_rank(self._place()[0], self._uneven))

    def lengths(self, workers: int) -> list[int]:
        """How many samples each of so many workers of this rank has in a whole epoch."""
        plan = Plan.whole(0, self._order.total)
        places = (Place(self._rank, self._ranks, worker, workers) for worker in range(workers))
        return [length(plan.of_worker(place, self._uneven)) for place in places]

    def __iter__(self) -> Iterator[Any]:
        place, in_worker = self._place()
        if self._finished and not in_worker:
            self.set_epoch(self._plan.epoch + 1)
        plan = self._current()
        progress = self._progress = Progress(plan, place, self._uneven)
        start = functools.partial(self._samples, plan.epoch, progress.part(place.worker))
        return _Samples(start, progress, place.worker, None if in_worker else self)

    def _samples(self, epoch: int, intervals: list[Interval], start: int) -> Iterator[Any]:
        order = self._order.epoch(epoch)
        self.reader.expect([self._order.shards[number].name for number in order.shards(intervals)])
        records = self._records(order, intervals, start)
        if self._max_bytes is not None:
            chunks = functools.partial(_in_chunks, records)
            records = (record for chunk in Ahead(chunks, _weigh, self._max_bytes) for record in chunk)
        return records if self.transform is None else map(self.transform, records)

    def _records(self, order: Epoch, intervals: list[Interval], start: int) -> Iterator[Any]:
        for first, last in order.pieces(intervals, start):
            yield from (
                self._shuffled(order, first, last) if self._order.buffer_size > 1 else self._run(order, first, last)
            )

    def _run(self, order: Epoch, first: int, last: int) -> Iterator[Any]:
        """The records of a piece that lies in one shard, in its order."""
        shards, records = order.locate(first, first + 1)
        start = int(records[0])
        return self._read(int(shards[0]), range(start, start + last - first))

    def _shuffled(self, order: Epoch, first: int, last: int) -> Iterator[Any]:
        """The records of a piece of a buffer: read in the order of the shards, given in that of the shuffle."""
        import numpy as np

        shards, records = order.locate(first, last)
        by_place = np.lexsort((records, shards))
        found: list[Any] = [None] * (last - first)
        ends = np.flatnonzero(np.diff(shards[by_place], append=-1)) + 1
        for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            slots = by_place[start:end]
            numbers = records[slots].tolist()
            for slot, record in zip(slots.tolist(), self._read(int(shards[slots[0]]), numbers), strict=True):
                found[slot] = record
        return iter(found)

    def _read(self, shard: int, numbers: Sequence[int]) -> Iterator[Any]:
        name = self._order.shards[shard].name
        # No reader is trusted to give as many as it was asked for: a sample lost in silence is what this is against.
        return exactly(self.reader.read_at(name, numbers), name, numbers)

    # ---- what was consumed

    def tagged(self, collate_fn: Callable[[Any], Any] | None = None) -> Collate:
        """A `collate_fn` for a `DataLoader` (torch's own if None) that tells with each batch how far the worker is."""
        return Collate(self, collate_fn)

    def consumed(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of a `DataLoader` of this data set made with `collate_fn=dataset.tagged(...)`, one epoch.

        `state_dict()` then tells what remains after the batches that came out of here.
        """
        if self._finished:
            self.set_epoch(self._plan.epoch + 1)
        self._progress = None
        for batch in loader:
            if not isinstance(batch, Tagged):
                raise TypeError("the DataLoader must be made with collate_fn=dataset.tagged(...)")
            self.note(batch.tag)
            yield batch.data
        self._end()

    def tag(self) -> Tag:
        """How far this process is with the iteration that began last."""
        place, _ = self._place()
        progress = self._progress
        return Tag(place.worker, place.workers, self._serial, progress.taken[place.worker] if progress else 0)

    def note(self, tag: Tag) -> None:
        """Learn that a batch with this tag was consumed: all that its worker gave until then."""
        if tag.serial != self._serial:
            raise RuntimeError("the epoch or the state was set while batches of an earlier one were still coming")
        progress = self._progress
        if progress is None or progress.workers != tag.workers:
            place = Place(self._rank, self._ranks, 0, tag.workers)
            progress = self._progress = Progress(self._plan, place, self._uneven)
        progress.taken[tag.worker] = tag.taken
        progress.last = tag.worker

    def _end(self) -> None:
        """Nothing of this epoch remains, not even what `drop_last` left in the workers."""
        progress = self._progress
        if progress is None:
            progress = self._progress = Progress(self._plan, Place(self._rank, self._ranks, 0, 1), self._uneven)
        progress.taken = [length(progress.part(number)) for number in range(progress.workers)]
        self._ended(progress)

    def _ended(self, progress: Progress) -> None:
        if self._progress is progress:
            self._finished, self._loaded = True, False

    def close(self) -> None:
        """Free what the reader holds in this process."""
        self.reader.close()


class _Samples(Iterator[Any]):
    """One pass, which counts what it gave; `start(n)` gives the samples from number n on.

    An error costs no sample: the next step tries for the same one again, and does not end the epoch.
    """

    def __init__(
        self, start: Callable[[int], Iterator[Any]], progress: Progress, worker: int, dataset: ShardedDataset | None
    ) -> None:
        self._start = start
        self._samples = process.Resumable(start)
        self._progress = progress
        self._worker = worker
        self._dataset = dataset  # in the main process, where the end of the pass is the end of the epoch

    def __next__(self) -> Any:
        try:
            sample = next(self._samples)
        except StopIteration:
            if self._dataset is not None:
                self._dataset._ended(self._progress)
            raise
        except BaseException:
            self._samples.close()
            self._samples = process.Resumable(self._start, self._progress.taken[self._worker])
            raise
        self._progress.taken[self._worker] += 1
        return sample


def _where(rank: int | None, ranks: int | None) -> tuple[int, int]:
    if (rank is None) != (ranks is None):
        raise ValueError("rank and ranks are given together, or neither")
    if rank is None or ranks is None:
        import torch.distributed as distributed

        if not (distributed.is_available() and distributed.is_initialized()):
            return 0, 1
        rank, ranks = distributed.get_rank(), distributed.get_world_size()
    if not 0 <= rank < ranks:
        raise ValueError(f"there is no rank {rank} of {ranks}")
    return rank, ranks


def _reader_of(source: AbstractDataReader | Location) -> AbstractDataReader:
    if not isinstance(source, FS | str | os.PathLike):
        return adopt(source)
    files = Files(source, suffixes=_ARCHIVES)
    try:
        archives = any(stat.filename.lower().endswith(_ARCHIVES) for stat in files.list())
    finally:
        if files.fs is not source:
            files.close()
    return ArchiveDataReader(source) if archives else RecordIODataReader(source)


def _in_chunks(records: Iterator[Any]) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += _size(record)
        if len(chunk) >= _CHUNK or size >= 1 << 20:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _weigh(chunk: list[Any]) -> int:
    return sum(map(_size, chunk))


def _size(record: Any) -> int:
    if isinstance(record, bytes):
        return len(record)
    if isinstance(record, Mapping):
        return sum(map(_size, record.values()))
    if isinstance(record, tuple | list):
        return sum(map(_size, record))
    return int(getattr(record, "nbytes", 0)) or sys.getsizeof(record)
