"""The batches of an epoch as arithmetic: every position once, whatever ranks, batch sizes and grids there were."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsabs.readers.data import Shard
from fsabs.readers.data.order import EpochOrder, Interval, length
from fsabs.readers.epochs.plan import EpochPlan, Grid, PassPlan, Stop, Uneven, order_of, part_of, remaining

GRIDS = st.builds(Grid, st.integers(1, 9), st.integers(1, 7))


Chain = tuple[int, list[tuple[tuple[int, int], Grid, float, list[int]]], tuple[int, ...]]


def positions(intervals: list[Interval]) -> list[int]:
    return [at for start, end in intervals for at in range(start, end)]


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """A size, and stops: batch size and ranks, grid, how far the epoch is read, the steps that fail; and cuts."""
    total = draw(st.integers(0, 400))
    stops = draw(
        st.lists(
            st.tuples(
                st.tuples(st.integers(1, 6), st.integers(1, 16)),
                GRIDS,
                st.floats(0, 1),
                st.lists(st.integers(0, 30), max_size=3),
            ),
            max_size=5,
        )
    )
    cuts = draw(st.lists(st.integers(1, max(1, total)), max_size=2, unique=True).map(sorted).map(tuple))
    return total, stops, cuts


@given(chains(), st.integers(1, 40), GRIDS)
@settings(max_examples=150)
def test_each_position_comes_once(chain: Chain, size: int, grid: Grid) -> None:
    total, stops, cuts = chain
    before: list[Stop] = []
    seen: list[int] = []
    for (own, ranks), one, share, failing in stops:
        batch_size = own * ranks
        plan = EpochPlan.of(total, batch_size, one, before=before, cuts=cuts)
        steps = round(share * len(plan))
        failed = tuple((step, step + 1) for step in sorted(set(failing)) if step < steps)
        done = [step for step in range(steps) if (step, step + 1) not in failed]
        for step, rank in itertools.product(done, range(ranks)):
            seen += positions(part_of(plan.batch(step), rank, ranks, "keep"))
        before.append(Stop.of(json.loads(json.dumps(Stop(batch_size, one, steps, failed).described()))))
    plan = EpochPlan.of(total, size, grid, before=before, cuts=cuts)
    batches = [positions(plan.batch(step)) for step in range(len(plan))]
    assert sorted([*seen, *itertools.chain.from_iterable(batches)]) == list(range(total))
    assert all(len(batch) == size for batch in batches[:-1])
    with pytest.raises(LookupError):
        plan.batch(len(plan))
    dropped = EpochPlan.of(total, size, grid, True, before, cuts)
    assert len(dropped) == length(remaining(total, before, cuts)) // size


@given(st.integers(0, 300), st.integers(1, 16), st.integers(1, 6), GRIDS, st.sampled_from(["drop", "repeat", "keep"]))
@settings(max_examples=300)
def test_ranks_have_equal_parts_of_a_global_batch(
    total: int, ranks: int, size: int, grid: Grid, uneven: Uneven
) -> None:
    plan = EpochPlan.of(total, size * ranks, grid)
    last = positions(plan.batch(len(plan) - 1)) if len(plan) else []
    if uneven == "keep" and 0 < len(last) < ranks:
        with pytest.raises(ValueError, match="uneven='drop'"):
            plan.steps(ranks, uneven)
        return
    steps = plan.steps(ranks, uneven)
    for step in range(steps):
        batch = plan.batch(step)
        parts = [positions(part_of(batch, rank, ranks, uneven)) for rank in range(ranks)]
        joined = [at for part in parts for at in part]
        assert all(parts)
        if uneven != "keep":
            assert len({len(part) for part in parts}) == 1
        if step < len(plan) - 1:
            assert joined == positions(batch)
        elif uneven == "drop":
            assert joined == last[: len(joined)]
            assert len(last) - len(joined) < ranks
        else:
            assert joined[: len(last)] == last
            assert set(joined) == set(last)
    assert len(plan) - steps <= (uneven == "drop")


def of_a_pass(
    plan: EpochPlan, ranks: int = 1, rank: int = 0, first: int = 0, failed: tuple[Interval, ...] = ()
) -> PassPlan:
    """A pass over a plan of a whole epoch, of which some steps are left out."""
    order = order_of(plan.steps(ranks, "drop"), first, failed, [range(5, 7), range(9, 15, 3)])
    total = sum(map(length, plan.lanes))
    size, grid = plan.batch_size, plan.grid
    return PassPlan(0, 0, None, total, size, grid, False, (), (), rank, ranks, "drop", 0, first, order)


@given(
    st.integers(1, 300), st.integers(1, 16), st.integers(1, 5), GRIDS, st.integers(1, 4), st.lists(st.integers(0, 4))
)
@settings(max_examples=150)
def test_what_a_worker_reads_is_what_its_batches_have(
    total: int, ranks: int, size: int, grid: Grid, workers: int, failed: list[int]
) -> None:
    for own in (grid, Grid(ranks, workers)):  # the second is read in runs
        plan = EpochPlan.of(total, size * ranks, own)
        known = sorted({step for step in failed if step < plan.steps(ranks, "drop")})
        first = max(known, default=-1) + 1
        for rank in range(ranks):
            one = of_a_pass(plan, ranks, rank, first, tuple((step, step + 1) for step in known))
            for worker in range(workers):
                expected = [
                    at for number in range(worker, len(one), workers) for at in positions(one.positions(number))
                ]
                assert positions(list(one.coming(worker, workers))) == expected


@given(st.integers(1, 60), st.data())
@settings(max_examples=100)
def test_what_is_done_of_a_pass(steps: int, data: st.DataObject) -> None:
    """Stopped again and again, with steps that fail and are done later."""
    plan = EpochPlan.of(steps, 1, Grid(1, 1))
    done: list[int] = []
    one = of_a_pass(plan)
    while len(one):
        count = data.draw(st.integers(1, len(one)))
        broken = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
        done += [one.step(number) for number in range(count) if number not in broken]
        one = of_a_pass(plan, 1, 0, *one.done(count, broken))
    assert sorted(done) == [step for step in range(steps) if step not in (5, 6, 9, 12)]


def test_a_large_epoch_costs_nothing() -> None:
    before = [Stop(4096 + number, Grid(8, 12), 1000, ((3, 5),)) for number in range(5)]
    state = json.dumps([one.described() for one in before], separators=(",", ":"))
    assert len(state) <= 40 * len(before)
    plan = EpochPlan.of(10**9, 256, Grid(8, 12), before=before)
    begin = time.process_time()
    for step in range(2000):
        plan.batch(step)
    assert time.process_time() - begin < 2  # 50 us each, and 20 times that where others run


def measured() -> Iterator[tuple[str, float]]:
    """Yield what the arithmetic costs, in microseconds (`python -m tests.readers.test_epoch_plan`)."""
    plan = EpochPlan.of(10**9, 256, Grid(8, 12))
    begin = time.process_time()
    for step in range(20_000):
        plan.batch(step)
    yield "plan.batch, 8 x 12 lanes", (time.process_time() - begin) / 20_000 * 1e6
    order = EpochOrder([Shard(f"{one}", 0, 10**6) for one in range(100)], 1, 10_000, 10_000).epoch(0)
    plan = EpochPlan.of(10**8, 256, Grid(8, 12))
    begin = time.process_time()
    for step in range(100):
        for piece in order.pieces(plan.batch(step)):
            order.locate(*piece)
    yield "located (256 samples)", (time.process_time() - begin) / 100 * 1e6


if __name__ == "__main__":
    for name, microseconds in measured():
        print(f"{name}: {microseconds:.1f} us")
