"""EpochBatches: the batches of epoch after epoch for a loader, and the states that they resume from.

A state is what was done: the epoch, the number of the step that comes next, those before it that failed, and how the
epoch was read before batch sizes or grids were changed (`Stop`). It is the same for all ranks: any rank's state resumes
all of them, on any numbers of ranks and workers.
"""

from __future__ import annotations

import copy
import json
import operator
import os
import sys
import warnings
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from torch.utils.data import DistributedSampler

from ...core import hooks
from ...readers.data.order import Interval, length
from ...readers.epochs.plan import UNEVEN, EpochPlan, Grid, PassPlan, Stop, Uneven, order_of, part_of
from .datasets import Base, Batch, EpochDataset, PlannedStep, SamplePlace
from .map_style import ordered

FORMAT = 3
Skip: TypeAlias = Iterable[int | range] | Mapping[int, Iterable[int | range]]
"""Numbers of steps, or ranges of them; of epoch 0, or by epochs."""


class RankOf:
    """The rank of this process and the number of ranks.

    They are those that are given, else those of `torch.distributed` once it is initialized, else those of the
    environment (`RANK` and `WORLD_SIZE`, as torchrun sets them), else 0 of 1. A copy in a process that has neither
    keeps those of the process where it was pickled.
    """

    def __init__(self, rank: int | None, ranks: int | None) -> None:
        if (rank is None) != (ranks is None):
            raise ValueError("rank and ranks are given together, or neither")
        if rank is not None and ranks is not None and not 0 <= rank < ranks:
            raise ValueError(f"there is no rank {rank} of {ranks}")
        # A state has plain numbers: numpy's are not JSON, and torch.load refuses them.
        self._given = None if rank is None or ranks is None else (operator.index(rank), operator.index(ranks))
        self._inherited = (0, 1)

    def get(self) -> tuple[int, int]:
        """Return the rank and the number of ranks, as they are known now."""
        if self._given is not None:
            return self._given
        import torch.distributed as distributed

        environment = _environments_rank()
        if not (distributed.is_available() and distributed.is_initialized()):
            return environment or self._inherited
        group = distributed.get_rank(), distributed.get_world_size()
        if environment is not None and environment != group:
            warnings.warn(
                "the process group has rank {} of {}, and RANK and WORLD_SIZE say {} of {}: the first counts; give "
                "rank= and ranks= to choose".format(*group, *environment),
                stacklevel=2,
            )
        return group

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inherited": self.get()}


def _environments_rank() -> tuple[int, int] | None:
    try:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None
    return (rank, ranks) if 0 <= rank < ranks else None


class EpochBatches(DistributedSampler[Any]):
    """The batches of a data set, epoch after epoch: a `batch_sampler` for any `DataLoader`, with a state.

    A batch is a list of record numbers; a data set of this package reads a worker's next ones ahead. Each iteration is
    of the next epoch, unless nothing was taken from the last one.

    Args:
        dataset: a `ShardedDataset`, a `Mixture`, or any map-style data set.
        batch_size: samples of a batch of each rank.
        seed: shuffles a map-style data set anew in each epoch; None leaves the order alone. Others have their own.
        workers: the `num_workers` of the loader, so that each of them reads blocks of its own.
        rank, ranks: which of how many training processes this is. By default, as torch.distributed has it once it is
            initialized, else as the environment has it (`RANK`, `WORLD_SIZE`), asked for when a pass begins.
        drop_last: leaves out a last batch that is not full.
        uneven: what is done about a last batch whose samples can't be divided by the ranks: "drop" leaves out the
            remainder, "repeat" has some of them twice, "keep" gives some ranks one more, and raises where a rank would
            have none.
        lanes: `(slots, turns)`: how many runs an epoch is read in at once, over all ranks and workers, of which each
            has its part of the shuffle's blocks. The same batches come on any numbers of ranks and workers then. By
            default, the ranks and workers of the first pass, which a state keeps.
        skip: steps that are left out, as after a spike of the loss: numbers of batches, or ranges of them, of epoch 0,
            or a mapping from epochs to such. They count as done, and are not read.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        *,
        seed: int | None = None,
        workers: int = 0,
        rank: int | None = None,
        ranks: int | None = None,
        drop_last: bool = False,
        uneven: Uneven = "drop",
        lanes: tuple[int, int] | None = None,
        skip: Skip = (),
    ) -> None:
        self.source: EpochDataset = ordered(dataset, seed)
        if self.source.packing is not None:
            raise TypeError("packed windows are not counted before they are read: give the data set to a Loader")
        self.batch_size = batch_size_of(self.source, batch_size)
        if uneven not in UNEVEN:
            raise ValueError(f"uneven is one of {', '.join(map(repr, UNEVEN))}, not {uneven!r}")
        if lanes is not None and min(lanes) < 1:
            raise ValueError(f"lanes are at least (1, 1), not {lanes}")
        self.drop_last, self.uneven, self.workers = drop_last, uneven, workers
        self._rank = RankOf(rank, ranks)
        self._given_grid = None if lanes is None else Grid(*map(operator.index, lanes))
        by_epoch = skip if isinstance(skip, Mapping) else {0: skip}
        self._skip = {epoch: [*map(_as_range, steps)] for epoch, steps in by_epoch.items()}
        self.counts = False
        """True if what drives this tells which batches were used."""
        self._serial = 0
        self._grid = self._given_grid  # of the first pass, or of a state
        self._set(0, self.source.first_base(self._divided), (), None)

    @property
    def _divided(self) -> int:
        return 1 if self._given_grid is None else self._given_grid.lanes

    def _set(self, epoch: int, base: Base, before: tuple[Stop, ...], stop: Stop | None) -> None:
        """Make the next pass that of an epoch, of which some was done."""
        self.epoch = epoch
        """The number of the epoch of the last pass; of the next one where none has begun."""
        self._base, self._before, self._stop = base, before, stop
        self._running: PassPlan | None = None
        self._taken = 0  # batches of the running pass, up to the last one that was used
        self._failed: set[int] = set()  # those among them that were not used
        self._again = False  # the next pass is of this epoch, whole
        self._asked = False  # it is of this epoch, even if nothing is left of it

    def set_epoch(self, epoch: int) -> None:
        """Read epoch `epoch` next; what a state that was just loaded left of that epoch stays in force."""
        epoch = operator.index(epoch)
        if epoch < 0:
            raise ValueError(f"epoch must not be negative: {epoch}")
        loaded = self._running is None and self._stop is not None
        done = self._before or (self._stop is not None and self._stop.steps)
        if epoch == self.epoch:
            self._again = self._taken > 0
            self._asked = loaded
        elif loaded and epoch == self.epoch - 1 and not done:
            total = self.source.shape(epoch, self._base)[0]  # the state was saved at the end of that epoch
            self._set(epoch, self._base, (Stop(max(1, total), Grid(1, 1), 1),), None)
            self._asked = True
        else:
            if loaded and done:
                warnings.warn(
                    f"epoch {epoch} is set, and what the state that was loaded left of epoch {self.epoch} is not "
                    f"read: the loop counts other epochs than the loader, which is in epoch {self.epoch}",
                    stacklevel=3,
                )
            self._set(epoch, self._base_of(epoch), (), None)

    def _base_of(self, epoch: int) -> Base:
        if epoch <= self.epoch:
            return self.source.first_base(self._divided)
        return self.source.following(self.epoch, self._base, self._divided)

    # ---- passes

    def begin(self) -> PassPlan:
        """Return the pass that begins: of the next epoch if a batch of this one was used."""
        plan = self._following()
        while not len(plan) and (self._before or self._stop) and not self._asked:
            self._set(self.epoch + 1, self._base_of(self.epoch + 1), (), None)
            plan = self.planned()
        self._grid = plan.grid
        several = self.source.ranks_share_blocks and plan.grid.lanes % (plan.ranks * max(1, plan.workers))
        if several and (instrument := hooks.active) is not None:
            instrument.record_event("grid", "epochs.lanes", plan.grid.lanes)
        self._serial += 1
        self._running, self._asked = plan, False
        return plan

    def _following(self) -> PassPlan:
        if self._again:
            self._set(self.epoch, self._base, (), None)
        elif self._taken:
            self._set(self.epoch + 1, self._base_of(self.epoch + 1), (), None)
        return self.planned()

    def planned(self) -> PassPlan:
        """Return the pass that comes next, as things are."""
        rank, ranks = self._rank.get()
        grid = self._grid or self._default_grid(ranks)
        size = self.batch_size * ranks
        before, stop = self._before, self._stop
        if stop is not None and (stop.batch_size, stop.grid) != (size, grid):
            before, stop = (*before, *([stop] if stop.steps else [])), None
        first, failed = (0, ()) if stop is None else (stop.steps, stop.failed)
        total, cuts = self.source.shape(self.epoch, self._base)
        numbers = (total, size, grid, self.drop_last, before, cuts)
        steps = EpochPlan.of(*numbers).steps(ranks, self.uneven)
        order = order_of(steps, first, failed, self._skip.get(self.epoch, ()) if not before else ())
        return PassPlan(
            self._serial, self.epoch, self._base, *numbers, rank, ranks, self.uneven, self.workers, first, order
        )

    def _default_grid(self, ranks: int) -> Grid:
        return Grid(ranks, max(1, self.workers)) if self.source.ranks_share_blocks else Grid(1, 1)

    def steps(self) -> Iterator[PlannedStep]:
        """Yield the steps of the pass that has begun."""
        plan = self._running
        return iter(()) if plan is None else (PlannedStep(plan, number) for number in range(len(plan)))

    def used(self, plan: PassPlan, number: int) -> None:
        """Record that a batch of a pass is used; those before it that were not are still to come."""
        if plan is not self._running:
            raise RuntimeError("the epoch or the state was set, or another pass was begun, while this one was running")
        self._failed.update(range(self._taken, number))
        self._failed.discard(number)
        self._taken = max(self._taken, number + 1)

    def __iter__(self) -> Iterator[Any]:
        return _Batches(self)

    def counted(self) -> tuple[int, int]:
        """Return how many batches of the epoch were done before the pass that runs or comes next, and how many it has;
        none that is skipped counts.
        """
        plan = self._running
        if plan is None or self._again or (self._taken >= len(plan) and not self._failed):
            plan = copy.copy(self)._following()  # of a copy, since it goes on to the next epoch
        before = sum(stop.steps - length(stop.failed) for stop in plan.before)
        again = length([one for one in plan.order if one[1] <= plan.first])
        skipped = _members(self._skip.get(plan.epoch, ()), 0, plan.first) if not plan.before else 0
        return before + plan.first - again - skipped, len(plan)

    def __len__(self) -> int:
        return sum(self.counted())

    @property
    def left(self) -> int:
        """The number of batches of the epoch that were not used yet."""
        plan = self._running
        if plan is None:
            return len(self.planned())
        return len(plan) - self._taken + len(self._failed)

    # ---- what a step has

    def samples(self, step: int) -> dict[int, list[SamplePlace]]:
        """Return where the samples of any step of the epoch come from, for each rank."""
        ranks = self._rank.get()[1]
        batch = self._batch_of(step)
        order = self.source.order(self.epoch, self._base)
        parts = {one: part_of(batch, one, ranks, self.uneven) for one in range(ranks)}
        return {one: self.source.places(order, part) for one, part in parts.items()}

    def _batch_of(self, step: int) -> list[Interval]:
        plan = self._running or self.planned()
        at = step
        for number, stop in enumerate(plan.before):
            if at < stop.steps:
                numbers = (plan.total, stop.batch_size, stop.grid, False, plan.before[:number], plan.cuts)
                return EpochPlan.of(*numbers).batch(at)
            at -= stop.steps
        try:
            return plan.plan.batch(at)
        except LookupError:
            steps = sum(stop.steps for stop in plan.before) + len(plan.plan)
            raise LookupError(f"step {step} is none of the {steps} steps of epoch {self.epoch}") from None

    # ---- states

    def state_dict(self, steps: int | None = None) -> dict[str, Any]:
        """Return what was done: plain data, the same for all ranks.

        `steps` is the number of batches of this pass that the loop has used. A `Loader` and torchdata's
        `StatefulDataLoader` know it; what another loader has drawn ahead is not known here.
        """
        if steps is None and not (self.counts or self._running is None or _is_asked_by_torchdata()):
            raise RuntimeError(
                "how many batches were used is not known: state_dict(steps=n) of this pass, or use a Loader"
            )
        plan = self._running
        if plan is None:
            plan = self.planned()
            stop = self._stop or Stop(plan.batch_size, plan.grid, 0)
            return self._state(self.epoch, self._base, self._before, stop)
        taken, failed = (self._taken, self._failed) if steps is None else (steps, set[int]())
        if taken >= len(plan) and not failed:
            epoch = self.epoch + 1
            return self._state(epoch, self._base_of(epoch), (), Stop(plan.batch_size, plan.grid, 0))
        return self._state(
            plan.epoch, plan.base, plan.before, Stop(plan.batch_size, plan.grid, *plan.done(taken, failed))
        )

    def _state(self, epoch: int, base: Base, before: Sequence[Stop], stop: Stop) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "epoch": epoch,
            "done": [one.described() for one in (*before, stop)],
            "ranks": self._rank.get()[1],  # for people: what is loaded goes by `done`
            # A text: torch.distributed.checkpoint takes mappings apart, and loads what a new loader has of them.
            "base": json.dumps(base, separators=(",", ":")),
            "content": self.source.described(base),
        }

    def load_state_dict(self, state_dict: Any) -> None:
        """Continue from a state, of any rank: with other ranks, workers, batch sizes or weights, too.

        The next pass begins with it. Its grid stays in force: other numbers of ranks or workers read shorter runs.

        Raises `ValueError` for a state of other content, another seed or another shuffle.
        """
        state = own_state(state_dict)
        self.source.check(state["content"])
        *before, stop = map(Stop.of, state["done"])
        base, grid = json.loads(state["base"]), stop.grid
        changed = self.source.rebased(state["epoch"], base, (*before, stop))
        if changed is not None:
            base, before, stop = changed, [], Stop(stop.batch_size, grid, 0)
        self._grid = self._given_grid or grid
        self._set(state["epoch"], base, tuple(before), stop)


def _is_asked_by_torchdata() -> bool:
    """Return whether torchdata asks for the state of the batches, besides that of their iterator, which it goes by."""
    return str(sys._getframe(2).f_globals.get("__name__")).startswith("torchdata.")


def batch_size_of(source: EpochDataset, batch_size: int | None) -> int:
    """Return how many positions a rank's batch has; `ValueError` or `TypeError` for sizes that don't fit."""
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size is at least 1, or None for single samples, not {batch_size}")
    if source.batch_size is None:
        return operator.index(batch_size or 1)
    if batch_size is not None:
        raise TypeError("the data set makes batches itself: give the loader batch_size=None")
    return operator.index(source.batch_size)


def own_state(state: Any) -> Mapping[str, Any]:
    """Return the state in one of a loader, or the first one of a list of those of ranks; `ValueError` if it is none."""
    found = state
    if isinstance(found, Sequence) and not isinstance(found, str) and found:
        found = found[0]
    if isinstance(found, Mapping) and "_snapshot" in found:  # of torchdata's StatefulDataLoader
        if found.get("_steps_since_snapshot", 0):
            raise ValueError("the state is of batches before the last one: save with snapshot_every_n_steps=1")
        found = found["_snapshot"]["_main_snapshot"]
    if isinstance(found, Mapping) and "_sampler_iter_state" in found:
        found = found["_sampler_iter_state"]
    if not isinstance(found, Mapping) or "format" not in found:
        raise ValueError(f"not a state of a data set: {state!r}")
    if found["format"] != FORMAT:
        raise ValueError(
            f"a state of format {found['format']}, and this version reads format {FORMAT}: finish the epoch with the "
            "version of fsabs that wrote it"
        )
    if not {"epoch", "done", "base", "content"} <= found.keys():
        raise ValueError(f"not a state of counted batches: it has {', '.join(map(str, found))}")
    return found


class _Batches(Iterator[Batch]):
    """The batches of one pass, which begins with the first of them; torchdata asks for the state after each one."""

    def __init__(self, batches: EpochBatches) -> None:
        self._batches = batches
        self._plan: PassPlan | None = None
        self._number = 0

    def _begun(self) -> PassPlan:
        if self._plan is None:
            self._plan = self._batches.begin()
            self._order = self._batches.source.order(self._plan.epoch, self._plan.base)
        return self._plan

    def __next__(self) -> Batch:
        plan = self._begun()
        if self._number >= len(plan):
            raise StopIteration
        step = PlannedStep(plan, self._number)
        batch = Batch(self._batches.source.numbers(self._order, plan.positions(self._number)), step)
        self._number += 1
        if not self._batches.counts:
            self._batches.used(plan, step.number)  # so that the next pass is of the next epoch
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the batches that were given."""
        self._begun()
        return self._batches.state_dict(self._number)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make this pass what the state left."""
        self._batches.load_state_dict(state_dict)
        self._plan, self._number = None, 0


def _as_range(steps: int | range) -> range:
    if not isinstance(steps, range):
        return range(steps, steps + 1)
    return steps if steps.step > 0 else steps[::-1]  # ascending


def _members(ranges: Sequence[range], start: int, stop: int) -> int:
    """Return how many numbers from `start` to `stop` are in any of some ascending ranges."""
    inside = (one[bisect_left(one, start) : bisect_left(one, stop)] for one in ranges)
    return len(set().union(*inside))
