"""MDSDataReader: the shards of MosaicML Streaming (MDS, version 2), each record a dict of the columns' values.

The format is that of https://docs.mosaicml.com/projects/streaming ("Dataset Format"): `index.json` lists the shards. A
shard is the number of its samples and, for each sample and the end, an offset (all u32, little-endian), a description
that is not read, and the samples: the size (u32) of each column that has no fixed one, then the columns' bytes.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...core import errors, keys, process
from ...core.blobs import Blob
from ...core.limits import parse_json
from .base import Metadata, Mode, Shard, ShardContent, check_numbers, digest_of
from .files import FileShardsReader, Location, derived

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
    if width * height > 8 * (len(data) - 12 - size):  # before Pillow makes room for them: a pixel takes a bit at least
        raise ValueError(f"{len(data) - 12 - size} bytes for an image of {width} by {height} pixels")
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


INDEX = "index.json"
_KIND = "mds-1"
BATCH = 256
"""Samples that are read at once."""
MOST = 4 << 30
"""Bytes of a shard: an offset has 32 bits."""


class _Column(NamedTuple):
    name: str
    size: int | None
    decode: Decode


class _Stored(NamedTuple):
    """A shard as `index.json` has it."""

    path: str
    size: int
    raw_size: int
    samples: int
    columns: tuple[_Column, ...]
    compression: str
    """The name of the algorithm, or ""."""
    hashes: dict[str, str]


class _Open(NamedTuple):
    """A shard that is open: its offsets, and the file, or its decompressed bytes in memory."""

    offsets: Sequence[int]
    file: Blob | None
    data: bytes

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of `(size, offset)` ranges."""
        if self.file is not None:
            return self.file.pread_many(ranges)
        return [self.data[offset : offset + size] for size, offset in ranges]

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()


class MDSDataReader(FileShardsReader[_Open, str | None]):
    """The MDS shards that `index.json` in the directory `data_dir` (a URL, a path, an FS) lists; read only.

    A record is a dict of the columns' values, as Streaming gives them; images are Pillow's. Shards that are
    compressed (zstd, gz, bz2, br, snappy) are decompressed as a whole, in memory, and compared with the hashes in
    the index; of others, only the samples that are asked for are read. Raises `ValueError` for another version or
    format, for an encoding or compression that is not known, and for pickled columns without `allow_pickle`;
    `CorruptFileError` for a shard that is not as the index says, with its name, and the number of the sample where
    there is one.
    """

    def __init__(self, data_dir: Location, *, allow_pickle: bool = False) -> None:
        super().__init__(data_dir)
        self._allow_pickle = allow_pickle
        self._shards: process.PerProcess[dict[str, _Stored]] = process.PerProcess(self._listed)

    def create_shards(self, mode: str = Mode.TRAINING) -> list[Shard]:
        """Return a shard for each one of the index, in its order."""
        shards = self._shards.get()
        listed = {self._files.name(stat.filename): stat for stat in self._files.list()}
        self._stats = {name: listed[name] if name in listed else self._stat(name) for name in shards}
        self._index_all()
        return [Shard(name, 0, stored.samples) for name, stored in shards.items()]

    def _index_of(self, name: str) -> str | None:
        """Return a digest of a shard: of the hashes that `index.json` has, else of all offsets; None if it has none."""
        stored = self._shards.get()[name]
        if stored.hashes:
            return digest_of(repr(sorted(stored.hashes.items())).encode())
        if stored.compression:
            return None
        with self._open_stored(name, stored) as blob:
            columns = repr([(column.name, column.size) for column in stored.columns])
            return digest_of(self._head(blob, stored), columns.encode())

    def content_of(self, shard_name: str) -> ShardContent:
        """Return the path below the directory, the size, and a digest: of the index's hashes, else of all offsets.

        A compressed shard without a hash has none.
        """
        stored = self._shards.get()[shard_name]
        return ShardContent(stored.path, stored.size, self._index(shard_name))

    def read_at(self, shard_name: str, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Read the samples with these numbers, in the order given, in batches."""
        shard = self._shard(shard_name)
        check_numbers(shard_name, numbers, len(shard.offsets) - 1)
        columns = self._shards.get()[shard_name].columns
        for first in range(0, len(numbers), BATCH):
            batch = numbers[first : first + BATCH]
            starts = [(shard.offsets[number], shard.offsets[number + 1]) for number in batch]
            contents = shard.read([(end - start, start) for start, end in starts])
            for number, content in zip(batch, contents, strict=True):
                yield self._sample(shard_name, number, columns, content)

    @property
    def metadata(self) -> Metadata:
        """Return the names of the first shard's columns."""
        first = next(iter(self._shards.get().values()), None)
        return Metadata() if first is None else Metadata([column.name for column in first.columns])

    # ---- the index

    def _listed(self) -> dict[str, _Stored]:
        """Return the shards of `index.json` by their names, in order."""
        url = self._files.fs.url(INDEX)
        try:
            index = parse_json(self._files.fs.read_bytes(INDEX))
            if index["version"] != 2:
                raise ValueError(f"{url}: MDS of version {index['version']!r}, and 2 can be read")
            found = [self._stored(item) for item in index["shards"]]
        except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as exc:
            raise errors.corrupt(url, f"no index of MDS shards: {type(exc).__name__}: {exc}") from exc
        except ValueError as exc:
            raise exc if isinstance(exc, OSError) else ValueError(f"{url}: {exc}") from exc
        return {self._files.name(stored.path): stored for stored in found}

    def _stored(self, item: dict[str, Any]) -> _Stored:
        if item["format"] != "mds":
            raise ValueError(f"shards of the format {item['format']!r}, and only 'mds' can be read")
        raw, compressed = item["raw_data"], item["zip_data"]
        file = compressed or raw
        columns = tuple(
            _Column(str(name), size or None, decoder_of(encoding, self._allow_pickle))
            for name, encoding, size in zip(
                item["column_names"], item["column_encodings"], item["column_sizes"], strict=True
            )
        )
        algorithm = str(item["compression"]).partition(":")[0] if compressed else ""
        if algorithm and algorithm not in _DECOMPRESS:
            known = ", ".join(_DECOMPRESS)
            raise ValueError(f"shards are compressed by {algorithm!r}, and what can be read is {known}")
        path = keys.normalize(file["basename"])
        sizes = int(file["bytes"]), int(raw["bytes"]), int(item["samples"])
        if min(sizes) < 0 or sizes[1] > MOST:
            raise ValueError(f"the shard {path} has {sizes} as its sizes and number of samples")
        if 4 * (sizes[2] + 2) > sizes[1]:  # an offset each: refused before anyone plans an epoch of so many
            reason = f"the index says {sizes[1]} bytes and {sizes[2]} samples of the shard {path}, which has no room"
            raise errors.corrupt(self._files.fs.url(INDEX), reason)
        return _Stored(path, *sizes, columns, algorithm, dict(file["hashes"]))

    # ---- shards

    def _open_shard(self, shard_name: str) -> _Open:
        stored = self._shards.get()[shard_name]
        blob = self._open_stored(shard_name, stored)
        try:
            if not stored.compression:
                return _Open(_offsets(blob.url, stored, self._head(blob, stored)), blob, b"")
            data = _decompressed(blob.url, stored, blob.read_all())
        except BaseException:
            blob.close()
            raise
        blob.close()
        return _Open(_offsets(blob.url, stored, memoryview(data)), None, data)

    def _open_stored(self, name: str, stored: _Stored) -> Blob:
        """Open the file of a shard; `CorruptFileError` if it has another size than `index.json` says."""
        blob = self._open_listed(name)
        if blob.size != stored.size:
            blob.close()
            raise errors.corrupt(blob.url, f"a shard of {blob.size} bytes, and the index says {stored.size}")
        return blob

    def _head(self, blob: Blob, stored: _Stored) -> memoryview:
        """Return the number of a shard's samples and their offsets, as stored; kept where reading takes a request."""
        head = functools.cache(lambda: [blob.pread(4 * (stored.samples + 2), 0)])
        return derived(_KIND, blob, head) if self.reads_ahead else memoryview(head()[0])

    def _sample(self, shard_name: str, number: int, columns: Sequence[_Column], data: bytes) -> dict[str, Any]:
        at = 4 * sum(column.size is None for column in columns)
        sample: dict[str, Any] = {}
        name = ""
        try:
            sizes = iter(struct.unpack_from(f"<{at // 4}I", data))
            for name, fixed, decode in columns:
                size = next(sizes) if fixed is None else fixed
                if at + size > len(data):
                    raise ValueError(f"{size} bytes at {at} of {len(data)}")
                sample[name] = decode(data[at : at + size])
                at += size
            if at != len(data):
                raise ValueError(f"{len(data)} bytes, and the columns have {at}")
        except (ValueError, struct.error) as exc:
            where = f"sample {number}" + (f", column {name!r}" if name else "")
            raise errors.corrupt(self._files.fs.url(self._files.path(shard_name)), f"{where}: {exc}") from exc
        return sample


def _offsets(url: str, stored: _Stored, data: memoryview) -> Sequence[int]:
    """Return where each sample begins and the last one ends; `data` begins with the shard's number of them."""
    size = 4 * (stored.samples + 2)
    if len(data) < size:
        raise errors.corrupt(url, f"a shard of {len(data)} bytes can't have {stored.samples} samples")
    count, *offsets = struct.unpack_from(f"<{stored.samples + 2}I", data)
    if count != stored.samples:
        raise errors.corrupt(url, f"a shard of {count} samples, and the index says {stored.samples}")
    if offsets[0] < size or offsets[-1] > stored.raw_size or any(end < start for start, end in pairwise(offsets)):
        raise errors.corrupt(url, "the offsets of its samples are not in order, or lead out of it")
    return offsets


def _decompressed(url: str, stored: _Stored, data: bytes) -> bytes:
    for name, expected in stored.hashes.items():
        if name not in hashlib.algorithms_guaranteed or name.startswith("shake"):
            continue  # xxhash's, say
        if hashlib.new(name, data, usedforsecurity=False).hexdigest() != expected:
            raise errors.corrupt(url, f"its {name} is not that of the index")
    try:
        found = _DECOMPRESS[stored.compression](data, stored.raw_size)
    except (ValueError, OSError) as exc:
        raise errors.corrupt(url, f"{stored.compression}: {exc}") from exc
    if len(found) != stored.raw_size:
        raise errors.corrupt(url, f"it decompresses to other than the {stored.raw_size} bytes that the index says")
    return found


def _stream(codec: str, data: bytes, size: int) -> bytes:
    """Decompress a stream of a codec of Arrow's, and no more of it than shows that it is too long."""
    import pyarrow

    found: bytes = pyarrow.CompressedInputStream(pyarrow.BufferReader(data), codec).read(size + 1)
    return found


def _snappy(data: bytes, size: int) -> bytes:
    """Decompress a block of raw snappy, which begins with its size as a varint."""
    import pyarrow

    stated = 0
    for at, byte in enumerate(data[:5]):
        stated |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            break
    if stated != size:
        raise ValueError(f"a block of {stated} bytes")
    found: bytes = pyarrow.decompress(data, decompressed_size=size, codec="snappy", asbytes=True)
    return found


_DECOMPRESS: dict[str, Callable[[bytes, int], bytes]] = {
    "zstd": functools.partial(_stream, "zstd"),
    "gz": functools.partial(_stream, "gzip"),
    "bz2": functools.partial(_stream, "bz2"),
    "br": functools.partial(_stream, "brotli"),
    "snappy": _snappy,
}
