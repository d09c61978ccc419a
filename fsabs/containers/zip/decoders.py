"""Decompression of members, in bounded pieces: one small interface over zlib, bz2, lzma and zstd.

A decoder reads compressed bytes from a `CompressedSource` as it needs them, and returns at most the requested number of
bytes, whatever the stream expands to. A damaged stream is a `DamagedError`, which `contents.py` turns into the error
that the caller sees; errors of reading pass as they are.
"""

from __future__ import annotations

import abc
import bz2
import functools
import importlib
import lzma
import struct
import zlib
from collections.abc import Callable
from typing import Any, Protocol

from ...core import errors
from . import records
from .sources import BytesSource, CompressedSource, Leftover

_MAX_WINDOW = 1 << 27  # zstd's own limit of what a decoder without further ado accepts
_LEAST_DICTIONARY = 4096
_LZMA_HEADER = struct.Struct("<HHBL")  # the SDK's version, size of the rest (5), lc and lp and pb, dictionary's size
_DAMAGE = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)  # OSError is bz2's; none of them is of a read


class DamagedError(Exception):
    """The compressed stream is not right; the text says how."""


class MemberDecoder(abc.ABC):
    """One pass over a compressed stream."""

    @abc.abstractmethod
    def read(self, size: int) -> bytes:
        """The next bytes of the content, 1 to `size` of them, or `b""` at its end."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Check, all of the content having been read, that the stream ends here and nothing is left behind it."""

    def copy(self) -> MemberDecoder | None:
        """A decoder at the same place, where that can be had."""
        return None

    @abc.abstractmethod
    def close(self) -> None:
        """End what is under way of reading."""


class _Engine(Protocol):
    """The interface that bz2's, lzma's and compression.zstd's decompressors share."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Deflate:
    """zlib's decompressor, with the others' interface."""

    def __init__(self, inner: Any = None) -> None:
        self._inner = zlib.decompressobj(-zlib.MAX_WBITS) if inner is None else inner
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        tail = self._inner.unconsumed_tail
        found: bytes = self._inner.decompress(tail + data if tail else data, max_length)
        self.needs_input = not self._inner.unconsumed_tail and len(found) < max_length
        return found

    def copy(self) -> _Deflate:
        twin = _Deflate(self._inner.copy())
        twin.needs_input = self.needs_input
        return twin


class _Streams(MemberDecoder):
    """A stream, or where the format has it several one behind another, through an engine."""

    several = False
    ends_itself = True
    _source: CompressedSource

    def __init__(self, source: CompressedSource) -> None:
        self._source = source
        self._engine = self.make()

    @abc.abstractmethod
    def make(self) -> _Engine:
        """A new engine."""

    def read(self, size: int) -> bytes:
        while not self._engine.eof or self._next_stream():
            data = self._source.read() if self._engine.needs_input else b""
            starving = self._engine.needs_input and not data
            found = self._decompress(data, size)
            if found:
                return found
            if starving and not self._engine.eof:
                return b""
        return b""

    def finish(self) -> None:
        if self.read(1):
            raise DamagedError("there is more in it")
        if self.ends_itself and not self._engine.eof:
            raise DamagedError("its stream has no end")
        if left := len(self._engine.unused_data) + self._source.stop - self._source.position:
            raise DamagedError(f"{left} bytes are left behind its stream")

    def close(self) -> None:
        self._source.close()

    def _decompress(self, data: bytes, size: int) -> bytes:
        try:
            return self._engine.decompress(data, size)
        except _DAMAGE as exc:
            raise DamagedError(f"its stream is damaged: {exc}") from exc

    def _next_stream(self) -> bool:
        """Go on with the stream behind the one that has ended, if there is one."""
        if not self.several:
            return False
        data = self._engine.unused_data or self._source.read()
        if not data:
            return False
        self._engine = self.make()
        self._source = Leftover(data, self._source)
        return True


class Inflate(_Streams):
    """Deflate, the method that can be copied on the way."""

    def make(self) -> _Engine:
        return _Deflate()

    def copy(self) -> MemberDecoder:
        twin = Inflate(self._source.copy())
        assert isinstance(self._engine, _Deflate)
        twin._engine = self._engine.copy()
        return twin


class Bunzip2(_Streams):
    """bzip2; parallel compressors write several streams."""

    several = True

    def make(self) -> _Engine:
        return bz2.BZ2Decompressor()


class Unlzma(_Streams):
    """LZMA with the header that zip files put before it; the end mark is optional (APPNOTE 5.8)."""

    def __init__(self, source: CompressedSource, size: int, ends_itself: bool) -> None:
        self._size = size
        self.ends_itself = ends_itself
        super().__init__(source)

    def make(self) -> _Engine:
        data = self._source.read()
        header = data[: _LZMA_HEADER.size]
        self._source = Leftover(data[_LZMA_HEADER.size :], self._source)
        if len(header) < _LZMA_HEADER.size or header[2:4] != b"\5\0":
            raise DamagedError(f"no LZMA properties at its start: {header!r}")
        _, _, properties, wanted = _LZMA_HEADER.unpack(header)
        rest, lc = divmod(properties, 9)
        pb, lp = divmod(rest, 5)
        # No more than the content's size is ever used, and a damaged header could claim 4 GiB of memory.
        dictionary = max(_LEAST_DICTIONARY, min(wanted, self._size))
        how = {"id": lzma.FILTER_LZMA1, "lc": lc, "lp": lp, "pb": pb, "dict_size": dictionary}
        try:
            return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[how])
        except (lzma.LZMAError, ValueError) as exc:
            raise DamagedError(f"its LZMA properties are not valid: {header!r}") from exc


class Unzstd(_Streams):
    """zstd through Python's own module (3.14)."""

    several = True

    def __init__(self, source: CompressedSource, module: Any) -> None:
        self._module = module
        super().__init__(source)

    def make(self) -> _Engine:
        engine: _Engine = self._module.ZstdDecompressor()
        return engine

    def _decompress(self, data: bytes, size: int) -> bytes:
        try:
            return super()._decompress(data, size)
        except self._module.ZstdError as exc:
            raise DamagedError(f"its stream is damaged: {exc}") from exc


class _Portions:
    """A source as zstandard's reader wants it: by the size that it asks for."""

    def __init__(self, source: CompressedSource) -> None:
        self._source = source
        self._data = b""
        self._at = 0

    def read(self, size: int) -> bytes:
        if self._at == len(self._data):
            self._data, self._at = self._source.read(), 0
        found = self._data[self._at : self._at + size]
        self._at += len(found)
        return found

    def close(self) -> None:
        self._source.close()

    def left(self) -> int:
        return len(self._data) - self._at + self._source.stop - self._source.position


class Zstandard(MemberDecoder):
    """zstd through the `zstandard` package, whose reader draws from the source itself."""

    def __init__(self, source: CompressedSource, module: Any) -> None:
        self._portions = _Portions(source)
        self._error = module.ZstdError
        decompressor = module.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        self._reader = decompressor.stream_reader(self._portions, read_across_frames=True)

    def read(self, size: int) -> bytes:
        try:
            return bytes(self._reader.read(size))
        except self._error as exc:
            raise DamagedError(f"its stream is damaged: {exc}") from exc

    def finish(self) -> None:
        if self.read(1):
            raise DamagedError("there is more in it")
        if left := self._portions.left():
            raise DamagedError(f"{left} bytes are left behind its stream")

    def close(self) -> None:
        self._portions.close()


def decoder(method: int, flags: int, size: int, source: CompressedSource) -> MemberDecoder:
    """A decoder of a member of `size` bytes; `DamagedError`, `MissingDependencyError`."""
    if method == records.DEFLATED:
        return Inflate(source)
    if method == records.BZIP2:
        return Bunzip2(source)
    if method == records.LZMA:
        return Unlzma(source, size, bool(flags & records.FLAG_LZMA_END_MARK))
    return zstd_decoder()(source)


READABLE = frozenset((records.STORED, records.DEFLATED, records.BZIP2, records.LZMA, records.ZSTANDARD))
NAMES = {
    records.DEFLATED: "zip.inflate",
    records.BZIP2: "zip.bunzip2",
    records.LZMA: "zip.unlzma",
    records.ZSTANDARD: "zip.unzstd",
}
"""What decompression is called in a trace."""


@functools.cache
def zstd_decoder() -> Callable[[CompressedSource], MemberDecoder]:
    """The class of zstd's decoders, by Python's own library or another; `MissingDependencyError`."""
    try:
        return functools.partial(Unzstd, module=importlib.import_module("compression.zstd"))
    except ImportError:  # Python before 3.14
        pass
    try:
        return functools.partial(Zstandard, module=importlib.import_module("zstandard"))
    except ImportError as exc:
        raise errors.missing("zstandard", "zstd", "reading a zstd member of a zip file") from exc


def decode(data: bytes, method: int, flags: int, size: int) -> bytes:
    """The content of a small member: `data`, decompressed to exactly `size` bytes; `DamagedError` otherwise."""
    if method == records.DEFLATED:
        content = _inflated(data, size)
        if content is not None:
            return content
    source = decoder(method, flags, size, BytesSource(data))
    found: list[bytes] = []
    left = size
    while left and (piece := source.read(left)):
        found.append(piece)
        left -= len(piece)
    if left:
        raise DamagedError(f"it holds {size - left} bytes where {size} were expected")
    source.finish()
    return found[0] if len(found) == 1 else b"".join(found)


def _inflated(data: bytes, size: int) -> bytes | None:
    """As `decode` of a deflated member, at once; None where anything is wrong with it."""
    engine = _engine.decompressobj(-zlib.MAX_WBITS)
    try:
        content: bytes = engine.decompress(data, size + 1)
    except _engine.error:
        return None
    return content if len(content) == size and engine.eof and not engine.unused_data else None


def fastest_zlib() -> Any:
    """ISA-L's deflate and CRC-32 where they are installed (`fsabs[speed]`), else zlib's: the interface is the same."""
    try:
        return importlib.import_module("isal.isal_zlib")
    except ImportError:
        return zlib


_engine = fastest_zlib()
crc32: Callable[..., int] = _engine.crc32
"""`zlib.crc32`, or what is faster."""
