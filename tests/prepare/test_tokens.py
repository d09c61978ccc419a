"""Documents prepared as files of tokens: by processes and by Spark, whole or as they were; and TokenWriter's own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fsabs
from fsabs import prepare
from fsabs.adapters.torch import TokenDataset
from fsabs.cli import main
from fsabs.prepare import PrepareError
from fsabs.prepare.model import Model, ModelSource, RecordError
from fsabs.readers.data import TokenWriter
from fsabs.readers.data.tokens import document_ends, layout_of
from tests.prepare.data import raw_files, visible, write_tree

pytestmark = pytest.mark.timeout(180)

FILES = raw_files(40)
MODEL = """\
def prepare_data_for_a_single_file(file, filename):
    data = file.read()
    yield list(data)
    yield []
    yield [1000 + byte for byte in data[:2]]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path


def write(folder: Path) -> None:
    """Write `model.py` and `raw`."""
    write_tree(fsabs.from_url(folder / "raw", create=True), FILES)
    (folder / "model.py").write_text(MODEL)


def documents_of(folder: Path) -> list[list[int]]:
    """The documents of all pairs of files, in order."""
    fs, found = fsabs.Local(str(folder)), []
    for path in sorted(folder.glob("*.bin")):
        layout = layout_of(fs, fs.stat(path.name), {path.name, path.stem + ".idx"}, None, None)
        assert layout.format == "megatron"
        tokens = np.fromfile(path, layout.dtype)
        found += [one.tolist() for one in np.split(tokens, document_ends(fs, layout)[:-1])]
    return found


def expected() -> list[list[int]]:
    return [
        document
        for path in visible(FILES)
        for document in (list(FILES[path]), [], [1000 + byte for byte in FILES[path][:2]])
    ]


def test_documents_are_those_of_a_plain_loop(folder: Path) -> None:
    report = prepare.run(
        folder / "model.py",
        folder / "raw",
        folder / "out",
        validate=True,
        num_workers=2,
        records_per_file=25,
        tokens="uint16",
    )
    check(folder, report.records, [shard.name for shard in report.shards])
    assert f" in 10 files, of {report.files} raw files (" in str(report), "a shard is two files"


def check(folder: Path, records: int, shards: list[str]) -> None:
    """Check what was written, and what the report says of it."""
    assert documents_of(folder / "out") == expected()
    names = sorted(path.name for path in (folder / "out").iterdir() if not path.name.startswith("."))
    assert names == [f"data-{n:05}-of-00004{end}" for n in range(5) for end in (".bin", ".idx")]
    assert records == 120
    assert shards == names
    windows = list(TokenDataset(folder / "out", 63, overlap=False))
    assert sum(map(len, windows)) > 0.95 * sum(map(len, expected()))


def test_a_rerun_replaces_all_of_it_or_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["prepare", str(folder / "model.py"), str(folder / "raw"), str(folder / "out"), "local", "2"]
    assert main([*arguments, "--tokens", "uint16", "--records-per-file", "10", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["records"] == 120
    before = documents_of(folder / "out")
    (folder / "model.py").write_text(MODEL + "    yield [70000]\n")
    with pytest.raises(PrepareError, match=r"document 3 has token ids from 70000 to 70000, which are not of uint16"):
        prepare.run(folder / "model.py", folder / "raw", folder / "out", tokens="uint16", num_workers=1)
    assert documents_of(folder / "out") == before
    prepare.run(folder / "model.py", folder / "raw", folder / "out", tokens="int32", num_workers=1)
    assert len(documents_of(folder / "out")) == 160
    assert len([path for path in (folder / "out").iterdir() if not path.name.startswith(".")]) == 2


@pytest.mark.parametrize("document", ["[1.5]", "7", "[[1], [2, 3]]"])
def test_what_is_no_document(document: str) -> None:
    text = f"def prepare_data_for_a_single_file(file, name):\n    yield {document}\n"
    with pytest.raises(RecordError, match="no list of token ids"):
        list(Model(ModelSource(text, "model.py")).documents("int32", None, "name"))


def test_a_writer_publishes_both_files_or_neither(tmp_path: Path) -> None:
    fs = fsabs.Local(str(tmp_path))
    with TokenWriter(fs, "a", "int32") as file:
        for document in ([1, 2, 3], np.arange(5), []):
            file.write(document)
        assert file.records == 3
    assert documents_of(tmp_path) == [[1, 2, 3], [0, 1, 2, 3, 4], []]
    with pytest.raises(ValueError, match="uint16"), TokenWriter(fs, "b") as file:
        file.write([1])
        file.write([70000])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bin", "a.idx"]
    with pytest.raises(ValueError, match="dtype is one of"):
        TokenWriter(fs, "c", "uint32")
