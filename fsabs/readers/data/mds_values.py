"""The values of MDS shards: one decoder for each encoding of MosaicML Streaming's format, version 2.

The encodings are those of `streaming/base/format/mds/encodings.py`, up to release 0.13. All numbers are little-endian.
A decoder raises `ValueError` (or a subclass) for bytes that are no value of its encoding.
"""

from __future__ import annotations

import functools
import io
import pickle
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from math import prod
from typing import Any

import numpy as np

from ...core import errors
from ...core.limits import parse_json

Decode = Callable[[bytes], Any]

_SHAPE_TYPES = ("<u1", "<u2", "<u4", "<u8")
_VALUE_TYPES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
_SCALARS = frozenset(_VALUE_TYPES.values())


def decoder_of(encoding: str, allow_pickle: bool) -> Decode:
    """Return the decoder of a column; `ValueError` for an encoding that is unknown or isn't allowed."""
    name, _, setting = encoding.partition(":")
    if name in _SCALARS and not setting:
        return functools.partial(_scalar, np.dtype(name).newbyteorder("<"))
    if name == "ndarray":
        return _array_decoder(encoding, setting)
    if name == "pkl":
        if not allow_pickle:
            raise ValueError("a column is pickled: reading it executes what is in it, which allow_pickle=True allows")
        return _unpickled
    if name not in _DECODERS or (setting and name != "jpeg"):
        raise ValueError(f"the encoding {encoding!r} of a column is not known")
    return _DECODERS[name]


# ---- numbers and text


def _scalar(dtype: np.dtype[Any], data: bytes) -> Any:
    if len(data) != dtype.itemsize:
        raise ValueError(f"{len(data)} bytes for a {dtype.name}")
    return np.frombuffer(data, dtype)[0]


def _int(data: bytes) -> int:
    if len(data) != 8:
        raise ValueError(f"{len(data)} bytes for an int")
    return int.from_bytes(data, "little", signed=True)


def _decimal(data: bytes) -> Decimal:
    try:
        return Decimal(data.decode())
    except InvalidOperation:
        raise ValueError(f"no decimal number: {data[:50]!r}") from None


def _unpickled(data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except Exception as exc:  # whatever the classes in it do
        raise ValueError(f"{type(exc).__name__}: {exc}") from exc


# ---- arrays


def _array_decoder(encoding: str, setting: str) -> Decode:
    name, _, sizes = setting.partition(":")
    if name and name not in _SCALARS:
        raise ValueError(f"the encoding {encoding!r} of a column is not known")
    shape = tuple(int(size) for size in sizes.split(",")) if sizes else None
    return functools.partial(_array, name or None, shape)


def _array(name: str | None, shape: tuple[int, ...] | None, data: bytes) -> np.ndarray[Any, Any]:
    """An array: its type and its shape come first where the encoding doesn't state them."""
    at = 0
    if name is None:
        name, at = _VALUE_TYPES.get(_byte(data, 0)), 1
        if name is None:
            raise ValueError(f"an array of the unknown type {data[0]}")
    if shape is None:
        axes, kind = divmod(_byte(data, at), 4)
        end = at + 1 + axes * (1 << kind)
        if end > len(data):
            raise ValueError("the shape of an array is cut off")
        shape = tuple(np.frombuffer(data[at + 1 : end], _SHAPE_TYPES[kind]).tolist())
        at = end
    dtype = np.dtype(name).newbyteorder("<")
    if len(data) - at != prod(shape) * dtype.itemsize:
        raise ValueError(f"{len(data) - at} bytes for an array of {name} of the shape {shape}")
    return np.frombuffer(data, dtype, offset=at).reshape(shape).copy()


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise ValueError("an array is cut off")
    return data[at]


# ---- images


def _pillow() -> Any:
    try:
        import PIL.Image
    except ImportError:
        raise errors.missing("pillow", "torch", "decoding the images of MDS shards") from None
    return PIL.Image


def _pixels(data: bytes) -> Any:
    """An image as its pixels: width, height, the size of the mode's name, the name, the pixels."""
    if len(data) < 12:
        raise ValueError("an image is cut off")
    width, height, size = struct.unpack_from("<3I", data)
    if 12 + size > len(data):
        raise ValueError("the mode of an image is cut off")
    return _pillow().frombytes(data[12 : 12 + size].decode(), (width, height), data[12 + size :])


def _image(data: bytes) -> Any:
    try:
        return _pillow().open(io.BytesIO(data))
    except OSError as exc:
        raise ValueError(str(exc)) from exc


def _images(first: int, decode: Decode, data: bytes) -> list[Any]:
    """A list of images: their number (at `first`), the size of each, the images."""
    if len(data) < first + 4:
        raise ValueError("a list of images is cut off")
    (count,) = struct.unpack_from("<I", data, first)
    at = first + 4 + 4 * count
    if at > len(data):
        raise ValueError("the sizes of a list of images are cut off")
    found = []
    for size in struct.unpack_from(f"<{count}I", data, first + 4):
        found.append(decode(data[at : at + size]))
        at += size
    if at != len(data):
        raise ValueError(f"a list of images of {at} bytes in {len(data)}")
    return found


_DECODERS: dict[str, Decode] = {
    "bytes": bytes,
    "str": bytes.decode,
    "int": _int,
    "str_int": lambda data: int(data.decode()),
    "str_float": lambda data: float(data.decode()),
    "str_decimal": _decimal,
    "json": parse_json,
    "pil": _pixels,
    "jpeg": _image,
    "png": _image,
    "jpeg_array": functools.partial(_images, 0, _image),
    "jpegarray": functools.partial(_images, 0, _image),
    "list[jpeg]": functools.partial(_images, 4, _image),
    "list[png]": functools.partial(_images, 4, _image),
    "list[pil]": functools.partial(_images, 4, _pixels),
}
