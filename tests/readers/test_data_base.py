"""The interface of data readers: three shapes of shards, tasks, options, and the factory."""

from __future__ import annotations

import itertools
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import fsabs
from fsabs import CorruptFileError
from fsabs.core import identity
from fsabs.readers import RecordWriter
from fsabs.readers.data import (
    AbstractDataReader,
    ImageFolderDataReader,
    Mode,
    ODPSDataReader,
    RecordIODataReader,
    Shard,
    Task,
    TaskType,
    TextDataReader,
    create_custom_data_reader,
    create_data_reader,
    parse_params,
    shards_of,
)
from fsabs.readers.data.base import SlicedDataReader, runs
from fsabs.readers.data.shards import adopt

pytestmark = pytest.mark.quick


class Given(AbstractDataReader):
    """Whose shards are what it is made with."""

    def __init__(self, shards: Any) -> None:
        self._shards = shards

    def read_records(self, task: Any) -> Iterator[Any]:
        yield from range(task.start, task.end)

    def create_shards(self) -> Any:
        return self._shards


class ElasticDL(AbstractDataReader):
    """A reader as ElasticDL's users write them."""

    def __init__(self, **kwargs: Any) -> None:
        AbstractDataReader.__init__(self, **kwargs)

    def read_records(self, task: Any) -> Iterator[Any]:
        yield self._kwargs["data_dir"]

    def create_shards(self) -> Any:
        return {self._kwargs["data_dir"]: 1}


class ByMode(AbstractDataReader):
    """Its shards depend on the mode, as in ElasticDL's first design."""

    def read_records(self, task: Any) -> Iterator[Any]:
        yield from range(task.start, task.end)

    def create_shards(self, mode: str) -> Any:
        return {f"{mode}.rec": 3}


def test_shapes_of_shards() -> None:
    three = [Shard("a", 0, 5), Shard("b", 10, 0)]
    for given in (
        {"a": (0, 5), "b": (10, 0)},
        [("a", 0, 5), ("b", 10, 0)],
        [["a", 0, np.int64(5)], Shard("b", 10, 0)],
    ):
        assert shards_of(Given(given)) == three
    assert shards_of(Given({"a": 5})) == three[:1]
    assert shards_of(Given({})) == []
    assert shards_of(ByMode(), Mode.EVALUATION) == [Shard("evaluation.rec", 0, 3)]
    assert len(shards_of(Given([("a", 0, 5), ("a", 5, 5)]))) == 2  # two runs of one file
    with pytest.raises(ValueError, match="negative"):
        shards_of(Given({"a": -1}))
    with pytest.raises(ValueError, match="twice"):
        shards_of(Given([("a", 0, 5), ("a", 0, 5)]))
    for other in (None, 5, "abc", {"a": "5"}, {"a": (1, 2, 3)}, [("a", 1)], [(1, 2, 3)], {"a": True}):
        with pytest.raises(TypeError, match=r"Given\.create_shards"):
            shards_of(Given(other))


class Words(AbstractDataReader):
    """The words of files, which it does not count."""

    read: ClassVar[list[str]] = []

    def read_records(self, task: Any) -> Iterator[str]:
        self.read.append(task.shard_name)
        yield from itertools.islice(Path(task.shard_name).read_text().split(), task.start, task.end)

    def create_shards(self) -> Any:
        return dict.fromkeys(self._kwargs["paths"])


def test_records_that_a_reader_does_not_count_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "TICK", -1)
    paths = [str(tmp_path / f"{number}.txt") for number in range(3)]
    for number, path in enumerate(paths):
        Path(path).write_text("word " * number)
    counted = [Shard(path, 0, number) for number, path in enumerate(paths)]
    for _ in range(2):
        assert shards_of(Words(paths=paths)) == counted
        assert sorted(Words.read) == paths
    Path(paths[0]).write_text("a b c")
    assert shards_of(Words(paths=paths))[0] == Shard(paths[0], 0, 3)
    assert Words.read[3:] == paths[:1] * len(Words.read[3:])
    with pytest.raises(FileNotFoundError, match=r"gave no count.*word-list"):
        shards_of(Words(paths=["word-list"]))
    with pytest.raises(TypeError, match=r"Words\.create_shards\(\) gave no count of .*1\.txt.*pickle"):
        shards_of(Words(paths=paths[1:], lock=threading.Lock()))


def test_a_task_speaks_both_dialects() -> None:
    task = Task(3, "f", 2, 5, indices=(4, 2))
    assert (task.shard_name, task.shard.name, task.shard.start, task.shard.end) == ("f", "f", 2, 5)
    assert task.shard.indices == (4, 2)
    assert list(task.numbers()) == [4, 2]
    assert list(Task(3, "f", 2, 5, indices=np.array([4, 2])).numbers()) == [4, 2]  # type: ignore[arg-type]
    assert list(Task(3, "f", 2, 5).numbers()) == [2, 3, 4]
    assert TaskType(5) is TaskType.TRAIN_END_CALLBACK


def test_runs() -> None:
    assert list(runs([1, 2, 3, 7, 9, 10])) == [(1, 4), (7, 8), (9, 11)]
    assert list(runs(range(3, 6))) == [(3, 6)]
    assert list(runs(range(0))) == list(runs([])) == []


class Sliced(SlicedDataReader):
    """Numbers, in shards of some."""

    def __init__(self, total: int, records_per_task: int | None) -> None:
        super().__init__("t", records_per_task)
        self._total = total

    def __len__(self) -> int:
        return self._total

    def _read(self, numbers: Any) -> Iterator[int]:
        return iter(numbers)


def test_slices() -> None:
    seven = [Shard("t:shard_0", 0, 3), Shard("t:shard_1", 3, 3), Shard("t:shard_2", 6, 1)]
    assert Sliced(7, 3).create_shards() == seven
    assert Sliced(6, 3).create_shards()[-1].count == 3
    assert Sliced(7, None).create_shards() == [Shard("t:shard_0", 0, 7)]
    assert Sliced(0, 3).create_shards() == Sliced(0, None).create_shards() == []
    with pytest.raises(ValueError, match="at least 1"):
        Sliced(7, 0).create_shards()
    assert list(Sliced(7, 3).read_records(Task(0, "t:shard_1", 3, 6))) == [3, 4, 5]
    for name in ("u:shard_1", "t:shard_x", "t:shard_"):
        with pytest.raises(ValueError, match="no shard of t"):
            next(Sliced(7, 3).read_records(Task(0, name, 3, 6)))
    with pytest.raises(CorruptFileError, match="record 7 is asked for"):
        next(Sliced(7, 3).read_records(Task(0, "t", 6, 8)))


def test_records_are_counted() -> None:
    class Short(Given):
        def read_records(self, task: Any) -> Iterator[Any]:
            yield from range(task.start, min(task.end, 8))

    class Long(Given):
        def read_records(self, task: Any) -> Iterator[Any]:
            yield from range(task.start, task.end + 1)

    assert list(Given(None).read_at("s", [1, 2, 5])) == [1, 2, 5]
    with pytest.raises(CorruptFileError, match="before record 8"):
        list(Short(None).read_at("s", range(5, 10)))
    with pytest.raises(CorruptFileError, match="up to record 9"):
        list(Long(None).read_at("s", range(5, 10)))


def test_unknown_options_name_the_nearest() -> None:
    with pytest.raises(TypeError, match="did you mean 'columns'"):
        TextDataReader("x.csv", colums=["a"])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean 'records_per_task'"):
        create_data_reader("x", reader_type="ImageFolder", records_per_taks=1)


def test_a_reader_written_for_elasticdl() -> None:
    reader = ElasticDL(data_dir="/x", anything=1)
    assert shards_of(reader) == [Shard("/x", 0, 1)]
    assert list(reader.read_at("/x", [0])) == ["/x"]
    assert reader.records_output_types is None
    assert reader.metadata.column_names is None


class Stranger:
    """Of no class of ours."""

    def create_shards(self) -> Any:
        return {"s": 4}

    def read_records(self, task: Any) -> Any:
        return [f"{task.shard_name}{number}" for number in range(task.start, task.end)]


def test_a_reader_of_another_family() -> None:
    reader = adopt(Stranger())
    assert shards_of(reader) == [Shard("s", 0, 4)]
    assert list(reader.read_at("s", [0, 3])) == ["s0", "s3"]
    assert reader.metadata.column_names is None
    assert adopt(reader) is reader
    with pytest.raises(TypeError, match="read_records"):
        adopt(5)


# ---- the factory


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROJECT", "AK", "SK", "ENDPOINT", "TUNNEL_ENDPOINT"):
        monkeypatch.delenv(f"MAXCOMPUTE_{name}", raising=False)


def test_the_factory_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = str(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("1\n2\n3\n")
    assert [shard.count for shard in shards_of(create_data_reader(rows, 2))] == [2, 1]
    assert isinstance(create_data_reader(str(tmp_path)), RecordIODataReader)
    assert isinstance(create_data_reader(str(tmp_path), 5, "ImageFolder"), ImageFolderDataReader)
    for name in ("PROJECT", "AK", "SK"):
        monkeypatch.setenv(f"MAXCOMPUTE_{name}", "x")
    assert isinstance(create_data_reader("table.csv"), ODPSDataReader)
    assert isinstance(create_data_reader(rows, reader_type="CSV", columns=["1"]), TextDataReader)


def test_the_factory_refuses() -> None:
    with pytest.raises(ValueError, match="'Parquet' is not supported; known: RecordIO, CSV, ODPS"):
        create_data_reader("x", reader_type="Parquet")
    with pytest.raises(ValueError, match="MAXCOMPUTE_PROJECT, MAXCOMPUTE_AK, MAXCOMPUTE_SK"):
        create_data_reader("t", reader_type="ODPS")
    with pytest.raises(ValueError):
        create_data_reader("")
    with pytest.raises(FileNotFoundError):
        create_data_reader("nonesuch.csv")


MODEL = """
import dataclasses
from fsabs.readers.data import AbstractDataReader

@dataclasses.dataclass
class Record:
    number: int

class Mine(AbstractDataReader):
    def __init__(self, **kwargs):
        self.given = kwargs
    def read_records(self, task: int):
        yield from map(Record, range(task.start, task.end))
    def create_shards(self):
        return {"s": 3}

def make(data_origin, scale=1):
    return Mine(data_origin=data_origin, scale=scale)

def wrong():
    return 5
"""


def test_custom_readers(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    mine = create_custom_data_reader(file, "Mine", "a=[1, 'x'];b=plain=text;c=None", data_origin="here")
    assert mine.given == {"a": [1, "x"], "b": "plain=text", "c": None, "data_origin": "here"}  # type: ignore[attr-defined]
    assert type(mine).read_records.__annotations__ == {"task": int}
    records = list(mine.read_at("s", range(3)))
    assert [record.number for record in pickle.loads(pickle.dumps(records))] == [0, 1, 2]
    made = create_custom_data_reader(f"file://{file}", "make", {"scale": 3}, data_origin="x", records_per_task=5)
    assert made.given == {"data_origin": "x", "scale": 3}  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="did you mean 'scale'"):
        create_custom_data_reader(file, "make", "scal=1", data_origin="x")
    for name in ("wrong", "Nonesuch", "__name__"):
        with pytest.raises(ValueError, match=name):
            create_custom_data_reader(file, name)
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        create_custom_data_reader(tmp_path / "broken.py", "Records")
    assert not any("broken%2Epy" in name for name in sys.modules)


def test_params_are_literals_or_text() -> None:
    assert parse_params("k=v; k2 = 1.5 ;;e=") == {"k": "v", "k2": 1.5, "e": ""}
    assert parse_params('cols=["a", "b"];sep=,') == {"cols": ["a", "b"], "sep": ","}
    assert parse_params("x=__import__('os').getcwd()") == {"x": "__import__('os').getcwd()"}
    assert parse_params("sep=';'; names=['a;b', 'c;d'];x=it's;y=[1") == {
        "sep": ";",
        "names": ["a;b", "c;d"],
        "x": "it's",
        "y": "[1",
    }
    for bad in ("novalue", "=1", "a=1;a=2"):
        with pytest.raises(ValueError):
            parse_params(bad)


def test_tasks_of_elasticdls_later_protocol(tmp_path: Path) -> None:
    """Their shard is an object of its own: `task.shard.name`, `.start`, `.end`, `.indices`."""
    with RecordWriter(fsabs.from_url(tmp_path), "f") as writer:
        for number in range(20):
            writer.write(b"%d" % number)
    (tmp_path / "rows.csv").write_text("".join(f"{number},x\n" for number in range(20)))
    reader = RecordIODataReader(data_dir=str(tmp_path / "f"))
    name = shards_of(reader)[0].name
    later = SimpleNamespace(shard=SimpleNamespace(name=name, start=5, end=8, indices=[]))
    assert list(reader.read_records(later)) == [b"5", b"6", b"7"]  # type: ignore[arg-type]
    some = SimpleNamespace(shard=SimpleNamespace(name=name, start=5, end=8, indices=[7, 5]))
    assert list(reader.read_records(some)) == [b"7", b"5"]  # type: ignore[arg-type]
    text = create_data_reader(str(tmp_path / "rows.csv"))
    later.shard.name = shards_of(text)[0].name
    assert [row[0] for row in text.read_records(later)] == ["5", "6", "7"]


def test_no_data_gives_no_shards_and_a_warning(tmp_path: Path) -> None:
    for nothing in ("", None, str(tmp_path)):
        reader = RecordIODataReader(data_dir=nothing)  # type: ignore[arg-type]
        with pytest.warns(UserWarning, match="there are no shards"):
            assert reader.create_shards() == []
