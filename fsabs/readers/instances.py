"""Instances as bytes: a typed, versioned encoding without pickle of what a data reader yields.

An instance is an int, float, str, bytes, bool, None, NumPy array or scalar of any dtype but object, or tuples, lists
and dicts of them. Its encoding is the bytes f5 01 (mark, version) and one value: a tag byte and what the tag says.
Numbers are little-endian. A length is one byte, or ff and a u32.

    00 None, 01 False, 02 True            nothing more
    03 04 05 int                          1, 4 or 8 bytes, signed
    06 int                                length, bytes (two's complement)
    07 float                              8 bytes, IEEE 754
    08 str, 09 bytes, 0f pickle           length, bytes (UTF-8; lone surrogates are kept)
    0a tuple, 0b list                     length, so many values
    0c dict                               length, so many keys and values
    0d array, 0e NumPy scalar             u16 size of a description, the description, the elements

A description is `C` or `F` (the order of the elements), the number of dimensions (a byte), each dimension (u64), and
the dtype: NumPy's string for a plain one, else JSON. Keys of a dict are str, bytes, float, bool, None or an int of 64
bits: for other kinds, hostile bytes could make all hashes collide. The hash of a number is no secret either, so that a
dict has at most 16,384 keys that are numbers: what can be made of these takes a second for a MB.
"""

from __future__ import annotations

import functools
import json
import re
import struct
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..core.limits import parse_json

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Buffer

HEAD = b"\xf5\x01"
MAX_DEPTH = 64
"""How deep tuples, lists and dicts may nest."""
MAX_NUMBER_KEYS = 1 << 14
"""How many keys of a dict may be something else than str or bytes."""

_NONE, _FALSE, _TRUE, _INT8, _INT32, _INT64, _BIG, _FLOAT, _STR, _BYTES = range(10)
_TUPLE, _LIST, _DICT, _ARRAY, _SCALAR, _PICKLE = range(10, 16)
_KEYS = frozenset({_NONE, _FALSE, _TRUE, _INT8, _INT32, _INT64, _FLOAT, _STR, _BYTES})

_U16, _U32, _I8, _I32, _I64, _F64 = (struct.Struct("<" + code) for code in "HIbiqd")


def encode(instance: object, *, allow_pickle: bool = False) -> bytes:
    """The bytes of an instance.

    What is no int, float, str, bytes, bool, None, NumPy array or scalar, nor a tuple, list or dict of them, is a
    `TypeError`, or pickled with `allow_pickle`; then reading needs `allow_pickle`, too. Subclasses count as other
    types. `ValueError` for what nests too deep, is larger than 4 GiB, or is a dict of more than 16,384 numbers.
    """
    parts = [HEAD]
    _Encoder(parts, allow_pickle).put(instance, MAX_DEPTH)
    return b"".join(parts)


def decode(data: Buffer, *, allow_pickle: bool = False) -> Any:
    """The instance that `encode` made `data` of; arrays own their elements and can be written to.

    Raises `ValueError` for all that `encode` can't have made, and for a pickle without `allow_pickle`. Nothing is
    executed, and no more memory taken than a small multiple of the size of `data` (pickles excepted).
    """
    whole = data if type(data) is bytes else bytes(data)
    if whole[:2] != HEAD:
        raise ValueError(f"no instance: it begins with {whole[:2].hex() or 'nothing'}, not {HEAD.hex()}")
    try:
        value, end = _READ[whole[2]](whole, 3, MAX_DEPTH + _PICKLES if allow_pickle else MAX_DEPTH)
    except (IndexError, struct.error):
        raise ValueError("an instance that is cut off, or not one") from None
    if end != len(whole):
        raise ValueError(f"{len(whole) - end} bytes behind the instance")
    return value


# ---- encoding


def _length(size: int) -> bytes:
    if size < 255:
        return size.to_bytes(1, "little")
    if size >= 1 << 32:
        raise ValueError(f"a value of {size} bytes or elements: the most is {(1 << 32) - 1}")
    return b"\xff" + _U32.pack(size)


class _Encoder:
    """Appends the bytes of values to `parts`."""

    def __init__(self, parts: list[bytes], allow_pickle: bool) -> None:
        self._parts = parts
        self._allow_pickle = allow_pickle

    def put(self, value: Any, depth: int) -> None:
        write = _WRITE.get(type(value))
        if write is not None:
            write(self, value, depth)
        elif (numpy := sys.modules.get("numpy")) and (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
            self._put_array(value)
        else:
            self._put_pickle(value, f"{type(value).__qualname__!r} is no type of an instance")

    def _put_constant(self, value: bool | None, depth: int) -> None:
        self._parts.append(b"\x00" if value is None else b"\x02" if value else b"\x01")

    def _put_int(self, value: int, depth: int) -> None:
        for tag, form, bits in ((b"\x03", _I8, 7), (b"\x04", _I32, 31), (b"\x05", _I64, 63)):
            if -1 << bits <= value < 1 << bits:
                self._parts += (tag, form.pack(value))
                return
        size = value.bit_length() // 8 + 1
        self._parts += (b"\x06", _length(size), value.to_bytes(size, "little", signed=True))

    def _put_float(self, value: float, depth: int) -> None:
        self._parts += (b"\x07", _F64.pack(value))

    def _put_str(self, value: str, depth: int) -> None:
        data = value.encode("utf-8", "surrogatepass")
        self._parts += (b"\x08", _length(len(data)), data)

    def _put_bytes(self, value: bytes, depth: int) -> None:
        self._parts += (b"\x09", _length(len(value)), value)

    def _put_sequence(self, value: tuple[Any, ...] | list[Any], depth: int) -> None:
        self._check_depth(depth)
        self._parts += (b"\x0a" if type(value) is tuple else b"\x0b", _length(len(value)))
        for item in value:
            self.put(item, depth - 1)

    def _put_dict(self, value: dict[Any, Any], depth: int) -> None:
        self._check_depth(depth)
        if len(value) > MAX_NUMBER_KEYS and sum(type(key) not in (str, bytes) for key in value) > MAX_NUMBER_KEYS:
            raise ValueError(_TOO_MANY_NUMBERS)
        self._parts += (b"\x0c", _length(len(value)))
        for key, item in value.items():
            if type(key) not in _KEY_TYPES or (type(key) is int and not -1 << 63 <= key < 1 << 63):
                raise TypeError(f"a key of a dict is a str, bytes, 64-bit int, float, bool or None, not {key!r}")
            self.put(key, 0)
            self.put(item, depth - 1)

    def _check_depth(self, depth: int) -> None:
        if depth <= 0:
            raise ValueError(f"an instance nests more than {MAX_DEPTH} deep")

    def _put_array(self, value: np.ndarray[Any, Any] | np.generic) -> None:
        import numpy as np

        array = np.asarray(value)
        form = described(array.dtype)
        if form is None or not is_bounded(array.dtype, array.size):
            self._put_pickle(value, f"an array of the dtype {array.dtype} is no instance")
            return
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        shape = struct.pack(f"<cB{array.ndim}Q", b"F" if fortran else b"C", array.ndim, *array.shape)
        if len(shape) + len(form) >= 1 << 16:
            raise ValueError(f"a dtype that takes {len(form)} bytes to describe")
        tag = b"\x0e" if isinstance(value, np.generic) else b"\x0d"
        self._parts += (tag, _U16.pack(len(shape) + len(form)), shape, form, array.tobytes("F" if fortran else "C"))

    def _put_pickle(self, value: object, reason: str) -> None:
        if not self._allow_pickle:
            raise TypeError(f"{reason}; allow_pickle=True pickles it, and is needed for reading, too")
        import pickle

        data = pickle.dumps(value, protocol=4)
        self._parts += (b"\x0f", _length(len(data)), data)


_TOO_MANY_NUMBERS = f"a dict of more than {MAX_NUMBER_KEYS} keys that are numbers"
_KEY_TYPES = frozenset({str, bytes, int, float, bool, type(None)})
_WRITE: dict[type, Callable[[_Encoder, Any, int], None]] = {
    type(None): _Encoder._put_constant,
    bool: _Encoder._put_constant,
    int: _Encoder._put_int,
    float: _Encoder._put_float,
    str: _Encoder._put_str,
    bytes: _Encoder._put_bytes,
    tuple: _Encoder._put_sequence,
    list: _Encoder._put_sequence,
    dict: _Encoder._put_dict,
}


# ---- decoding: each function takes the bytes, a place and the depth that is left (and _PICKLES where pickles may
# ---- be read), and returns a value and the position after it

_PICKLES = 1000


def _span(data: bytes, at: int) -> tuple[int, int]:
    """Return the begin and the end of the bytes whose length is at `at`; the data contains all of them."""
    size = data[at]
    at += 1
    if size == 255:
        size = _U32.unpack_from(data, at)[0]
        at += 4
    if at + size > len(data):
        raise ValueError(f"{len(data) - at} bytes are left where {size} were expected")
    return at, at + size


def _read_none(data: bytes, at: int, depth: int) -> tuple[None, int]:
    return None, at


def _read_false(data: bytes, at: int, depth: int) -> tuple[bool, int]:
    return False, at


def _read_true(data: bytes, at: int, depth: int) -> tuple[bool, int]:
    return True, at


def _read_int8(data: bytes, at: int, depth: int) -> tuple[int, int]:
    value = data[at]
    return (value if value < 128 else value - 256), at + 1


def _read_int32(data: bytes, at: int, depth: int) -> tuple[int, int]:
    return _I32.unpack_from(data, at)[0], at + 4


def _read_int64(data: bytes, at: int, depth: int) -> tuple[int, int]:
    return _I64.unpack_from(data, at)[0], at + 8


def _read_big(data: bytes, at: int, depth: int) -> tuple[int, int]:
    start, stop = _span(data, at)
    return int.from_bytes(data[start:stop], "little", signed=True), stop


def _read_float(data: bytes, at: int, depth: int) -> tuple[float, int]:
    return _F64.unpack_from(data, at)[0], at + 8


def _read_str(data: bytes, at: int, depth: int) -> tuple[str, int]:
    start, stop = _span(data, at)
    return data[start:stop].decode("utf-8", "surrogatepass"), stop


def _read_bytes(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    start, stop = _span(data, at)
    return data[start:stop], stop


def _read_tuple(data: bytes, at: int, depth: int) -> tuple[tuple[Any, ...], int]:
    items, at = _read_list(data, at, depth)
    return tuple(items), at


def _read_list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    at, end = _span(data, at)  # each item takes a byte at least, so that the count is as bounded as a length
    depth = _deeper(depth)
    items = []
    for _ in range(end - at):
        item, at = _READ[data[at]](data, at + 1, depth)
        items.append(item)
    return items, at


def _read_dict(data: bytes, at: int, depth: int) -> tuple[dict[Any, Any], int]:
    at, end = _span(data, at)
    depth = _deeper(depth)
    count = end - at
    found: dict[Any, Any] = {}
    numbers = 0
    for _ in range(count):
        if data[at] not in _KEYS:
            raise ValueError(f"a key of the kind {data[at]}")
        if data[at] < _STR:
            numbers += 1  # one that comes again counts again
            if numbers > MAX_NUMBER_KEYS:
                raise ValueError(_TOO_MANY_NUMBERS)
        key, at = _READ[data[at]](data, at + 1, 0)
        found[key], at = _READ[data[at]](data, at + 1, depth)
    if len(found) != count:
        raise ValueError("a key twice in a dict")
    return found, at


def _deeper(depth: int) -> int:
    if depth in (0, _PICKLES):
        raise ValueError(f"an instance that nests more than {MAX_DEPTH} deep")
    return depth - 1


def _read_array(data: bytes, at: int, depth: int) -> tuple[np.ndarray[Any, Any], int]:
    start = at + 2 + _U16.unpack_from(data, at)[0]
    description = data[at + 2 : start]
    shape, dtype, order, size, make = planned(description)
    stop = start + size
    if stop > len(data):
        raise ValueError(f"{max(0, len(data) - start)} bytes are left where an array of {size} was expected")
    return make(shape, dtype, data, start, None, order).copy(order), stop


def _read_scalar(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    array, at = _read_array(data, at, depth)
    if array.ndim:
        raise ValueError(f"a scalar of {array.ndim} dimensions")
    return array[()], at


def _read_pickle(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    start, stop = _span(data, at)
    if depth < _PICKLES:
        raise ValueError(
            "there is a pickle in the instance, which may do anything when read: allow_pickle=True reads it"
        )
    import pickle

    return pickle.loads(data[start:stop]), stop


_READ: tuple[Callable[[bytes, int, int], tuple[Any, int]], ...] = (
    _read_none,
    _read_false,
    _read_true,
    _read_int8,
    _read_int32,
    _read_int64,
    _read_big,
    _read_float,
    _read_str,
    _read_bytes,
    _read_tuple,
    _read_list,
    _read_dict,
    _read_array,
    _read_scalar,
    _read_pickle,
)


# ---- descriptions of arrays: order, shape and dtype

_MAX_DIMENSIONS = 64  # NumPy's own


_DTYPE = re.compile(r"[<>|](b1|[iufc]\d{1,2}|[SUV]\d{1,9}|[mM]8(\[\d{0,9}[a-zA-Zμ]{1,2}\])?)")


def described(dtype: np.dtype[Any]) -> bytes | None:
    """The description of a dtype; None for what has none: objects, and types that other packages add."""
    form = _form(dtype)
    if form is None:
        return None
    return form.encode() if isinstance(form, str) else json.dumps(form, separators=(",", ":")).encode()


def _form(dtype: np.dtype[Any]) -> str | list[Any] | None:
    """A string for a plain dtype; `[form, shape]` for a subarray; `[size, [name, offset, form(, title)], ...]` else."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        inner = _form(base)
        return None if inner is None else [inner, list(shape)]
    if dtype.names is not None:
        fields = [(name, dtype.fields[name]) for name in dtype.names] if dtype.fields is not None else []
        forms = [[name, field[1], _form(field[0]), *field[2:]] for name, field in fields]
        right = all(form[2] is not None and isinstance(form[-1], str | list) for form in forms)
        return [dtype.itemsize, *forms] if right else None
    text = dtype.str
    known = _DTYPE.fullmatch(text) and (dtype.kind != "V" or dtype.type.__name__ == "void")
    return text if known else None


class ArrayForm(NamedTuple):
    """The fields of an array's description."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: str
    size: int  # of the elements, in bytes
    make: Any  # numpy.ndarray: looked up once


@functools.lru_cache(1024)  # data sets have few kinds of arrays
def planned(description: bytes) -> ArrayForm:
    """Take a description apart, and keep the result."""
    import numpy as np

    order, dimensions = struct.unpack_from("<cB", description)
    if order not in (b"C", b"F") or dimensions > _MAX_DIMENSIONS:
        raise ValueError(f"an array of the order {order!r} and {dimensions} dimensions")
    shape = struct.unpack_from(f"<{dimensions}Q", description, 2)
    dtype = _dtype(description[2 + 8 * dimensions :])
    elements = 1
    for extent in shape:
        elements *= extent
        if extent >= 1 << 63 or elements >= 1 << 63:
            raise ValueError(f"an array of the shape {shape}")
    if not is_bounded(dtype, elements):
        raise ValueError(f"an array of {elements} elements of no size")
    return ArrayForm(shape, dtype, order.decode(), elements * dtype.itemsize, np.ndarray)


_MOST_OF_NOTHING = 1 << 16


def is_bounded(dtype: np.dtype[Any], elements: int) -> bool:
    """Return whether the size of an array's bytes bounds its work: there can be any number of elements of no bytes.

    NumPy makes one byte or character of strings of none, so that these are left out altogether.
    """
    return dtype.itemsize > 0 or (dtype.kind not in "SU" and elements <= _MOST_OF_NOTHING)


def _dtype(form: bytes) -> np.dtype[Any]:
    """The dtype of a description; `ValueError` for what is none."""
    text = form.decode("utf-8")
    if not text.startswith("["):
        return _dtype_of(text)
    try:
        return _dtype_of(parse_json(text))
    except (RecursionError, TypeError, OverflowError) as exc:
        raise ValueError(f"no dtype: {type(exc).__name__}") from None


def _dtype_of(form: Any) -> np.dtype[Any]:
    import numpy as np

    if isinstance(form, str):
        if not _DTYPE.fullmatch(form):
            raise ValueError(f"no dtype of an array: {form!r}")
        try:
            return np.dtype(form)
        except (TypeError, OverflowError) as exc:
            raise ValueError(f"no dtype: {exc}") from None
    if not isinstance(form, list) or not form:
        raise ValueError("no dtype")
    if isinstance(form[0], int):
        titles = [one[3] if len(one) > 3 else None for one in form[1:]]
        names, offsets, formats = zip(*(one[:3] for one in form[1:]), strict=True) if titles else ((), (), ())
        fields = {"names": list(names), "offsets": list(offsets), "formats": [_dtype_of(one) for one in formats]}
        if any(titles):
            fields["titles"] = titles
        return cast("np.dtype[Any]", np.dtype(cast(Any, {**fields, "itemsize": form[0]})))
    inner, shape = form
    if not all(isinstance(extent, int) and 0 <= extent < 1 << 31 for extent in shape):
        raise ValueError(f"a subarray of the shape {shape}")
    return cast("np.dtype[Any]", np.dtype(cast(Any, (_dtype_of(inner), tuple(shape)))))
