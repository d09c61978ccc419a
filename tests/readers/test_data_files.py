"""Readers of files in a tree: RecordIO, images, archives; over a directory, a URL, an FS, one file."""

from __future__ import annotations

import os
import pickle
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import FS, CorruptFileError, StaleFileError
from fsabs.readers.data import (
    AbstractDataReader,
    ArchiveDataReader,
    FileListDataReader,
    ImageFolderDataReader,
    RawImage,
    RecordIODataReader,
    Shard,
    Task,
    TextDataReader,
    shards_of,
)
from fsabs.readers.data.files import Files
from fsabs.readers.recordio import RecordWriter


def write_records(fs: FS, path: str, records: list[bytes]) -> None:
    with RecordWriter(fs, path) as writer:
        for record in records:
            writer.write(record)


def read_all(reader: AbstractDataReader) -> list[Any]:
    tasks = [Task(0, name, start, start + count) for name, start, count in shards_of(reader)]
    return [record for task in tasks for record in reader.read_records(task)]


RECORDS = {"b.rec": [b"1", b"", b"22"], "a/x.rec": [b"3"], "a/empty.rec": [], "c #%.rec": [b"", b""]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """RecordIO files, and what is not one."""
    fs = fsabs.from_url(tmp_path / "data", create=True)
    fs.makedirs("a")
    fs.makedirs(".git")
    for path, records in RECORDS.items():
        write_records(fs, path, records)
    for hidden in (".b.rec.swp", ".git/x", "a/.DS_Store"):
        fs.write_bytes(hidden, b"no records")
    return tmp_path / "data"


@pytest.mark.quick
def test_recordio_files_are_shards(folder: Path) -> None:
    reader = RecordIODataReader(str(folder))
    assert shards_of(reader) == [
        Shard(f"{folder}/a/empty.rec", 0, 0),
        Shard(f"{folder}/a/x.rec", 0, 1),
        Shard(f"{folder}/b.rec", 0, 3),
        Shard(f"{folder}/c #%.rec", 0, 2),
    ]
    assert read_all(reader) == [b"3", b"1", b"", b"22", b"", b""]
    assert list(reader.read_records(Task(0, f"{folder}/b.rec", 1, 3))) == [b"", b"22"]
    assert list(reader.read_records(Task(0, f"{folder}/b.rec", indices=(2, 0, 2)))) == [b"22", b"1", b"22"]
    assert reader.records_output_types == "string"
    reader.close()


@pytest.mark.quick
def test_where_recordio_files_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsabs.Memory()
    memory.makedirs("a")
    for path, records in RECORDS.items():
        write_records(memory, path, records)
    by_url = RecordIODataReader(f"file://{folder}/")
    for reader in (RecordIODataReader(memory), RecordIODataReader(fsabs.from_url(folder)), by_url):
        assert read_all(reader) == [b"3", b"1", b"", b"22", b"", b""]
        assert read_all(pickle.loads(pickle.dumps(reader))) == [b"3", b"1", b"", b"22", b"", b""]
        reader.close()
    assert shards_of(by_url)[-1].name == f"file://{folder}/c%20%23%25.rec"  # which is a URL
    one = RecordIODataReader(f"{folder}/b.rec")
    assert shards_of(one) == [Shard(f"{folder}/b.rec", 0, 3)]
    assert read_all(one) == [b"1", b"", b"22"]
    monkeypatch.chdir(folder)
    assert [shard.name for shard in shards_of(RecordIODataReader("a"))] == ["a/empty.rec", "a/x.rec"]
    assert read_all(RecordIODataReader("b.rec")) == [b"1", b"", b"22"]


@pytest.mark.quick
def test_what_is_wrong_with_a_shard(folder: Path) -> None:
    reader = RecordIODataReader(str(folder))
    shards_of(reader)
    name = f"{folder}/b.rec"
    with pytest.raises(CorruptFileError, match="record 3"):
        list(reader.read_records(Task(0, name, 2, 5)))
    with pytest.raises(ValueError, match="no file of"):
        list(reader.read_records(Task(0, "/elsewhere", 0, 1)))
    os.remove(folder / "a/x.rec")
    with pytest.raises(FileNotFoundError, match=r"a/x\.rec"):
        list(reader.read_records(Task(0, f"{folder}/a/x.rec", 0, 1)))
    reader = pickle.loads(pickle.dumps(reader))
    write_records(fsabs.from_url(folder), "b.rec", [b"x", b"y", b"z"])
    with pytest.raises(StaleFileError, match=r"b\.rec") as caught:
        list(reader.read_records(Task(0, name, 0, 3)))
    assert caught.value.filename == f"file://{folder}/b.rec"
    with pytest.raises(FileNotFoundError):
        RecordIODataReader(str(folder / "none"))
    reader.close()


@pytest.mark.quick
def test_files_of_a_name_that_is_a_url(tmp_path: Path) -> None:
    (tmp_path / "a b#c").write_bytes(b"x")
    files = Files(f"file://{tmp_path}/a%20b%23c")
    assert [stat.filename for stat in files.list()] == ["a b#c"]
    assert files.name("a b#c") == f"file://{tmp_path}/a%20b%23c"
    with pytest.raises(ValueError):
        Files("")


# ---- images


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for path in ("dog/1.jpg", "cat/b/2.PNG", "cat/1.jpeg", "cat/notes.txt", "dog/.2.jpg"):
        (tmp_path / "images" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / path).write_bytes(path.encode())
    return tmp_path / "images"


@pytest.mark.quick
def test_a_folder_for_each_label(images: Path) -> None:
    reader = ImageFolderDataReader(images, 2)
    assert [tuple(shard) for shard in shards_of(reader)] == [(f"{images}:shard_0", 0, 2), (f"{images}:shard_1", 2, 1)]
    assert read_all(reader) == [
        RawImage(b"cat/1.jpeg", 0, "cat/1.jpeg"),
        RawImage(b"cat/b/2.PNG", 0, "cat/b/2.PNG"),
        RawImage(b"dog/1.jpg", 1, "dog/1.jpg"),
    ]
    assert reader.label_names == ["cat", "dog"]
    assert [image.path for image in reader.read_at(f"{images}:shard_0", [0, 2])] == ["cat/1.jpeg", "dog/1.jpg"]
    with pytest.raises(CorruptFileError, match="record 3"):
        list(reader.read_records(Task(0, f"{images}:shard_1", 2, 4)))
    (images / "loose.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"loose\.png"):
        shards_of(ImageFolderDataReader(images))


@pytest.mark.quick
def test_one_folder(images: Path) -> None:
    reader = ImageFolderDataReader(f"file://{images}/dog")
    assert read_all(reader) == [RawImage(b"dog/1.jpg", None, "1.jpg")]
    assert reader.label_names == []
    assert shards_of(ImageFolderDataReader(images, extensions=[".gif"])) == []
    with fsabs.from_url(images.parent / "a.zip", mode="w") as fs:
        fs.write_bytes("cat/1.jpg", b"a cat")
    with fsabs.from_url(images.parent / "a.zip") as fs:
        reader = ImageFolderDataReader(fs)
        assert [image.data for image in read_all(reader)] == [b"a cat"]
        reader.close()
        assert fs.read_bytes("cat/1.jpg") == b"a cat"  # the FS that a reader is given stays open


@pytest.mark.quick
def test_a_list_of_images(images: Path) -> None:
    (images / "list.csv").write_text('dog/1.jpg,good\n\n"cat/1.jpeg","a, b"\n')
    reader = FileListDataReader(images / "list.csv")
    assert read_all(reader) == [
        RawImage(b"dog/1.jpg", "good", "dog/1.jpg"),
        RawImage(b"cat/1.jpeg", "a, b", "cat/1.jpeg"),
    ]
    (images / "dog/named.tsv").write_text("label\tfile\n7\t1.jpg\n")
    named = FileListDataReader(f"{images}/dog/named.tsv", path_column="file", label_column="label", sep="\t")
    assert read_all(named) == [RawImage(b"dog/1.jpg", "7", "1.jpg")]
    with pytest.raises(ValueError, match="no column 'x'"):
        shards_of(FileListDataReader(f"{images}/dog/named.tsv", path_column="x", sep="\t"))
    (images.parent / "far.csv").write_text("cat/1.jpeg\nnone.jpg\n")
    far = FileListDataReader(images.parent / "far.csv", 1, data_dir=f"file://{images}", label_column=None)
    first, second = shards_of(far)
    assert list(far.read_records(Task(0, *first[:2], first.end))) == [RawImage(b"cat/1.jpeg", None, "cat/1.jpeg")]
    with pytest.raises(FileNotFoundError, match=r"none\.jpg"):
        list(far.read_records(Task(0, *second[:2], second.end)))
    (images / "short.csv").write_text("a\n")
    with pytest.raises(CorruptFileError, match="row 1 has 1 columns"):
        shards_of(FileListDataReader(images / "short.csv"))
    for content in (b"\xff,a\n", b"x" * 200_000):
        (images / "wrong.csv").write_bytes(content)
        with pytest.raises(CorruptFileError, match="no CSV file in UTF-8") as caught:
            shards_of(FileListDataReader(images / "wrong.csv"))
        assert caught.value.filename == f"{images}/wrong.csv"


# ---- archives


@pytest.mark.quick
@pytest.mark.parametrize("suffix", [".tar", ".zip"])
def test_archives_are_shards(suffix: str, tmp_path: Path) -> None:
    fs = fsabs.from_url(tmp_path)
    for number in range(2):
        with fs.open_container(f"train-{number}{suffix}", "w") as archive:
            for name in ("d/0.JPG", "d/0.seg.png", "d/1.jpg", ".hidden"):
                if "/" in name and not archive.capabilities.implied_directories:
                    archive.makedirs("d", exist_ok=True)
                archive.write_bytes(name, f"{number}{name}".encode())
    fs.write_bytes("notes.txt", b"")
    reader = ArchiveDataReader(tmp_path)
    shards = shards_of(reader)
    assert [tuple(shard) for shard in shards] == [(f"{tmp_path}/train-{number}{suffix}", 0, 2) for number in range(2)]
    first = {"__key__": "d/0", "jpg": b"0d/0.JPG", "seg.png": b"0d/0.seg.png"}
    assert read_all(reader)[0] == first
    assert [sample["__key__"] for sample in read_all(reader)] == ["d/0", "d/1", "d/0", "d/1"]
    assert read_all(ArchiveDataReader(f"{tmp_path}/train-1{suffix}"))[1] == {"__key__": "d/1", "jpg": b"1d/1.jpg"}
    fs.copy(f"train-0{suffix}", f"train-1{suffix}")
    with pytest.raises(StaleFileError, match=f"train-1{suffix}"):
        list(pickle.loads(pickle.dumps(reader)).read_records(Task(0, shards[1].name, 0, 1)))
    reader.close()


@pytest.mark.quick
def test_archives_that_lose_something_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.tar.zst").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"there is no file that ends in \.tar, \.zip"):
        shards_of(ArchiveDataReader(tmp_path))
    for name in ("/abs/0.jpg", "../0.jpg"):
        with tarfile.open(tmp_path / "x.tar", "w") as tar:
            for each in ("1.jpg", "/", name):
                tar.addfile(tarfile.TarInfo(each))
        with pytest.raises(CorruptFileError, match=rf"the sample of '{name}' would be lost: it is absolute") as caught:
            shards_of(ArchiveDataReader(tmp_path))
        assert str(caught.value.filename).endswith(f"{tmp_path}/x.tar")
    (tmp_path / "x.tar").unlink()
    with fsabs.from_url(tmp_path).open_container("x.zip", "w") as archive:
        archive.write_bytes("1.jpg", b"a")
        archive.write_bytes("1.JPG", b"b")
    with pytest.raises(CorruptFileError, match=r"two files are the part 'jpg' of the sample '1'") as caught:
        shards_of(ArchiveDataReader(tmp_path))
    assert "/x.zip/1." in str(caught.value.filename)


# ---- on a store


def test_readers_over_s3(moto: Any) -> None:
    bucket = f"readers-{time.monotonic_ns()}"
    moto.create_bucket(bucket)
    access = {"aws_access_key_id": moto.access_key, "aws_secret_access_key": moto.secret_key}
    fs = fsabs.from_url(f"s3://{bucket}", endpoint=moto.endpoint, region=moto.region, **access)
    for path, records in RECORDS.items():
        write_records(fs, f"rec/{path}", records)
    fs.write_bytes("x.csv", b"1\n2\n3\n")
    fs.write_bytes("img/a/1.png", b"a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S3_ENDPOINT", moto.endpoint)
        for name, value in access.items():
            patch.setenv(name.upper(), value)
        assert read_all(RecordIODataReader(f"s3://{bucket}/rec")) == [b"3", b"1", b"", b"22", b"", b""]
        assert read_all(RecordIODataReader(f"s3://{bucket}/rec/a/x.rec")) == [b"3"]
        assert read_all(TextDataReader(f"s3://{bucket}/x.csv", 2)) == ["1\n", "2\n", "3\n"]
        assert read_all(ImageFolderDataReader(f"s3://{bucket}/img")) == [RawImage(b"a", 0, "a/1.png")]
        with pytest.raises(FileNotFoundError):
            RecordIODataReader(f"s3://{bucket}/none")
    reader = RecordIODataReader(fs.subfs("rec"))
    name = shards_of(reader)[2].name
    assert name == f"s3://{bucket}/rec/b.rec"
    write_records(fs, "rec/b.rec", [b"9", b"", b"99"])
    with pytest.raises(StaleFileError):
        list(reader.read_records(Task(0, name, 0, 3)))
