"""FileDataset, ImageFolder and RecordIODataset: right, batched, and read ahead in the sampler's order."""

from __future__ import annotations

import io
import pickle
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from torch.utils.data import DataLoader, SequentialSampler

import fsabs
from fsabs import FS
from fsabs.adapters.torch import FileDataset, ImageFolder, Loader, PlannedBatches, RecordIODataset
from fsabs.readers.data import recordio as data_recordio
from fsabs.readers.recordio import Index, RecordWriter
from fsabs.spi import LayerFS


class Counting(LayerFS):
    """Notes the batches that are read, and the single reads."""

    def __init__(self, inner: FS) -> None:
        super().__init__(inner)
        self.batches: list[list[str]] = []
        self.single: list[str] = []

    def _read_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        self.batches.append([key.rpartition("/")[2] for key in wanted])
        return map(self.inner._read_bytes, wanted)

    def _read_bytes(self, key: str) -> bytes:
        self.single.append(key)
        return self.inner._read_bytes(key)


NAMES = [f"d/{number:02}" for number in range(20)]


@pytest.fixture
def fs(tmp_path: Path) -> Counting:
    for name in [*NAMES, "d/.hidden", ".h/x"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return Counting(fsabs.from_url(tmp_path))


def test_files(fs: Counting) -> None:
    data = FileDataset(fs)
    assert data.paths == NAMES
    assert len(data) == 20
    assert data[-1] == b"d/19"
    assert data.__getitems__([3, 1, 3]) == [b"d/03", b"d/01", b"d/03"]
    assert fs.batches == [["03", "01", "03"]]
    with pytest.raises(IndexError):
        data[20]


def test_transform_paths_and_url(fs: Counting, tmp_path: Path) -> None:
    chosen = FileDataset(str(tmp_path), ["d/05", Path("d/01")], len)
    assert [chosen[0], *pickle.loads(pickle.dumps(chosen)).__getitems__([1])] == [4, 4]
    with pytest.raises(FileNotFoundError, match="none"):
        FileDataset(fs, ["d/05", "none"]).__getitems__([0, 1])


def test_a_transform_may_take_the_path(fs: Counting) -> None:
    data = FileDataset(fs, transform=lambda content, *, path: (len(content), path))
    assert data[2] == data.__getitems__([2])[0] == (len(fs.read_bytes(data.paths[2])), data.paths[2])
    data.transform = len
    assert data[2] == len(fs.read_bytes(data.paths[2]))


def test_batches_of_a_plan_are_read_ahead(fs: Counting) -> None:
    data = FileDataset(fs)
    order = [7, 3, 19, 0, 1, 2, 11, 12, 13, 5]
    batches = PlannedBatches(order, 4)
    assert len(batches) == 3
    for _ in range(2):  # epochs
        got = [data.__getitems__(batch) for batch in batches]
        assert [sample for batch in got for sample in batch] == [NAMES[at].encode() for at in order]
    assert fs.batches == 2 * [
        ["07", "03", "19", "00"],
        ["01", "02", "11", "12", "13", "05"],
    ]  # not the loader's batches
    assert [list(batch) for batch in PlannedBatches(order, 4, drop_last=True)] == [[7, 3, 19, 0], [1, 2, 11, 12]]
    assert len(PlannedBatches(order, 4, drop_last=True)) == 2
    with pytest.raises(ValueError):
        PlannedBatches(order, 0)


def test_each_worker_reads_its_own_batches_ahead(fs: Counting) -> None:
    batches = list(PlannedBatches(range(20), 3, num_workers=2))
    workers = [pickle.loads(pickle.dumps(FileDataset(fs))) for _ in range(2)]
    for number, batch in enumerate(batches):
        got = workers[number % 2].__getitems__(pickle.loads(pickle.dumps(batch)))
        assert got == [NAMES[at].encode() for at in batch]
    read = [[name for names in worker.fs.batches for name in names] for worker in workers]
    assert sorted(read[0] + read[1]) == [name[2:] for name in NAMES]  # no file twice
    assert read[0][:6] == ["00", "01", "02", "06", "07", "08"]


def test_an_error_does_not_end_what_is_read_ahead(fs: Counting) -> None:
    data = FileDataset(fs)
    data.paths[5] = "none"
    batches = iter(DataLoader(data, batch_sampler=PlannedBatches(SequentialSampler(data), 2)))
    assert [next(batches), next(batches)] == [[b"d/00", b"d/01"], [b"d/02", b"d/03"]]
    with pytest.raises(FileNotFoundError, match="none"):
        next(batches)
    assert [file for batch in batches for file in batch] == [name.encode() for name in NAMES[6:]]


def test_other_batches_than_the_plan_said_are_right(fs: Counting) -> None:
    data = FileDataset(fs)
    first, second, *_ = PlannedBatches(range(20), 5)
    assert data.__getitems__(first) == [name.encode() for name in NAMES[:5]]
    assert data.__getitems__([9, 8]) == [b"d/09", b"d/08"]
    assert data.__getitems__(second) == [name.encode() for name in NAMES[5:10]]


# ---- images


def picture(color: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (3, 2), color).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    paths = ("cat/z.png", "cat/a/b.PNG", "cat/a-b/c.png", "dog/1.png", "dog/notes.txt", "top.png")
    for number, path in enumerate(paths):
        (tmp_path / "root" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / path).write_bytes(picture((number, 0, 0)))
    return tmp_path


def test_image_folder(folders: Path) -> None:
    data = ImageFolder(fsabs.from_url(folders), "root", target_transform=str)
    assert data.classes == ["cat", "dog"]
    assert data.class_to_idx == {"cat": 0, "dog": 1}
    # os.walk's directories in the order of their paths, and the names within each: as torchvision has it
    assert [path for path, _ in data.samples] == [
        "root/cat/z.png",
        "root/cat/a/b.PNG",
        "root/cat/a-b/c.png",
        "root/dog/1.png",
    ]
    assert data.targets == [0, 0, 0, 1]
    image, target = data[3]
    assert (image.getpixel((0, 0)), image.size, target) == ((3, 0, 0), (3, 2), "1")
    loaded = pickle.loads(pickle.dumps(data)).__getitems__([3, 0])
    assert [image.getpixel((0, 0))[0] for image, _ in loaded] == [3, 0]


def test_workers_are_sent_the_samples_of_folders_once(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    for number in range(300):
        (tmp_path / "cat" / f"{number}.png").write_bytes(b"")
    data = ImageFolder(str(tmp_path), loader=len)
    paths = FileDataset(str(tmp_path), data.paths)
    assert data.imgs is data.samples
    size = len(pickle.dumps(data)) - len(pickle.dumps(data.targets))
    assert size < len(pickle.dumps(paths)) + 500  # the names of attributes
    copied = pickle.loads(pickle.dumps(data))
    assert copied.samples == data.samples == list(zip(data.paths, data.targets, strict=True))
    assert copied.imgs is copied.samples
    data.samples[0] = ("another", 7)  # what was changed is sent
    assert pickle.loads(pickle.dumps(data)).imgs == data.samples
    data.samples = []
    assert pickle.loads(pickle.dumps(data)).samples == []


def test_image_folder_in_a_zip_with_a_loader(folders: Path) -> None:
    fs = fsabs.from_url(folders)
    with fs.open_container("x.zip", "w") as archive:
        archive.write_bytes("b/1.bin", b"12345")
        archive.write_bytes("a/1.bin", b"123")
    data = ImageFolder(str(folders / "x.zip"), loader=len, is_valid_file=lambda path: path.endswith(".bin"))
    assert data.__getitems__([0, 1]) == [(3, 0), (5, 1)]
    assert pickle.loads(pickle.dumps(data))[1] == (5, 1)


def test_is_valid_file_gets_the_path_in_the_fs(folders: Path) -> None:
    fs = fsabs.from_url(folders)
    data = ImageFolder(fs, "root", is_valid_file=lambda path: fs.isfile(path) and path.split("/")[2] != "z.png")
    assert [path for path, _ in data.samples] == [
        "root/cat/a/b.PNG",
        "root/cat/a-b/c.png",
        "root/dog/1.png",
        "root/dog/notes.txt",
    ]


def test_what_is_no_image_folder(folders: Path) -> None:
    fs = fsabs.from_url(folders / "root")
    with pytest.raises(FileNotFoundError, match="no folder"):
        ImageFolder(fs, "dog")
    (folders / "root/empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no image") as caught:
        ImageFolder(fs)
    assert caught.value.filename == f"file://{folders}/root/empty"
    (folders / "root/empty/x.png").write_bytes(b"no image")
    data = ImageFolder(fs)
    with pytest.raises(OSError, match=r"cannot identify.*empty/x\.png"):
        data[len(data) - 1]


# ---- RecordIO


def test_recordio_dataset(tmp_path: Path) -> None:
    fs = fsabs.from_url(tmp_path)
    everything: list[bytes] = []
    for name, count in {"a": 5, "b": 0, "c": 7, "d": 1}.items():
        with RecordWriter(fs, name, max_chunk_bytes=8) as writer:
            for number in range(count):
                everything.append(f"{name}{number}".encode() * (number % 3))
                writer.write(everything[-1])
    data: Any = RecordIODataset(fs)
    assert len(data) == 13
    assert [data[at] for at in range(13)] == everything
    assert data[-1] == everything[-1]
    order = [12, 0, 11, 5, 4, 5, 6]
    assert data.__getitems__(order) == [everything[at] for at in order]
    assert pickle.loads(pickle.dumps(RecordIODataset(str(tmp_path), len)))[7] == len(everything[7])
    for bad in (13, -14):
        with pytest.raises(IndexError):
            data[bad]
    assert len(RecordIODataset(str(tmp_path / "b"))) == 0


def test_shards_of_a_recordio_dataset_share_one_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = fsabs.from_url(tmp_path)
    for name in "abcd":
        with RecordWriter(fs, name) as writer:
            for number in range(10):
                writer.write(f"{name}{number}".encode() * 1000)
    monkeypatch.setattr(data_recordio, "KEPT_BYTES", 50_000)
    data = RecordIODataset(fs)
    for _ in range(2):
        for at in range(len(data)):
            assert data[at] == f"{'abcd'[at // 10]}{at % 10}".encode() * 1000
            assert sum(data.reader.reader(shard.name).kept_bytes for shard in data.shards) <= 50_000


def test_shards_that_are_opened_again_are_not_scanned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = fsabs.from_url(tmp_path)
    for name in "abc":
        with RecordWriter(fs, name, max_chunk_bytes=4) as writer:
            for number in range(10):
                writer.write(f"{name}{number}".encode())
    data = RecordIODataset(fs)
    monkeypatch.setattr(data_recordio.RecordIODataReader, "open_at_once", 1)
    monkeypatch.setattr(Index, "of", None)
    assert data.__getitems__([29, 0, 10, 1, 20]) == [b"c9", b"a0", b"b0", b"a1", b"c0"]


def test_what_newcomers_give_is_refused_by_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="glob"):
        FileDataset(tmp_path, "*/*.png")
    with pytest.raises(TypeError, match="seed= shuffles"):
        Loader(FileDataset(tmp_path, ["a"]), shuffle=True)
    with pytest.warns(UserWarning, match=f"a data set of no files of file://{tmp_path}"):
        FileDataset(tmp_path)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_file_of_a_transform_that_fails_is_named(fs: Counting, workers: int) -> None:
    def transform(data: bytes) -> Any:
        raise KeyError("label")

    loader = Loader(FileDataset(fs, ["d/01"], transform), 1, num_workers=workers)
    with pytest.raises(KeyError) as caught:
        list(loader)
    assert f"while transforming {fs.url('d/01')}" in "".join(traceback.format_exception(caught.value))
