"""The suites: where each comes from, at which version, and the stores that it judges."""

from __future__ import annotations

from typing import NamedTuple

STORES = ("local", "memory", "s3")
ZIP = "zip on s3"


class Suite(NamedTuple):
    """A suite of another project."""

    title: str
    shim: str = ""
    """The file of `shims` that pytest runs, or that is a plugin of it beside `targets`."""
    targets: tuple[str, ...] = ()
    """The modules of an installed package that pytest runs."""
    modules: tuple[str, ...] = ()
    """Or what `tests.judges.unittests` does, and to which of the interpreter's modules of tests."""
    package: str = ""
    """What it comes with, at which version."""
    beside: tuple[str, ...] = ()
    """What it needs, too."""
    sdist: bool = False
    """True if only the source distribution has it."""
    debian: str = ""
    """Debian's source package that it has files from, as of the machine's release."""
    plugins: tuple[str, ...] = ()
    places: tuple[str, ...] = STORES
    short: tuple[str, ...] = STORES
    """Where it is run in the short form."""


FILES = ("test_zipfile", "test_tarfile", "test_gzip", "test_bz2", "test_lzma", "test_fileinput", "test_tempfile")
PATCHED = (*FILES, "test_io", "test_fileio", "test_file", "test_pathlib", "test_glob", "test_shutil", "test_os")
PANDAS = ("common", "compression", "pickle", "parquet", "feather", "fsspec")

SUITES = {
    "fsspec": Suite(
        "fsspec's abstract suites",
        "fsspec_abstract",
        package="fsspec==2026.9.0",
        places=(*STORES, ZIP),
        short=(*STORES, ZIP),
    ),
    "zarr": Suite("`zarr.testing.store`", "zarr_store", package="zarr==3.1.6", beside=("pytest-asyncio==1.3.0",)),
    "arrow": Suite("pyarrow's `test_fs`", "arrow_fs", package="pyarrow==26.0.1", plugins=("pyarrow.tests.conftest",)),
    "upath": Suite(
        "universal_pathlib's cases",
        "upath_cases",
        package="universal_pathlib==0.3.10",
        beside=("smbprotocol==1.17.0",),
        sdist=True,
        plugins=("upath.tests.conftest",),
        places=(*STORES, ZIP),
        short=("memory",),
    ),
    "pyfilesystem": Suite(
        "PyFilesystem2's `FSTestCases`",
        "pyfilesystem",
        package="fs==2.4.16",
        beside=("setuptools==80.9.0",),
        short=("local", "memory"),  # on S3 it takes minutes
    ),
    "h5py": Suite(
        "h5py's tests, with URLs of files",
        "h5py_urls",
        targets=("h5py.tests",),
        package="h5py==3.16.0",
        places=("local",),
        short=(),
    ),
    "pandas": Suite(
        "pandas' io, patched",
        "pandas_patched",
        targets=tuple(f"pandas.tests.io.test_{name}" for name in PANDAS),
        package="pandas==3.1.1",
        places=("local",),
        short=("local",),
    ),
    "numpy": Suite(
        "numpy's io, patched",
        "numpy_patched",
        targets=tuple(f"numpy.lib.tests.test_{name}" for name in ("io", "format", "_datasource", "_iotools")),
        package="numpy==2.4.6",
        places=("local",),
        short=(),  # it takes minutes
    ),
    "dask": Suite(
        "Dask's bytes, patched",
        "dask_patched",
        targets=("dask.bytes.tests.test_local", "dask.bytes.tests.test_bytes_utils"),
        package="dask==2026.8.0",
        places=("local",),
        short=("local",),
    ),
    "dask_s3": Suite(
        "Dask's bytes on S3, `s3://` registered",
        "dask_s3",
        package="dask==2026.8.0",
        places=("s3",),
        short=(),
    ),
    "pillow": Suite(
        "Pillow's tests, patched",
        "pillow_patched",
        targets=("Tests",),
        package="pillow==13.0.0",
        sdist=True,
        places=("local",),
        short=(),  # it takes minutes
    ),
    "archives": Suite(
        "archives of libarchive, read as by Python and libarchive",
        "archives",
        package="libarchive-c==5.3",
        sdist=True,
        debian="libarchive",
        places=("local",),
        short=(),
    ),
    "pathlib": Suite(
        "pathlib-abc's cases",
        "pathlib_abc_cases",
        package="pathlib_abc==0.5.2",
        sdist=True,
    ),
    "opened": Suite(
        "CPython's archives and files, opened by `FS.open`",
        modules=("opened", *FILES, "test_csv", "test_shelve", "test_pickle"),
        places=("local",),
        short=("local",),
    ),
    "patched": Suite(
        "CPython, with `builtins`, `os`, `shutil`, `glob` and `pathlib` patched",
        modules=("patched", *PATCHED),
        places=("local",),
        short=("local",),
    ),
}
