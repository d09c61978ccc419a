"""pyarrow's filesystem over an FS: data sets with predicates, and no byte more than pyarrow asks for."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest

import fsabs
from fsabs.core import hooks
from tests.adapters import stores

ROWS = 20_000
TABLE = pyarrow.table(
    {f"c{number}": numpy.random.default_rng(number).random(ROWS) for number in range(39)} | {"n": range(ROWS)}
)


@pytest.fixture(params=["local", "s3", "zip on s3"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[fsabs.FS]:
    """A tree with a data set of two files."""
    with stores.opened(request.param, request, tmp_path) as url:
        files = {}
        for number in range(2):
            buffer = io.BytesIO()
            pyarrow.parquet.write_table(TABLE.slice(number * 10_000, 10_000), buffer, row_group_size=2_500)
            files[f"data/part={number}/x.parquet"] = buffer.getvalue()
        stores.fill(url, files)
        with fsabs.from_url(url) as fs:
            yield fs


def test_a_data_set_with_a_predicate(fs: fsabs.FS) -> None:
    data = pyarrow.dataset.dataset("data", filesystem=fs.arrow(), format="parquet", partitioning="hive")
    found = data.to_table(columns=["c3", "n", "part"], filter=pyarrow.dataset.field("n") >= 19_000)
    assert found["n"].to_pylist() == list(range(19_000, ROWS))
    assert found["c3"].to_pylist() == TABLE["c3"].to_pylist()[19_000:]
    assert set(found["part"].to_pylist()) == {1}


def test_the_filesystem_is_pyarrows(fs: fsabs.FS) -> None:
    arrow = fs.arrow()
    infos = arrow.get_file_info(pyarrow.fs.FileSelector("data", recursive=True))
    assert sorted(info.path for info in infos if info.is_file) == [f"data/part={n}/x.parquet" for n in range(2)]
    assert arrow.get_file_info("none").type == pyarrow.fs.FileType.NotFound
    assert arrow.get_file_info(pyarrow.fs.FileSelector("none", allow_not_found=True)) == []
    with pytest.raises(FileNotFoundError):
        arrow.open_input_file("none")
    with arrow.open_input_file("data/part=0/x.parquet") as file:
        assert file.read_at(4, 0) == b"PAR1"
        assert (file.seek(-4, 2), file.read(), file.size()) == (file.size() - 4, b"PAR1", file.size())
    assert pickle.loads(pickle.dumps(arrow)) == arrow != fsabs.Memory("another").arrow()
    assert arrow != fs.subfs("data").arrow()
    if not fs.capabilities.append:
        with pytest.raises(pyarrow.ArrowNotImplementedError):
            arrow.open_append_stream("new")
    if not fs.capabilities.write:
        return
    with pytest.raises(OSError, match="metadata are not supported"):
        arrow.open_output_stream("x", metadata={"Content-Type": "text/plain"})
    arrow.create_dir("new/deep", recursive=True)
    with arrow.open_output_stream("new/deep/x") as stream:
        stream.write(b"written")
    arrow.move("new/deep/x", "new/deep/y")
    arrow.copy_file("new/deep/y", "new/deep/z")
    assert fs.read_bytes("new/deep/z") == b"written"
    arrow.create_dir("new/other")
    arrow.delete_dir_contents("new")
    assert not fs.exists("new/deep")
    arrow.delete_dir_contents("new", missing_dir_ok=True)
    arrow.create_dir("new")
    arrow.delete_dir("new")
    assert not fs.exists("new")
    pyarrow.parquet.write_table(TABLE.slice(0, 10), "t.parquet", filesystem=arrow)
    assert pyarrow.parquet.read_table("t.parquet", filesystem=arrow) == TABLE.slice(0, 10)


class Counted(io.BytesIO):
    """What pyarrow asks of a bare file."""

    asked = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Count what is read."""
        data = super().read(size)
        self.asked += len(data)
        return data


def test_two_of_forty_columns_in_a_zip_on_s3_cost_their_bytes(request: Any, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.concat_tables([TABLE] * 5), buffer, row_group_size=20_000)
    wanted: dict[str, Any] = {"columns": ["c3", "n"], "filters": [("n", ">=", 19_000)]}
    with stores.opened("zip on s3", request, tmp_path) as url:
        with fsabs.from_url(url, mode="w") as archive:
            archive.write_bytes("d/x.parquet", buffer.getvalue())
        bare = Counted(buffer.getvalue())
        expected = pyarrow.parquet.read_table(pyarrow.PythonFile(bare, mode="r"), **wanted)
        before = hooks.install(counted := stores.Requests())
        try:
            with fsabs.from_url(url) as fs:
                found = pyarrow.parquet.read_table("d/x.parquet", filesystem=fs.arrow(), **wanted)
        finally:
            hooks.install(before)
    assert found == expected
    assert 0 < bare.asked < len(buffer.getvalue()) / 10
    assert counted.total <= 1.1 * bare.asked, (counted.total, bare.asked)
