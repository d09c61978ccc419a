"""Sources of compressed bytes, which decoders read from: a range of a blob, or bytes in memory."""

from __future__ import annotations

from ...core.blobs import Blob
from ...core.readahead import ReadAhead

LEAST_CHUNK = 64 * 1024


MOST_CHUNK = 4 * 1024 * 1024
"""Compressed bytes that a source reads at once: twice as many each time, between these."""


class CompressedSource:
    """Compressed bytes of a member, from `position` to `stop` in a blob."""

    __slots__ = ("_ahead", "_blob", "_chunk", "position", "stop")

    def __init__(self, blob: Blob, position: int, stop: int) -> None:
        self._blob = blob
        self._ahead = ReadAhead(blob)
        self._chunk = LEAST_CHUNK
        self.position = position
        self.stop = stop

    def read(self) -> bytes:
        """The next bytes, as many as seem good; `b""` at the end."""
        data = self._ahead.pread(min(self._chunk, self.stop - self.position), self.position)
        self.position += len(data)
        self._chunk = min(2 * self._chunk, MOST_CHUNK)
        return data

    def copy(self) -> CompressedSource:
        """The same place, for another reader."""
        return CompressedSource(self._blob, self.position, self.stop)

    def close(self) -> None:
        """End what is under way."""
        self._ahead.close()


class BytesSource(CompressedSource):
    """Compressed bytes that are in memory."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0
        self.stop = len(data)

    def read(self) -> bytes:
        """All that is left."""
        data, self._data = self._data, b""
        self.position = self.stop
        return data

    def close(self) -> None:
        """There is nothing under way."""


class Leftover(CompressedSource):
    """Bytes that an ended stream left over, and the source that they came from."""

    __slots__ = ("_data", "_source")

    def __init__(self, data: bytes, source: CompressedSource) -> None:
        self._data = data
        self._source: CompressedSource = source._source if isinstance(source, Leftover) else source
        self.position = source.position - len(data)
        self.stop = source.stop

    def read(self) -> bytes:
        data, self._data = self._data or self._source.read(), b""
        self.position = self._source.position
        return data

    def close(self) -> None:
        self._source.close()
