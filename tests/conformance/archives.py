"""Archives for the kit's containers, built and taken apart by independent libraries: zipfile, tarfile, h5py."""

from __future__ import annotations

import functools
import io
import tarfile
import zipfile
from collections.abc import Iterable

from fsabs.testing.subjects import ContainerSubject, Files, Subject


def build_zip(compression: int, files: Files, directories: Iterable[str]) -> bytes:
    """A zip file with an entry for each directory named."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression) as archive:
        for key in directories:
            archive.writestr(f"{key}/", b"")
        for key, data in files.items():
            archive.writestr(key, data)
    return target.getvalue()


def parse_zip(data: bytes) -> dict[str, bytes]:
    """What is in a zip file."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def build_tar(mode: str, files: Files, directories: Iterable[str]) -> bytes:
    """A tar file; `mode` is tarfile's: `w:`, `w:gz`, ..."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as archive:  # type: ignore[call-overload]
        for key in directories:
            entry = tarfile.TarInfo(key)
            entry.type = tarfile.DIRTYPE
            archive.addfile(entry)
        for key, data in files.items():
            entry = tarfile.TarInfo(key)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return target.getvalue()


def parse_tar(data: bytes) -> dict[str, bytes]:
    """What is in a tar file, compressed or not."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for entry in archive:
            content = archive.extractfile(entry)
            found[entry.name if content else f"{entry.name}/"] = content.read() if content else b""
    return found


def build_hdf5(files: Files, directories: Iterable[str]) -> bytes:
    """An HDF5 file: groups, and datasets of bytes."""
    import h5py
    import numpy as np

    target = io.BytesIO()
    with h5py.File(target, "w") as root:
        for key in directories:
            root.require_group(key)
        for key, data in files.items():
            root.create_dataset(key, data=np.frombuffer(data, np.uint8))
    return target.getvalue()


def build_packed_hdf5(files: Files, directories: Iterable[str]) -> bytes:
    """The same, but what isn't empty lies in many pieces, compressed and with checksums."""
    import h5py
    import numpy as np

    target = io.BytesIO()
    with h5py.File(target, "w") as root:
        for key in directories:
            root.require_group(key)
        for key, data in files.items():
            how = {"chunks": (min(len(data), 5000),), "compression": "gzip", "fletcher32": True} if data else {}
            root.create_dataset(key, data=np.frombuffer(data, np.uint8), **how)
    return target.getvalue()


def parse_hdf5(data: bytes) -> dict[str, bytes]:
    """What is in an HDF5 file of datasets of bytes."""
    import h5py

    found: dict[str, bytes] = {}
    with h5py.File(io.BytesIO(data)) as root:
        root.visititems(
            lambda name, item: found.update(
                {name: item[()].tobytes()} if isinstance(item, h5py.Dataset) else {f"{name}/": b""}
            )
        )
    return found


def zip_in(outer: Subject, name: str = "a.zip", compression: int = zipfile.ZIP_STORED) -> ContainerSubject:
    """A zip file in an FS of `outer`."""
    return ContainerSubject(name, functools.partial(build_zip, compression), parse_zip, outer)


def deflated_zip_in(outer: Subject) -> ContainerSubject:
    """A zip file in an FS of `outer`, its members deflated."""
    return zip_in(outer, compression=zipfile.ZIP_DEFLATED)


def tar_in(outer: Subject, name: str = "a.tar") -> ContainerSubject:
    """A tar file in an FS of `outer`, compressed as its name says; zstandard is not tarfile's."""
    kind = name.rpartition(".")[2]
    mode = f"w:{kind if kind != 'tar' else ''}"
    return ContainerSubject(name, functools.partial(build_tar, mode), parse_tar, outer)


def hdf5_in(outer: Subject) -> ContainerSubject:
    """An HDF5 file in an FS of `outer`."""
    return ContainerSubject("a.h5", build_hdf5, parse_hdf5, outer)


def packed_hdf5_in(outer: Subject) -> ContainerSubject:
    """An HDF5 file in an FS of `outer`, whose files are read through HDF5."""
    return ContainerSubject("packed.h5", build_packed_hdf5, parse_hdf5, outer)
