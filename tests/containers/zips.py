"""Zip files for the tests: made by the standard library, or by hand where it would not make such a thing."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import zstandard

from fsabs import FS, FileStat, Memory
from fsabs.containers.zip import Zip

STORED, DEFLATED, BZIP2, LZMA = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA
METHODS = (STORED, DEFLATED, BZIP2, LZMA)
ZSTD = 93
COMPRESSED = (DEFLATED, BZIP2, LZMA, ZSTD)


def zipped(members: Mapping[str, bytes], compression: int = STORED, comment: bytes = b"") -> bytes:
    """A zip file made by zipfile; a name that ends in `/` is a directory."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.comment = comment
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 2, 3, 4, 5, 6)), data, compression)
    return out.getvalue()


class Made(NamedTuple):
    """One member as `by_hand` writes it; what is None is as it should be."""

    name: bytes
    data: bytes = b""
    """What stands in the archive: compressed already, if it is to be."""
    method: int = 0
    flags: int = 0
    size: int | None = None
    crc: int | None = None
    compressed: int | None = None
    offset: int | None = None
    host: int = 3
    attributes: int = 0
    dos: int = 0x00210000
    extra: bytes = b""
    """Of the directory's record."""
    local_extra: bytes = b""
    local: Mapping[str, Any] = {}
    """What the local header says otherwise: `name`, `method`, `flags`, `signature`."""
    descriptor: bytes = b""
    """What follows the data."""
    comment: bytes = b""


def extra_field(kind: int, content: bytes) -> bytes:
    """An extra field."""
    return struct.pack("<2H", kind, len(content)) + content


def deflated(data: bytes, level: int = 9) -> bytes:
    """Raw deflate."""
    engine = zlib.compressobj(level, zlib.DEFLATED, -15)
    return engine.compress(data) + engine.flush()


def packed(name: str, content: bytes, method: int = DEFLATED, **fields: Any) -> Made:
    """A compressed member; `fields` replace what is right."""
    flags = 0
    if method == ZSTD:
        data = zstandard.ZstdCompressor().compress(content)
    elif method == DEFLATED:
        data = deflated(content)
    else:
        archive = zipped({"x": content}, method)
        with zipfile.ZipFile(io.BytesIO(archive)) as found:
            info = found.infolist()[0]
        data, flags = archive[31 : 31 + info.compress_size], info.flag_bits
    right: dict[str, Any] = {"method": method, "flags": flags, "size": len(content), "crc": zlib.crc32(content)}
    return Made(name.encode(), data, **{**right, **fields})


def by_hand(
    members: Sequence[Made],
    comment: bytes = b"",
    zip64: bool = False,
    end: Mapping[int, int] | None = None,
    between: bytes = b"",
) -> bytes:
    """A zip file as told; `end` replaces fields of the end record by their number, `between` precedes the directory."""
    body, offsets = bytearray(), []
    for one in members:
        offsets.append(len(body))
        body += _local(one)
    body += between
    start = len(body)
    for one, offset in zip(members, offsets, strict=True):
        body += _central(one, offset)
    size, count = len(body) - start, len(members)
    if zip64:
        where = len(body)
        body += struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start)
        body += struct.pack("<4sLQL", b"PK\6\7", 0, where, 1)
        count, size, start = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF
    fields = [b"PK\5\6", 0, 0, count, count, size, start, len(comment)]
    for at, value in (end or {}).items():
        fields[at] = value
    return bytes(body + struct.pack("<4s4H2LH", *fields) + comment)


def many_entries(count: int) -> bytes:
    """An archive of so many small members, not in the order of their names."""
    template = zipped({"train/000/0000000.jpg": b"abc"})
    local, central = template[: template.index(b"PK\1\2")], template[template.index(b"PK\1\2") : -22]
    numbers = np.random.default_rng(0).permutation(count)
    names = [b"train/%03d/%07d.jpg" % (n % 1000, n) for n in numbers]
    body = b"".join(local[:30] + name + local[30 + len(name) :] for name in names)
    directory = b"".join(central[:42] + (at * len(local)).to_bytes(4, "little") + name for at, name in enumerate(names))
    end = by_hand([], zip64=True)
    record = bytearray(end)
    for at, value in (
        (24, count),
        (32, count),
        (40, len(directory)),
        (48, len(body)),
        (64, len(body) + len(directory)),
    ):
        record[at : at + 8] = value.to_bytes(8, "little")
    return body + directory + bytes(record)


def _numbers(one: Made) -> tuple[int, int, int]:
    crc = zlib.crc32(one.data) if one.crc is None else one.crc
    compressed = len(one.data) if one.compressed is None else one.compressed
    return crc, compressed, len(one.data) if one.size is None else one.size


def _local(one: Made) -> bytes:
    name = one.local.get("name", one.name)
    signature, method = one.local.get("signature", b"PK\3\4"), one.local.get("method", one.method)
    numbers = [0, 0, 0] if one.descriptor else [min(number, 0xFFFFFFFF) for number in _numbers(one)]
    flags = one.local.get("flags", one.flags)
    head = struct.pack("<4s3H4L2H", signature, 20, flags, method, one.dos, *numbers, len(name), len(one.local_extra))
    return b"".join([head, name, one.local_extra, one.data, one.descriptor])


def _central(one: Made, offset: int) -> bytes:
    crc, compressed, size = _numbers(one)
    where = offset if one.offset is None else one.offset
    numbers = (one.flags, one.method, one.dos, crc, min(compressed, 0xFFFFFFFF), min(size, 0xFFFFFFFF))
    lengths = (len(one.name), len(one.extra), len(one.comment), 0, 0)
    head = struct.pack(
        "<4s4H4L5H2L", b"PK\1\2", one.host << 8 | 20, 20, *numbers, *lengths, one.attributes, min(where, 0xFFFFFFFF)
    )
    return head + one.name + one.extra + one.comment


def opened(data: bytes, name: str = "a.zip", **options: Any) -> Zip:
    """A Zip over `data`, in memory."""
    parent = Memory()
    parent.write_bytes(name, data)
    return Zip(parent, name, **options)


def contents(archive: FS) -> dict[str, bytes]:
    """All files, each way of reading giving the same."""
    names = [name for name in archive.list(recursive=True) if not name.endswith("/")]
    found = {name: archive.read_bytes(name) for name in names}
    assert list(archive.read_many(names)) == list(found.values())
    for name in names:
        with archive.open(name, "rb") as file:
            assert file.read() == found[name]
        assert archive.stat(name).size == len(found[name])
    return found


def walked(archive: FS, folder: str = "") -> list[FileStat]:
    """The stats of all that is below a directory, by listings of one directory each."""
    found = []
    for stat in archive.list(folder, detail=True):
        name = folder + stat.filename
        found.append(stat._replace(filename=name))
        found += walked(archive, name) if stat.directory else []
    return found


def read_by_zipfile(data: bytes) -> dict[str, bytes]:
    """What zipfile finds, after its own test."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {info.filename: archive.read(info) for info in archive.infolist()}
