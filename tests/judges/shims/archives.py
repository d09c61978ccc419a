"""Archives that others have collected, each read by us and by Python: the same files and bytes, or an OSError.

Python's zipfile and tarfile read them, and libarchive what those refuse. Where nobody else reads a file, ours may
read it, or raise. A file of another format (7z, rar, iso, ...) has to be an OSError for a zip and for a tar.
"""

from __future__ import annotations

import binascii
import os
import posixpath
import re
import tarfile
import zipfile
from pathlib import Path

import libarchive
import pytest

import fsabs

SOURCES = Path(os.environ["FSABS_JUDGES_SOURCES"])
ZIPS = re.compile(r"\.(zipx?|jar|xps)$|_zip_")
TARS = re.compile(r"\.(tar|tgz|tbz|tar\.(gz|bz2|xz|zst))$")
READ = (OSError, ValueError, RuntimeError, NotImplementedError, EOFError, tarfile.TarError, zipfile.BadZipFile)
READ += (libarchive.ArchiveError, __import__("lzma").LZMAError, __import__("zlib").error)
LARGE = 1 << 26
"""Bytes above which only the size of a file is compared: corpora have holes of a gigabyte."""


def found():
    """Return each file of the corpora by a name: those of libarchive are written as uuencoded text."""
    files = {}
    for path in sorted(SOURCES.glob("libarchive-3*/libarchive/test/*.uu")):
        files[f"libarchive/{path.stem}"] = path
    for path in sorted(SOURCES.glob("libarchive_c-*/tests/data/*")):
        if path.suffix in (".tar", ".zip"):
            files[f"libarchive-c/{path.name}"] = path
    return files


FILES = found()


def content(path):
    """Return the bytes of a file, decoded if it is uuencoded."""
    data = path.read_bytes()
    if path.suffix != ".uu":
        return data
    decoded = []
    for line in data[data.index(b"begin ") :].split(b"\n")[1:]:
        if line.strip() == b"end":
            break
        try:
            decoded.append(binascii.a2b_uu(line))
        except binascii.Error:  # a checksum at its end, or a space that was cut
            digits = (((line[0] - 32) & 63) * 4 + 5) // 3
            decoded.append(binascii.a2b_uu(line[: digits + 1].rstrip(b"\r")[:digits]))
    return b"".join(decoded)


def clean(name):
    """Return a name as a key, or None for one that is outside."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if ".." in parts or name.startswith("/") else "/".join(parts)


def of_zipfile(path):
    """Return the files by Python's zipfile; None for one that it can't read."""
    files = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                try:
                    files[clean(info.filename)] = info.file_size if info.file_size > LARGE else archive.read(info)
                except READ:
                    files[clean(info.filename)] = None
    return files


def of_tarfile(path):
    """Return the files by Python's tarfile; links to others are left out."""
    files = {}
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isreg():
                try:
                    large = member.size > LARGE
                    files[clean(member.name)] = member.size if large else archive.extractfile(member).read()
                except READ:
                    files[clean(member.name)] = None
            else:
                files.pop(clean(member.name), None)
    return files


def of_libarchive(path):
    """Return the files by libarchive; None for one that it can't read."""
    files = {}
    with libarchive.file_reader(str(path)) as archive:
        for entry in archive:
            if entry.isfile and entry.linkpath is None:
                try:
                    large = (entry.size or 0) > LARGE
                    files[clean(entry.pathname)] = entry.size if large else b"".join(entry.get_blocks())
                except READ:
                    files[clean(entry.pathname)] = None
    return files


def ours(path, kind):
    """Return the files by an FS: an OSError for one that can't be read."""
    files = {}
    with fsabs.Local(path.parent) as local, local.open_container(path.name, force_type=kind) as archive:
        for name in archive.list(recursive=True):
            if not name.endswith("/"):
                try:
                    size = archive.stat(name).size or 0
                    files[name] = size if size > LARGE else archive.read_bytes(name)
                except OSError as exc:
                    files[name] = exc
    return files


def first(readers, path):
    """Return what the first one reads that can."""
    for reader in readers:
        try:
            return reader(path)
        except READ:
            continue
    return None


def kinds(name):
    """Return the format of a file by its name, and who else reads it."""
    base = posixpath.basename(name)
    if ZIPS.search(base) and "_7zip_" not in base:
        return "zip", (of_zipfile, of_libarchive)
    if TARS.search(base):
        return "tar", (of_tarfile, of_libarchive)
    return None, ()


@pytest.fixture
def archive(request, tmp_path):
    """The file, decoded."""
    path = tmp_path / posixpath.basename(request.param)
    path.write_bytes(content(FILES[request.param]))
    return path


ARCHIVES = [name for name in FILES if kinds(name)[0]]
OTHERS = [name for name in FILES if not kinds(name)[0]]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("archive", ARCHIVES, indirect=True, ids=ARCHIVES)
def test_same_files(archive):
    kind, readers = kinds(archive.name)
    theirs = first(readers, archive) or {}
    readable = {name: data for name, data in theirs.items() if data is not None and name}
    try:
        mine = ours(archive, kind)
    except OSError:
        if readable:
            raise
        return
    read = {name: data for name, data in mine.items() if not isinstance(data, OSError)}
    for name, data in readable.items():
        assert name in mine, f"{name!r} is missing: {sorted(mine)[:9]}"
        assert name in read, f"{name!r}: {mine[name]!r}"
        assert read[name] == data, f"{name!r} differs"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("archive", OTHERS, indirect=True, ids=OTHERS)
def test_another_format(archive, kind):
    try:
        assert all(isinstance(data, bytes | int | OSError) for data in ours(archive, kind).values())
    except OSError:
        pass
