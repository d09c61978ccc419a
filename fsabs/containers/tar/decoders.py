"""The interface of a frame's decoder, which takes compressed bytes and returns decoded ones in bounded pieces."""

from __future__ import annotations

import abc
from typing import NamedTuple


class DecodeError(ValueError):
    """Compressed bytes that are not what their format says."""


class ResumePoint(NamedTuple):
    """A position inside a frame where a decoder may start; `Codec.resume` makes the decoder of `how` alone."""

    out: int
    """Decoded bytes up to there."""
    src: int
    """Compressed bytes up to the first that the decoder has to be fed."""
    how: bytes


class FrameDecoder(abc.ABC):
    """The decoder of one frame."""

    LOOKS_AHEAD = 0
    """Compressed bytes that `place_ahead` makes use of."""

    @property
    @abc.abstractmethod
    def eof(self) -> bool:
        """True if the frame has ended and its checksum is right."""

    @property
    @abc.abstractmethod
    def unused(self) -> bytes:
        """After the end: the bytes that were fed and are not the frame's."""

    @property
    @abc.abstractmethod
    def needs_input(self) -> bool:
        """True if more input is needed before there is more output."""

    @abc.abstractmethod
    def decode(self, data: bytes, limit: int) -> bytes:
        """Feed `data`, and take about `limit` bytes of what it stands for; `DecodeError`."""

    def copy(self) -> tuple[FrameDecoder, int] | None:
        """A decoder in the same state, and how many bytes of those fed it has to be fed again; None where it can't."""
        return None

    def place_ahead(self, following: bytes) -> ResumePoint | None:
        """A place not far ahead; None if none is found. `following` are the bytes that would be fed next.

        Its `out` counts from what has been decoded, its `src` from the start of `following`, and may be negative.
        """
        return None
