"""Packing: documents become windows of one length, by the user's tokenizer; a window's place is three numbers.

How many windows there are is not known before documents are tokenized. So a lane of documents never ends: at the end of
its documents it goes on with those of the next epoch. The next window of a lane is at (epoch, document, offset): the
epoch, the number of the document in the lane, and that of the token in the document.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..data.base import LOST
from ..data.order import Numbers

_TOGETHER = 32  # documents that a batched tokenizer gets


class Packing(NamedTuple):
    """How documents are packed to windows of `sequence_length` + 1 tokens.

    A sample is a dict of int64 arrays: `"tokens"`, and `"segments"`, which numbers the documents in the window from 0
    on and is -1 where `pad` fills up the last window of an epoch that is iterated. Give it to a data set as `packing=`;
    the same tokenizer has to be given when a state is loaded.
    """

    tokenize: Callable[[Any], Sequence[int]]
    """Makes token ids of a record; an end-of-document token is its affair. With `batched`, makes a list of such of a
    list of records."""
    sequence_length: int
    overlap: bool = True
    """Windows overlap by one token, so that each token is predicted once; or are disjoint."""
    batched: bool = False
    pad: int = 0
    batch_size: int | None = None
    """Samples are batches of so many windows."""

    @property
    def settings(self) -> list[Any]:
        """What the windows follow from, besides documents and tokenizer."""
        return ["packed", operator.index(self.sequence_length), self.overlap]

    def tokenized(self, documents: Iterable[Any]) -> Iterator[Numbers | None]:
        """Yield the tokens of each document; None for a damaged one that is skipped."""
        for group in _groups(documents, _TOGETHER if self.batched else 1):
            there = [document for document in group if document is not LOST]
            found = list(self.tokenize(there)) if self.batched and there else list(map(self.tokenize, there))
            if len(found) != len(there):
                raise ValueError(f"the tokenizer made {len(found)} lists of tokens of {len(there)} documents")
            tokens = iter(found)
            yield from (None if document is LOST else _ids(next(tokens)) for document in group)


class LanePlace(NamedTuple):
    """Where the next window of a lane begins."""

    epoch: int = 0
    document: int = 0
    offset: int = 0


class PackedLane:
    """The windows of a lane of documents.

    Args:
        packing: how they are packed.
        documents: returns an iterator of the documents of an epoch's lane, from a number on.
        place: where to begin.
    """

    def __init__(
        self, packing: Packing, documents: Callable[[int, int], Iterator[Any]], place: Sequence[int] = LanePlace()
    ) -> None:
        self._packing, self._documents = packing, documents
        self._length = packing.sequence_length + 1
        self._step = packing.sequence_length if packing.overlap else self._length
        self._runs: deque[tuple[LanePlace, Numbers]] = deque()  # the place of the first token, and the tokens
        self._count = 0
        self._following = LanePlace(*place)  # of what is read next
        self._reading: Generator[tuple[LanePlace, Numbers], None, None] | None = None
        self.lost = 0
        """How many damaged documents were skipped since this was last set to 0."""

    @property
    def place(self) -> LanePlace:
        """Where the next window begins."""
        return self._runs[0][0] if self._runs else self._following

    def window(self) -> dict[str, Any]:
        """Return the next window."""
        while self._count < self._length:
            if self._reading is None:
                self._reading = self._read()
            self._take(*next(self._reading))
        return self._window()

    def epoch(self) -> Iterator[dict[str, Any]]:
        """Yield the windows of the epoch of the present place alone, of which the last one is padded."""
        place = self.place
        for tokens in self._of_epoch(place):
            self._take(*tokens)
            while self._count >= self._length:
                yield self._window()
        if self._count > self._length - self._step or (self._count and place == self.place):
            yield self._window()

    def close(self) -> None:
        """End reading."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.close()

    def _take(self, place: LanePlace, tokens: Numbers) -> None:
        self._following = LanePlace(place.epoch, place.document + 1, 0)
        if len(tokens):
            self._runs.append((place, tokens))
            self._count += len(tokens)

    def _read(self) -> Generator[tuple[LanePlace, Numbers], None, None]:
        place = self._following
        while True:
            found = 0
            for one in self._of_epoch(place):
                found += len(one[1])
                yield one
            if not found and not place.document:
                raise ValueError("the documents of an epoch have no tokens")
            place = LanePlace(place.epoch + 1)

    def _of_epoch(self, place: LanePlace) -> Generator[tuple[LanePlace, Numbers], None, None]:
        documents = self._documents(place.epoch, place.document)
        try:
            for number, tokens in enumerate(self._packing.tokenized(documents), place.document):
                self.lost += tokens is None
                first = place.offset if number == place.document else 0
                none = np.empty(0, np.int64)
                yield LanePlace(place.epoch, number, first), none if tokens is None else tokens[first:]
        finally:
            getattr(documents, "close", lambda: None)()

    def _window(self) -> dict[str, Any]:
        """Return the window that begins at the present place, and drop the tokens before the next one."""
        tokens = np.full(self._length, self._packing.pad, np.int64)
        segments = np.full(self._length, -1, np.int64)
        at = 0
        for number, (_, run) in enumerate(self._runs):
            part = run[: self._length - at]
            tokens[at : at + len(part)] = part
            segments[at : at + len(part)] = number
            at += len(part)
            if at == self._length:
                break
        self._drop(min(self._step, self._count))
        return {"tokens": tokens, "segments": segments}

    def _drop(self, count: int) -> None:
        self._count -= count
        while count:
            place, run = self._runs.popleft()
            dropped = min(count, len(run))
            if dropped < len(run):
                rest = LanePlace(place.epoch, place.document, place.offset + dropped)
                self._runs.appendleft((rest, run[dropped:]))
            count -= dropped


def _ids(tokens: Any) -> Numbers:
    """Return the tokens of a document as an array; `ValueError` for what a tokenizer returned that is none."""
    found = np.asarray(tokens)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        returned = f"{type(tokens).__name__} (as an array: {found.dtype}, shape {found.shape})"
        raise ValueError(f"a document has one list of integers as tokens; tokenize returned {returned}")
    return found.astype(np.int64, copy=False)


def _groups(records: Iterable[Any], size: int) -> Iterator[list[Any]]:
    group: list[Any] = []
    for record in records:
        group.append(record)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
