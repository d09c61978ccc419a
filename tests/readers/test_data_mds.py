"""MDSDataReader: shards that MosaicML Streaming 0.13 wrote (samples/mds), and shards that are damaged."""

from __future__ import annotations

import json
import pickle
import random
import re
import shutil
import struct
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsabs
from fsabs import CorruptFileError
from fsabs.readers.data import MDSDataReader, Task, shards_of
from fsabs.readers.data.mds import decoder_of

pytestmark = pytest.mark.quick

SAMPLES = Path(__file__).parent / "samples" / "mds"
TYPES = ["int8", "float16", "uint64", "int32"]
NUMBERS = {"raw": 12, "zstd": 8, "gz": 8}


def expected(n: int) -> dict[str, Any]:
    """Return sample `n` without its images."""
    return {
        "id": n - 3,
        "text": "näme " * (n % 3),
        "raw": bytes(range(n % 5)),
        "weights": np.arange(1 + n % 4, dtype=TYPES[n % 4]).reshape(1, -1),
        "pair": np.full((2, 1 + n % 2), n / 7, dtype="float32"),
        "grid": np.full((2, 3), n, dtype="uint8"),
        "loss": n / 3,
        "big": 10 ** (20 + n),
        "part": n / 7,
        "sum": Decimal(n) / 8,
        "meta": {"n": [n, None]},
    }


def check(sample: dict[str, Any], n: int) -> None:
    for name, value in expected(n).items():
        if isinstance(value, np.ndarray):
            assert sample[name].dtype == value.dtype
            assert np.array_equal(sample[name], value)
            sample[name][...] = 0  # it is the caller's own
        else:
            assert sample[name] == value
            assert type(sample[name]) in (type(value), np.float64)
    assert (sample["image"].size, sample["image"].getpixel((2, 1))) == ((3, 2), n)
    assert (sample["pixels"].mode, sample["pixels"].getpixel((1, 1))) == ("RGB", (n, 1, 2))
    assert len(sample) == len(expected(n)) + 2


def read_all(reader: MDSDataReader) -> list[dict[str, Any]]:
    return [
        record for shard in shards_of(reader) for record in reader.read_records(Task(0, shard.name, 0, shard.count))
    ]


@pytest.mark.parametrize("kind", NUMBERS)
def test_what_streaming_wrote(kind: str) -> None:
    reader = MDSDataReader(SAMPLES / kind)
    records = read_all(reader)
    assert len(records) == NUMBERS[kind]
    for n, record in enumerate(records):
        check(record, n)
    first = shards_of(reader)[0]
    assert [record["id"] for record in reader.read_at(first.name, [5, 0, 5])] == [2, -3, 2]
    assert reader.metadata.column_names == sorted(record)
    reader.close()
    copy = pickle.loads(pickle.dumps(reader))
    check(next(copy.read_at(first.name, [4])), 4)
    assert copy.content_of(first.name) == reader.content_of(first.name)
    with pytest.raises(CorruptFileError, match="record 99"):
        list(reader.read_at(first.name, [99]))


def test_an_fs_as_the_directory() -> None:
    fs = fsabs.Memory()
    for path in (SAMPLES / "raw").iterdir():
        fs.write_bytes(path.name, path.read_bytes())
    reader = MDSDataReader(fs)
    shards = shards_of(reader)
    assert [shard.count for shard in shards] == [9, 3]
    assert next(reader.read_at(shards[1].name, [1]))["id"] == 7
    assert shards[1].name == fs.url("shard.00001.mds")


def test_a_copy_has_the_same_content_and_another_shard_has_not(tmp_path: Path) -> None:
    for kind in NUMBERS:
        copy = shutil.copytree(SAMPLES / kind, tmp_path / kind)
        here, there = MDSDataReader(SAMPLES / kind), MDSDataReader(copy)
        contents = [there.content_of(shard.name) for shard in shards_of(there)]
        assert contents == [here.content_of(shard.name) for shard in shards_of(here)]
        assert len(set(contents)) == len(contents)
        assert all(content.digest for content in contents) == (kind != "gz")


def edited(tmp_path: Path, kind: str, edit: Callable[[dict[str, Any]], Any]) -> Path:
    """Return a copy with another index."""
    folder = shutil.copytree(SAMPLES / kind, tmp_path / kind)
    index = json.loads((folder / "index.json").read_text())
    edit(index)
    (folder / "index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize(("name", "codec"), [("br:5", "brotli"), ("snappy", "snappy")])
def test_shards_that_are_compressed_otherwise(tmp_path: Path, name: str, codec: str) -> None:
    import gzip

    import pyarrow

    def compressed(index: dict[str, Any]) -> None:
        for shard in index["shards"]:
            path = tmp_path / "gz" / shard["zip_data"]["basename"]
            data = pyarrow.compress(gzip.decompress(path.read_bytes()), codec=codec, asbytes=True)
            path.write_bytes(data)
            shard["zip_data"].update(bytes=len(data), hashes={})
            shard["compression"] = name

    found = read_all(MDSDataReader(edited(tmp_path, "gz", compressed)))
    good = read_all(MDSDataReader(SAMPLES / "gz"))
    assert re.sub("0x[0-9A-F]+", "", repr(found)) == re.sub("0x[0-9A-F]+", "", repr(good))  # of images
    path = next((tmp_path / "gz").glob("shard*"))
    for damaged in (path.read_bytes()[:-7], b"\xff" + path.read_bytes()[1:]):
        path.write_bytes(damaged.ljust(path.stat().st_size, b"\0"))
        with pytest.raises(CorruptFileError):
            read_all(MDSDataReader(tmp_path / "gz"))


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda index: index.update(version=3), "version 3"),
        (lambda index: index["shards"][0].update(format="csv"), "'csv'"),
        (lambda index: index["shards"][0].update(compression="lzo:5"), "'lzo'.*zstd"),
        (lambda index: index["shards"][0]["column_encodings"].__setitem__(0, "pkl"), "allow_pickle=True"),
        (lambda index: index["shards"][0]["column_encodings"].__setitem__(0, "video"), "'video'"),
        (lambda index: index["shards"][0]["column_encodings"].__setitem__(0, "ndarray:complex64"), "complex64"),
        (lambda index: index["shards"][0].update(column_sizes=[]), "index.json"),
        (lambda index: index["shards"][0].update(samples=-1), "-1"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, edit: Callable[[dict[str, Any]], Any], match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        MDSDataReader(edited(tmp_path, "zstd", edit)).create_shards()
    assert "index.json" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "edit", "match"),
    [
        ("raw", lambda index: index.pop("shards"), "KeyError"),
        ("raw", lambda index: index["shards"][0].update(samples=7), "index says 7"),
        ("raw", lambda index: index["shards"][0].update(samples=7_000_000), "7000000"),
        ("raw", lambda index: index["shards"][0]["raw_data"].update(bytes=5), "index says 5"),
        ("raw", lambda index: index["shards"][0]["column_sizes"].__setitem__(2, 16), "sample 0, column"),
        ("zstd", lambda index: index["shards"][0]["raw_data"].update(bytes=2582), "2582"),
        ("zstd", lambda index: index["shards"][0]["zip_data"]["hashes"].update(sha1="0" * 40), "sha1"),
        ("gz", lambda index: index["shards"][0]["raw_data"].update(bytes=9999), "9999"),
    ],
)
def test_an_index_that_is_wrong(tmp_path: Path, kind: str, edit: Callable[[dict[str, Any]], Any], match: str) -> None:
    reader = MDSDataReader(edited(tmp_path, kind, edit))
    with pytest.raises(CorruptFileError, match=match) as caught:
        read_all(reader)
    assert str(tmp_path) in str(caught.value.filename)


@pytest.mark.parametrize("samples", [7000, 10**30])
def test_more_samples_than_a_shard_has_room_for_are_refused_by_the_index(tmp_path: Path, samples: int) -> None:
    """Before there is a plan for them, which may grow with their number."""
    folder = edited(tmp_path, "zstd", lambda index: index["shards"][0].update(samples=samples))
    with pytest.raises(CorruptFileError, match=rf"{samples} samples of the shard.*index\.json"):
        MDSDataReader(folder).create_shards()


def test_a_path_that_leads_out_is_refused(tmp_path: Path) -> None:
    folder = edited(tmp_path, "raw", lambda index: index["shards"][0]["raw_data"].update(basename="../secret.mds"))
    shutil.copy(SAMPLES / "raw" / "shard.00000.mds", tmp_path / "secret.mds")
    with pytest.raises((OSError, ValueError), match=r"\.\.|index\.json"):
        read_all(MDSDataReader(folder))


@pytest.mark.parametrize("kind", NUMBERS)
def test_damage_is_an_error_that_names_the_file_or_changes_a_value(tmp_path: Path, kind: str) -> None:
    folder = shutil.copytree(SAMPLES / kind, tmp_path / kind)
    path = next(folder.glob("shard.00000*"))
    good, source = path.read_bytes(), random.Random(5)
    for _ in range(60):
        data = bytearray(good)
        for _ in range(source.choice((1, 1, 4))):
            data[source.randrange(len(data))] = source.randrange(256)
        if source.random() < 0.2:
            del data[source.randrange(len(data)) :]
        path.write_bytes(data)
        reader = MDSDataReader(folder)
        failure: CorruptFileError | None = None
        try:
            records = read_all(reader)
        except CorruptFileError as exc:
            failure = exc
        assert (path.name in str(failure.filename)) if failure else (len(records) == NUMBERS[kind])
        assert failure or kind != "zstd" or data == good  # its hash is in the index
        reader.close()


def test_a_bomb_is_cut_off(tmp_path: Path) -> None:
    folder = shutil.copytree(SAMPLES / "gz", tmp_path / "gz")
    path = next(folder.glob("shard*"))
    packer = zlib.compressobj(9, wbits=31)
    path.write_bytes(packer.compress(bytes(50_000_000)) + packer.flush())
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0]["zip_data"]["bytes"] = path.stat().st_size
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptFileError, match="decompresses to other"):
        read_all(MDSDataReader(folder))


def test_the_values_of_other_encodings() -> None:
    assert decoder_of("uint16", False)(b"\x01\x02") == 513
    assert decoder_of("pkl", True)(pickle.dumps({1: 2})) == {1: 2}
    png = (SAMPLES / "raw" / "shard.00000.mds").read_bytes()
    png = png[png.index(b"\x89PNG") : png.index(b"IEND") + 8]
    two = struct.pack("<2I", len(png), len(png)) + png + png
    assert [image.size for image in decoder_of("list[png]", False)(struct.pack("<2I", 0, 2) + two)] == [(3, 2)] * 2
    assert [image.size for image in decoder_of("jpegarray", False)(struct.pack("<I", 2) + two)] == [(3, 2)] * 2
    for encoding, data in [
        ("int", b"123"),
        ("float32", b"12345"),
        ("str", b"\xff"),
        ("str_int", b"x"),
        ("str_decimal", b"x"),
        ("json", b"{"),
        ("png", b"no image"),
        ("pil", b"\0" * 11),
        ("pil", struct.pack("<3I", 1, 1, 99)),
        ("ndarray", b""),
        ("ndarray", b"\x07"),
        ("ndarray", b"\x08"),
        ("ndarray", b"\x08\x05\x00"),
        ("ndarray:uint8", b"\x04\x05\x00"),
        ("list[png]", struct.pack("<3I", 0, 1, 99)),
        ("pkl", b"no pickle"),
    ]:
        with pytest.raises(ValueError):
            decoder_of(encoding, True)(data)


def test_no_room_is_made_for_an_image_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="3 bytes for an image of 5000 by 5000 pixels"):
        decoder_of("pil", False)(struct.pack("<3I", 5000, 5000, 3) + b"RGBxyz")
    bits = decoder_of("pil", False)(struct.pack("<3I", 16, 2, 1) + b"1" + b"\xff\x00" * 2)
    assert (bits.mode, bits.getpixel((0, 0)), bits.getpixel((15, 1))) == ("1", 255, 0)
