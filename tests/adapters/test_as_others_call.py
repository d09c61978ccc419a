"""What other libraries call: names, options, and attributes as they have them."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.backends.s3.options import of_s3fs
from fsabs.core import errors


def test_duckdb_reads_an_fs(tmp_path: Path) -> None:
    import duckdb

    fs = fsabs.from_url(tmp_path)
    fs.mkdir("d x")
    fs.write_bytes("d x/a%b.csv", b"n\n1\n2\n")
    connection = duckdb.connect()
    connection.register_filesystem(fs.fsspec())
    for name in ("d x/a%b.csv", "d x/*.csv"):
        assert connection.execute(f"SELECT sum(n) FROM read_csv('fsabs://{name}')").fetchall() == [(3,)]


def test_zarr_takes_an_fs(tmp_path: Path) -> None:
    import zarr
    from zarr.storage import FsspecStore

    fs = fsabs.from_url(tmp_path)
    array = zarr.create_array(FsspecStore(fs.fsspec(asynchronous=True), path="a.zarr"), shape=(4,), dtype="i4")
    array[:] = [1, 2, 3, 4]
    again: Any = zarr.open_array(FsspecStore(fs.fsspec(asynchronous=True), read_only=True, path="a.zarr"))
    assert again[:].tolist() == [1, 2, 3, 4]


def test_polars_and_joblib_take_files(tmp_path: Path) -> None:
    import joblib  # type: ignore[import-untyped]
    import polars

    fs = fsabs.from_url(tmp_path).fsspec()
    with fs.open("a.parquet", "wb") as file:
        polars.DataFrame({"a": [1, 2]}).write_parquet(file)
    with fs.open("a.parquet", "rb") as file:
        assert polars.read_parquet(file)["a"].to_list() == [1, 2]
    with fs.open("a.pkl", "wb") as file:
        joblib.dump({"x": 1}, file)
    with fs.open("a.pkl", "rb") as file:
        assert joblib.load(file) == {"x": 1}


def test_files_say_what_they_are(tmp_path: Path) -> None:
    from fsspec.utils import read_block

    fs = fsabs.from_url(tmp_path)
    fs.write_bytes("a.txt", b"one\ntwo\nthree\n")
    theirs = fs.fsspec()
    with theirs.open("a.txt", "rb") as file:
        assert (file.size, file.path, file.fs) == (14, "a.txt", theirs)
        assert read_block(file, 1, 6, b"\n") == b"two\n"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # fsspec leaves its file open
@pytest.mark.parametrize("chain", ["blockcache", "filecache"])
def test_caches_of_fsspec_take_files(chain: str, tmp_path: Path) -> None:
    import fsspec

    (tmp_path / "a.bin").write_bytes(bytes(range(256)) * 1000)
    for _ in range(2):
        options: Any = {chain: {"cache_storage": str(tmp_path / "cache")}}
        with fsspec.open(f"{chain}::fsabs+file://{tmp_path}/a.bin", "rb", **options) as file:
            file.seek(1000)
            assert file.read(4) == bytes(range(232, 236))
    assert list((tmp_path / "cache").iterdir())
    theirs = fsabs.from_url(tmp_path).fsspec()
    for kind in ("none", "readahead", "all", "background"):
        with theirs.open("a.bin", cache_type=kind, block_size=1000) as file:
            file.seek(-6, 2)
            assert file.read() == bytes(range(250, 256))


def test_no_keyword_is_swallowed(tmp_path: Path) -> None:
    fs = fsabs.from_url(tmp_path)
    fs.mkdir("d")
    fs.write_bytes("d/abc", b"x")
    fs.write_bytes("d/xyz", b"x")
    theirs = fs.fsspec()
    with pytest.raises(TypeError, match="version_id"):
        theirs.open("d/abc", "rb", version_id="v1")
    with pytest.raises(TypeError, match="version_id"):
        theirs.open("d/abc", "r", version_id="v1")
    with pytest.raises(TypeError, match="ServerSideEncryption"):
        theirs.pipe_file("d/new", b"x", ServerSideEncryption="AES256")
    of_one = ("info", "exists", "ls", "cat_file", "cat", "mkdir", "touch", "find", "walk", "du", "pipe_file")
    for name in of_one:
        with pytest.raises(TypeError, match="version_id"):
            list(getattr(theirs, name)("d", *([b""] if name == "pipe_file" else []), version_id="v1"))
    for name in ("copy", "mv", "cp_file", "get_file", "put_file"):
        source = str(tmp_path / "d/abc") if name == "put_file" else "d/abc"
        with pytest.raises(TypeError, match="version_id"):
            getattr(theirs, name)(source, str(tmp_path / "new"), version_id="v1")
    with pytest.raises(TypeError, match="version_id"):
        theirs.cat_ranges(["d/abc"], [0], [1], version_id="v1")
    assert sorted(fs.list("d")) == ["abc", "xyz"]
    assert theirs.ls("d", detail=False, refresh=True) == ["d/abc", "d/xyz"]
    assert theirs.find("d", prefix="a") == ["d/abc"]
    assert theirs.open("d/abc", "rb", block_size=5, cache_type="none").read() == b"x"


def test_reading_or_moving_what_is_missing_makes_no_directory(tmp_path: Path) -> None:
    theirs = fsabs.from_url(tmp_path).fsspec()
    for call in (
        functools.partial(theirs.open, "no/such", "r"),
        functools.partial(theirs.mv, "nosuch", "no/where"),
        functools.partial(theirs.cp_file, "nosuch", "no/where"),
    ):
        with pytest.raises(FileNotFoundError):
            call()
    assert not (tmp_path / "no").exists()


def test_options_by_the_names_that_scripts_have() -> None:
    given: dict[str, Any] = {
        "key": "K",
        "secret": "S",
        "token": "T",
        "anon": False,
        "endpoint_url": "http://x",
        "client_kwargs": {"region_name": "eu-west-1", "verify": False},
        "config_kwargs": {"s3": {"addressing_style": "path"}, "retries": {"max_attempts": 3}, "read_timeout": 5},
        "s3_additional_kwargs": {"ServerSideEncryption": "AES256"},
        "use_ssl": True,
        "requester_pays": True,
    }
    assert of_s3fs(given) == {
        "aws_access_key_id": "K",
        "aws_secret_access_key": "S",
        "aws_session_token": "T",
        "anonymous": False,
        "endpoint": "http://x",
        "region": "eu-west-1",
        "verify": False,
        "path_style": True,
        "max_attempts": 3,
        "read_timeout": 5,
        "server_side_encryption": "AES256",
        "requester_pays": True,
    }
    with pytest.raises(TypeError, match="'nosuch'"):
        of_s3fs({"client_kwargs": {"nosuch": 1}})
    import fsspec

    with pytest.raises(TypeError, match="anonn"):
        fsspec.filesystem("fsabs+s3", anonn=True).ls("bucket")


SCRIPT = """
import sys
endpoint, key, secret, region = sys.argv[1:]
import dask.dataframe, fsabs, fsspec, pandas

fsabs.register_fsspec("s3")
options = {"key": key, "secret": secret, "client_kwargs": {"endpoint_url": endpoint, "region_name": region}}
flat = {"key": key, "secret": secret, "endpoint_url": endpoint, "anon": False, "default_fill_cache": False}
fsspec.filesystem("s3", **options).pipe("scripts/a.csv", b"x,y\\n1,2\\n3,4\\n")
assert pandas.read_csv("s3://scripts/a.csv", storage_options=options)["x"].tolist() == [1, 3]
pandas.DataFrame({"z": [5]}).to_parquet("s3://scripts/b.parquet", storage_options=flat)
assert pandas.read_parquet("s3://scripts/b.parquet", storage_options=options)["z"].tolist() == [5]
assert dask.dataframe.read_csv("s3://scripts/*.csv", storage_options=options).x.sum().compute() == 4
table = dask.dataframe.from_pandas(pandas.DataFrame({"q": range(10)}), npartitions=3)
table.to_parquet("s3://scripts/parts", storage_options=options)
assert dask.dataframe.read_parquet("s3://scripts/parts", storage_options=options).q.sum().compute() == 45
with fsspec.open("s3://scripts/t.txt", "w", **flat) as file:
    file.write("t")
with fsabs.patch("pandas"):
    assert pandas.read_csv("s3://scripts/a.csv", storage_options=options)["y"].tolist() == [2, 4]
"""


@pytest.mark.timeout(100)
def test_a_script_with_s3fss_options_runs_as_it_stands(moto: Any) -> None:
    moto.create_bucket("scripts")
    arguments = [moto.endpoint, moto.access_key, moto.secret_key, moto.region]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr


def test_a_library_that_is_there_and_fails_is_not_called_missing() -> None:
    def caught(error: ImportError) -> str:
        try:
            raise error
        except ImportError:
            return str(errors.missing("SQLAlchemy", "sql", "dispatching"))

    broken = ImportError("libpq.so: cannot open shared object file", name="sqlalchemy")
    assert "libpq.so" in caught(broken)
    assert "No module named 'greenlet2'" in caught(ModuleNotFoundError("No module named 'greenlet2'", name="greenlet2"))
    there, sys.modules["sqlalchemy"] = sys.modules.get("sqlalchemy"), None  # type: ignore[assignment]
    try:
        assert "pip install 'fsabs[sql]'" in caught(ModuleNotFoundError("no", name="sqlalchemy"))
    finally:
        del sys.modules["sqlalchemy"]
        if there is not None:
            sys.modules["sqlalchemy"] = there
