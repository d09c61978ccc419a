"""Ranges that are read together: neighbours in one request, large ones in several. Pure arithmetic, no input or output.

A request costs a store and its client about as much as some ten thousand bytes, and a round trip where the next one
waits for it; reading over a small gap costs less than both. Too large a request has one connection work while the
others wait. Backends decide on both limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

Range = tuple[int, int]
"""Size and offset, in bytes."""


class StorageOrder(NamedTuple):
    """The order in which files are stored one behind the other, in an archive."""

    max_gap_bytes: int
    """The largest gap between two of them that one request reads over."""
    following: Callable[[str], Iterator[tuple[int, int, str]]]
    """Yields offset, size and key of a file and of those stored behind it, in order; nothing for an unknown one."""


class RequestShare(NamedTuple):
    """The part of one request's bytes that is a range."""

    request: int
    """Its number in `RequestPlan.requests`."""
    start: int
    """From where in the request's bytes."""
    size: int


class RequestPlan(NamedTuple):
    """The requests for some ranges, and how their responses are divided."""

    requests: list[Range]
    """Ordered by offset."""
    shares: list[list[RequestShare]]
    """For each range that was wanted, what it consists of, in order; nothing for an empty range."""

    def assemble(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Return the contents of the ranges that were wanted, from those of the requests."""
        return [_joined(shares, bodies) for shares in self.shares]


def plan(wanted: Sequence[Range], gap: int, most: int) -> RequestPlan:
    """Return the requests for `wanted` ranges, which may come in any order, overlap and be empty.

    Args:
        wanted: sizes and offsets.
        gap: the largest gap, in bytes, between two ranges that are coalesced to one request.
        most: the size of a request at most, in bytes: what is larger is several requests of about the same size.
    """
    requests: list[Range] = []
    shares: list[list[RequestShare]] = [[] for _ in wanted]
    for start, end, members in _runs(wanted, gap, most):
        size = _piece(end - start, most)
        first = len(requests)
        requests += [(min(size, end - at), at) for at in range(start, end, size)]
        for number in members:
            shares[number] = _shares(wanted[number], start, size, first)
    return RequestPlan(requests, shares)


def _runs(wanted: Sequence[Range], gap: int, most: int) -> list[tuple[int, int, list[int]]]:
    """Neighbours: where they start and end, and which ranges they are."""
    runs: list[tuple[int, int, list[int]]] = []
    for number in sorted((n for n, (size, _) in enumerate(wanted) if size), key=lambda n: wanted[n][1]):
        size, offset = wanted[number]
        if runs:
            start, end, members = runs[-1]
            # What overlaps is asked for once, however large it becomes: it is cut up afterwards.
            if offset < end or (offset - end <= gap and offset + size - start <= most):
                members.append(number)
                runs[-1] = (start, max(end, offset + size), members)
                continue
        runs.append((offset, offset + size, [number]))
    return runs


def _piece(size: int, most: int) -> int:
    """Return the size of the pieces of a run: equal, as far as that goes."""
    count = -(-size // most)
    return -(-size // count)


def _shares(wanted: Range, start: int, piece: int, first: int) -> list[RequestShare]:
    size, offset = wanted
    at, end = offset - start, offset - start + size
    found: list[RequestShare] = []
    while at < end:
        number, inside = divmod(at, piece)
        found.append(RequestShare(first + number, inside, min(piece - inside, end - at)))
        at += found[-1].size
    return found


def _joined(shares: list[RequestShare], bodies: Sequence[bytes]) -> bytes:
    if len(shares) == 1:
        request, start, size = shares[0]
        return bodies[request][start : start + size]  # the same object where it is all of it
    return b"".join(memoryview(bodies[request])[start : start + size] for request, start, size in shares)
