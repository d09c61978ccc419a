"""Damage in files of rows and tokens: no wrong value, no end of the process, and one setting of what is skipped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsabs
from fsabs.adapters.torch import Loader, ShardedDataset
from fsabs.readers import RecordWriter
from fsabs.readers.data import JsonLinesDataReader, ParquetDataReader, RecordIODataReader, TokenDataReader
from tests.rows import writers

pytestmark = pytest.mark.quick


def damaged_recordio(folder: Path) -> RecordIODataReader:
    """40 records, of which a chunk of 10 is damaged."""
    with fsabs.from_url(folder) as fs, RecordWriter(fs, "a.recordio", compressor="none", max_chunk_bytes=90) as writer:
        for number in range(40):
            writer.write(b"record %02d" % number)  # of 9 bytes
    data = bytearray((folder / "a.recordio").read_bytes())
    data[data.index(b"record 15")] ^= 1
    (folder / "a.recordio").write_bytes(data)
    return RecordIODataReader(folder, on_error="skip")


def damaged_lines(folder: Path) -> JsonLinesDataReader:
    """40 lines, of which one is not JSON."""
    lines = [json.dumps({"a": number}) for number in range(40)]
    lines[7] = '{"a": '
    (folder / "a.jsonl").write_text("\n".join(lines))
    return JsonLinesDataReader(folder, on_error="skip")


def damaged_rows(folder: Path) -> ParquetDataReader:
    """40 rows, of which a row group of 10 is damaged."""
    pq.write_table(pa.table({"a": range(40)}), folder / "a.parquet", row_group_size=10, write_page_checksum=True)
    column = pq.read_metadata(folder / "a.parquet").row_group(1).column(0)
    data = bytearray((folder / "a.parquet").read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 3] ^= 1
    (folder / "a.parquet").write_bytes(data)
    return ParquetDataReader(folder, on_error="skip")


@pytest.mark.parametrize(("make", "lost"), [(damaged_recordio, 10), (damaged_lines, 1), (damaged_rows, 10)])
def test_a_data_set_skips_what_its_reader_skips(make: Any, lost: int, tmp_path: Path) -> None:
    dataset = ShardedDataset(make(tmp_path))
    samples = list(dataset)
    assert (len(samples), dataset.skipped) == (40 - lost, lost)
    assert {type(sample) for sample in samples} <= {bytes, dict}
    with pytest.raises(fsabs.CorruptFileError):
        list(ShardedDataset(make(tmp_path), max_skipped=0))
    loaded = [sample for batch in Loader(ShardedDataset(make(tmp_path)), 4, collate_fn=list) for sample in batch]
    assert loaded == samples


@pytest.mark.parametrize(("make", "lost"), [(damaged_recordio, 10), (damaged_lines, 1), (damaged_rows, 10)])
def test_a_reader_skips_what_its_data_set_skips(make: Any, lost: int, tmp_path: Path) -> None:
    reader = type(make(tmp_path))(tmp_path)
    dataset = ShardedDataset(reader, on_error="skip")
    assert (len(list(dataset)), dataset.skipped) == (40 - lost, lost)


def test_a_record_by_number_that_a_reader_skips_is_an_error(tmp_path: Path) -> None:
    from fsabs.adapters.grain import RecordSource

    source = RecordSource(damaged_lines(tmp_path))
    assert source[6] == {"a": 6}
    with pytest.raises(fsabs.CorruptFileError):
        source[7]


def test_checksums_of_pages_are_verified(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 1 << 60, 2000)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": values}), path, compression="none", use_dictionary=False, write_page_checksum=True)
    whole = path.read_bytes()
    column = pq.read_metadata(path).row_group(0).column(0)
    for place in range(column.data_page_offset + 100, column.total_compressed_size, 997):
        data = bytearray(whole)
        data[place] ^= 4
        path.write_bytes(data)
        reader = ParquetDataReader(path)
        (shard,) = reader.create_shards()
        with pytest.raises(fsabs.CorruptFileError, match=r"a\.parquet"):
            list(reader.read_at(shard.name, range(2000)))
        reader.close()


def test_no_flipped_bit_of_a_footer_ends_the_process(tmp_path: Path) -> None:
    """Of lying histograms of levels and sizes in a footer, pyarrow's metadata of a column ends the process."""
    path = tmp_path / "a.parquet"
    table = pa.table({"a": range(4), "s": ["x", None, "yy", ""], "l": [[1], None, [2, 3], []]})
    pq.write_table(table, path, row_group_size=2)
    whole = path.read_bytes()
    footer = range(len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), len(whole) - 8)
    child = os.fork()
    if not child:
        try:
            os.close(2)  # what C++ says at its end
            failed = sum(
                not is_read(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]) for place in footer
            )
            os._exit(0 if failed > len(footer) // 4 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def is_read(data: bytes) -> bool:
    """Return whether a file is read, with filters and without; False for an error that says why not."""
    fs = fsabs.Memory()
    fs.write_bytes("a.parquet", data)
    try:
        for filters in (None, [("a", ">=", 0)]):
            reader = ParquetDataReader(fs, filters=filters)
            for shard in reader.create_shards():
                list(reader.read_at(shard.name, range(shard.start, shard.end)))
    except (OSError, ValueError):
        return False
    return True


def test_the_size_of_datatroves_tokens_is_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "x.ds"
    writers.datatrove(path, [[1, 70_000], [3, 4, 5]], 4)
    (tmp_path / "x.ds.metadata").write_text("a tokenizer of another tool\n5\n")
    assert tokens_of(path).tolist() == [1, 70_000, 3, 4, 5]  # by the index
    with pytest.raises(fsabs.CorruptFileError, match="10 of uint16"):
        tokens_of(path, dtype="uint16")
    (tmp_path / "x.ds.index").unlink()
    with pytest.raises(ValueError, match="dtype='uint32'"):
        tokens_of(path)
    assert tokens_of(path, dtype="uint32").tolist() == [1, 70_000, 3, 4, 5]


def tokens_of(path: Path, **options: Any) -> Any:
    reader = TokenDataReader(path, 4, **options)
    (shard,) = reader.create_shards()
    return next(reader.read_at(shard.name, range(1)))
