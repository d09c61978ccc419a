"""Libraries over fsspec's interface: what they write and read on a custom scheme, and read inside a zip on S3.

Each test imports the libraries that it is about: together they have 1,300 modules and 110 MB, in each process of the
tests that looks for its tests here, and in all its forks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy
import pandas
import pytest

import fsabs
from tests.adapters import stores

stores.register_entry_points()
TABLE = pandas.DataFrame({"a": range(10), "b": [0.5 * number for number in range(10)]})


@pytest.fixture
def corp(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A directory of a custom scheme, whose name fsspec knows, with a zip in it."""
    with stores.opened("corp", request, tmp_path) as url:
        fsabs.register_fsspec("corp")
        stores.fill(url, {".keep": b""})
        with fsabs.from_url(f"{url}/in.zip", mode="w") as archive:
            with archive.as_local("t.parquet", "w") as local:
                TABLE.to_parquet(local)
            archive.write_text("t.csv", TABLE.to_csv(index=False))
        yield url


@pytest.mark.nightly
def test_tables(corp: str, tmp_path: Path) -> None:
    import dask.dataframe
    import datasets
    import duckdb
    import polars

    for url in (f"{corp}/t", f"{corp}/in.zip/t"):
        if "zip" not in url:
            TABLE.to_parquet(f"{url}.parquet")
            TABLE.to_csv(f"{url}.csv", index=False)
        assert pandas.read_parquet(f"{url}.parquet").equals(TABLE)
        assert pandas.read_csv(f"{url}.csv").equals(TABLE)
        read = dask.dataframe.read_parquet(f"{url}.parquet")
        assert read.compute(scheduler="sync").equals(TABLE)
        fs = fsspec.filesystem("corp")
        assert polars.read_parquet(fs.open(f"{url}.parquet")).to_pandas().equals(TABLE)
        connection = duckdb.connect()
        connection.register_filesystem(fs)
        assert connection.sql(f"SELECT sum(a) FROM '{url}.parquet'").fetchall() == [(45,)]
        rows = datasets.load_dataset("csv", data_files=f"{url}.csv", split="train", cache_dir=str(tmp_path))
        assert rows["a"][:] == list(range(10))


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.nightly), 3])
def test_zarr_and_xarray(corp: str, version: Any) -> None:
    import xarray
    import zarr

    data = xarray.Dataset({"v": (("x", "y"), numpy.arange(12.0).reshape(3, 4))})
    data.to_zarr(f"{corp}/{version}.zarr", zarr_format=version, consolidated=False)
    assert xarray.open_zarr(f"{corp}/{version}.zarr", consolidated=False).load().equals(data)
    store = zarr.storage.FsspecStore.from_url(f"{corp}/{version}.zarr", read_only=True)
    group: Any = zarr.open_group(store, mode="r", zarr_format=version)
    assert group["v"][:].sum() == 66


def test_universal_pathlib(corp: str) -> None:
    import upath

    path = upath.UPath(corp)
    (path / "x.txt").write_text("x")
    (path / "made").mkdir()
    assert sorted(each.name for each in path.iterdir()) == [".keep", "in.zip", "made", "x.txt"]
    assert (path / "in.zip" / "t.csv").read_text().startswith("a,b\n")


@pytest.mark.nightly
def test_kerchunk(corp: str, tmp_path: Path) -> None:
    """It indexes a NetCDF file inside a zip."""
    import xarray
    import zarr
    from kerchunk.hdf import SingleHdf5ToZarr

    data = xarray.Dataset({"v": (("x", "y"), numpy.arange(120.0).reshape(30, 4))})
    data.to_netcdf(tmp_path / "grid.nc", engine="h5netcdf", encoding={"v": {"chunksizes": (10, 4)}})
    with fsabs.from_url(f"{corp}/grids.zip", mode="w") as archive:
        archive.write_bytes("d/grid.nc", (tmp_path / "grid.nc").read_bytes())
    url = f"{corp}/grids.zip/d/grid.nc"
    with fsspec.open(url) as file:
        references = SingleHdf5ToZarr(file, url).translate()
    fs = fsspec.filesystem("reference", fo=references, remote_protocol="corp", asynchronous=True)
    store = zarr.storage.FsspecStore(fs, read_only=True)
    assert xarray.open_zarr(store, consolidated=False, zarr_format=2).load().equals(data)
