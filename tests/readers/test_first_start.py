"""The shards of a data set are opened in parallel, once each, and not again at the next start."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import threading
import zipfile
from typing import Any

import pytest

from fsabs import FS
from fsabs.backends.memory import Memory
from fsabs.readers.data import AbstractDataReader, ArchiveDataReader, MDSDataReader, Task, TextDataReader, shards_of
from tests.backends.s3_clients import new_bucket, settings
from tests.servers.network import FaultProxy

SHARDS = 20


def zip_of(number: int) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for sample in range(3):
            archive.writestr(f"{sample}.txt", f"{number} {sample}")
    return data.getvalue()


def tar_of(number: int) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for sample in range(3):
            info = tarfile.TarInfo(f"{sample}.txt")
            content = f"{number} {sample}".encode().ljust(40_000)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def mds_of(count: int) -> dict[str, bytes]:
    """Shards of one column of text, and their index."""
    files, shards = {}, []
    for number in range(count):
        samples = [struct.pack("<I", 3) + f"{number:02}{sample}".encode() for sample in range(3)]
        start = 4 * 5 + 2
        offsets = [start + 7 * at for at in range(4)]
        data = struct.pack("<5I", 3, *offsets) + b"{}" + b"".join(samples)
        name = f"shard.{number:05}.mds"
        files[name] = data
        shards.append(
            {
                "format": "mds",
                "version": 2,
                "raw_data": {"basename": name, "bytes": len(data), "hashes": {}},
                "zip_data": None,
                "compression": None,
                "column_names": ["text"],
                "column_encodings": ["str"],
                "column_sizes": [None],
                "samples": 3,
            }
        )
    return {**files, "index.json": json.dumps({"version": 2, "shards": shards}).encode()}


def files_of(kind: str) -> dict[str, bytes]:
    if kind == "mds":
        return mds_of(SHARDS)
    make = zip_of if kind == "zip" else tar_of
    return {f"{number:02}.{kind}": make(number) for number in range(SHARDS)}


def started(fs: FS, kind: str) -> AbstractDataReader:
    """Return a reader that knows what a data set needs before its first batch."""
    reader = MDSDataReader(fs) if kind == "mds" else ArchiveDataReader(fs)
    shards = shards_of(reader)
    assert len(shards) == SHARDS
    assert all(shard.count == 3 and reader.content_of(shard.name).digest for shard in shards)
    return reader


@pytest.mark.parametrize("kind", ["zip", "tar", "mds"])
def test_shards_cost_two_requests_at_most_and_nothing_later(moto: Any, kind: str) -> None:
    bucket = new_bucket(moto)
    bucket.write_many(files_of(kind))
    with FaultProxy.before(moto.endpoint) as proxy:
        for most in ((2 if kind == "tar" else 1) * SHARDS + 4, 4):
            fs = type(bucket)(bucket.bucket, **settings(moto, endpoint=proxy.endpoint))
            proxy.clear()
            reader = started(fs, kind)
            assert len(proxy.requests()) <= most
        name = shards_of(reader)[7].name
        assert len(list(reader.read_records(Task(0, name, 0, 3)))) == 3


class AllAtOnce(Memory):
    """Files that can be opened only all at once."""

    default_concurrency = SHARDS
    barrier: threading.Barrier | None = None

    def _open_blob(self, *arguments: Any) -> Any:
        if self.barrier is not None and arguments[0].endswith((".zip", ".tar", ".mds")):
            self.barrier.wait(30)
        return super()._open_blob(*arguments)


@pytest.mark.parametrize("kind", ["zip", "mds"])
def test_shards_are_opened_in_parallel(kind: str) -> None:
    fs = AllAtOnce()
    fs.write_many(files_of(kind))
    fs.barrier = threading.Barrier(SHARDS)
    started(fs, kind)


def test_rows_of_text_are_counted_once(moto: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = new_bucket(moto)
    bucket.write_bytes("rows.csv", b"".join(b"%d,x\n" % number for number in range(20_000)))
    url = f"s3://{bucket.bucket}/rows.csv"
    with FaultProxy.before(moto.endpoint) as proxy:
        for name, value in {**moto.environment, "S3_ENDPOINT": proxy.endpoint}.items():
            monkeypatch.setenv(name, value)
        assert len(TextDataReader(url)) == 20_000
        proxy.clear()
        again = TextDataReader(url)
        assert len(again) == 20_000
        assert proxy.traffic().body_down < 10_000
        assert list(again.read_records(Task(0, again.create_shards()[0].name, 19_999, 20_000))) == ["19999,x\n"]
