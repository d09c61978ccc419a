"""A data reader reads the shards that another process has listed, and a record from the end of a file without the rest;
and says what a file is that it can't read.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsabs
from fsabs import FS, CorruptFileError
from fsabs.readers import paddle
from fsabs.readers.data import (
    AbstractDataReader,
    ArchiveDataReader,
    JsonLinesDataReader,
    MDSDataReader,
    ParquetDataReader,
    RecordIODataReader,
    Task,
    TokenDataReader,
    shards_of,
)
from fsabs.readers.data.factory import reader_of
from fsabs.readers.recordio import RecordReader, RecordWriter
from tests.counting import Counting

from .test_first_start import mds_of, tar_of

pytestmark = pytest.mark.quick


def written(kind: str) -> tuple[FS, Callable[..., AbstractDataReader], dict[str, Any]]:
    fs = fsabs.Memory()
    for number in range(3):
        if kind == "parquet":
            with fs.open(f"{number}.parquet", "wb") as file:
                pq.write_table(pa.table({"a": [number, number + 1]}), file)
        elif kind == "jsonl":
            fs.write_text(f"{number}.jsonl", f'{{"a": {number}}}\n{{"a": 0}}\n')
        elif kind == "tokens":
            fs.write_bytes(f"{number}.bin", np.arange(number, number + 20, dtype="<u2").tobytes())
        elif kind == "recordio":
            with RecordWriter(fs, f"{number}.rec") as writer:
                writer.write(bytes([number]))
                writer.write(b"x")
        elif kind == "tar":
            fs.write_bytes(f"{number}.tar", tar_of(number))
    if kind == "mds":
        fs.write_many(mds_of(3))
    readers: dict[str, tuple[Callable[..., AbstractDataReader], dict[str, Any]]] = {
        "parquet": (ParquetDataReader, {}),
        "jsonl": (JsonLinesDataReader, {}),
        "tokens": (TokenDataReader, {"sequence_length": 4, "dtype": "uint16"}),
        "recordio": (RecordIODataReader, {}),
        "tar": (ArchiveDataReader, {}),
        "mds": (MDSDataReader, {}),
    }
    return fs, *readers[kind]


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "tokens", "recordio", "tar", "mds"])
def test_a_task_is_read_where_nothing_was_listed(kind: str) -> None:
    fs, reader, options = written(kind)
    here = reader(fs, **options)
    shard = shards_of(here)[2]
    task = Task(0, shard.name, 0, 2)
    found = list(here.read_records(task))
    assert len(found) == 2
    elsewhere = reader(fs, **options)
    assert repr(list(elsewhere.read_records(task))) == repr(found)
    assert elsewhere.content_of(shard.name) == here.content_of(shard.name)
    assert repr(list(pickle.loads(pickle.dumps(elsewhere)).read_records(task))) == repr(found)


def test_a_record_from_the_end_reads_nothing_before_it() -> None:
    fs = fsabs.Memory()
    with RecordWriter(fs, "f", compressor="none", max_chunk_bytes=1000) as writer:
        for number in range(2000):
            writer.write(b"%0500d" % number)
    counting = Counting(fs)
    reader = RecordReader(counting, "f")
    headers = counting.fetched
    assert reader[-1] == b"%0500d" % 1999
    assert reader[-2000 + 1995] == b"%0500d" % 1995
    assert counting.fetched - headers < 20_000
    assert reader[-2000] == b"%0500d" % 0


def test_a_wrong_count_spoils_only_the_numbers_that_depend_on_it(tmp_path: Path) -> None:
    from . import minimal

    chunks = [[b"0", b"1"], [b"2", b"3"], [b"4"], [b"5"]]
    data = b"".join(minimal.chunk(one, 0, count=3 if one[0] == b"2" else None) for one in chunks)
    (tmp_path / "f").write_bytes(data)
    reader = RecordReader(fsabs.from_url(tmp_path), "f")
    assert [reader[-1], reader[-2], reader[0]] == [b"5", b"4", b"0"]
    for number in (-6, 6):
        with pytest.raises(CorruptFileError, match="chunk 1 "):
            reader[number]


def test_a_function_that_runs_dry_is_no_end() -> None:
    reader = paddle.map_readers(lambda item: next(iter([item] if item < 2 else [])), lambda: range(5))
    with pytest.raises(RuntimeError):
        list(reader())


def test_what_a_folder_holds_is_said(tmp_path: Path) -> None:
    with RecordWriter(fsabs.from_url(tmp_path), "train-0") as writer:
        writer.write(b"1")
    (tmp_path / "README.md").write_text("# The data")
    with pytest.raises(CorruptFileError, match="pattern") as caught:
        shards_of(reader_of(tmp_path, "raise"))
    assert str(caught.value.filename).endswith("README.md")
    assert len(shards_of(reader_of(tmp_path / "train-*", "raise"))) == 1
    (tmp_path / "cat.jpg").write_bytes(b"\xff\xd8")
    with pytest.raises(ValueError, match="'cat.jpg' is called as pictures are"):
        reader_of(tmp_path, "raise")
