"""Megatron-LM's IndexedDataset on any store of fsabs: the ranges of a sequence, and not blocks of 256 MiB.

Megatron looks its readers of the `.bin` up by the kind of the path; this puts one of fsabs in the place of its S3 one.
"""

import os

import numpy
from megatron.core.datasets import indexed_dataset
from megatron.core.datasets.object_storage_utils import ObjectStorageConfig, get_index_cache_path

import fsabs


class FsabsBinReader(indexed_dataset._BinReader):
    """Reads the `.bin` by ranges."""

    def __init__(self, bin_path, object_storage_config):
        folder, _, name = bin_path.rpartition("/")
        self._blob = fsabs.from_url(folder).open_blob(name)

    def read(self, dtype, count, offset):
        """Return `count` tokens from an offset in bytes."""
        return numpy.frombuffer(self._blob.pread(count * dtype().itemsize, offset), dtype)


indexed_dataset.OBJECT_STORAGE_BIN_READERS["s3"] = FsabsBinReader


def open_indexed(url, cache):
    """Return the IndexedDataset of `url`.bin and `url`.idx, which is copied to the folder `cache` once."""
    config = ObjectStorageConfig(path_to_idx_cache=cache)
    local = get_index_cache_path(url + ".idx", config)
    if not os.path.exists(local):
        os.makedirs(os.path.dirname(local), exist_ok=True)
        with fsabs.open_url(url + ".idx", "rb") as source, fsabs.open_url(local, "wb") as target:
            target.write(source.read())
    return indexed_dataset.IndexedDataset(url, mmap=False, object_storage_config=config)
