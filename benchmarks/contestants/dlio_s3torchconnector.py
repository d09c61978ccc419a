"""Readers of DLIO's over AWS's client for torch, as those of `examples/recipes/dlio.py` are over an FS."""

from __future__ import annotations

import functools
import os
from typing import Any

from . import library

np, connector = library("numpy"), library("s3torchconnector")
OfNPZ: Any = library("dlio_benchmark.reader.npz_reader").NPZReader
OfIndexed: Any = library("dlio_benchmark.reader.indexed_binary_reader").IndexedBinaryReader


class OfClient:
    """A reader that has a client, made once in each process."""

    @functools.cached_property
    def client(self) -> Any:
        """The client of the store."""
        client = library("s3torchconnector._s3client").S3Client
        return client(os.environ["AWS_REGION"], endpoint=os.environ["S3_ENDPOINT"])

    def reader(self, filename: str, constructor: Any) -> Any:
        """Return its reader of an object."""
        return self.client.get_object("bucket", filename.lstrip("/"), reader_constructor=constructor)


class NPZReader(OfClient, OfNPZ):  # type: ignore[misc]
    """Samples of unet3d, by the sequential reader, which is the faster one for a whole object."""

    def open(self, filename: str) -> Any:
        """Return the array."""
        return np.load(self.reader(filename, connector.S3ReaderConstructor.sequential()))["x"]


class IndexedBinaryReader(OfClient, OfIndexed):  # type: ignore[misc]
    """Records, by the reader of ranges, without a buffer that would be thrown away; one for each object."""

    @functools.cached_property
    def readers(self) -> dict[str, Any]:
        """The readers by the name of the file."""
        return {}

    def load_index_file(self, global_sample_idx: int, filename: str, sample_index: int) -> None:
        """Read where the records of a file are, once."""
        if filename not in self.file_map_ibr:
            names = self.index_file_path_off(filename), self.index_file_path_size(filename)
            whole = connector.S3ReaderConstructor.sequential()
            self.file_map_ibr[filename] = [np.frombuffer(self.reader(name, whole).read(), "i8") for name in names]

    def open(self, filename: str) -> Any:
        """Return the reader of the file."""
        if filename not in self.readers:
            self.readers[filename] = self.reader(filename, connector.S3ReaderConstructor.range_based(buffer_size=0))
        return self.readers[filename]

    def close(self, filename: str) -> None:
        """Keep it: the next sample is read by the same one."""

    def get_sample(self, filename: str, sample_index: int) -> Any:
        """Read a record."""
        offsets, sizes = self.file_map_ibr[filename]
        file = self.open_file_map[filename]
        file.seek(int(offsets[sample_index]))
        return np.frombuffer(file.read(int(sizes[sample_index])), "u1")
