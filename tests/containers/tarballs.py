"""Archives for the tests, made by the standard library and not by us, and the ways they are compressed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import zstandard

from fsabs import FS, Memory
from fsabs.containers.tar import Tar

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gz": lambda data: gzip.compress(data, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gz": gzip.decompress,
    "bz2": bz2.decompress,
    "xz": lzma.decompress,
    "zst": lambda data: zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read(),
}


def entry(name: str, kind: bytes = tarfile.REGTYPE, **fields: Any) -> tarfile.TarInfo:
    """A header for `tarball`; fields are attributes of `TarInfo`."""
    info = tarfile.TarInfo(name)
    info.type = kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def tarball(
    members: Iterable[tuple[str | tarfile.TarInfo, bytes]] | Mapping[str, bytes], form: int = tarfile.PAX_FORMAT
) -> bytes:
    """The bytes of a plain tar, made by tarfile."""
    out = io.BytesIO()
    items = members.items() if isinstance(members, Mapping) else members
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, data in items:
            info = entry(name) if isinstance(name, str) else name
            info.size = info.size or len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def opened(data: bytes, name: str = "a.tar", **options: Any) -> Tar:
    """A Tar over `data`, in memory."""
    parent: FS = Memory()
    parent.write_bytes(name, data)
    return Tar(parent, name, **options)


def contents(fs: FS) -> dict[str, bytes]:
    """Every file of `fs`."""
    return {name: fs.read_bytes(name) for name in fs.list(recursive=True) if not name.endswith("/")}
