"""Descriptions of NumPy arrays in encoded instances: their order, shape and dtype, and the decoded form of these."""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..core.limits import parse_json

if TYPE_CHECKING:
    import numpy as np

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


known_forms: dict[bytes, ArrayForm] = {}  # data sets have few kinds of arrays; emptied when hostile bytes fill it


_MAX_FORMS = 1024


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
    form = ArrayForm(shape, dtype, order.decode(), elements * dtype.itemsize, np.ndarray)
    if len(known_forms) >= _MAX_FORMS:
        known_forms.clear()
    known_forms[description] = form
    return form


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
