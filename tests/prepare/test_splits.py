"""Splits for engines that read in parallel: every row once, pruning, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import fsabs
from fsabs import StaleFileError
from fsabs.adapters.splits import SCHEMAS, SplitPlan, matching, plan_splits, read_split
from fsabs.readers import RecordWriter
from tests.prepare.data import raw_files, visible, write_tree, zipped

FILES = raw_files(30)


def record(shard: int, number: int) -> bytes:
    return b"%d %d " % (shard, number) + bytes(50 * shard)


RECORDS = {f"data-{shard:05}-of-00003": [record(shard, number) for number in range(100 * shard)] for shard in range(4)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`shards` with RecordIO files, `raw` and `raw.zip` with the same files."""
    fs = fsabs.from_url(tmp_path / "shards", create=True)
    for path, records in RECORDS.items():
        with RecordWriter(fs, path, max_chunk_bytes=2000, compressor="none") as writer:
            for one in records:
                writer.write(one)
    fs.write_bytes(".hidden", b"x")
    write_tree(fsabs.from_url(tmp_path / "raw", create=True), FILES)
    (tmp_path / "raw.zip").write_bytes(zipped(FILES))
    return tmp_path


def rows(plan: SplitPlan) -> list[tuple[object, ...]]:
    tables = [batch for split in plan.splits for batch in read_split(split)]
    assert all(table.schema == SCHEMAS[plan.kind] for table in tables)
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


EXPECTED = [(path, number, one) for path, records in RECORDS.items() for number, one in enumerate(records)]


@pytest.mark.quick
@pytest.mark.parametrize("split_bytes", [3000, 1 << 30])
def test_records_in_splits_of_any_size(folder: Path, split_bytes: int) -> None:
    plan = plan_splits(str(folder / "shards"), split_bytes=split_bytes)
    assert plan.kind == "recordio"
    assert rows(plan) == EXPECTED
    assert sum(split.rows for split in plan.splits) == 600
    assert (len(plan.splits) == 1) == (split_bytes == 1 << 30)
    for split in plan.splits:
        assert split.bytes <= split_bytes or len(split.items) == 1
    if split_bytes == 3000:  # large shards are cut
        assert sum(split.items[0].path == "data-00003-of-00003" for split in plan.splits) > 10


@pytest.mark.quick
@pytest.mark.parametrize(("source", "split_bytes"), [("raw", 5000), ("raw.zip", 1), ("raw.zip", 1 << 30)])
def test_files_of_trees_and_archives(folder: Path, source: str, split_bytes: int) -> None:
    plan = plan_splits(str(folder / source), split_bytes=split_bytes)
    assert plan.kind == "files"
    found = rows(plan)
    assert [(row[2], row[3]) for row in found] == [(len(FILES[path]), FILES[path]) for path in visible(FILES)]
    assert [row[0] for row in found] == [f"file://{folder}/{source}/{path}" for path in visible(FILES)]
    assert all(row[1] is not None for row in found)


@pytest.mark.quick
def test_only_the_shards_that_match_are_opened(folder: Path) -> None:
    (folder / "shards" / "data-00009-of-00009").write_bytes(b"\x04\x03\x02\x01 damaged")
    plan = plan_splits(str(folder / "shards"), keep=matching("data-0000[12]-*"))
    assert rows(plan) == [row for row in EXPECTED if row[0][9] in "12"]


@pytest.mark.quick
def test_what_changed_after_the_listing_is_an_error(folder: Path) -> None:
    for name, path in (("raw", "3/0010.jpg"), ("shards", "data-00001-of-00003")):
        plan = plan_splits(str(folder / name))
        source = "data-00002-of-00003" if name == "shards" else "3/0017.jpg"
        (folder / name / path).write_bytes((folder / name / source).read_bytes())
        with pytest.raises(StaleFileError, match="when it was listed"):
            rows(plan)


@pytest.mark.quick
def test_arguments_that_make_no_sense(folder: Path) -> None:
    with pytest.raises(ValueError, match="kind is"):
        plan_splits(str(folder), "parquet")
    with pytest.raises(ValueError, match="split_bytes"):
        plan_splits(str(folder), split_bytes=0)
    with pytest.raises(ValueError, match="credentials") as caught:
        plan_splits("s3://key:hunter2@bucket/data")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(FileNotFoundError):
        plan_splits(str(folder / "nonesuch"))
