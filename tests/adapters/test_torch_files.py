"""FileDataset, ImageFolder and RecordIODataset: right samples, by number and in batches."""

from __future__ import annotations

import io
import pickle
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import fsabs
from fsabs import FS
from fsabs.adapters.torch import FileDataset, ImageFolder, Loader, RecordIODataset
from fsabs.readers.data import recordio as data_recordio
from fsabs.readers.recordio import RecordWriter
from fsabs.spi import LayerFS
from tests.counting import Counting

NAMES = [f"d/{number:02}" for number in range(20)]


@pytest.fixture
def fs(tmp_path: Path) -> FS:
    for name in [*NAMES, "d/.hidden", ".h/x"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return fsabs.from_url(tmp_path)


class Batches(LayerFS):
    """Notes the batches that are read."""

    def __init__(self, inner: FS) -> None:
        super().__init__(inner)
        self.batches: list[list[str]] = []

    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        self.batches.append([key.rpartition("/")[2] for key in wanted])
        return super()._read_many(wanted, *how)


def test_files(fs: FS, tmp_path: Path) -> None:
    noting = Batches(fs)
    data = FileDataset(noting)
    assert data.paths == NAMES
    assert (len(data), data[-1]) == (20, b"d/19")
    noting.batches.clear()
    assert data.__getitems__([3, 1, 3]) == [b"d/03", b"d/01", b"d/03"]
    assert noting.batches == [["03", "01", "03"]]
    with pytest.raises(IndexError):
        data[20]
    chosen = FileDataset(str(tmp_path), ["d/05", Path("d/01")], len)
    assert [chosen[0], *pickle.loads(pickle.dumps(chosen)).__getitems__([1])] == [4, 4]
    with pytest.raises(FileNotFoundError, match="none"):
        FileDataset(fs, ["d/05", "none"]).__getitems__([0, 1])
    with_path = FileDataset(fs, transform=lambda content, *, path: (len(content), path))
    assert with_path[2] == with_path.__getitems__([2])[0] == (4, "d/02")
    with_path.transform = len
    assert with_path[2] == 4


def test_what_newcomers_give_is_refused_by_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="glob"):
        FileDataset(tmp_path, "*/*.png")
    with pytest.raises(TypeError, match="seed= shuffles"):
        Loader(FileDataset(tmp_path, ["a"]), shuffle=True)
    with pytest.warns(UserWarning, match=f"a data set of no files of file://{tmp_path}"):
        FileDataset(tmp_path)


def test_the_file_of_a_transform_that_fails_is_named(fs: FS) -> None:
    def transform(data: bytes) -> Any:
        raise KeyError("label")

    loader = Loader(FileDataset(fs, ["d/01"], transform), 1, num_workers=1)
    with pytest.raises(KeyError) as caught:
        list(loader)
    assert f"while transforming {fs.url('d/01')}" in "".join(traceback.format_exception(caught.value))


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
    fs = fsabs.from_url(folders)
    valid = ImageFolder(fs, "root", is_valid_file=lambda path: fs.isfile(path) and path.split("/")[2] != "z.png")
    assert valid.paths == ["root/cat/a/b.PNG", "root/cat/a-b/c.png", "root/dog/1.png", "root/dog/notes.txt"]


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


def test_shards_that_are_opened_again_are_not_scanned_again() -> None:
    """More of them than are open at once."""
    fs = Counting(fsabs.Memory())
    for shard in range(70):
        with RecordWriter(fs.inner, f"{shard:02}", max_chunk_bytes=20_000, compressor="none") as writer:
            for number in range(5):
                writer.write(b"%d" % number + bytes(20_000))
    data = RecordIODataset(fs, lambda record: int(record[:1]))
    assert data.__getitems__(range(0, len(data), 5)) == [0] * 70
    fs.requests.clear()
    assert data[3] == 3
    assert fs.fetched < 25_000  # of 100,000
