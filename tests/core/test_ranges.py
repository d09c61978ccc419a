"""Which ranges are read together: whatever is wanted comes, in requests that keep to their limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsabs.core.ranges import Range, plan

pytestmark = pytest.mark.quick

CONTENT = bytes(range(256)) * 8


@st.composite
def wanted_ranges(draw: st.DrawFn) -> list[Range]:
    offsets = st.integers(0, len(CONTENT))
    return [(draw(st.integers(0, min(300, len(CONTENT) - at))), at) for at in draw(st.lists(offsets, max_size=30))]


@given(wanted=wanted_ranges(), gap=st.integers(0, 100), most=st.integers(1, 400))
def test_what_is_wanted_comes_within_the_limits(wanted: list[Range], gap: int, most: int) -> None:
    planned = plan(wanted, gap, most)
    bodies = [CONTENT[offset : offset + size] for size, offset in planned.requests]
    assert planned.assemble(bodies) == [CONTENT[offset : offset + size] for size, offset in wanted]
    assert all(0 < size <= most for size, _ in planned.requests)
    assert [offset for _, offset in planned.requests] == sorted(offset for _, offset in planned.requests)
    asked = {at for size, offset in planned.requests for at in range(offset, offset + size)}
    needed = {at for size, offset in wanted for at in range(offset, offset + size)}
    assert needed <= asked
    assert len(asked - needed) <= gap * max(0, len(wanted) - 1)


@pytest.mark.parametrize(
    ("wanted", "requests"),
    [
        ([], []),
        ([(0, 7)], []),
        ([(10, 100), (10, 0)], [(10, 0), (10, 100)]),  # too far from each other
        ([(10, 15), (10, 0)], [(25, 0)]),
        ([(10, 16), (10, 0)], [(10, 0), (10, 16)]),
        ([(10, 0), (10, 0), (4, 2)], [(10, 0)]),  # the same, and one inside of it
        ([(50, 0), (50, 50), (1, 100)], [(100, 0), (1, 100)]),  # together too large
        ([(250, 0)], [(84, 0), (84, 84), (82, 168)]),
        ([(250, 0), (10, 100)], [(84, 0), (84, 84), (82, 168)]),
        ([(80, 0), (80, 60)], [(70, 0), (70, 70)]),
    ],
)
def test_requests(wanted: list[Range], requests: list[Range]) -> None:
    assert plan(wanted, 5, 100).requests == requests


def test_a_range_that_is_a_request_of_its_own_is_not_copied() -> None:
    body = bytes(1000)
    assert plan([(1000, 50)], 0, 1000).assemble([body])[0] is body
