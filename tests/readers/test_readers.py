"""The readers together: what importing them costs, what they tell, and data on S3."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import readers
from fsabs.core import hooks
from fsabs.core.errors import StaleFileError
from fsabs.readers import Index, RecordReader, RecordWriter
from fsabs.readers.paddle import creator
from fsabs.readers.sharded import convert, verify
from tests.servers.moto import MotoServer

SAMPLES = Path(__file__).parent / "samples"


def test_importing_the_readers_loads_no_heavy_library_and_needs_no_isal() -> None:
    names = ("numpy", "pyarrow", "boto3", "google_crc32c", "torch", "dataclasses", "asyncio")
    code = f"""
import sys, zlib
sys.modules["isal"] = None
import fsabs.readers.sharded, fsabs.readers.paddle
from fsabs.readers.recordio import RecordReader, format
print([name for name in {names} if name in sys.modules])
assert format.crc32 is zlib.crc32
fs = fsabs.from_url({str(SAMPLES)!r})
print(sum(len(list(RecordReader(fs, name))) for name in fs.glob("*.recordio")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", str(3 + 6 + 3 + 3 + 8 + 3 + 200)]


@pytest.mark.quick
def test_decompression_is_told_to_the_instrument() -> None:
    told: list[tuple[Any, ...]] = []

    class Instrument(hooks.Instrument):
        def record_span(self, *what: Any, **more: Any) -> None:
            told.append(what)

    fs = fsabs.Memory()
    with RecordWriter(fs, "f", compressor="gzip") as writer:
        writer.write(b"x" * 100)
    before = hooks.install(Instrument())
    try:
        list(RecordReader(fs, "f"))
    finally:
        hooks.install(before)
    assert [(kind, size, where) for kind, name, _, size, where in told if name == "recordio.decompress"] == [
        ("decompress", 104, "memory:///f")
    ]


def test_on_s3(moto: MotoServer) -> None:
    moto.create_bucket("recordio")
    options: dict[str, Any] = {"endpoint": moto.endpoint, "aws_access_key_id": moto.access_key}
    options |= {"aws_secret_access_key": moto.secret_key, "region": moto.region}
    with fsabs.from_url("s3://recordio/sets", **options) as fs:
        names = convert(fs, lambda: iter(range(20_000)), 3, "p", workers=2, max_chunk_bytes=2000)
        assert verify(fs).records == 20_000
        reader = RecordReader(fs, names[1], cache_bytes=5000)
        assert [readers.decode(record) for record in reader.read_many([0, 6000, -1])] == [1, 18_001, 19_999]
        copy = pickle.loads(pickle.dumps(reader))
        assert len(list(copy)) == 6667
        assert Index.load(fs, names[1]).records == 6667
        convert(fs, lambda: iter(range(9)), 3, "p")
        with pytest.raises(StaleFileError, match=r"chunk \d+ at offset \d+ \(records .*p-00001-of-00002"):
            reader.read_many(range(0, 6667, 100))
        assert verify(fs).records == 9
        assert sorted(creator.RecordIO("p-*", fs=fs)()) == list(range(9))
