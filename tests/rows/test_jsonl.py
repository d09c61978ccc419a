"""JSON lines: the values that json reads, from plain and compressed files, by an index that is made once a file."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import itertools
import json
import lzma
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import fsabs
from fsabs.adapters.torch import Loader, ShardedDataset, TokenDataset
from fsabs.core import errors
from fsabs.readers.data import JsonLinesDataReader, shards_of
from fsabs.readers.data import jsonl as module
from tests.rows.test_parquet import Requests

pytestmark = [pytest.mark.quick, pytest.mark.timeout(120)]


def framed(content: bytes, frames: int) -> bytes:
    """Compress content as several frames of zstd, cut anywhere."""
    size = -(-len(content) // frames) or 1
    pieces = (content[at : at + size] for at in range(0, max(1, len(content)), size))
    return b"".join(zstandard.ZstdCompressor(write_checksum=True).compress(piece) for piece in pieces)


COMPRESSIONS: dict[str, Any] = {
    ".jsonl": bytes,
    ".jsonl.gz": gzip.compress,
    ".jsonl.zst": lambda content: (
        framed(content, 5) if content else zstandard.ZstdCompressor(write_checksum=True).compress(b"")
    ),
    ".ndjson.xz": lzma.compress,
    ".json.bz2": bz2.compress,
}
ROWS = [{"id": number, "text": "é" * (number * 37 % 200), "deep": [{"n": None}]} for number in range(3000)]


def lines(rows: list[Any], *ends: bytes) -> bytes:
    rows_and_ends = zip(rows, itertools.cycle(ends or (b"\n",)), strict=False)
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + end for row, end in rows_and_ends)


@contextlib.contextmanager
def chunks_of(size: int) -> Iterator[None]:
    """Make the chunks that lines are found and shuffled by small, as files of many MiB are not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_BYTES", size)
        yield


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    with chunks_of(10_000):
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file of each compression, of 600 lines."""
    for number, (suffix, compress) in enumerate(COMPRESSIONS.items()):
        content = lines(ROWS[600 * number : 600 * number + 600])
        (tmp_path / f"part-{number}{suffix}").write_bytes(compress(content))
    return tmp_path


def ids(rows: Any) -> list[int]:
    return [row["id"] for row in rows]


def test_lines_of_all_compressions_are_jsons(folder: Path) -> None:
    assert list(ShardedDataset(folder)) == ROWS
    shuffled = ShardedDataset(folder, seed=3, window=4)
    first, second = ids(shuffled), ids(shuffled)
    assert sorted(first) == sorted(second) == list(range(3000))
    assert first != second
    plain = ids(ShardedDataset(folder / "part-0.jsonl", seed=3, window=4))
    assert len({number // 100 for number in plain[:50]}) > 2
    assert ids(ShardedDataset(f"{folder}/*-[13]*", seed=None)) == [*range(600, 1200), *range(1800, 2400)]
    assert ids(ShardedDataset(folder / "part-0.jsonl")) == list(range(600))


def test_files_of_another_format_are_not_left_out_in_silence(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "b.tar").touch()
    with pytest.warns(UserWarning, match=r"several formats: only \.jsonl.* are read, and not \.tar"):
        assert list(ShardedDataset(tmp_path)) == [{"id": 1}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(ShardedDataset(f"{tmp_path}/*.jsonl")) == [{"id": 1}]


def test_a_pass_resumes_with_other_workers(folder: Path) -> None:
    def loader(workers: int = 0) -> Loader:
        return Loader(ShardedDataset(folder, lambda row: row["id"], seed=1, window=3), 50, num_workers=workers)

    whole = [number for batch in loader() for number in batch.tolist()]
    begun = loader()
    batches = iter(begun)
    seen = [number for _ in range(17) for number in next(batches).tolist()]
    state = json.loads(json.dumps(begun.state_dict()))
    again, other = loader(), loader(2)
    again.load_state_dict(state)
    other.load_state_dict(state)
    assert seen + [number for batch in again for number in batch.tolist()] == whole
    assert sorted(seen + [number for batch in other for number in batch.tolist()]) == sorted(whole)


@given(
    rows=st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=6,
        ),
        max_size=30,
    ),
    suffix=st.sampled_from(list(COMPRESSIONS)),
    ends=st.lists(st.sampled_from([b"\n", b"\r\n", b"\n\n", b" \r\n\t\r\n\n"]), min_size=1, max_size=3),
    ended=st.booleans(),
    chunk=st.integers(1, 80),
    window=st.integers(0, 3),
    seed=st.none() | st.integers(0, 5),
)
@settings(max_examples=40)
def test_random_files(
    rows: list[Any], suffix: str, ends: list[bytes], ended: bool, chunk: int, window: int, seed: int | None
) -> None:
    store = fsabs.Memory()
    content = lines(rows, *ends)
    store.write_bytes("x" + suffix, COMPRESSIONS[suffix](content if ended else content.rstrip(b"\n")))
    with chunks_of(chunk):
        found = list(ShardedDataset(store, seed=seed, window=window))
    assert sorted(map(repr, found)) == sorted(map(repr, rows))
    if seed is None:
        assert found == rows


def test_the_index_is_made_once_a_file(folder: Path, ticked: None) -> None:
    store = Requests(fsabs.Local(str(folder)))
    expected = shards_of(JsonLinesDataReader(store))
    assert sum(size for _, size, _ in store.ranges) >= sum(path.stat().st_size for path in folder.iterdir())
    store.ranges.clear()
    assert shards_of(JsonLinesDataReader(store)) == expected
    assert not store.ranges
    reader = JsonLinesDataReader(store)
    name = shards_of(reader)[0].name
    assert ids(reader.read_at(name, [311, 7])) == [311, 7]
    assert sum(size for _, size, _ in store.ranges) < 25_000


def test_a_line_that_is_not_json_is_named_or_skipped(folder: Path) -> None:
    content = lines(ROWS[:40]) + b'{"id": \n' + lines(ROWS[40:50]) + b"}\n"
    path = folder / "bad.jsonl.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(errors.CorruptFileError, match="line 41, blank ones not counted, is not JSON") as caught:
        list(ShardedDataset(path))
    assert str(caught.value.filename).endswith("bad.jsonl.gz")
    skipping = ShardedDataset(path, on_error="skip")
    assert ids(skipping) == list(range(50))
    assert skipping.skipped == 2
    assert len(list(ShardedDataset(path, on_error="skip", seed=2))) == 50
    with pytest.raises(errors.CorruptFileError, match="max_skipped"):
        list(ShardedDataset(path, on_error="skip", max_skipped=1))


def test_blank_lines_are_no_records(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'\n\r\n{"id": 0}\n\n \t\r\n{"id": 1}\r\n{"id": 2}\n\n\n  ')
    assert ids(ShardedDataset(tmp_path)) == [0, 1, 2]
    assert len(ShardedDataset(tmp_path, on_error="skip")) == 3
    (tmp_path / "x.jsonl").write_bytes(b"\n1\n\n}\n")
    with pytest.raises(errors.CorruptFileError, match="line 2, blank ones not counted, is not JSON"):
        list(ShardedDataset(tmp_path))
    (tmp_path / "x.jsonl").write_bytes(b"\n \n")
    assert list(ShardedDataset(tmp_path)) == []


def test_a_line_that_nests_too_deep_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"1\n" + b"[" * 100_000 + b"\n2\n")
    with pytest.raises(errors.CorruptFileError, match="line 2, .* is not JSON"):
        list(ShardedDataset(tmp_path / "x.jsonl"))
    assert list(ShardedDataset(tmp_path / "x.jsonl", on_error="skip")) == [1, 2]


def test_damage_and_changes_are_errors_with_the_file(folder: Path) -> None:
    rng = random.Random(3)
    for suffix in (".jsonl.gz", ".jsonl.zst", ".ndjson.xz", ".json.bz2"):
        content = COMPRESSIONS[suffix](lines(ROWS[:100]))
        for damaged in (content[:-9], content[: len(content) // 2], content + b"\0" * 9 + content[:9]):
            (folder / f"damaged{suffix}").write_bytes(damaged)
            with pytest.raises(errors.CorruptFileError, match="damaged"):
                list(ShardedDataset(folder / f"damaged{suffix}"))
        for _ in range(20):
            changed = bytearray(content)
            changed[rng.randrange(20, len(content) - 20)] ^= 1 << rng.randrange(8)
            store = fsabs.Memory()
            store.write_bytes(f"damaged{suffix}", bytes(changed))
            with pytest.raises(errors.CorruptFileError, match="damaged"):
                list(ShardedDataset(store))
    data = ShardedDataset(folder / "part-0.jsonl")
    state = Loader(data).state_dict()
    (folder / "part-0.jsonl").write_bytes(lines(ROWS[1:601]))
    with pytest.raises(errors.StaleFileError, match=r"part-0.jsonl"):
        list(data)
    with pytest.raises(ValueError, match=r"the content of part-0.jsonl differs"):
        Loader(ShardedDataset(folder / "part-0.jsonl")).load_state_dict(state)


def test_a_bomb_is_refused_before_its_line_is_in_memory(tmp_path: Path) -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    content = [packer.compress(b'"' + bytes(1 << 20)) for _ in range(40)]
    (tmp_path / "a.jsonl.zst").write_bytes(b"".join(content) + packer.flush())
    with pytest.raises(OSError, match=r"a decompression bomb.*max_ratio.*a\.jsonl\.zst") as caught:
        ShardedDataset(tmp_path)
    assert caught.value.errno == errno.EFBIG
    with fsabs.from_url(str(tmp_path), limits=fsabs.Limits(max_ratio=None)) as fs:
        assert len(JsonLinesDataReader(fs).create_shards()) == 1


def test_empty_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "b.jsonl").write_bytes(b"[1]")
    assert list(ShardedDataset(tmp_path)) == [[1]]
    assert list(ShardedDataset(tmp_path, seed=1)) == [[1]]
    with pytest.raises(FileNotFoundError):
        ShardedDataset(tmp_path / "missing.jsonl")
    with pytest.raises(ValueError, match="on_error"):
        JsonLinesDataReader(tmp_path, on_error="ignore")  # type: ignore[arg-type]


def test_lines_are_packed(folder: Path) -> None:
    data = TokenDataset(folder, 63, tokenize=lambda row: [row["id"]] * (1 + row["id"] % 3), overlap=False, seed=1)
    tokens = [token for window in data for token in window["tokens"][window["segments"] >= 0].tolist()]
    assert sorted(tokens) == sorted(number for number in range(3000) for _ in range(1 + number % 3))
