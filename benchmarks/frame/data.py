"""What is read: archives with contents that are the same in every run."""

from __future__ import annotations

import os
import random
import struct
import zipfile
import zlib
from pathlib import Path
from urllib.parse import quote


def names(count: int) -> list[str]:
    """A hundred members in each directory."""
    return [f"train/{number // 100:05}/{number:07}.bin" for number in range(count)]


def objects(folder: Path, count: int, size: int) -> list[str]:
    """Write `count` files of `size` random bytes to a folder, which is made; return their names."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [f"{number:05}.bin" for number in range(count)]
    for name in found:
        (folder / name).write_bytes(os.urandom(size))
    return found


def large(path: Path, size: int) -> None:
    """Write a file of `size` random bytes, a multiple of 1 MiB."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))


def stored_zip(path: Path, count: int, size: int) -> list[str]:
    """A zip of `count` stored members of `size` random bytes; their names."""
    source = random.Random(0)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name in names(count):
            archive.writestr(zipfile.ZipInfo(name), source.randbytes(size))
    return names(count)


def deflated_zip(path: Path, count: int, size: int) -> list[str]:
    """A zip of `count` deflated members: `size` bytes of words each; their names."""
    source = random.Random(0)
    words = [source.randbytes(source.randint(2, 5)).hex().encode() for _ in range(2000)]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names(count):
            archive.writestr(name, b" ".join(source.choices(words, k=size // 4))[:size])
    return names(count)


def zip_of(path: Path, *files: Path) -> None:
    """A zip of files, stored."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file in files:
            archive.write(file, file.name)


LISTING = ".listing"
"""Where it exists, the file of this name beside a bucket's folder is the response to every listing of the bucket.

One whose name goes on with a prefix, as it is in a query (`.listingdata%2Ftrain%2F`), answers the listing of that.
"""


def write_listing(bucket: Path, prefix: str = "") -> None:
    """Write the store's response to a listing of all below a prefix, with the versions that nginx gives files."""
    found = [(path, path.stat()) for path in sorted((bucket / prefix).rglob("*")) if path.is_file()]
    entries = "".join(
        f"<Contents><Key>{path.relative_to(bucket)}</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified>"
        f"<ETag>&quot;{int(one.st_mtime):x}-{one.st_size:x}&quot;</ETag><Size>{one.st_size}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
        for path, one in found
    )
    bucket.with_name(f"{bucket.name}{LISTING}{quote(prefix, safe='')}").write_text(
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>bucket</Name><Prefix>{prefix}</Prefix><KeyCount>{len(found)}</KeyCount><MaxKeys>1000</MaxKeys>"
        f"<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
    )


def index_size(path: Path) -> int:
    """Bytes from the start of a zip's central directory to the file's end."""
    with zipfile.ZipFile(path) as archive:
        return path.stat().st_size - archive.start_dir


_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")


def zip_of_many(path: Path, count: int) -> str:
    """A zip of `count` stored members of 8 bytes (zipfile would take a minute for them); a name in its middle.

    As APPNOTE 6.3 has it, with a zip64 end record, and with dates of 1980.
    """
    content = b"content\n"
    crc, size = zlib.crc32(content), len(content)
    central = bytearray()
    at = 0
    with path.open("wb") as file:
        for name in names(count):
            raw = name.encode()
            head = _LOCAL.pack(b"PK\3\4", 20, 0, 0, 0, 33, crc, size, size, len(raw), 0)
            file.write(head + raw + content)
            central += _CENTRAL.pack(
                b"PK\1\2", 0x031E, 20, 0, 0, 0, 33, crc, size, size, len(raw), 0, 0, 0, 0, 0o100644 << 16, at
            )
            central += raw
            at += len(head) + len(raw) + size
        file.write(central)
        end = at + len(central)
        file.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(central), at))
        file.write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        few = min(count, 0xFFFF)
        file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, few, few, len(central), at, 0))
    return names(count)[count // 2]
