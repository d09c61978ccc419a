"""ElasticDL's design document on data preparation, statement by statement, in its order.

A docstring says what the document says. Where this library differs on purpose, the test shows what it does;
docs/coming-from.md says why. What tests/prepare holds is not repeated: parallel workers, the image, Spark.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import fsabs
from fsabs import prepare
from fsabs.cli import main
from fsabs.prepare import ModelError, PrepareError
from fsabs.prepare.model import Model, ModelSource
from fsabs.readers import decode
from fsabs.readers.recordio import Index
from tests.prepare.data import assert_refused, records_below

pytestmark = pytest.mark.timeout(120)

MODEL = """
import numpy as np

feature_columns = {"image": ("uint8", (None,)), "label": "int64"}


def prepare_data_for_a_single_file(filename):
    with open(filename, "rb") as file:
        return np.frombuffer(file.read(), "uint8"), np.int64(len(filename))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`model.py`, and raw data in a tree of directories."""
    (tmp_path / "model.py").write_text(MODEL)
    for name in ("0", "a/1", "a/b/2", "a/b/c/3"):
        (tmp_path / "raw" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "raw" / name).write_bytes(name.encode())
    return tmp_path


def arguments(folder: Path, *more: str) -> list[str]:
    return ["prepare", *(f"{folder}/{name}" for name in ("model.py", "raw", "out")), *more]


def test_raw_data_become_recordio(folder: Path) -> None:
    """Raw data become RecordIO; their directory is traversed recursively, and hidden files are left out."""
    (folder / "raw/a/.DS_Store").write_bytes(b"x")
    report = prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=1)
    with fsabs.from_url(folder / "out") as fs:
        assert Index.load(fs, report.shards[0].name).records == 4
    records = [decode(record) for record in records_below(folder / "out")]
    assert [image.tobytes() for image, _ in records] == [b"0", b"a/1", b"a/b/2", b"a/b/c/3"]
    assert {label.dtype for _, label in records} == {np.dtype("int64")}  # what the function returned


def test_the_positional_arguments(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`<user_defined_model_file> <raw_data_directory> <output_recordio_data_directory> <running_mode> <others>`."""
    assert main(arguments(folder, "local", "2")) == 0  # processes prepare in parallel, without Spark
    assert "4 records" in capsys.readouterr().out
    assert main(arguments(folder, "local", "0")) == 2
    for missing in range(1, 5):
        assert main(arguments(folder, "local")[:missing]) == 2
    assert "arguments are required" in capsys.readouterr().err


def test_feature_columns(folder: Path) -> None:
    """The model file defines the feature columns, so that preparation and training agree: each record fits."""
    assert [column.name for column in Model(ModelSource.read(folder / "model.py")).columns] == ["image", "label"]
    (folder / "model.py").write_text(MODEL.replace('"uint8", (None,)', '"uint8", (3,)'))
    with pytest.raises(PrepareError, match=r"record 0, column 'image': the shape is \(1,\), not \(3,\)"):
        prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=1)
    assert_refused(folder / "out")


def test_dependencies_of_the_user(folder: Path) -> None:
    """Dependencies are installed in a derived image; a module that is missing is named, with its line."""
    (folder / "model.py").write_text("import a_dependency\n" + MODEL)
    with pytest.raises(ModelError, match=r"No module named 'a_dependency' \(line 1 of model.py\)"):
        prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=1)
    (folder / "a_dependency.py").write_text("")
    assert prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=1).records == 4


def test_the_output_directory(folder: Path) -> None:
    """The output directory is for prepared data in RecordIO format: whole, or as it was before."""
    prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=1, records_per_file=2)
    names = sorted(os.listdir(folder / "out"))
    assert names == [".fsabs-prepare.json", "data-00000-of-00001", "data-00001-of-00001"]
    (folder / "model.py").write_text(MODEL.replace("return", "raise ValueError\n        return"))
    with pytest.raises(PrepareError):
        prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=1)
    assert sorted(os.listdir(folder / "out")) == [".fsabs-prepare", *names]
    assert len(records_below(folder / "out")) == 4


def test_the_running_mode(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Local or cluster mode; local where there is no Spark cluster. Cluster mode asks for the cluster's master."""
    assert main(arguments(folder, "cluster")) == 1
    assert "Spark" in capsys.readouterr().err
    assert main(arguments(folder, "elsewhere")) == 2
    error = capsys.readouterr().err
    assert "local" in error
    assert "cluster" in error
