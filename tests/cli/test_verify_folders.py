"""`fsabs verify` and `repair` of a folder that has more than RecordIO files: each file is judged by its kind."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

import fsabs
from fsabs.cli import main
from fsabs.readers import RecordWriter, data, sharded

pytestmark = pytest.mark.quick


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two RecordIO files, a zip, a text and a token file."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("data-00000-of-00001", "data-00001-of-00001", "more.rio", "less.rio"):
        with RecordWriter(fsabs.Local(folder), name) as writer:
            writer.write(b"record" * 9)
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("x", b"x" * 1000)
    (folder / "README.md").write_text("# a text, and no records\n")
    return folder


def test_what_is_whole_is_not_damaged(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(folder)]) == 0
    out, err = capfd.readouterr()
    assert "README.md: skipped" in out
    assert len(out.splitlines()) == 1
    assert "verified 5, damaged 0, skipped 1" in err
    assert main(["verify", "--json", str(folder)]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["kind"] for line in lines if "kind" in line] == ["skipped"]
    assert main(["repair", str(folder)]) == 0
    assert sharded.verify(folder).ok
    assert [url.rpartition("/")[2] for url in sharded.verify(folder).skipped] == ["README.md", "a.zip"]


@pytest.mark.parametrize("name", ["data-00000-of-00001", "more.rio", "a.zip"])
def test_what_is_damaged_is_damaged(folder: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    content = bytearray((folder / name).read_bytes())
    content[:2] = b"\xff\xff" if name != "a.zip" else content[:2]
    content[60 if name == "a.zip" else 22] ^= 1
    (folder / name).write_bytes(content)
    assert main(["verify", str(folder)]) == 1
    assert name in capfd.readouterr().out


def test_a_file_that_is_named_is_taken_at_its_word(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(folder / "README.md")]) == 1
    assert "no RecordIO file" in capfd.readouterr().out


def test_files_of_tokens_are_no_records(tmp_path: Path) -> None:
    from fsabs.adapters.torch import ShardedDataset

    (tmp_path / "train.bin").write_bytes(bytes(4096))
    with pytest.raises(ValueError, match="TokenDataset"):
        ShardedDataset(tmp_path)
    with RecordWriter(fsabs.Local(tmp_path), "train.bin") as writer:
        writer.write(b"record")
    assert len(ShardedDataset(data.RecordIODataReader(str(tmp_path)))) == 1
    assert fsabs.Local(tmp_path).exists("train.bin")
