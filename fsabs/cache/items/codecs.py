"""Codecs of item caches, between values and bytes: plain bytes, views, NumPy arrays, and pickle as an option.

The format of an array: `NA`, order u8 (C or F), dimensions u8, bytes of the type u16, bytes of all this u16, then the
dimensions as u64, the type as in numpy.lib.format's `descr`, zeros up to a multiple of 64, and the elements. No pickle.
"""

from __future__ import annotations

import functools
import pickle
import struct
from typing import Any, Protocol

_ARRAY = struct.Struct("<2sBBHH")
_ARRAY_MAGIC = b"NA"
ALIGNED = 64
"""Bytes at whose multiples arrays begin."""


class Codec(Protocol):
    """A codec of one's own, for an item cache's `codec=`. It has to pickle if the cache is to be pickled."""

    name: str
    """At most 50 bytes; stands in preserved caches, and must be the same when one is preloaded."""

    def encode(self, value: Any) -> bytes:
        """The bytes of a value; never called with None, which every cache stores as such."""

    def decode(self, data: bytes | memoryview) -> Any:
        """The value; a memoryview where the cache is frozen."""


class Bytes:
    """Bytes as they are: `bytes`, and anything that has a buffer, are stored; `bytes` come back."""

    name = "bytes"
    align = 1

    def encode(self, value: Any) -> bytes:
        """A copy, but of `bytes`."""
        if type(value) is bytes:
            return value
        try:
            view = memoryview(value)
        except TypeError:
            raise TypeError(
                f"the cache stores bytes, and not {type(value).__name__}: choose codec='numpy', "
                "codec='pickle' (do_pickle=True) or a codec of your own"
            ) from None
        return bytes(view)

    def decode(self, data: bytes | memoryview) -> Any:
        """The bytes."""
        return bytes(data)


class View(Bytes):
    """Bytes that come back as a read-only `memoryview`: of the mapped file, and nothing copied, in frozen caches."""

    align = ALIGNED

    def decode(self, data: bytes | memoryview) -> Any:
        """A view."""
        return memoryview(data)


class Array:
    """NumPy arrays, without pickle; they come back read-only, in frozen caches as views of the mapped file."""

    name = "numpy"
    align = ALIGNED

    def encode(self, value: Any) -> bytes:
        """The array with its head."""
        import numpy as np

        if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray) or value.dtype.hasobject:
            what = f"an array of {value.dtype}" if type(value) is np.ndarray else type(value).__name__
            raise TypeError(f"codec='numpy' stores NumPy arrays of plain types, and not {what}")
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        return _array_head(value.shape, value.dtype, order) + value.tobytes(order)  # type: ignore[arg-type]

    def decode(self, data: bytes | memoryview) -> Any:
        """The array; a `ValueError` where the bytes are none."""
        import numpy as np

        magic, _, _, _, size = _ARRAY.unpack_from(data)
        if magic != _ARRAY_MAGIC:
            raise ValueError("the item is no array of codec='numpy'")
        shape, dtype, order = _array_from_head(bytes(data[:size]))
        return np.ndarray(shape, dtype, data, size, order=order)


class Pickle:
    """Anything, by pickle. Preload what you trust alone: unpickling can run any code."""

    name = "pickle"
    align = 1

    def encode(self, value: Any) -> bytes:
        """A pickle."""
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def decode(self, data: bytes | memoryview) -> Any:
        """The value."""
        return pickle.loads(data)


_NAMED: dict[str, type[Bytes] | type[View] | type[Array] | type[Pickle]] = {
    "bytes": Bytes,
    "memoryview": View,
    "numpy": Array,
    "pickle": Pickle,
}


def codec_of(codec: str | Codec | None, do_pickle: bool) -> Codec:
    """The codec that the arguments of a cache ask for."""
    if do_pickle:
        if codec not in (None, "pickle"):
            raise ValueError(f"do_pickle=True and codec={codec!r} contradict each other")
        return Pickle()
    if codec is None:
        return Bytes()
    if not isinstance(codec, str):
        if codec.name in _NAMED or len(codec.name.encode()) > 50:
            raise ValueError(f"a codec's name has at most 50 bytes, and is not one of the library's: {codec.name!r}")
        return codec
    if codec not in _NAMED:
        raise ValueError(f"no codec {codec!r}: there are {', '.join(sorted(_NAMED))}, and your own objects")
    return _NAMED[codec]()


@functools.lru_cache(256)
def _array_head(shape: tuple[int, ...], dtype: Any, order: str) -> bytes:
    from numpy.lib import format as npy

    descr = repr(npy.dtype_to_descr(dtype)).encode("latin-1")
    fixed = _ARRAY.size + 8 * len(shape) + len(descr)
    size = -(-fixed // ALIGNED) * ALIGNED
    if size > 0xFFFF:
        raise TypeError("codec='numpy' stores arrays of plain types, and this one's has too many fields")
    head = _ARRAY.pack(_ARRAY_MAGIC, order.encode()[0], len(shape), len(descr), size)
    return (head + struct.pack(f"<{len(shape)}Q", *shape) + descr).ljust(size, b"\0")


@functools.lru_cache(256)
def _array_from_head(head: bytes) -> tuple[tuple[int, ...], Any, Any]:
    import ast

    from numpy.lib import format as npy

    _, order, dimensions, length, _ = _ARRAY.unpack_from(head)
    shape = struct.unpack_from(f"<{dimensions}Q", head, _ARRAY.size)
    start = _ARRAY.size + 8 * dimensions
    descr = ast.literal_eval(head[start : start + length].decode("latin-1"))
    dtype = npy.descr_to_dtype(descr)
    if dtype.hasobject:  # whose elements are addresses in memory, which no one is to choose
        raise ValueError("the item is an array of objects, which codec='numpy' does not store")
    return shape, dtype, chr(order)
