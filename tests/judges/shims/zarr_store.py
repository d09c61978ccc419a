"""zarr's suite of stores, on a store of `fs.fsspec()`; what it asks to be done behind its back is done by the FS."""

from __future__ import annotations

import fsspec
import pytest
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from zarr.core.buffer import cpu
from zarr.storage import FsspecStore
from zarr.testing.store import StoreTests

import fsabs
from tests.adapters import stores

stores.register_entry_points()


class TestStore(StoreTests[FsspecStore, cpu.Buffer]):
    """zarr's."""

    store_cls = FsspecStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, judged_url):
        fs, path = fsspec.url_to_fs(f"fsabs+{judged_url}")
        return {"fs": AsyncFileSystemWrapper(fs, asynchronous=True), "path": path}

    def fs(self, store):
        return fsabs.from_url(f"{store.fs.sync_fs.protocol[0].removeprefix('fsabs+')}://{store.path}", create=True)

    async def set(self, store, key, value):
        with self.fs(store) as fs:
            if "/" in key and fs.capabilities.mkdir:
                fs.makedirs(key.rpartition("/")[0], exist_ok=True)
            fs.write_bytes(key, value.to_bytes())

    async def get(self, store, key):
        with self.fs(store) as fs:
            return self.buffer_cls.from_bytes(fs.read_bytes(key))

    def test_store_repr(self, store):
        assert store.path in repr(store)

    def test_store_supports_writes(self, store):
        assert store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing
