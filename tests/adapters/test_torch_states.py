"""Sharded data sets over files, and states that name what the shards contain."""

from __future__ import annotations

import os
import pickle
import shutil
from itertools import islice
from pathlib import Path

import pytest

import fsabs
from fsabs import StaleFileError
from fsabs.adapters.torch import FileDataset, Loader, RecordIODataset, ShardedDataset
from fsabs.readers.recordio import RecordWriter

from .workers import saved


def shards_in(folder: Path, counts: list[int]) -> list[bytes]:
    everything = []
    folder.mkdir(exist_ok=True)
    for number, count in enumerate(counts):
        with RecordWriter(fsabs.from_url(folder), f"{number}.rec") as writer:
            for record in range(count):
                everything.append(f"{number}/{record}".encode())
                writer.write(everything[-1])
    return everything


def test_recordio_files(tmp_path: Path) -> None:
    everything = shards_in(tmp_path, [10, 0, 25])
    dataset = ShardedDataset(str(tmp_path), bytes.decode, seed=1, buffer_size=9, block_size=4)
    assert sorted(pickle.loads(pickle.dumps(dataset))) == sorted(record.decode() for record in everything)
    assert list(ShardedDataset(fsabs.from_url(tmp_path))) == everything


def test_archives_are_read_in_their_order(tmp_path: Path) -> None:
    """As webdataset reads them: a sample is the files of one name, in the order in which they lie in the tar."""
    names = ["17", "03", "22", "08"]
    for suffix in (".tar", ".tar.gz"):
        with fsabs.from_url(tmp_path).open_container(f"x{suffix}", "w") as archive:
            archive.write_bytes("d/README", b"no part of a sample: it has no dot")
            archive.write_bytes("d/README.json", b"{}")
            for name in names:
                archive.write_bytes(f"d/{name}.jpg", name.encode())
                archive.write_bytes(f"d/{name}.cls", b"1")
        found = list(ShardedDataset(tmp_path / f"x{suffix}"))
        assert found[0] == {"__key__": "d/README", "json": b"{}"}
        assert found[1:] == [{"__key__": f"d/{name}", "jpg": name.encode(), "cls": b"1"} for name in names]
    shuffled = ShardedDataset(f"{tmp_path}/*.tar", seed=1, buffer_size=3)
    assert sorted(sample["__key__"] for sample in shuffled) == sorted(["d/README", *(f"d/{name}" for name in names)])


def test_a_state_names_content_and_not_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = shards_in(tmp_path / "one", [10, 20, 30])
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    os.utime(tmp_path / "two/1.rec", (1, 1))
    loader = Loader(ShardedDataset(tmp_path / "one", seed=1, buffer_size=5), 5)
    first = [record for batch in islice(loader, 5) for record in batch]
    state = saved(loader)
    monkeypatch.chdir(tmp_path)
    memory = fsabs.Memory()
    for name in ("0.rec", "1.rec", "2.rec"):
        memory.write_bytes(name, (tmp_path / "one" / name).read_bytes())
    for location in (tmp_path / "two", "one", "./two/", f"file://{tmp_path}/two", memory):
        resumed = Loader(ShardedDataset(location, seed=1, buffer_size=5), 5)
        resumed.load_state_dict(state)
        assert sorted([*first, *(record for batch in resumed for record in batch)]) == sorted(everything)
    with RecordWriter(fsabs.from_url(tmp_path), "two/1.rec") as writer:  # as many records of the same sizes
        for number in range(20):
            writer.write(b"x/%d" % number)
    other = Loader(ShardedDataset(tmp_path / "two", seed=1, buffer_size=5), 5)
    with pytest.raises(ValueError, match=r"the content of 1\.rec differs"):
        other.load_state_dict(state)
    os.rename(tmp_path / "one/2.rec", tmp_path / "one/3.rec")
    with pytest.raises(ValueError, match=r"the content of 3\.rec differs"):
        Loader(ShardedDataset(tmp_path / "one", seed=1, buffer_size=5)).load_state_dict(state)
    with pytest.raises(ValueError, match="another seed"):
        Loader(ShardedDataset(tmp_path / "two", seed=2, buffer_size=5)).load_state_dict(state)


@pytest.mark.parametrize("suffix", [".zip", ".tar"])
def test_states_of_archives_name_their_content(tmp_path: Path, suffix: str) -> None:
    def written(folder: str, text: bytes) -> str:
        with fsabs.from_url(tmp_path / folder, create=True).open_container(f"x{suffix}", "w") as archive:
            archive.write_bytes("1.txt", text)
            archive.write_bytes("2.txt", b"b")
        return str(tmp_path / folder)

    state = saved(Loader(ShardedDataset(written("one", b"a"))))
    Loader(ShardedDataset(written("two", b"a"))).load_state_dict(state)
    other = Loader(
        ShardedDataset(written("three", b"c" if suffix == ".zip" else b"cc"))
    )  # a tar has no checksums of members
    with pytest.raises(ValueError, match=f"the content of x{suffix} differs"):
        other.load_state_dict(state)


def test_states_of_map_style_data_sets_name_their_content(tmp_path: Path) -> None:
    shards_in(tmp_path / "one", [4, 4])
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    state = Loader(RecordIODataset(tmp_path / "one"), 2).state_dict()
    Loader(RecordIODataset(tmp_path / "two"), 2).load_state_dict(state)
    for counts, match in (([4, 5], r"1\.rec differs"), ([4, 4, 4], "the state is of 2 shards, and there are 3")):
        shards_in(tmp_path / "two", counts)
        with pytest.raises(ValueError, match=match):  # its order is of all samples: another number is another order
            Loader(RecordIODataset(tmp_path / "two"), 2).load_state_dict(state)
    state = Loader(FileDataset(tmp_path / "two"), 2).state_dict()
    Loader(FileDataset(str(tmp_path / "two")), 2).load_state_dict(state)
    os.rename(tmp_path / "two/0.rec", tmp_path / "two/9.rec")
    with pytest.raises(ValueError, match="the list of paths differs"):
        Loader(FileDataset(tmp_path / "two"), 2).load_state_dict(state)


def test_shards_that_change_under_the_reader(tmp_path: Path) -> None:
    shards_in(tmp_path, [10, 10])
    dataset = ShardedDataset(tmp_path)
    samples = iter(dataset)
    next(samples)
    os.remove(tmp_path / "1.rec")
    with pytest.raises(FileNotFoundError, match=r"1\.rec"):
        list(samples)
    shards_in(tmp_path, [10, 10])
    with pytest.raises(StaleFileError, match=r"\.rec"):
        list(pickle.loads(pickle.dumps(dataset)))
