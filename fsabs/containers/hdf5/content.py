"""The groups and datasets of an HDF5 file by key (`find`, `links`), and the blobs that read the bytes of datasets.

h5py follows links by itself, external ones to other files of this machine included; so a path is taken here one step
at a time, and h5py is only ever given a hard link.

A 1-D dataset of `uint8`, an opaque one of no or one dimension, and a scalar string stand for their own bytes; any other
is read as the `.npy` file of its array (`numpy.lib.format`). Bytes that lie in the file as they are, in one piece, are
slices of it; others come through HDF5, a run of rows at a time.
"""

from __future__ import annotations

import errno
import io
import math
import os
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ...core import errors, process
from ...core.blobs import Blob, BlobLayer, BlobSlice, BytesBlob, Origin
from ...core.limits import Limits
from .library import made, translated

if TYPE_CHECKING:
    import h5py
    import numpy as np


class Holder(Origin, Protocol):
    """The FS that content is of, as far as a blob uses it."""

    limits: Limits

    def _reader(self) -> Blob: ...

    def _dataset(self, key: str) -> h5py.Dataset: ...


def find(file: h5py.File, key: str, limits: Limits, start: h5py.Group | None = None) -> h5py.Group | h5py.Dataset:
    """The group or dataset at `key`, which counts from `start` if that is given.

    `FileNotFoundError`, also for a soft link that leads nowhere; `NotADirectoryError`; `PermissionError` for a link to
    another file; `OSError` (ELOOP) for links in a circle.
    """
    import h5py

    node = locate(file, key, limits, start)
    if not isinstance(node, (h5py.Group, h5py.Dataset)):
        raise FileNotFoundError(errno.ENOENT, "a named datatype, which holds no data")
    return node


def locate(file: h5py.File, key: str, limits: Limits, start: h5py.Group | None = None) -> Any:
    """The object at `key`, as `find` has it, or a named datatype."""
    import h5py

    node: Any = file["/"] if start is None else start
    todo = _steps(key)
    hops = 0
    while todo:
        name = todo.pop()
        if not isinstance(node, h5py.Group):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not node.id.links.exists(name):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        kind = node.id.links.get_info(name).type
        if kind == h5py.h5l.TYPE_HARD:
            node = node[name]
            continue
        if kind != h5py.h5l.TYPE_SOFT:
            raise PermissionError(errno.EACCES, f"the link {text(name)!r} leads to another file: it is not followed")
        hops += 1
        if limits.beyond("max_links", hops):
            raise OSError(errno.ELOOP, limits.reason("max_links", f"{hops} links and more are on the way to it"))
        target = text(node.id.links.get_val(name))
        if target.startswith("/"):
            node = file["/"]
        todo += _steps(target)
    return node


def links(group: h5py.Group) -> list[tuple[int, int, bytes]]:
    """The links of `group`, but those with names that no path can have: their types, addresses and names.

    Hard links come in the order of their objects' addresses, so that the file is read from front to back.
    """
    found: list[tuple[int, int, bytes]] = []
    group.id.links.iterate(lambda raw, info: found.append((info.type, info.u, raw)), info=True)
    return sorted(link for link in found if not unsafe(text(link[2])))


def linked(file: h5py.File, group: h5py.Group, kind: int, raw: bytes, limits: Limits, *, read_only: bool) -> Any:
    """The object behind a link of `group`; None for a link that leads nowhere, or to another file."""
    import h5py

    if kind == h5py.h5l.TYPE_HARD:
        found = h5py.h5o.open(group.id, raw)  # as `group[raw]`, which asks for the file's mode each time
        if isinstance(found, h5py.h5d.DatasetID):
            return h5py.Dataset(found, readonly=read_only)
        return h5py.Group(found) if isinstance(found, h5py.h5g.GroupID) else found
    try:
        return find(file, text(raw), limits, group)
    except OSError as exc:
        if exc.errno is None:  # HDF5's own, and not a link's fault
            raise
        return None


def is_listed(node: Any) -> bool:
    """Return whether a node is a file or a directory, or None: all but a named datatype."""
    import h5py

    return node is None or isinstance(node, (h5py.Group, h5py.Dataset))


def is_group(node: Any) -> bool:
    """Return whether a node is a group; None is not."""
    import h5py

    return isinstance(node, h5py.Group)


def identity(node: h5py.Group | h5py.Dataset) -> tuple[int, int]:
    """Return a value that is the same for all names of one object."""
    import h5py

    info = h5py.h5o.get_info(node.id)
    return info.fileno, info.addr


def unsafe(name: str) -> bool:
    """Return whether HDF5 may have a name that no key has."""
    return name in ("", ".", "..")


def raw(name: str) -> bytes:
    """A name as HDF5 has it."""
    return name.encode("utf-8", "surrogateescape")


def text(name: bytes) -> str:
    """A name of HDF5 as a key has it."""
    return name.decode("utf-8", "surrogateescape")


def _steps(path: str) -> list[bytes]:
    """The segments of a path, the last one first; to HDF5 `.` is the group itself, and `..` a name as any other."""
    return [raw(part) for part in reversed(path.split("/")) if part not in ("", ".")]


_STRINGS = 1024  # read at once, of an array of strings
_REFERENCE_SIZE = 16  # bytes, of a string of any length in an array


def size_of(dataset: h5py.Dataset, limits: Limits) -> int:
    """The size of a dataset's file, as far as it is known without reading many values.

    0 for one that is no file, and for an array of strings of any length. A single string is read, unless it is over a
    limit: it has 0, too.
    """
    try:
        if dataset.shape is None:
            return 0
        if _is_bytes(dataset):
            return _nbytes(dataset)
        if _is_value(dataset):
            too_large = limits.declares_too_much(_nbytes(dataset), dataset.id.get_storage_size())
            return 0 if too_large else len(_value(dataset))
        if _is_text_array(dataset):
            return 0
        return len(_npy_header(dataset)) + _nbytes(dataset)
    except (TypeError, ValueError):  # h5py has no dtype, or .npy no place, for the type
        return 0


def blob_of(holder: Holder, key: str, dataset: h5py.Dataset) -> Blob:
    """The blob of a dataset; `UnsupportedOperation` for one that is no bytes, `PermissionError` for another file's."""
    check_own(dataset)
    _check_filters(holder, key, dataset)
    try:
        _check_type(dataset)
        return _blob_of(holder, key, dataset)
    except TypeError as exc:
        reason = f"{exc}: such a dataset is no file; dataset() gives it as an h5py object"
        raise errors.unsupported("open", holder._url(key), reason) from exc


def _check_type(dataset: h5py.Dataset) -> None:
    """Raise `TypeError` if NumPy has no type like the dataset's, for which h5py also has a `ValueError`."""
    try:
        dataset.dtype  # noqa: B018 - it is made by being asked for
    except ValueError as exc:
        raise TypeError(str(exc)) from exc


def _blob_of(holder: Holder, key: str, dataset: h5py.Dataset) -> Blob:
    version = holder._reader().version
    if dataset.shape is None:
        return BytesBlob(holder, key, b"", version)
    is_value = _is_value(dataset)
    if not is_value and _is_text_array(dataset):
        return BytesBlob(holder, key, _npy_of_text(holder, key, dataset), version)
    size, stored = _nbytes(dataset), dataset.id.get_storage_size()
    if holder.limits.declares_too_much(size, stored):
        raise _too_large(holder, key, size, stored)
    if is_value:
        return BytesBlob(holder, key, _value(dataset), version)
    header = b"" if _is_bytes(dataset) else _npy_header(dataset)
    body = _body(holder, key, dataset, size, stored)
    return NpyBlob(holder, key, header, body) if header else body


def check_own(dataset: h5py.Dataset) -> None:
    """Raise `PermissionError` for a dataset whose data lie in other files."""
    if dataset.id.get_create_plist().get_external_count() or dataset.is_virtual:
        raise PermissionError(errno.EACCES, "the data lies in other files: they are not read")


def _check_filters(holder: Holder, key: str, dataset: h5py.Dataset) -> None:
    import h5py

    plist = dataset.id.get_create_plist()
    for at in range(plist.get_nfilters()):
        code, _, _, name = plist.get_filter(at)
        if not h5py.h5z.filter_avail(code):
            reason = f"the HDF5 filter {code} ({name.decode(errors='replace')}) is not installed"
            raise errors.unsupported("open", holder._url(key), reason)


def _too_large(holder: Holder, key: str, size: int, stored: int) -> OSError:
    what = f"a dataset of {size} bytes, of which {stored} are stored"
    return holder.limits.error("max_ratio", what, "open", holder._url(key))


# ---- kinds of datasets


def _is_value(dataset: h5py.Dataset) -> bool:
    """A scalar that is bytes as a whole: a string, an opaque value, a variable number of uint8."""
    import h5py

    if dataset.shape != ():
        return False
    vlen = h5py.check_vlen_dtype(dataset.dtype)
    return (
        h5py.check_string_dtype(dataset.dtype) is not None
        or _is_opaque(dataset)
        or (vlen is not None and vlen == "uint8")
    )


def _value(dataset: h5py.Dataset) -> bytes:
    value = dataset[()]
    return value.tobytes() if hasattr(value, "tobytes") and not isinstance(value, bytes) else bytes(value)


def _is_bytes(dataset: h5py.Dataset) -> bool:
    return dataset.ndim == 1 and (dataset.dtype == "uint8" or _is_opaque(dataset))


def _is_opaque(dataset: h5py.Dataset) -> bool:
    import h5py

    return bool(dataset.id.get_type().get_class() == h5py.h5t.OPAQUE) and dataset.dtype.kind == "V"


def _is_text_array(dataset: h5py.Dataset) -> bool:
    import h5py

    return dataset.dtype.kind == "O" and h5py.check_string_dtype(dataset.dtype) is not None


# ---- .npy


def _npy_of_text(holder: Holder, key: str, dataset: h5py.Dataset) -> bytes:
    """An array of strings of any length, as an array of the longest one's."""
    import numpy as np

    # Strings lie in heaps of the file, each at most once: what the references to them stand for may be far more.
    stored, count = dataset.file.id.get_filesize(), math.prod(dataset.shape)

    def check(size: int) -> None:
        if holder.limits.expands_too_far(size, stored):
            raise _too_large(holder, key, size, stored)

    check(_REFERENCE_SIZE * count)
    texts, read, longest, parts = dataset.asstr("utf-8", "surrogateescape"), 0, 1, []
    step = max(1, _STRINGS * dataset.shape[0] // max(1, count))
    for row in range(0, dataset.shape[0], step):
        parts.append(texts[row : row + step])
        lengths = [len(text) for text in parts[-1].ravel().tolist()]
        read, longest = read + sum(lengths), max([longest, *lengths])
        check(max(read, 4 * count * longest))
    array = (np.concatenate(parts) if parts else texts[...]).astype("U")
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=False)
    return out.getvalue()


def plain_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """`dtype` without what h5py notes on it; `TypeError` for one that no .npy can describe: with references or runs of
    other data, or with fields that overlap or are out of order.
    """
    import numpy as np

    if dtype.hasobject:
        raise TypeError("values of no fixed size, or references")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((plain_dtype(base), shape))
    if dtype.names is None:
        return np.dtype(dtype.str)
    fields = [_field(dtype, name) for name in dtype.names]
    ends = [0, *(offset + kind.itemsize for kind, offset in fields)]
    if any(offset < end for (_, offset), end in zip(fields, ends, strict=False)):
        raise TypeError("fields that overlap, or are not in the order of their offsets")
    return np.dtype(
        {
            "names": list(dtype.names),
            "formats": [plain_dtype(kind) for kind, _ in fields],
            "offsets": [offset for _, offset in fields],
            "itemsize": dtype.itemsize,
        }
    )


def _field(dtype: np.dtype[Any], name: str) -> tuple[np.dtype[Any], int]:
    assert dtype.fields is not None
    kind, offset = dtype.fields[name][:2]
    return kind, offset


def _npy_header(dataset: h5py.Dataset) -> bytes:
    """The start of a `.npy` file, as NumPy writes it."""
    import numpy as np

    form, dtype, shape = np.lib.format, plain_dtype(dataset.dtype), dataset.shape
    if dtype.subdtype is not None:  # arrays in an array are more dimensions to NumPy
        dtype, inner = dtype.subdtype
        shape += inner
    fields = {"descr": form.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    for write in (form.write_array_header_1_0, form.write_array_header_2_0):
        out = io.BytesIO()
        try:
            write(out, fields)
        except ValueError:  # too long for version 1; names beyond Latin-1 need version 3, which has no function
            continue
        return out.getvalue()
    text = repr(fields).encode()
    text += b" " * (-(len(text) + 13) % 64) + b"\n"
    return b"\x93NUMPY\x03\x00" + struct.pack("<I", len(text)) + text


class NpyBlob(BlobLayer):
    """A `.npy` header, and the array's bytes behind it, which are fetched as those of any file of the store."""

    __slots__ = ("_header",)

    def __init__(self, holder: Holder, key: str, header: bytes, body: Blob) -> None:
        super().__init__(holder, key, body, len(header) + body.size, body.version)
        self._header = header

    def _pread(self, size: int, offset: int) -> bytes:
        head = self._header[offset : offset + size]
        if len(head) == size:
            return head
        return head + self._inner.pread(size - len(head), max(0, offset - len(self._header)))

    def _pread_into(self, view: memoryview, offset: int) -> int:
        head = self._header[offset : offset + len(view)]
        view[: len(head)] = head
        return len(head) + self._inner.pread_into(view[len(head) :], max(0, offset - len(self._header)))

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        heads = [self._header[offset : offset + size] for size, offset in ranges]
        behind = [
            (size - len(head), max(0, offset - len(self._header)))
            for head, (size, offset) in zip(heads, ranges, strict=True)
        ]
        return [head + data for head, data in zip(heads, self._inner.pread_many(behind), strict=True)]

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        pieces = self._inner._stream(max(0, start - len(self._header)))
        return pieces if pieces is None or start >= len(self._header) else self._from_header(start, pieces)

    def _from_header(self, start: int, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        try:
            yield memoryview(self._header)[start:]
            yield from pieces
        finally:
            if hasattr(pieces, "close"):
                pieces.close()


# ---- the bytes of an array

MAX_TOGETHER = 16 * 1024 * 1024
"""Bytes of rows that are decoded together, unless a single one is larger."""


def _nbytes(dataset: h5py.Dataset) -> int:
    size: int = math.prod(dataset.shape) * dataset.dtype.itemsize
    return size


def _body(holder: Holder, key: str, dataset: h5py.Dataset, size: int, stored: int) -> Blob:
    """The array in C order, `size` bytes: a slice of the file, if it lies there so."""
    blob = holder._reader()
    # One without storage, of which nothing was written, has an offset, too, where the file has a user block.
    offset = dataset.id.get_offset() if stored == size and size and _is_verbatim(dataset) else None
    if offset is not None:
        return BlobSlice(holder, key, blob, offset, size, blob.version)
    return RowsBlob(holder, key, size, blob.version)


def _is_verbatim(dataset: h5py.Dataset) -> bool:
    """Return whether the file's bytes are NumPy's: contiguous, and of a type that both have."""
    import h5py

    if dataset.id.get_create_plist().get_layout() != h5py.h5d.CONTIGUOUS:
        return False
    kind = dataset.id.get_type()
    return bool(dataset.dtype.kind in "iuf" and kind == h5py.h5t.py_create(dataset.dtype)) or _is_opaque(dataset)


class RowsBlob(Blob):
    """The bytes of an array in C order, read through HDF5 by whole rows (what the first index selects).

    What is decoded beyond a read is kept for the next one: rows may be large, and those that share chunks are decoded
    together, `MAX_TOGETHER` bytes of them or one.
    """

    __slots__ = ("_dataset", "_holder", "_kept")

    def __init__(self, holder: Holder, key: str, size: int, version: str | None) -> None:
        super().__init__(holder, key, size, version)
        self._holder = holder
        self._dataset = process.PerProcess(self._find)
        self._kept = (0, b"")  # the offset of the rows that were decoded last, and their bytes

    def _find(self) -> h5py.Dataset:
        return self._holder._dataset(self._key)

    def _pread(self, size: int, offset: int) -> bytes:
        self._holder._reader()  # a ValueError once the container is closed
        start, rows = self._kept
        found = rows[offset - start : offset - start + size] if offset >= start else b""
        return found if len(found) == size else found + self._decoded(size - len(found), offset + len(found))

    def _decoded(self, size: int, offset: int) -> bytes:
        dataset = made(self._dataset)
        with translated(self._holder._url(self._key), "read"):
            if not dataset.shape:
                return bytes(dataset[()].tobytes()[offset : offset + size])
            row = self.size // dataset.shape[0]
            together = row * min(dataset.chunks[0] if dataset.chunks else 1, max(1, MAX_TOGETHER // row))
            start, last = offset // together * together, (offset + size - 1) // together * together
            data = dataset[start // row : (last + together) // row].tobytes()
        self._kept = (last, data[last - start :]) if start + len(data) > offset + size else (0, b"")
        return bytes(data[offset - start : offset - start + size])

    def _close(self) -> None:
        self._kept = (0, b"")
