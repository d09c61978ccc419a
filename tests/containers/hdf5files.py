"""HDF5 files for the tests, made by h5py and not by us."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from fsabs import Memory
from fsabs.containers.hdf5 import Hdf5

BLOB = random.Random(3).randbytes(300_000)


def built(build: Callable[[h5py.File], object], **options: Any) -> bytes:
    """The bytes of an HDF5 file, made by h5py."""
    out = io.BytesIO()
    with h5py.File(out, "w", **options) as file:
        build(file)
    return out.getvalue()


def opened(data: bytes | Callable[[h5py.File], object], name: str = "a.h5") -> Hdf5:
    """An Hdf5 over these bytes, in memory."""
    parent = Memory()
    parent.write_bytes(name, data if isinstance(data, bytes) else built(data))
    return Hdf5(parent, name)


def tree(file: h5py.File) -> None:
    file["raw"] = np.frombuffer(BLOB, "u1")
    file.create_dataset(
        "g/packed", data=np.frombuffer(BLOB, "u1"), chunks=(10_000,), compression="gzip", fletcher32=True
    )
    file["g/sub/empty"] = np.zeros(0, "u1")
    file["g/text"] = "héllo"
    file.create_group("void")


def as_h5py(data: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            assert (node.dtype, node.ndim) == ("uint8", 1)
            found[name] = node[:].tobytes()

    with h5py.File(io.BytesIO(data), "r") as file:
        file.visititems(visit)
    return found
