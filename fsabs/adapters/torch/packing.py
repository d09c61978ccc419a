"""The steps of packed windows: lanes of documents that never end, of which each rank and worker has its own.

How many windows there are is not known before documents are tokenized, so an epoch is a number of steps that is given.
A worker reports with each batch where its lanes are; those places are the state of a rank, and a checkpoint has those
of all ranks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch.distributed as distributed
from torch.utils.data import get_worker_info

from ...core.threads import Threads
from ...readers.epochs.plan import Grid
from ...readers.prefetch import SharedThreads
from .batches import FORMAT, RankOf, batch_size_of
from .datasets import guarded, stacked

MAX_BYTES = 64 << 20  # that the lanes of a worker read ahead together
_THREADS = 8
Places = dict[int, Any]
"""Where lanes are, by their numbers."""


@dataclass(frozen=True, slots=True)
class PackedStep:
    """One batch of a pass, as it is sent to a worker."""

    serial: int
    """Which pass of its loader it is."""
    number: int
    size: int
    lanes: int
    rank: int
    ranks: int
    places: Places | None
    """Of this rank's lanes, in the first batch of a worker."""


class PackedBatches:
    """The batches of packed windows, `steps` of them an epoch, and the states that they resume from."""

    def __init__(
        self,
        source: Any,
        batch_size: int | None,
        steps: int | None,
        workers: int,
        rank: int | None,
        ranks: int | None,
        lanes: int | None,
        gather: bool,
    ) -> None:
        if steps is None or steps < 1:
            raise ValueError("packed windows have no end: give the number of batches of an epoch, steps=")
        self.batch_size = batch_size_of(source, batch_size)
        self.epoch = 0
        self._source, self._steps, self._gather = source, operator.index(steps), gather
        self._workers = max(1, workers)
        self._rank = RankOf(rank, ranks)
        self._lanes = lanes
        self._places: Places = {}  # of the lanes that were read
        self._serial = 0
        self._taken = 0  # of the epoch, up to the last batch that was used
        self._begun = False  # a batch of the last pass was used

    def begin(self) -> int:
        """Return the serial number of the pass that begins: of the next epoch if this one ended or was left."""
        if self._begun or self._taken >= self._steps:
            self.epoch, self._taken = self.epoch + 1, 0
        self._serial += 1
        self._begun = False
        self._count()
        return self._serial

    def _count(self) -> int:
        """Return the number of lanes, which is kept; `ValueError` if they can't be divided."""
        _, ranks = self._rank.get()
        lanes = self._lanes or ranks * self._workers
        if lanes % (ranks * self._workers):
            raise ValueError(
                f"{lanes} lanes of packed documents can't be divided by {ranks} ranks x {self._workers} workers: "
                "choose a multiple at the first start, lanes=(slots, turns)"
            )
        self._lanes = lanes
        return lanes

    def _own(self) -> Places:
        """Return where this rank's lanes are; None for one that was not read."""
        rank, ranks = self._rank.get()
        return {number: self._places.get(number) for number in range(rank, self._count(), ranks)}

    def steps(self) -> Iterator[PackedStep]:
        """Yield the steps of the pass that has begun."""
        rank, ranks = self._rank.get()
        places, begin = self._own(), self._taken
        for number in range(begin, self._steps):
            first = number - begin < self._workers
            total = self.epoch * self._steps + number
            yield PackedStep(
                self._serial, total, self.batch_size, self._count(), rank, ranks, places if first else None
            )

    def used(self, running: int, number: int, places: Places) -> None:
        """Record that a batch of a pass is used, after which its lanes are at `places`."""
        if running != self._serial:
            raise RuntimeError("a state was loaded, or another pass was begun, while this one was running")
        self._taken = number - self.epoch * self._steps + 1
        self._begun = True
        self._places.update(places)

    def set_epoch(self, epoch: int) -> None:
        """Count the next pass as epoch `epoch`; the lanes go on where they are."""
        if epoch < 0:
            raise ValueError(f"epoch must not be negative: {epoch}")
        if epoch != self.epoch:
            self.epoch, self._taken, self._begun = operator.index(epoch), 0, False

    def __len__(self) -> int:
        return self._steps

    @property
    def left(self) -> int:
        """The number of batches of the epoch that were not used yet."""
        return self._steps - self._taken

    def state_dict(self) -> dict[str, Any]:
        """Return where this rank's lanes are; those of all ranks if they are gathered."""
        state = {
            "format": FORMAT,
            "epoch": self.epoch,
            "step": self._taken,
            "lanes": self._count(),
            "places": [[number, place] for number, place in self._own().items()],
            "content": self._source.described(self._source.first_base(1)),
        }
        if not (self._gather and distributed.is_available() and distributed.is_initialized()):
            return state
        states: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(states, state)
        return {**state, "places": [place for one in states for place in one["places"]]}

    def load_state_dict(self, state_dict: Any) -> None:
        """Continue from a state of all ranks, or those of each of them; this rank's own is enough for as many ranks."""
        states = [state_dict] if isinstance(state_dict, Mapping) else list(state_dict)
        for state in states:
            if not isinstance(state, Mapping) or state.get("format") != FORMAT or "places" not in state:
                raise ValueError(f"not a state of packed windows of format {FORMAT}: {state!r}")
            self._source.check(state["content"])
        if not states or len({(one["lanes"], one["epoch"], one["step"]) for one in states}) > 1:
            raise ValueError("the states are not those of one step of a job")
        self._lanes = states[0]["lanes"]
        self._places = {number: place for state in states for number, place in state["places"]}
        rank, ranks = self._rank.get()
        missing = [number for number in range(rank, self._count(), ranks) if number not in self._places]
        if missing:
            raise ValueError(
                f"rank {rank} of {ranks} needs the places of the lanes {missing}: give it the states of all ranks (a "
                "Loader with gather=True saves them together)"
            )
        self.epoch, self._taken, self._begun = states[0]["epoch"], states[0]["step"], False
        self._serial += 1


class PackedReader:
    """The steps of packed windows as this process gets them."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._serial = -1
        self._places: Places = {}  # after the last batch that was made
        self._lanes: dict[int, Any] = {}
        self._threads: Threads[None] | None = None
        self._open = False  # the last batch was not made

    def read(self, step: PackedStep) -> tuple[list[Any], tuple[int, Places], int, Callable[[], None]]:
        """Return the samples of a step, what is counted, how many documents are missing, and a function to call when
        the batch is made: the windows of one that is not made come with the next step.
        """
        if step.places is not None or self._open:
            self.close()
        if step.places is not None:
            self._places = dict(step.places)
        self._open = True
        info = get_worker_info()
        workers = info.num_workers if info else 1
        own = list(range(step.rank, step.lanes, step.ranks))[step.number % workers :: workers]
        first = step.number // workers * step.size
        turns = [own[(first + at) % len(own)] for at in range(step.size)]
        windows = [self._window(number, step, len(own)) for number in turns]
        lost = 0
        for number in own:
            if number in self._lanes:
                lost += self._lanes[number].lost
                self._lanes[number].lost = 0
        places = {number: list(self._lanes[number].place) for number in dict.fromkeys(turns)}

        def made() -> None:
            self._places.update(places)
            self._open = False

        size = self._source.batch_size
        return [stacked(windows)] if size else windows, (step.number, places), lost, made

    def _window(self, number: int, step: PackedStep, count: int) -> Any:
        lane = self._lanes.get(number)
        if lane is None:
            grid = Grid(step.lanes, 1)
            lane = self._source.lane(number, grid, self._places.get(number), self._shared(count))
            self._lanes[number] = lane
        window = lane.window()
        transform = self._source.transform
        return window if transform is None else guarded(transform, window)

    def _shared(self, count: int) -> SharedThreads | None:
        """Return the threads by which several lanes are read."""
        if count == 1:
            return None
        if self._threads is None:
            self._threads = Threads[None](_THREADS)
        return SharedThreads(self._threads, max(1, MAX_BYTES // count))

    def close(self) -> None:
        """End reading; the windows of a batch that was not made come again."""
        for lane in self._lanes.values():
            lane.close()
        self._lanes, self._open = {}, False
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.end()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lanes": {}, "_threads": None}
