"""DLIO, the benchmark of MLPerf Storage, on an FS: its command, with a storage and readers that take any URL.

    pip install fsabs mpi4py mpich hydra-core omegaconf pandas psutil torch
    pip install --no-deps dlio-benchmark==2.0.0 pydftracer==1.0.2
    PYTHONPATH=examples/recipes python -m dlio workload=unet3d_h100 \\
        ++workload.storage.storage_root=s3://bucket ++workload.reader.reader_classname=dlio.NPZReader

A `storage_root` with a scheme is opened by `fsabs.from_url`, and `data_folder` lies below it. The data is what DLIO
itself generates on local disk; `fsabs cp -r` brings it elsewhere.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import types

import numpy as np

import fsabs

if importlib.util.find_spec("tensorflow") is None:
    sys.modules["tensorflow"] = types.ModuleType("tensorflow")  # DLIO imports it for a profiler that is off

from dlio_benchmark.common.enumerations import MetadataType
from dlio_benchmark.main import main
from dlio_benchmark.reader import indexed_binary_reader, npz_reader
from dlio_benchmark.storage.storage_factory import StorageFactory
from dlio_benchmark.storage.storage_handler import DataStorage


def key(filename):
    """Return the path in the FS. DLIO makes each name an absolute path of the local disk, which no URL survives."""
    return filename.lstrip("/")


class Storage(DataStorage):
    """Names and listings of DLIO's, by an FS."""

    def __init__(self, namespace, framework=None):
        super().__init__(framework)
        if self._args.generate_data:
            raise ValueError("DLIO generates data on local disk alone: use its own storage, and then fsabs cp -r")
        self.fs = fsabs.from_url(namespace)

    def get_uri(self, id):
        return f"/{id}"

    def get_basename(self, id):
        return id.rpartition("/")[2]

    def get_namespace(self):
        return self.fs.url()

    def create_namespace(self, exist_ok=False):
        return True  # it is there, or from_url has raised an error

    def create_node(self, id, exist_ok=False):
        self.fs.makedirs(key(id), exist_ok=exist_ok)
        return True

    def get_node(self, id=""):
        if not self.fs.exists(key(id)):
            return None
        return MetadataType.DIRECTORY if self.fs.isdir(key(id)) else MetadataType.FILE

    def walk_node(self, id, use_pattern=False):
        if use_pattern:
            return [self.get_uri(name) for name in self.fs.glob(key(id))]
        try:
            return [name.rstrip("/") for name in self.fs.list(key(id))]
        except FileNotFoundError:
            return []  # a store of objects has no empty directory for the samples that validate

    def delete_node(self, id):
        self.fs.remove(key(id), recursive=True)
        return True

    def put_data(self, id, data, offset=None, length=None):
        self.fs.write_text(key(id), data)

    def get_data(self, id, data, offset=None, length=None):
        return self.fs.read_text(key(id))


class OfFS:
    """A reader that has the FS of `storage_root`, opened once in each process."""

    @functools.cached_property
    def fs(self):
        return fsabs.from_url(self._args.storage_root)


class NPZReader(OfFS, npz_reader.NPZReader):
    """Samples of unet3d: an .npz file is a zip, and its array is read as the member that it is."""

    def open(self, filename):
        with self.fs.open_zip(key(filename)) as archive, archive.open("x.npy", "rb") as file:
            return np.load(file)


class IndexedBinaryReader(OfFS, indexed_binary_reader.IndexedBinaryReader):
    """Records of many to a file: one positioned read each."""

    @functools.cached_property
    def blobs(self):
        return {}

    def load_index_file(self, global_sample_idx, filename, sample_index):
        if filename not in self.file_map_ibr:
            names = self.index_file_path_off(filename), self.index_file_path_size(filename)
            self.file_map_ibr[filename] = [np.frombuffer(data, "i8") for data in self.fs.read_many(map(key, names))]

    def open(self, filename):
        if filename not in self.blobs:
            self.blobs[filename] = self.fs.open_blob(key(filename))
        return self.blobs[filename]

    def close(self, filename):
        pass  # a blob has no position: the next sample's read goes to the same one

    def get_sample(self, filename, sample_index):
        offsets, sizes = self.file_map_ibr[filename]
        data = self.open_file_map[filename].pread(int(sizes[sample_index]), int(offsets[sample_index]))
        return np.frombuffer(data, "u1")


def get_storage(storage_type, namespace, framework=None, *, original=StorageFactory.get_storage):
    """Return the storage of a URL, or DLIO's own."""
    return Storage(namespace, framework) if "://" in namespace else original(storage_type, namespace, framework)


StorageFactory.get_storage = staticmethod(get_storage)

if __name__ == "__main__":
    main()
