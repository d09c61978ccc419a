"""pandas, Zarr, Arrow and torch checkpoints, on our interfaces for them and on the usual stores; a call of a patch."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from typing import Any

from . import Run, for_each, library, stores, whole


def _register(endpoint: str) -> None:
    """Make the endpoint that of all URLs, and the protocol known, as it is where the package is installed."""
    os.environ["S3_ENDPOINT"] = endpoint
    kind = library("fsabs.adapters.fsspec").FsabsS3FileSystem
    library("fsspec").register_implementation("fsabs+s3", kind, clobber=True)


# ---- a table of Parquet, whole


def fsabs_table(endpoint: str, rows: int) -> Run:
    """By its URL."""
    _register(endpoint)
    pandas = library("pandas")
    return lambda: whole(pandas.read_parquet("fsabs+s3://bucket/table.parquet"), rows)


def s3fs_table(endpoint: str, rows: int) -> Run:
    """By its URL, with the endpoint as an option."""
    pandas, options = library("pandas"), {"endpoint_url": endpoint}
    return lambda: whole(pandas.read_parquet("s3://bucket/table.parquet", storage_options=options), rows)


# ---- an array of Zarr


def _array(store: Any, side: int) -> Run:
    zarr = library("zarr")

    def run() -> None:
        values = zarr.open_array(store, mode="r", zarr_format=3)[:]
        whole(values, side)
        if not values.any():
            raise RuntimeError("the chunks were not found")

    return run


def _by_url(url: str, side: int, options: dict[str, Any]) -> Run:
    return _array(library("zarr.storage").FsspecStore.from_url(url, read_only=True, storage_options=options), side)


def fsabs_array(endpoint: str, side: int) -> Run:
    """By its URL, on this library's filesystem for fsspec."""
    _register(endpoint)
    return _by_url("fsabs+s3://bucket/a.zarr", side, {})


def s3fs_array(endpoint: str, side: int) -> Run:
    """By its URL, on s3fs."""
    return _by_url("s3://bucket/a.zarr", side, {"endpoint_url": endpoint})


def obstore_array(endpoint: str, side: int) -> Run:
    """`ObjectStore` on obstore."""
    options = {"endpoint": endpoint, "region": "us-east-1", "client_options": {"allow_http": True}}
    store = library("obstore.store").S3Store("bucket", prefix="a.zarr", **options)
    return _array(library("zarr.storage").ObjectStore(store, read_only=True), side)


# ---- some columns of a table


def _columns(path: str, fs: Any, least: int) -> None:
    wanted: Any = {"columns": ["c3", "n"], "filters": [("n", ">=", least)]}
    found = library("pyarrow.parquet").read_table(path, filesystem=fs, **wanted)
    if found["n"][0].as_py() != least:
        raise RuntimeError("not the rows")


def fsabs_columns(endpoint: str, least: int) -> Run:
    """From a file inside a stored zip, from the URL on."""

    def run() -> None:
        with stores.ours(endpoint, path="/table.zip") as fs:
            _columns("table.parquet", fs.arrow(), least)

    return run


def pyarrow_columns(endpoint: str, least: int) -> Run:
    """From the bare file, by Arrow's own client."""
    fs = stores.pyarrow(endpoint)
    return lambda: _columns("bucket/table.parquet", fs, least)


# ---- checkpoints


def _state(tensors: int, size: int) -> dict[str, Any]:
    torch = library("torch")
    return {f"w{number}": torch.rand(size // 4) for number in range(tensors)}


def _in_new_folders(folder: str, save: Any) -> Run:
    names = (Path(folder, f"{os.getpid()}-{number}") for number in itertools.count())

    def run() -> None:
        path = next(names)
        path.mkdir()
        save(path)
        shutil.rmtree(path)

    return run


def _dcp(folder: str, writer: Any, state: dict[str, Any]) -> Run:
    save = library("torch.distributed.checkpoint").save
    return _in_new_folders(folder, lambda path: save(state, storage_writer=writer(path), no_dist=True))


def fsabs_checkpoint(folder: str, tensors: int, size: int) -> Run:
    """`torch.distributed.checkpoint` with `DistributedWriter`."""
    return _dcp(folder, library("fsabs.adapters.torch.distributed").DistributedWriter, _state(tensors, size))


def torch_checkpoint(folder: str, tensors: int, size: int) -> Run:
    """`torch.distributed.checkpoint` with its own writer, which does not wait for the disk either."""
    kind, state = library("torch.distributed.checkpoint").FileSystemWriter, _state(tensors, size)
    return _dcp(folder, lambda path: kind(path, sync_files=False, thread_count=4, overwrite=False), state)


def torch_save(folder: str, tensors: int, size: int) -> Run:
    """One file by `torch.save`."""
    torch, state = library("torch"), _state(tensors, size)
    return _in_new_folders(folder, lambda path: torch.save(state, path / "state.pt"))


# ---- a call that a patch passes on


def exists(calls: int, patched: bool) -> Run:
    """`os.path.exists` of a file that is there."""
    if patched:
        library("fsabs").patch("os")
    return for_each(os.path.exists, [os.path.abspath(__file__)] * calls)
