"""ShardedDataset: shards as an iterable data set that ranks and workers share, and that resumes exactly mid-epoch.

What is read when is a function of (shards, seed, epoch): `readers.data.order`. What remains is a plan: `plan`. A worker
counts the samples it gave; the main process learns of the count with each batch (`loader`), so that samples that were
fetched ahead and not consumed are still to come.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from torch.utils.data import IterableDataset, get_worker_info

from ... import errors, process
from ...readers.data import AbstractDataReader, Mode, shards_of
from ...readers.data.base import LOST, OnError
from ...readers.data.files import Location
from ...readers.data.order import EpochOrder, Interval, length
from .epochs import Epochs, rank_of
from .files import Transform
from .plan import EpochPlan, Pass, Uneven, WorkerPlace
from .reading import EpochRecords
from .sampler import batch_rule
from .shared import SharedPlan, WorkerCounts, worker_pass
from .source import reader_of
from .states import Content, Remainder, plan_of_worker, remainders, state_of
from .tags import Collate, Tag, Tagged

MAX_BYTES = 64 << 20


class ShardedDataset(IterableDataset[Any]):
    """The records of a data reader's shards, each once an epoch, whichever rank and worker it falls to.

    Args:
        source: a data reader (`fsabs.readers.data`), or a directory of RecordIO, tar, zip or MDS shards.
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
        max_bytes: so much is read ahead by a thread of each worker; None reads when asked. By default, 64 MiB where the
            shards are in a store, and None where they are on a local disk or made by a reader of your own.
        on_error: "raise" a `CorruptFileError` for a record that is damaged, or "skip" it; `skipped` counts them.
        max_skipped: of records in a pass; one more raises. None skips any number.

    Iterate it, or give it to a `Loader`. An iteration is one epoch, or what a loaded state left of it; the next one is
    the next epoch, under every loader. `state_dict()` costs some microseconds: it is which positions of the epoch's
    order remain. A state that was made after the last batch continues with the next epoch. It can be loaded with any
    number of workers, and the states of all ranks with any number of ranks; with the same numbers, the samples come in
    the very order in which they would have come. After an error, the next sample is the one that failed.
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
        max_bytes: int | Literal["auto"] | None = "auto",
        on_error: OnError = "raise",
        max_skipped: int | None = None,
    ) -> None:
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error is 'raise' or 'skip', not {on_error!r}")
        self.reader = reader_of(source, on_error)
        self.transform = transform
        shards = shards_of(self.reader, mode)
        self._order = EpochOrder(shards, seed, block_size, buffer_size)
        if max_bytes == "auto":
            max_bytes = MAX_BYTES if self.reader.reads_ahead else None
        self._skips = on_error == "skip"
        self._records = EpochRecords(self.reader, [shard.name for shard in shards], self._skips, max_bytes)
        self.max_skipped = max_skipped
        self._skipped = WorkerCounts()
        self._shared = SharedPlan()
        described = [(shard.start, shard.count, self.reader.content_of(shard.name)) for shard in shards]
        content = Content(described, self._order.settings, self._order.fingerprint())
        self._epochs = Epochs(content, self._order.total, rank_of(rank, ranks), uneven, self._shared.write)
        self._tagged = -1  # the serial number of the plan whose batches are counted by their tags
        self._counted = False  # the pass that begins is that of `consumed`
        self._pass: Pass | None = None  # the last one that began in this process
        self._passes = 0  # that this process has begun, where it is a worker
        self._own: EpochPlan | None = None  # of this worker, from a state that it was given

    # ---- epochs and states

    @property
    def epoch(self) -> int:
        """The number of the epoch of the last iteration; of the next one where none has begun."""
        unseen = self._unseen()
        return self._epochs.epoch if unseen is None else unseen

    @property
    def skipped(self) -> int:
        """The number of damaged records that the last pass has skipped, in all workers."""
        return self._skipped.total

    @property
    def serial(self) -> int:
        """The serial number of the plan of the pass, which is part of a batch's tag."""
        return self._epochs.serial

    def set_epoch(self, epoch: int) -> None:
        """Read epoch `epoch` next; what a state that was just loaded left of that epoch stays in force."""
        if epoch >= 0 and self._unseen() is not None:
            self._epochs.skip_to(epoch)
        else:
            self._epochs.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return which samples this rank has still to consume: plain data, for JSON, `torch.save`, or pickle.

        In a worker it is the worker's, as torchdata's `StatefulDataLoader` asks for it. `RuntimeError` in the main
        process of a plain `DataLoader` with workers, where it is not known which of their batches were used.
        """
        info = get_worker_info()
        if info is not None:
            return self._state_of_worker(self._place(info))
        if self._unseen() is not None:
            raise RuntimeError(
                "which batches of the workers were used is not known: use a Loader, or a DataLoader with "
                "collate_fn=dataset.tagged(...), iterated by dataset.consumed(loader)"
            )
        return self._epochs.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue from a state: this rank's own, or a list of those of all ranks, whose number may have been another.

        States of torchdata's `StatefulDataLoader` are taken, too. Raises `ValueError` for a state of other shards,
        another seed or another shuffle, and for states that are not all of a job's.
        """
        info = get_worker_info()
        if info is None:
            self._epochs.load_state_dict(state_dict)
            return
        states = [state_dict] if isinstance(state_dict, Mapping) else list(state_dict)
        left = remainders(states, self._epochs.content, self._order.total)
        self._own = plan_of_worker(left, self._place(info))
        self._pass = None

    def _unseen(self) -> int | None:
        """Return the epoch of the workers' last pass, if their batches are not counted here; else count what was."""
        if self._tagged == self._epochs.serial:
            return None
        running = self._pass
        if running is not None and running.serial == self._epochs.serial:
            self._epochs.count(0, 1, running.taken, 1)
        return self._shared.last_epoch()

    def _begin(self) -> None:
        self._skipped.clear()
        unseen = self._unseen()
        if unseen is None:
            self._epochs.begin()
        else:
            self._epochs.skip_to(unseen + 1)

    def _state_of_worker(self, place: WorkerPlace) -> dict[str, Any]:
        running = self._pass
        if running is not None:
            plan, left = running.plan, running.remaining()
        else:
            plan = self._own or self._shared.read()
            left = plan.of_worker(place, self._epochs.uneven)
        if plan.later:
            raise RuntimeError(
                "the states that were loaded are of different epochs: a worker alone has no state; use a Loader"
            )
        return state_of(self._epochs.content, Remainder(place, plan.epoch, [left], []), in_worker=True)

    def _place(self, info: Any) -> WorkerPlace:
        return self._epochs.place._replace(worker=info.id, workers=info.num_workers)

    # ---- samples

    def __len__(self) -> int:
        """Return the number of samples that this rank has in a whole epoch."""
        return self._epochs.whole_length()

    def lengths(self, workers: int) -> list[int]:
        """Return how many samples each of so many workers of this rank has in a whole epoch."""
        plan = EpochPlan.whole(0, self._order.total)
        places = (self._epochs.place._replace(worker=worker, workers=workers) for worker in range(workers))
        return [length(plan.of_worker(place, self._epochs.uneven)) for place in places]

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        if info is not None:
            place, plan = self._place(info), self._plan_of_worker(info)
            self._pass = Pass(plan, place, self._shared.serial, self.uneven)
            return _Samples(self, self._pass)
        if not self._counted:
            self._begin()
        self._pass = Pass(self._epochs.plan, self._epochs.place, self._epochs.serial, self.uneven)
        return _Samples(self, self._pass)

    def _plan_of_worker(self, info: Any) -> EpochPlan:
        """Return the plan of the pass that this worker begins: its own state's, or that of the main process."""
        own, self._own = self._own, None
        begun = worker_pass(info, self._passes)
        self._passes += 1
        if own is not None:
            self._shared.begin_pass(info.id, begun, own.epoch, own.epoch)
            return own
        plan = self._shared.read()
        epoch = self._shared.begin_pass(info.id, begun, plan.epoch)
        return plan.of_epoch(epoch, self._order.total)

    @property
    def uneven(self) -> Uneven:
        """The handling of ranks with different numbers of samples."""
        return self._epochs.uneven

    def rest_of(self, state_dict: Mapping[str, Any]) -> tuple[EpochPlan, int]:
        """Load a state, and return what it left of its epoch, even if that is nothing, and the plan's serial number."""
        self._epochs.load_state_dict(state_dict)
        self._epochs.set_epoch(state_dict["epoch"])
        return self._epochs.plan, self._epochs.serial

    def samples(self, plan: EpochPlan, place: WorkerPlace, intervals: list[Interval], start: int) -> Iterator[Any]:
        """Yield the samples at these positions of a plan's epoch, which are a worker's, from number `start` on."""
        order = self._order.epoch(plan.epoch)
        self.reader.expect(self._shards_of_all(plan, place))
        records = self._records.read(order, intervals, start)
        transform = self.transform
        if transform is None or not self._skips:
            return records if transform is None else map(transform, records)
        return (record if record is LOST else transform(record) for record in records)

    def _shards_of_all(self, plan: EpochPlan, place: WorkerPlace) -> Iterator[str]:
        """Yield the names of the shards that this rank's workers read together, in this epoch and the next one."""
        for one in (plan, plan.of_epoch(plan.epoch + 1, self._order.total)):
            workers = [place._replace(worker=number) for number in range(place.workers)]
            parts = [one.of_worker(worker, self.uneven) for worker in workers]
            for number in self._order.epoch(one.epoch).shards_in_turn(parts):
                yield self._order.shards[number].name

    # ---- what was consumed

    def tagged(self, collate_fn: Callable[[Any], Any] | None = None) -> Collate:
        """Return a `collate_fn` for a `DataLoader` (torch's own if None) that adds how far the worker is."""
        return Collate(self.tag, collate_fn)

    def consumed(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of a `DataLoader` made with `collate_fn=dataset.tagged(...)`, one epoch.

        `state_dict()` is then what remains after the batches that came out of here.
        """
        _, least = batch_rule(loader)
        self._begin()
        serial = self._tagged = self._epochs.serial
        self._counted = True
        try:
            batches = iter(loader)
        finally:
            self._counted = False
        for batch in batches:
            if not isinstance(batch, Tagged):
                raise TypeError("the DataLoader must be made with collate_fn=dataset.tagged(...)")
            tag = batch.tag
            if not tag.serial == serial == self._epochs.serial:
                raise RuntimeError("the epoch or the state was set while batches of an earlier one were still coming")
            self._epochs.count(tag.worker, tag.workers, tag.taken, least)
            yield batch.data
        if self._epochs.serial == serial:
            self._epochs.end()

    def tag(self) -> Tag:
        """Return how far this process is with the pass that began last."""
        running = self._pass
        if running is None:
            raise RuntimeError("a batch is tagged, and no sample was taken from the data set in this process")
        return Tag(running.place.worker, running.place.workers, running.serial, running.taken)

    def skip(self) -> None:
        """Count a damaged record; `CorruptFileError` if a pass has skipped more than it may."""
        self._skipped.add(1)
        skipped = self.skipped
        if self.max_skipped is not None and skipped > self.max_skipped:
            reason = f"{skipped} damaged records were skipped, and {self.max_skipped} may be (max_skipped)"
            raise errors.corrupt(self._order.shards[0].name, reason, "read_records")

    def close(self) -> None:
        """Free what the reader holds in this process."""
        self.reader.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pass": None}


class _Samples(Iterator[Any]):
    """The samples of one pass, which counts what it gave.

    An error costs no sample: the next step tries for the same one again, and does not end the epoch. torchdata's
    `StatefulDataLoader` asks for the state of this iterator, too: its pass is what the state left, even nothing.
    """

    def __init__(self, dataset: ShardedDataset, running: Pass) -> None:
        self._dataset = dataset
        self._pass = running
        self._samples = self._started()

    def _started(self) -> process.Resumable[Any]:
        running = self._pass
        start = functools.partial(self._dataset.samples, running.plan, running.place, running.intervals)
        return process.Resumable(start, running.taken)

    def __next__(self) -> Any:
        while True:
            try:
                sample = next(self._samples)
            except StopIteration:
                raise
            except BaseException:
                self._samples.close()
                self._samples = self._started()
                raise
            self._pass.taken += 1
            if sample is not LOST:
                return sample
            self._dataset.skip()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the data set."""
        return self._dataset.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make this pass what the state left, which may be nothing."""
        if get_worker_info() is None:  # a worker's data set has loaded it before this pass began
            self._pass.follow(*self._dataset.rest_of(state_dict))
            self._samples = self._started()
