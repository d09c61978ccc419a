"""Packing: documents become windows of one length, by the user's tokenizer; a window's place is two numbers.

The samples of a packed data set have no positions that are known before documents are tokenized. So positions count in
tokens, as if each document had `UNIT` of them: those that it lacks are passed over. A window's start is its document's
position times `UNIT` plus the offset in the document, and shares, states and plans need nothing else: a state never
holds documents, and what remains of a pass is read from there, also by other ranks and workers.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...readers.data.base import LOST
from ...readers.data.order import Interval, Numbers, length
from .plan import Intervals, Pass
from .tags import Counted, Tag

UNIT = 1 << 24
"""The most tokens of a document."""
_TOGETHER = 32  # documents that a batched tokenizer gets


class Packing(NamedTuple):
    """How documents are packed to windows of `sequence_length` + 1 tokens.

    A sample is a dict of int64 arrays: `"tokens"`, and `"segments"`, which numbers the documents in the window from 0
    on and is -1 where `pad` fills up the last window of a worker's share. Give it to a data set as `packing=`; the same
    tokenizer has to be given when a state is loaded.
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

    def padded(self, batch: Any) -> dict[str, Any]:
        """Return a batch (of tensors or arrays) of which all is padding."""
        if not isinstance(batch, dict) or set(batch) != {"tokens", "segments"}:
            raise TypeError("uneven='pad' is for batches as they are packed; 'repeat' is for any")
        return {"tokens": batch["tokens"] * 0 + self.pad, "segments": batch["segments"] * 0 - 1}

    def windows(
        self, documents: Callable[[list[Interval]], Iterator[Any]], intervals: list[Interval]
    ) -> Iterator[Counted]:
        """Yield the windows over intervals of positions in tokens.

        `documents(intervals)` yields the documents at intervals of their own positions; `LOST` for a skipped one.
        """
        windows = _Windows(self, length(intervals)).over(self._runs(documents, intervals))
        return windows if self.batch_size is None else _batches(windows, self.batch_size)

    def _runs(
        self, documents: Callable[[list[Interval]], Iterator[Any]], intervals: list[Interval]
    ) -> Iterator[tuple[int, Numbers | None]]:
        """Yield for each document how many positions its share in the intervals has, and its tokens there."""
        for first, last in intervals:
            at = first
            for tokens in self._tokenized(documents([(first // UNIT, -(-last // UNIT))])):
                end = min(last, (at // UNIT + 1) * UNIT)
                yield end - at, None if tokens is LOST else _ids(tokens)[at % UNIT : at % UNIT + end - at]
                at = end

    def _tokenized(self, records: Iterator[Any]) -> Iterator[Any]:
        """Yield what the tokenizer makes of each document; `LOST` for a skipped one."""
        if not self.batched:
            yield from (LOST if record is LOST else self.tokenize(record) for record in records)
            return
        for group in _groups(records, _TOGETHER):
            there = [record for record in group if record is not LOST]
            found = list(self.tokenize(there)) if there else []
            if len(found) != len(there):
                raise ValueError(f"the tokenizer made {len(found)} lists of tokens of {len(there)} documents")
            tokens = iter(found)
            yield from (LOST if record is LOST else next(tokens) for record in group)


class PackedPass(Pass):
    """A pass over documents that are packed: a worker reports with each batch how many positions it had.

    Parts are drawn from in strict turn, also those that have nothing left, so that each worker reads its own.
    """

    def draw(self) -> tuple[Tag, Intervals] | None:
        """Return what to ask of the next part: so many windows, at positions that are known when they were read; None
        if nothing is left of any part.
        """
        if self.exhausted:
            return None
        part, self._turn = self._turn, (self._turn + 1) % len(self.parts)
        return Tag(self.serial, part, -1, self.batch_size), ()

    def leaves_out(self, tag: Tag) -> bool:
        """Return whether a batch is left out: which number it has is known when it comes back."""
        return self.skips(self.step)

    def consumed(self, tag: Tag) -> None:
        """Record that a batch was handed to the training loop, unless it was empty."""
        if tag.count:
            super().consumed(tag)

    @property
    def batches_left(self) -> int:
        """Unknown: raises `TypeError`."""
        raise TypeError("the number of packed windows is not known before their documents are read")


class _Window(NamedTuple):
    """A window that was cut."""

    end: int
    """The number of the first position of the next one."""
    sample: Any
    parts: tuple[int, ...]
    """Of each of its documents, the number of the first token."""


class _Windows:
    """Cuts runs of tokens to windows, and knows at which position each one begins."""

    def __init__(self, packing: Packing, total: int) -> None:
        self._packing = packing
        self._length = packing.sequence_length + 1
        self._step = packing.sequence_length if packing.overlap else self._length
        self._runs: deque[tuple[int, Numbers]] = deque()  # the position of the first token, and the tokens
        self._count = 0
        self._at = 0
        self._total = total

    def over(self, runs: Iterable[tuple[int, Any]]) -> Iterator[Counted]:
        """Yield the windows. One is held back: the last one counts all positions to the end of the share."""
        end, lost = self._at, 0
        waiting: _Window | None = None
        for positions, tokens in runs:
            if tokens is None:
                lost += 1
            elif len(tokens):
                self._runs.append((end, tokens))
                self._count += len(tokens)
            end += positions
            while self._count >= self._length:
                if waiting is not None:
                    yield self._counted(waiting, lost)
                    lost = 0
                sample, parts = self._window()
                waiting = _Window(self._advance(), sample, parts)
        if self._count > self._length - self._step or (self._count and waiting is None):
            if waiting is not None:
                yield self._counted(waiting, lost)
                lost = 0
            waiting = _Window(self._total, *self._window())
        if waiting is not None:
            yield self._counted(waiting._replace(end=self._total), lost)
        elif lost:
            yield self._counted(_Window(self._total, LOST, ()), lost)

    def _counted(self, window: _Window, lost: int) -> Counted:
        positions, self._at = window.end - self._at, window.end
        return Counted(positions, lost, window.sample, window.parts)

    def _window(self) -> tuple[dict[str, Any], tuple[int, ...]]:
        tokens = np.full(self._length, self._packing.pad, np.int64)
        segments = np.full(self._length, -1, np.int64)
        at, parts = 0, []
        for number, (position, run) in enumerate(self._runs):
            part = run[: self._length - at]
            tokens[at : at + len(part)] = part
            segments[at : at + len(part)] = number
            parts.append(position)
            at += len(part)
            if at == self._length:
                break
        return {"tokens": tokens, "segments": segments}, tuple(parts)

    def _advance(self) -> int:
        """Drop the tokens before the next window, and return its position."""
        left = self._step
        end = 0
        while left:
            position, run = self._runs.popleft()
            end = position + min(left, len(run))
            if len(run) > left:
                self._runs.appendleft((end, run[left:]))
            left -= min(left, len(run))
        self._count -= self._step
        return self._runs[0][0] if self._runs else end


def _ids(tokens: Any) -> Numbers:
    """Return the tokens of a document as an array; `ValueError` for what a tokenizer returned that is none."""
    found = np.asarray(tokens)
    if found.ndim != 1 or len(found) > UNIT or (len(found) and found.dtype.kind not in "iu"):
        returned = f"{type(tokens).__name__} (as an array: {found.dtype}, shape {found.shape})"
        raise ValueError(f"a document has one list of at most {UNIT} integers as tokens; tokenize returned {returned}")
    return found.astype(np.int64, copy=False)


def _groups(records: Iterator[Any], size: int) -> Iterator[list[Any]]:
    group: list[Any] = []
    for record in records:
        group.append(record)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _batches(windows: Iterator[Counted], size: int) -> Iterator[Counted]:
    for group in _groups(windows, size):
        there = [one.sample for one in group if one.sample is not LOST]
        sample = {key: np.stack([one[key] for one in there]) for key in there[0]} if there else LOST
        parts = tuple(part for one in group for part in one.parts)
        yield Counted(sum(one.positions for one in group), sum(one.lost for one in group), sample, parts)
