"""Files that fsspec's and Arrow's users close however their block ends: an exception leaves the old file as it was.

And what callers of fsspec say beside a path to tune it, which changes no result and is refused nowhere.
"""

from __future__ import annotations

import gzip
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsabs
from fsabs import FS
from fsabs.adapters.fsspec import HINTS
from fsabs.core import registry
from tests.servers.moto import MotoServer
from tests.servers.shared import unique

OLD, NEW = b"old", b"new" * 1000


class Break(Exception):
    """What happens while a file is written."""


class Breaking:
    """A value of a table that fails when it is written."""

    def __str__(self) -> str:
        raise Break


@pytest.fixture(params=["file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a file that has old content."""
    if request.param == "file":
        fs, table = fsabs.from_url(tmp_path), f"fsabs+file://{tmp_path}/a"
    else:
        moto: MotoServer = request.getfixturevalue("moto")
        bucket = unique("closed")
        moto.create_bucket(bucket)
        fs = fsabs.from_url(f"s3://{bucket}/", **moto.options)
        monkeypatch.setitem(fsspec.config.conf, "fsabs+s3", moto.options)
        table = f"fsabs+s3://{bucket}/a"
    fs.write_bytes("a", OLD)
    return table


def content(url: str) -> bytes:
    with fsspec.open(url, "rb") as file:
        return bytes(file.read())


def binary(url: str, fail: Callable[[], None]) -> None:
    with fsspec.open(url, "wb") as file:
        file.write(NEW)
        fail()


def text(url: str, fail: Callable[[], None]) -> None:
    with fsspec.open(url, "w") as file:
        file.write(NEW.decode())
        fail()


def compressed(url: str, fail: Callable[[], None]) -> None:
    with fsspec.open(url, "wb", compression="gzip") as file:
        file.write(NEW)
        fail()


def several(url: str, fail: Callable[[], None]) -> None:
    with fsspec.open_files([url], "wb") as files:
        files[0].write(NEW)
        fail()


def csv(url: str, fail: Callable[[], None]) -> None:
    """A table whose last value can't be written, if it is to fail."""
    try:
        fail()
        last: object = "b"
    except Break:
        last = Breaking()
    pd.DataFrame({"x": ["a", last]}).to_csv(url, index=False, chunksize=1)


def parquet(url: str, fail: Callable[[], None]) -> None:
    fs, path = fsspec.core.url_to_fs(url)
    table = pa.table({"x": [1, 2]})
    with pq.ParquetWriter(path, table.schema, filesystem=fs) as writer:
        writer.write_table(table)
        fail()


WAYS = [binary, text, compressed, several, csv, parquet]


def no_failure() -> None:
    """What is done where all goes well."""


def failure() -> None:
    raise Break


@pytest.mark.parametrize("write", WAYS)
def test_a_block_that_raises_leaves_the_old_file(url: str, write: Callable[[str, Callable[[], None]], None]) -> None:
    with pytest.raises(Break), pytest.warns(RuntimeWarning, match="closed because of Break, so not written: .*a$"):
        write(url, failure)
    assert content(url) == OLD


@pytest.mark.parametrize("write", WAYS)
def test_what_is_written_while_an_earlier_exception_is_handled_is_there(
    tmp_path: Path, write: Callable[[str, Callable[[], None]], None]
) -> None:
    """A report of a failure, say."""
    url = f"fsabs+file://{tmp_path}/a"
    try:
        raise Break
    except Break:
        write(url, no_failure)
    found = content(url)
    assert NEW in (found, gzip.decompress(found) if found[:2] == b"\x1f\x8b" else b"") or write in (csv, parquet)
    assert found


def stream_of_arrow(fs: FS, fail: Callable[[], None]) -> None:
    with fs.arrow().open_output_stream("x") as stream:
        stream.write(NEW)
        fail()


@pytest.mark.parametrize("in_a_zip", [False, True], ids=["local", "zip"])
def test_an_output_stream_of_arrow(tmp_path: Path, in_a_zip: bool) -> None:
    fs: FS = fsabs.from_url(tmp_path / "a.zip", mode="w") if in_a_zip else fsabs.from_url(tmp_path)
    with fs:
        if not in_a_zip:
            fs.write_bytes("x", OLD)
        with pytest.raises(Break), pytest.warns(RuntimeWarning, match="closed because of Break"):
            stream_of_arrow(fs, failure)
        with fs.arrow().open_output_stream("y") as stream:
            stream.write(NEW)
    with fsabs.from_url(tmp_path / "a.zip" if in_a_zip else tmp_path) as fs:
        assert fs.read_bytes("y") == NEW
        assert fs.exists("x") is not in_a_zip
        assert in_a_zip or fs.read_bytes("x") == OLD


# ---- hints


@pytest.mark.parametrize("scheme", ["file", "s3", "gs", "az", "https", "hdfs", "hf"])
def test_hints_are_taken_by_every_store(scheme: str) -> None:
    kind = fsspec.get_filesystem_class(f"fsabs+{scheme}")
    backend = registry.backend(scheme)
    assert backend is not None
    ours = set(inspect.signature(backend.__init__).parameters)
    kind(**dict.fromkeys(HINTS - ours - {"skip_instance_cache"}), skip_instance_cache=True)
    with pytest.raises(TypeError, match="no_such_hint"):
        kind(no_such_hint=1, skip_instance_cache=True).ls("bucket/")


@pytest.mark.parametrize("hint", sorted(HINTS))
def test_hints_are_taken_by_every_method(tmp_path: Path, hint: str) -> None:
    (tmp_path / "a").write_bytes(NEW)
    fs = fsabs.from_url(tmp_path).fsspec()
    value: Any = {"compression": None, "cache_type": "readahead", "cache_options": {}}.get(hint, 0)
    with fs.open("a", "rb", **{hint: value}) as file:
        assert file.read() == NEW
    with fs.open("b", "wb", **{hint: value}) as file:
        file.write(NEW)
    assert fs.cat_file("b", **{hint: value}) == NEW
    assert fs.cat_ranges(["a"], [0], [3], **({} if hint == "batch_size" else {hint: value})) == [b"new"]
    assert fs.find("", **{hint: value}) == ["a", "b"]
