"""TextDataReader against Python's csv module, whole and by ranges."""

from __future__ import annotations

import csv
import io
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsabs import CorruptFileError, StaleFileError
from fsabs.readers.data import Task, TextDataReader, shards_of, text
from fsabs.spi import Blob


def rows_of(reader: TextDataReader, path: Path, start: int, end: int) -> list[Any]:
    return list(reader.read_records(Task(0, str(path), start, end)))


def expected(content: str) -> list[str]:
    """The text of each row: what csv.reader takes from the lines for it."""
    taken: list[str] = []

    def lines() -> Any:
        for line in io.StringIO(content, newline=""):
            taken.append(line)
            yield line

    rows = []
    for _ in csv.reader(lines()):
        rows.append("".join(taken).removesuffix("\n").removesuffix("\r") + "\n")
        taken.clear()
    return rows


CELLS = st.text(st.sampled_from('ab,"\n\r é'), max_size=6)


@pytest.mark.quick
@settings(max_examples=60, deadline=None)
@given(st.lists(CELLS, max_size=12), st.sampled_from(["\n", "\r\n", "\r"]), st.data())
def test_rows_are_those_of_csv(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], newline: str, data: st.DataObject
) -> None:
    content = "".join(line + newline for line in lines)
    path = tmp_path_factory.mktemp("rows") / "x.csv"
    path.write_bytes(content.encode())
    rows = expected(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "STRIDE", data.draw(st.integers(1, 3)))
        patch.setattr(text, "CHUNK", data.draw(st.integers(1, 9)))
        reader = TextDataReader(path)
        assert len(reader) == len(rows)
        assert rows_of(reader, path, 0, len(rows)) == rows
        start = data.draw(st.integers(0, len(rows)))
        end = data.draw(st.integers(start, len(rows)))
        assert rows_of(reader, path, start, end) == rows[start:end]


@pytest.mark.quick
def test_shards_and_names(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('a,"1\n2"\nb,2\nc,3')
    reader = TextDataReader(str(path), 2)
    shards = shards_of(reader)
    assert [tuple(shard) for shard in shards] == [(f"{path}:shard_0", 0, 2), (f"{path}:shard_1", 2, 1)]
    read = [list(reader.read_records(Task(0, name, start, start + count))) for name, start, count in shards]
    assert read == [['a,"1\n2"\n', "b,2\n"], ["c,3\n"]]
    assert list(reader.read_at(shards[0].name, [0, 2])) == ['a,"1\n2"\n', "c,3\n"]
    assert list(pickle.loads(pickle.dumps(reader)).read_at(shards[0].name, [2])) == ["c,3\n"]
    assert reader.records_output_types == "string"
    for name in ("other:shard_0", f"{path}:shard_x"):
        with pytest.raises(ValueError, match="no shard"):
            list(reader.read_records(Task(0, name, 0, 1)))
    with pytest.raises(CorruptFileError, match="record 3"):
        rows_of(reader, path, 2, 4)


@pytest.mark.quick
def test_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes('\ufeffid;name;x\r\n1;"a;\r\nb";2\r\n\r\n3;c;4\r\n'.encode())
    reader = TextDataReader(path, columns=["x", "name"], sep=";")
    assert len(reader) == 2
    assert rows_of(reader, path, 0, 2) == [["2", "a;\r\nb"], ["4", "c"]]
    assert rows_of(reader, path, 1, 2) == [["4", "c"]]
    assert reader.metadata.column_names == ["x", "name"]
    with pytest.raises(ValueError, match=r"no columns \['y'\]"):
        rows_of(TextDataReader(path, columns=["y"], sep=";"), path, 0, 1)
    path.write_text("a,b\n1\n")
    with pytest.raises(CorruptFileError, match="1 columns"):
        rows_of(TextDataReader(path, columns=["b"]), path, 0, 1)


@pytest.mark.quick
def test_empty_and_wrong_files(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("")
    assert shards_of(TextDataReader(path, 5)) == []
    assert shards_of(TextDataReader(path, 5, columns=["a"])) == []
    path.write_bytes(b"a\n\xff\n")
    with pytest.raises(CorruptFileError, match="UTF-8"):
        rows_of(TextDataReader(path), path, 0, 2)
    with pytest.raises(IsADirectoryError):
        TextDataReader(tmp_path)
    with pytest.raises(FileNotFoundError):
        TextDataReader(tmp_path / "none.csv")


@pytest.mark.quick
def test_a_field_is_as_long_as_csv_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    long = "日" * (csv.field_size_limit() - 1)  # three times as many bytes
    path.write_text(f'a,b\n1,"{long}"\n', encoding="utf-8")
    assert rows_of(TextDataReader(path, columns=["b"]), path, 0, 1) == [[long]]


@pytest.mark.quick
def test_a_file_that_changed(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("1\n2\n")
    reader = TextDataReader(path)
    assert len(reader) == 2
    (tmp_path / "y").write_text("1\n2\n3\n")
    os.replace(tmp_path / "y", path)
    with pytest.raises(StaleFileError, match="rows were counted"):
        rows_of(reader, path, 0, 2)


def test_a_range_is_read_without_what_is_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.csv"
    path.write_text("".join(f'{number},"some\ntext"\n' for number in range(50_000)))
    reader = TextDataReader(path)
    assert len(reader) == 50_000
    sizes: list[int] = []
    pread = Blob.pread

    def counting(self: Blob, size: int, offset: int) -> bytes:
        sizes.append(size)
        return pread(self, size, offset)

    monkeypatch.setattr(Blob, "pread", counting)
    assert rows_of(reader, path, 40_000, 40_002) == ['40000,"some\ntext"\n', '40001,"some\ntext"\n']
    assert 0 < sum(sizes) <= 3 * text.STRIDE * 20
    assert len(rows_of(reader, path, 5, 50_000)) == 49_995


@pytest.mark.quick
def test_line_ends_within_quotes_are_data(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b'a,b\r\n1,"two\r\nlines"\r\n2,"x\ry"\n')
    reader = TextDataReader(path, columns=["b"])
    with path.open(newline="") as file:
        assert rows_of(reader, path, 0, 2) == [row[1:] for row in list(csv.reader(file))[1:]]
    assert rows_of(TextDataReader(path), path, 1, 3) == ['1,"two\r\nlines"\n', '2,"x\ry"\n']
