"""What an earlier release has saved (`samples/saved.json`): states of loaders and jobs, a job's database, a manifest.

The data sets are made again here; the samples were saved over the same bytes.
"""

from __future__ import annotations

import io
import json
import random
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import fsabs
from fsabs import manifest
from fsabs.adapters.torch import FileDataset, Loader, RecordIODataset, ShardedDataset
from fsabs.dispatch import TaskDispatcher, schema
from fsabs.readers import RecordWriter

SAVED = json.loads((Path(__file__).parent / "samples/saved.json").read_text())


def number(sample: dict[str, bytes]) -> int:
    return int(sample["txt"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the data sets."""
    monkeypatch.chdir(tmp_path)
    shards, files = fsabs.from_url("data", create=True), fsabs.from_url("files", create=True)
    for shard in range(3):
        with RecordWriter(shards, f"{shard}.recordio", max_chunk_bytes=40) as writer:
            for record in range(20):
                writer.write(b"%d" % (20 * shard + record))
    for file in range(20):
        files.write_bytes(f"{file:03}", b"%d" % file)
    names = [f"{member:03}" for member in range(20)]
    random.Random(3).shuffle(names)
    (tmp_path / "tars").mkdir()
    (tmp_path / "zips").mkdir()
    for tar, order in (("a", names), ("b", sorted(names))):
        with tarfile.open(f"tars/{tar}.tar", "w") as archive:
            for name in order:
                info = tarfile.TarInfo(f"{name}.txt")
                info.size = 3
                archive.addfile(info, io.BytesIO(name.encode()))
    with zipfile.ZipFile("zips/a.zip", "w") as zipped:
        for name in names:
            zipped.writestr(zipfile.ZipInfo(f"{name}.txt"), name)
    return tmp_path


LOADERS: dict[str, Callable[[], Loader]] = {
    "sharded": lambda: Loader(ShardedDataset("data", int, seed=5, buffer_size=7, block_size=4), 4),
    "workers": lambda: Loader(ShardedDataset("data", int, seed=5), 4),
    "files": lambda: Loader(FileDataset("files", transform=int), 3, seed=2),
    "records": lambda: Loader(RecordIODataset("data", int), 3, seed=2),
    "zip": lambda: Loader(ShardedDataset("zips", number, seed=1), 3),
    "tar sorted": lambda: Loader(ShardedDataset("tars/b.tar", number), 3),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_states(kind: str, folder: Path) -> None:
    seen, state = SAVED[kind]
    loader = LOADERS[kind]()
    loader.load_state_dict(state)
    rest = [sample for batch in loader for sample in batch.tolist()]
    assert sorted(seen + rest) == list(range(20 if kind not in ("sharded", "workers", "records") else 60))
    assert loader.epoch == 0


def test_a_state_of_a_tar_that_is_read_in_another_order_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"the content of a\.tar differs"):
        Loader(ShardedDataset("tars/a.tar", number), 3).load_state_dict(SAVED["tar"][1])


def test_a_job(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "tasks.db") as connection:
        connection.executescript("\n".join(SAVED["database"]))
    connection.close()
    with TaskDispatcher(f"sqlite:///{tmp_path}/tasks.db") as dispatcher:
        assert (dispatcher.status().tasks.done, dispatcher.status().tasks.records) == (1, 10)
        dispatcher.load_state_dict(SAVED["job"])
        done = 0
        while (dispatch := dispatcher.get("w")).task.shard_name:
            assert dispatcher.report(*dispatch)
            done += len(dispatch.task.numbers()) if dispatch.task.type == 1 else 0
        assert (done, dispatcher.status().state) == (2 * 50 - 10, "finished")


def test_tables_and_states_of_later_releases_are_refused_by_their_version(folder: Path) -> None:
    with sqlite3.connect(folder / "tasks.db") as connection:
        connection.executescript("\n".join(SAVED["database"]))
        connection.execute("UPDATE fsabs_dispatch SET version = 9")
    connection.close()
    with pytest.raises(OSError, match=f"version 9, and this fsabs reads version {schema.VERSION}"):
        TaskDispatcher(f"sqlite:///{folder}/tasks.db")
    with pytest.raises(ValueError, match="format 9"):
        LOADERS["files"]().load_state_dict({**SAVED["files"][1], "format": 9})


def test_a_manifest(folder: Path) -> None:
    (folder / "m.jsonl").write_text(SAVED["m.jsonl"])
    with manifest.Manifest("m.jsonl") as found:
        assert [entry.name for entry in found] == [f"{shard}.recordio" for shard in range(3)]
        data = fsabs.from_url("data")
        for entry in found:
            assert entry.size == data.stat(entry.name).size
            assert entry.digest == manifest.entries.digest_of("sha256", [data.read_bytes(entry.name)])
    (folder / "later.jsonl").write_text(SAVED["m.jsonl"].replace('"format":1', '"format":9', 1))
    with pytest.raises((ValueError, OSError), match="format 9"):
        manifest.Manifest("later.jsonl")
