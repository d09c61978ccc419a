"""Parquet files: rows right against pyarrow's own reading, only the wanted bytes fetched, damage named."""

from __future__ import annotations

import base64
import datetime
import errno
import io
import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fsabs
from fsabs.adapters.torch import Loader, ShardedDataset
from fsabs.core import errors
from fsabs.core.blobs import Blob
from fsabs.core.layers import LayerFS
from fsabs.readers.data import ParquetDataReader, shards_of
from fsabs.readers.data.parquet import assembled
from fsabs.readers.epochs.reading import batches_of

pytestmark = [pytest.mark.quick, pytest.mark.timeout(120)]


class Requests(LayerFS):
    """Notes what is read of a store, and what Arrow holds then."""

    def __init__(self, inner: fsabs.FS) -> None:
        super().__init__(inner)
        self.ranges: list[tuple[str, int, int]] = []
        self.held: list[int] = []

    def _open_blob(self, key: str, *how: Any) -> Blob:
        return _CountingBlob(self, key, self.inner._open_blob(key, *how))


class _CountingBlob(Blob):
    def __init__(self, fs: Requests, key: str, blob: Blob) -> None:
        super().__init__(fs, key, blob.size, blob.version)
        self._blob, self._fs = blob, fs

    def _pread(self, size: int, offset: int) -> bytes:
        self._fs.ranges.append((self._key, size, offset))
        self._fs.held.append(pa.total_allocated_bytes())
        return self._blob.pread(size, offset)


def table(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": [f"row {number}" for number in numbers],
            "words": [[str(number)] * (number % 4) if number % 5 else None for number in numbers],
            "meta": [{"lang": "en" if number % 2 else None, "n": number} for number in numbers],
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of 300 rows, in row groups of 70."""
    for number in range(3):
        pq.write_table(table(number * 300, number * 300 + 300), tmp_path / f"part-{number}.parquet", row_group_size=70)
    return tmp_path


def ids(rows: Any) -> list[int]:
    return [row["id"] for row in rows]


# ---- right rows


def test_rows_in_order_are_pyarrows(folder: Path) -> None:
    assert list(ShardedDataset(folder)) == table(0, 900).to_pylist()
    assert list(ShardedDataset(f"{folder}/part-[12].parquet")) == table(300, 900).to_pylist()
    assert list(ShardedDataset(folder / "part-1.parquet", columns=["text", "id"])) == (
        table(300, 600).select(["text", "id"]).to_pylist()
    )


def test_record_batches(folder: Path) -> None:
    batches = list(ShardedDataset(folder, batch_size=128))
    assert [batch.num_rows for batch in batches] == [128] * 7 + [4]
    assert pa.Table.from_batches(batches).to_pylist() == table(0, 900).to_pylist()
    named = ShardedDataset(folder, lambda batch: batch["id"].to_pylist(), batch_size=200)
    assert list(named)[-1] == list(range(800, 900))


def test_a_batch_that_arrow_cannot_hold_is_an_error() -> None:
    class Large:
        """A table of three rows with strings of a GiB."""

        num_rows = 3

        def slice(self, *part: int) -> Large:
            return self

        def combine_chunks(self) -> Large:
            return self

        def to_batches(self) -> list[Any]:
            batches: list[Any] = table(0, 3).to_batches(2)
            return batches

    with pytest.raises(ValueError, match="smaller batch_size"):
        next(batches_of(iter([(Large(), np.arange(3))]), 3))


def test_rows_are_shuffled_across_row_groups(folder: Path) -> None:
    data = ShardedDataset(folder, columns=["id"], seed=3, window=4)
    first, second = ids(data), ids(data)
    assert sorted(first) == sorted(second) == list(range(900))
    assert first != second
    assert len({number // 70 for number in first[:70]}) > 3  # rows of several groups follow each other
    assert ids(ShardedDataset(folder, columns=["id"], seed=3, window=4)) == first
    batches = ShardedDataset(folder, columns=["id"], seed=3, window=4, batch_size=64)
    assert [number for batch in batches for number in batch["id"].to_pylist()] == first
    whole = ids(ShardedDataset(folder, columns=["id"], seed=3, window=0))
    assert whole != first
    assert sum(after == before + 1 for before, after in itertools.pairwise(whole)) >= 900 - 16


def test_large_row_groups_are_read_in_parts(tmp_path: Path) -> None:
    for number in range(2):
        pq.write_table(table(number * 5000, number * 5000 + 5000), tmp_path / f"{number}.parquet")
    reader = ParquetDataReader(tmp_path, columns=["id", "words"], chunk_bytes=20_000)
    data = ShardedDataset(reader, seed=1, window=2)
    seen = ids(data)
    assert sorted(seen) == list(range(10_000))
    assert seen != sorted(seen)
    order = reader.order(shards_of(reader), 1, 2)
    assert int(order.blocks[:, 2].max()) < 1000
    assert list(ShardedDataset(ParquetDataReader(tmp_path, chunk_bytes=20_000))) == table(0, 10_000).to_pylist()


def test_the_rows_before_a_part_of_a_large_row_group_are_not_held(tmp_path: Path) -> None:
    rows = 40_000
    texts = pa.array([f"{number:01000}" for number in range(rows)])
    pq.write_table(pa.table({"text": texts}), tmp_path / "x.parquet", use_dictionary=False, row_group_size=rows)
    del texts
    store = Requests(fsabs.Local(str(tmp_path)))
    reader = ParquetDataReader(store, chunk_bytes=1 << 20)
    (shard,) = shards_of(reader)
    store.held.clear()
    assert list(reader.read_at(shard.name, [rows - 1])) == [{"text": f"{rows - 1:01000}"}]
    assert max(store.held) - store.held[0] < 10 << 20  # of 40 MB


@pytest.mark.parametrize("chunk_bytes", [1 << 20, 100])
def test_views_are_read_as_strings(chunk_bytes: int, tmp_path: Path) -> None:
    view = pa.string_view()

    def part(start: int) -> pa.Table:  # pyarrow slices no lists of views
        texts = [f"a text of {number}" for number in range(start, start + 10)]
        columns = {
            "text": pa.array(texts, view),
            "data": pa.array([text.encode() for text in texts], pa.binary_view()),
            "words": pa.array([[text, None] for text in texts], pa.list_(view)),
            "pair": pa.array([[text, text] for text in texts], pa.list_(view, 2)),
            "meta": pa.array([{"a": text} for text in texts], pa.struct([("a", view)])),
            "map": pa.array([[(text, text)] for text in texts], pa.map_(view, view)),
        }
        return pa.table(columns)

    parts = [part(start) for start in range(0, 40, 10)]
    rows = [row for each in parts for row in each.to_pylist()]
    with pq.ParquetWriter(tmp_path / "x.parquet", parts[0].schema) as writer:
        for each in parts:
            writer.write_table(each)
    reader = ParquetDataReader(tmp_path, chunk_bytes=chunk_bytes)
    assert list(ShardedDataset(reader)) == rows
    assert sorted(ShardedDataset(reader, seed=1), key=str) == sorted(rows, key=str)
    batches = list(ShardedDataset(reader, seed=1, batch_size=7))
    assert {batch.schema.field("text").type for batch in batches} == {reader.schema.field("text").type} == {pa.string()}
    assert sorted((row for batch in batches for row in batch.to_pylist()), key=str) == sorted(rows, key=str)


def test_categories_of_several_files_are_more_than_the_indices_of_one_can_number(tmp_path: Path) -> None:
    narrow = pa.dictionary(pa.int8(), pa.string())
    rows = []
    for name in "ab":
        column = pa.array([f"{name}{number}" for number in range(100)]).dictionary_encode().cast(narrow)
        columns = {
            "plain": column,
            "in_struct": pa.StructArray.from_arrays([column], ["of"]),
            "in_list": pa.ListArray.from_arrays(list(range(101)), column),
        }
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
        rows += pa.table(columns).to_pylist()
    assert sorted(ShardedDataset(tmp_path, seed=1), key=str) == sorted(rows, key=str)
    for seed in (None, 1):
        batches = list(ShardedDataset(tmp_path, seed=seed, batch_size=150))
        assert {str(batch.schema.field("plain").type.index_type) for batch in batches} == {"int32"}
        assert sorted((row for batch in batches for row in batch.to_pylist()), key=str) == sorted(rows, key=str)


def test_rows_in_archives(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    away = tmp_path_factory.mktemp("packed")
    (away / "in").mkdir()
    fsabs.pack(fsabs.Local(str(folder)), fsabs.Local(str(away)), "in/data.tar")
    fsabs.pack(fsabs.Local(str(away / "in")), fsabs.Local(str(away)), "outer.zip")
    seen = ids(ShardedDataset(f"{away}/outer.zip/data.tar/*.parquet", columns=["id"], seed=0))
    assert sorted(seen) == list(range(900))


VALUES = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=20),
    pa.bool_(): st.booleans(),
    pa.list_(pa.int16()): st.lists(st.one_of(st.none(), st.integers(-100, 100)), max_size=4),
    pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))]): st.fixed_dictionaries(
        {"a": st.one_of(st.none(), st.integers(-128, 127)), "b": st.lists(st.text(max_size=3), max_size=2)}
    ),
    pa.map_(pa.string(), pa.int32()): st.lists(
        st.tuples(st.text(max_size=3), st.integers(0, 9)), max_size=2, unique_by=lambda item: item[0]
    ),
}


@st.composite
def tables(draw: Any) -> pa.Table:
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    rows = draw(st.integers(0, 60))
    columns = [
        pa.array(draw(st.lists(st.one_of(st.none(), VALUES[kind]), min_size=rows, max_size=rows)), kind)
        for kind in kinds
    ]
    return pa.table(columns, names=[f"c{number}" for number in range(len(kinds))])


@given(
    data=tables(),
    group=st.integers(1, 70),
    compression=st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
    dictionary=st.booleans(),
    version=st.sampled_from(["1.0", "2.0"]),
    page=st.sampled_from([64, 1 << 20]),
    window=st.integers(0, 3),
    chunk_bytes=st.sampled_from([100, 1 << 20]),
    seed=st.one_of(st.none(), st.integers(0, 9)),
)
@settings(max_examples=1000 if os.environ.get("SOAK_MINUTES") else 60)
def test_random_files_are_read_as_pyarrow_reads_them(
    tmp_path_factory: pytest.TempPathFactory,
    data: pa.Table,
    group: int,
    compression: str,
    dictionary: bool,
    version: str,
    page: int,
    window: int,
    chunk_bytes: int,
    seed: int | None,
) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(
        data,
        sink,
        row_group_size=group,
        compression=compression,
        use_dictionary=dictionary,
        data_page_version=version,
        data_page_size=page,
    )
    content = sink.getvalue().to_pybytes()
    store = fsabs.Memory()
    store.write_bytes("a.parquet", content)
    expected = pq.read_table(pa.BufferReader(content)).to_pylist()
    reader = ParquetDataReader(store, chunk_bytes=chunk_bytes)
    found = list(ShardedDataset(reader, seed=seed, window=window))
    if seed is None:
        assert found == expected
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    last = data.column_names[-1]
    only = list(ShardedDataset(store, columns=[last]))
    assert only == [{last: row[last]} for row in expected]


# ---- only the wanted bytes, and each once


def test_only_the_wanted_columns_are_fetched(tmp_path: Path) -> None:
    wide = pa.table({f"c{number}": [random.Random(number).random() for _ in range(4000)] for number in range(40)})
    pq.write_table(wide, tmp_path / "wide.parquet", row_group_size=500, use_dictionary=False)
    store = Requests(fsabs.Local(str(tmp_path)))
    data = ShardedDataset(store, columns=["c3", "c17"], batch_size=500, max_bytes=None)
    footer = sum(size for _, size, _ in store.ranges)
    store.ranges.clear()
    assert sum(batch.num_rows for batch in data) == 4000
    parsed = pq.read_metadata(tmp_path / "wide.parquet")
    wanted = sum(parsed.row_group(group).column(at).total_compressed_size for group in range(8) for at in (3, 17))
    assert wanted <= sum(size for _, size, _ in store.ranges) <= 1.1 * wanted + footer


def test_a_footer_is_one_request_and_is_kept(folder: Path, ticked: None) -> None:
    store = Requests(fsabs.Local(str(folder)))
    shards_of(ParquetDataReader(store))
    assert len(store.ranges) == 3
    shards_of(ParquetDataReader(store))
    assert len(store.ranges) == 3


def test_filters_leave_row_groups_out(folder: Path) -> None:
    store = Requests(fsabs.Local(str(folder)))
    data = ShardedDataset(store, columns=["id"], filters=[("id", ">=", 415), ("id", "<", 800)], max_bytes=None)
    store.ranges.clear()
    seen = ids(data)
    assert set(range(415, 800)) <= set(seen)
    assert len(seen) < 600
    assert not [key for key, _, _ in store.ranges if key == "part-0.parquet"]
    either = ShardedDataset(folder, columns=["id"], filters=[[("id", "=", 3)], [("id", "in", [899])]], seed=1)
    assert sorted(ids(either)) == [*range(70), *range(880, 900)]
    expression = (pc.field("id") == 3) | (pc.field("id") == 899)
    assert ids(ShardedDataset(folder, columns=["id"], filters=expression)) == [*range(70), *range(880, 900)]
    assert len(ids(ShardedDataset(folder, columns=["id"], filters=[]))) == 900
    with pytest.raises(ValueError, match="nothing == 3.* fit"):
        ShardedDataset(folder, filters=pc.field("nothing") == 3)
    with pytest.raises(ValueError, match="no condition"):
        ShardedDataset(folder, filters=[("id", "like", 3)])
    with pytest.raises(ValueError, match="'nothing'"):
        ShardedDataset(folder, filters=[("nothing", "=", 3)])


def test_filters_leave_no_row_out_that_pyarrow_gives(tmp_path: Path) -> None:
    values = [*(1, None), *(1, 1), *(None, None), *(1, 2), *(2, None), *(2, 3)]
    pq.write_table(pa.table({"x": values}), tmp_path / "x.parquet", row_group_size=2)
    for operation in ("=", "!=", "<", "<=", ">", ">=", "in", "not in"):
        filters = [("x", operation, [1] if "in" in operation else 1)]
        wanted = pq.read_table(tmp_path / "x.parquet", filters=filters).to_pylist()
        seen = list(ShardedDataset(tmp_path, filters=filters))
        assert all(seen.count(row) >= wanted.count(row) for row in wanted), operation


def test_filters_of_iterators_and_of_times_that_python_has_not(folder: Path, tmp_path: Path) -> None:
    once = ShardedDataset(folder, columns=["id"], filters=[("id", "in", iter([3, 899]))])
    assert ids(once) == [*range(70), *range(880, 900)]
    far = tmp_path / "far" / "x.parquet"
    far.parent.mkdir()
    pq.write_table(pa.table({"id": [1], "until": pa.array([1 << 60], pa.timestamp("us"))}), far)
    filters = [("until", ">", datetime.datetime(2026, 1, 1))]
    assert ids(ShardedDataset(far, columns=["id"], filters=filters)) == [1]


def test_row_groups_that_other_filters_add_come_with_the_next_epoch(folder: Path) -> None:
    for seed in range(4):

        def data(*others: Any, seed: int = seed) -> ShardedDataset:
            filters = [[("id", "<", 70)], *others]
            return ShardedDataset(folder / "part-0.parquet", columns=["id"], filters=filters, seed=seed, window=1)

        begun = Loader(data(), 5, collate_fn=list)
        seen = [row["id"] for batch in itertools.islice(begun, 6) for row in batch]
        more = Loader(data([("id", ">=", 140), ("id", "<", 210)]), 4, collate_fn=list)
        more.load_state_dict(begun.state_dict())
        assert sorted(seen + ids(itertools.chain.from_iterable(more))) == [*range(70)], seed
        assert sorted(ids(itertools.chain.from_iterable(more))) == [*range(70), *range(140, 210)], seed


# ---- resuming


@pytest.mark.parametrize("batch_size", [None, 32])
def test_a_pass_resumes_in_its_order_and_with_other_workers(folder: Path, batch_size: int | None) -> None:
    def loader(workers: int) -> Loader:
        data = ShardedDataset(folder, columns=["id"], seed=5, window=3, batch_size=batch_size)
        return Loader(data, None if batch_size else 16, num_workers=workers)

    def numbers(batches: Iterator[Any]) -> list[int]:
        return [int(number) for batch in batches for number in np.asarray(batch["id"])]

    whole = numbers(iter(loader(0)))
    assert sorted(whole) == list(range(900))
    begun = loader(0)
    seen = numbers(itertools.islice(iter(begun), 11))
    state = json.loads(json.dumps(begun.state_dict()))
    again = loader(0)
    again.load_state_dict(state)
    assert seen + numbers(iter(again)) == whole
    other = loader(2)
    other.load_state_dict(state)
    assert sorted(seen + numbers(iter(other))) == sorted(whole)


def test_a_state_of_row_groups_that_are_read_in_other_parts_is_refused(tmp_path: Path) -> None:
    pq.write_table(table(0, 5000), tmp_path / "0.parquet")

    def data(chunk_bytes: int, seed: int | None) -> Loader:
        reader = ParquetDataReader(tmp_path, columns=["id"], chunk_bytes=chunk_bytes)
        return Loader(ShardedDataset(reader, seed=seed, window=2), 50, collate_fn=list)

    begun = data(20_000, 1)
    next(iter(begun))
    with pytest.raises(ValueError, match="chunk_bytes"):
        data(30_000, 1).load_state_dict(begun.state_dict())
    begun = data(20_000, None)
    seen = ids(itertools.chain.from_iterable(itertools.islice(begun, 20)))
    again = data(30_000, None)
    again.load_state_dict(begun.state_dict())  # their order is that of the file
    assert seen + ids(itertools.chain.from_iterable(again)) == list(range(5000))


# ---- bad input


def damaged(folder: Path, name: str, at: int, data: bytes) -> None:
    content = bytearray((folder / name).read_bytes())
    content[at : at + len(data)] = data
    (folder / name).write_bytes(content)


def test_a_damaged_row_group_is_named_or_skipped(folder: Path) -> None:
    parsed = pq.read_metadata(folder / "part-1.parquet")
    damaged(folder, "part-1.parquet", parsed.row_group(2).column(0).dictionary_page_offset or 0, b"\xff" * 40)
    data = ShardedDataset(folder, columns=["id"])
    with pytest.raises(errors.CorruptFileError, match="row group 2") as caught:
        list(data)
    assert str(caught.value.filename).endswith("part-1.parquet")
    good = [number for number in range(900) if not 440 <= number < 510]
    skipping = ShardedDataset(folder, columns=["id"], on_error="skip")
    assert ids(skipping) == good
    assert skipping.skipped == 70
    shuffled = ShardedDataset(folder, columns=["id"], on_error="skip", seed=4, batch_size=50)
    assert sorted(number for batch in shuffled for number in batch["id"].to_pylist()) == good
    assert shuffled.skipped == 70
    with pytest.raises(errors.CorruptFileError, match="max_skipped"):
        list(ShardedDataset(folder, columns=["id"], on_error="skip", max_skipped=60))


@pytest.mark.parametrize("cut", [0, 3, 8, 11, 200])
def test_a_cut_footer_is_corrupt(folder: Path, cut: int) -> None:
    content = (folder / "part-2.parquet").read_bytes()
    (folder / "part-2.parquet").write_bytes(content[: len(content) - cut] if cut else b"PAR1" + b"\xff" * 8 + b"PAR1")
    with pytest.raises(errors.CorruptFileError) as caught:
        ShardedDataset(folder)
    assert str(caught.value.filename).endswith("part-2.parquet")


def test_any_damaged_footer_is_an_error_with_the_file(folder: Path) -> None:
    content = (folder / "part-0.parquet").read_bytes()
    size = int.from_bytes(content[-8:-4], "little")
    random_ = random.Random(7)
    for _ in range(300):
        changed = bytearray(content)
        for _ in range(random_.randint(1, 4)):
            changed[len(content) - 8 - random_.randint(1, size)] = random_.randrange(256)
        store = fsabs.Memory()
        store.write_bytes("x.parquet", bytes(changed))
        try:
            rows = list(ShardedDataset(store, max_bytes=None))
        except (OSError, ValueError) as exc:
            assert "x.parquet" in str(exc)  # noqa: PT017 - some changes do no harm
        else:
            assert len(rows) == 300


class _Keys(pe.KmsClient):  # type: ignore[misc]
    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_an_encrypted_file_is_refused(plaintext_footer: bool, folder: Path) -> None:
    wanted = pe.EncryptionConfiguration("key", column_keys={"key": ["text"]}, plaintext_footer=plaintext_footer)
    keys = pe.CryptoFactory(lambda _: _Keys()).file_encryption_properties(pe.KmsConnectionConfig(), wanted)
    with pq.ParquetWriter(folder / "part-3.parquet", table(0, 9).schema, encryption_properties=keys) as writer:
        writer.write_table(table(0, 9))
    with pytest.raises(io.UnsupportedOperation, match=r"encrypted.*part-3.parquet"):  # pyarrow could end the process
        list(ShardedDataset(folder, columns=["id"], filters=[("id", ">", 7)], on_error="skip"))


def test_a_row_group_of_more_columns_than_the_schema_is_corrupt(folder: Path) -> None:
    path = folder / "part-3.parquet"
    pq.write_table(pa.table({"id": [1], "more": [2]}), path, store_schema=False, use_dictionary=False)
    content = path.read_bytes()
    size = int.from_bytes(content[-8:-4], "little")
    footer = bytearray(content[-8 - size : -8])
    column = b"\x15\x04\x25\x02\x18\x04more\x00"  # of the schema: int64, optional, its name
    numbers = (b"\x3c\x35\x00\x18\x06schema\x15\x04", b"\x2c\x35\x00\x18\x06schema\x15\x02")  # of elements, columns
    orders = b"\x19\x2c\x1c\x00\x00\x1c\x00\x00"  # of columns
    for before, after in (numbers, (column, b""), (orders, b"")):
        assert footer.count(before) == 1
        footer = footer.replace(before, after)
    path.write_bytes(content[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(errors.CorruptFileError, match=r"other columns than the schema.*part-3.parquet"):
        list(ShardedDataset(path))


def varint(number: int) -> bytes:
    """Return an i64 as Thrift's compact protocol has it."""
    number, found = number << 1, b""
    while number >= 128:
        number, found = number >> 7, found + bytes([number & 127 | 128])
    return found + bytes([number])


def test_a_row_group_that_is_said_to_be_of_too_many_bytes_is_refused(tmp_path: Path) -> None:
    """Else there would be a plan of as many parts of it: of a file of a kilobyte, that took all memory."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(300), "more": range(300)}), path, store_schema=False)
    content = path.read_bytes()
    group = pq.read_metadata(path).row_group(0)
    size = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - size : -8]
    before = b"\x16" + varint(group.total_byte_size) + b"\x16" + varint(300)  # its bytes and rows, in the footer
    assert footer.count(before) == 1
    footer = footer.replace(before, b"\x16" + varint(1 << 60) + b"\x16" + varint(300))
    footer = footer.replace(b"\x16" + varint(300), b"\x16" + varint(1 << 40))
    path.write_bytes(content[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(OSError, match=r"a row group of 1152921504606846976 bytes.*max_ratio.*a\.parquet") as caught:
        ParquetDataReader(path).create_shards()
    assert caught.value.errno == errno.EFBIG


def test_columns_that_are_required_in_some_files_only(tmp_path: Path) -> None:
    required = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string(), nullable=False)])
    for number in range(4):
        texts = pa.array(["text", None if number % 2 else "more"] * 25)
        rows = pa.table({"id": range(50 * number, 50 * number + 50), "text": texts})
        pq.write_table(rows if number % 2 else rows.cast(required), tmp_path / f"{number}.parquet", row_group_size=20)
    reader = ParquetDataReader(tmp_path)
    for seed in (None, 1):
        assert sorted(ids(ShardedDataset(reader, seed=seed))) == list(range(200))
        batches = list(ShardedDataset(reader, seed=seed, batch_size=64))
        assert sorted(pa.Table.from_batches(batches, reader.schema)["id"].to_pylist()) == list(range(200))


def test_shards_of_other_columns_are_refused_by_name(folder: Path) -> None:
    pq.write_table(pa.table({"id": ["text"], "other": [1]}), folder / "part-3.parquet")
    with pytest.raises(ValueError, match=r"'id' of .*part-3.parquet is string, and in the first file int64"):
        ShardedDataset(folder, columns=["id"])
    with pytest.raises(ValueError, match=r"part-3.parquet has no columns \['text'\]"):
        ShardedDataset(folder, columns=["text"])
    with pytest.raises(ValueError, match=r"part-3.parquet has the columns"):
        ShardedDataset(folder)


def test_columns_of_one_name_are_refused_if_they_are_wanted(tmp_path: Path) -> None:
    rows = pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4]), pa.array([5, 6])], ["x", "id", "x"])
    pq.write_table(rows, tmp_path / "twice.parquet")
    for columns in (None, ["x"], ["id", "x"]):
        with pytest.raises(ValueError, match=r"twice.parquet has several columns of each of the names \['x'\]"):
            ShardedDataset(tmp_path, columns=columns)
    assert sorted(ids(ShardedDataset(tmp_path, columns=["id"], seed=1))) == [3, 4]


def test_empty_shards_are_no_samples(folder: Path) -> None:
    pq.write_table(table(0, 0), folder / "a-empty.parquet")
    assert ids(ShardedDataset(folder, columns=["id"])) == list(range(900))
    only = fsabs.Memory()
    only.write_bytes("e.parquet", (folder / "a-empty.parquet").read_bytes())
    assert list(ShardedDataset(only, seed=1)) == []


def test_a_file_that_changes_raises(folder: Path) -> None:
    data = ShardedDataset(folder, columns=["id"])
    state = Loader(data).state_dict()
    pq.write_table(table(7, 307), folder / "part-1.parquet", row_group_size=70)
    with pytest.raises(errors.StaleFileError, match=r"part-1.parquet"):
        list(data)
    with pytest.raises(ValueError, match=r"other shards: the content of .*part-1.parquet differs"):
        Loader(ShardedDataset(folder, columns=["id"])).load_state_dict(state)


def test_arguments_that_do_not_fit(folder: Path) -> None:
    with pytest.raises(TypeError, match="window="):
        ShardedDataset(folder, buffer_size=10)
    with pytest.raises(ValueError, match="columns is a list"):
        ShardedDataset(folder, columns="id")
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"batch_size is at least 1, .* not {wrong}"):
            ShardedDataset(folder, batch_size=wrong)
    with pytest.raises(ValueError, match="window must not be negative"):
        ShardedDataset(folder, window=-1)
    with pytest.raises(FileNotFoundError, match="no Parquet file|no file"):
        ShardedDataset(f"{folder}/*.pq")


@pytest.mark.parametrize("nested", [False, True])
def test_a_few_rows_of_chunks_with_more_than_2_gib_of_texts(nested: bool) -> None:
    starts = np.arange(1025, dtype=np.int32) << 20
    starts[-1] -= 1
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(np.zeros(1 << 30, np.uint8))]  # of which little is touched
    column = pa.Array.from_buffers(pa.string(), 1024, buffers)
    if nested:
        column = pa.StructArray.from_arrays([column], ["of"])
    table = pa.table({"text": column, "number": np.arange(1024)})
    which, within = np.array([2, 0, 1, 0, 2]), np.array([1023, 5, 6, 4, 1])
    found, places = assembled([table, None, table, table, None], np.array([0, 2, 3])[which], within)
    assert found["number"].to_pylist() == [1023, 5, 6, 4, 1]
    assert (found.slice(0, 1).nbytes, places.tolist()) == (pytest.approx(1 << 20, rel=1e-3), [0, 1, 2, 3, 4])
