"""ODPSDataReader with PyODPS over HTTP, against a service that fails in the ways that services do."""

from __future__ import annotations

import datetime
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fsabs import CorruptFileError, MissingDependencyError, StaleFileError
from fsabs.readers.data import AbstractDataReader, ODPSDataReader, Task, create_data_reader, shards_of
from tests.servers.odps import Break, Cut, Fault, OdpsServer, Status, Table, WrongSum

COLUMNS = [("id", "bigint"), ("score", "double"), ("name", "string"), ("good", "boolean"), ("at", "datetime")]
NOW = 1_700_000_000_123


def row(number: int) -> list[Any]:
    return [number - 60, number / 7, f"näme {number}" if number % 5 else "", number % 2 == 0, NOW + number]


ROWS = [row(number) for number in range(103)]
ROWS[3] = [None] * 5
ROWS[4][2] = None


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[OdpsServer]:
    """With PyODPS's waiting before a retry made short."""
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(min(seconds, 0.002)))
    pieces = {"pt=1": [[1, "a"], [2, "b"]], "pt=2": [[3, "c"]]}
    parted = Table([("x", "bigint"), ("y", "string")], pieces, ["pt"])
    with OdpsServer({"t": Table(COLUMNS, {"": ROWS}), "parted": parted, "empty": Table(COLUMNS, {"": []})}) as server:
        yield server


def reader_of(service: OdpsServer, table: str = "t", **options: Any) -> ODPSDataReader:
    return ODPSDataReader(table, **{**service.options, **options})


def read_all(reader: AbstractDataReader) -> list[Any]:
    tasks = [Task(0, name, start, start + count) for name, start, count in shards_of(reader)]
    return [record for task in tasks for record in reader.read_records(task)]


def test_rows_and_shards(service: OdpsServer) -> None:
    reader = reader_of(service, records_per_task=25, values="typed")
    assert [tuple(shard) for shard in shards_of(reader)] == [
        *((f"t:shard_{number}", 25 * number, 25) for number in range(4)),
        ("t:shard_4", 100, 3),
    ]
    rows = read_all(reader)
    assert [values[:4] for values in rows] == [values[:4] for values in ROWS]
    assert rows[3] == [None] * 5
    assert rows[5][4] == datetime.datetime.fromtimestamp((NOW + 5) / 1000)
    assert reader.metadata.column_names == [name for name, _ in COLUMNS]
    assert [str(kind).lower() for kind in reader.metadata.column_dtypes or []] == [kind for _, kind in COLUMNS]
    assert sum(count for _, count in service.ranges) == len(ROWS)


def test_text_keeps_null(service: OdpsServer) -> None:
    reader = pickle.loads(pickle.dumps(reader_of(service, columns=["name", "id"])))
    assert read_all(reader)[2:7] == [["näme 2", "-58"], [None, None], [None, "-56"], ["", "-55"], ["näme 6", "-54"]]
    assert reader.records_output_types == "string"


def test_partitions(service: OdpsServer) -> None:
    assert read_all(reader_of(service, "parted", partition="pt=1")) == [["1", "a"], ["2", "b"]]
    assert read_all(reader_of(service, "training.parted", partition="pt=2", columns=["y", "pt"])) == [["c", "2"]]
    assert shards_of(reader_of(service, "empty", records_per_task=5)) == []


@pytest.mark.parametrize("threads", [1, 3])
def test_a_whole_partitioned_table(service: OdpsServer, threads: int) -> None:
    reader = reader_of(service, "parted", columns=["x", "pt"], records_per_task=2, num_processes=threads)
    assert [tuple(shard) for shard in shards_of(reader)] == [("parted:shard_0", 0, 2), ("parted:shard_1", 2, 1)]
    assert read_all(reader) == [["1", "1"], ["2", "1"], ["3", "2"]]
    assert list(pickle.loads(pickle.dumps(reader)).read_records(Task(0, "parted", 1, 3))) == [["2", "1"], ["3", "2"]]
    service.tables["parted"].rows["pt=1"] = [[1, "a"]]
    reader.close()
    with pytest.raises(StaleFileError, match="pt=1 has 1 rows, and had 2"):
        list(reader.read_records(Task(0, "parted", 0, 3)))


def test_what_no_attempt_mends_is_not_tried_again(service: OdpsServer) -> None:
    reader = reader_of(service, max_attempts=5)
    assert len(reader)
    service.fault = lambda start, count, request: Status(400, "InvalidArgument")
    with pytest.raises(OSError, match="InvalidArgument"):
        list(reader.read_records(Task(0, "t", 0, 5)))
    assert len(service.ranges) == 1


def once(fault: Fault) -> Callable[[int, int, int], Fault]:
    return lambda start, count, request: fault if request == 0 else None


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("fault", [Cut(0), Cut(7), Break(7), Status(500), Status(400), WrongSum(7)], ids=str)
def test_a_fault_loses_and_repeats_nothing(service: OdpsServer, fault: Fault, threads: int) -> None:
    reader = reader_of(service, values="typed", columns=["id", "name"], num_processes=threads)
    assert len(reader) == len(ROWS)
    service.fault = once(fault)
    rows = list(reader.read_records(Task(0, "t", 10, 100)))
    assert rows == [[values[0], values[2]] for values in ROWS[10:100]]
    assert len(service.ranges) > threads  # there was another attempt
    if isinstance(fault, Cut) and fault.rows == 7 and threads == 1:
        assert service.ranges[1] == (17, 83)  # at the very row
        service.fault = lambda start, count, request: Cut(9)
        assert len(read_all(reader_of(service))) == len(ROWS)  # slow, but it gets on


@pytest.mark.parametrize(
    ("fault", "error"), [(Cut(0), CorruptFileError), (Status(400), OSError), (WrongSum(0), CorruptFileError)], ids=str
)
def test_a_fault_that_stays_is_raised(service: OdpsServer, fault: Fault, error: type[OSError]) -> None:
    reader = reader_of(service, max_attempts=3)
    service.fault = lambda start, count, request: fault if start + count > 50 else None
    rows = reader.read_records(Task(0, "t", 40, 60))
    with pytest.raises(error) as caught:
        list(rows)
    assert caught.value.filename == "odps://training/t"
    assert caught.value.errno


def test_errors_are_pythons(service: OdpsServer) -> None:
    with pytest.raises(FileNotFoundError, match="nonesuch"):
        len(reader_of(service, "nonesuch"))
    with pytest.raises(FileNotFoundError) as caught:
        len(reader_of(service, "parted", partition="pt=9"))
    assert caught.value.filename == "odps://training/parted/pt=9"
    with pytest.raises(ValueError, match=r"no columns \['x'\]"):
        reader_of(service, columns=["x"]).metadata  # noqa: B018
    with pytest.raises(CorruptFileError, match="record 103"):
        list(reader_of(service).read_records(Task(0, "t", 100, 110)))
    with pytest.raises(ValueError, match="values"):
        reader_of(service, values="txt")


def test_a_service_that_is_not_there(service: OdpsServer) -> None:
    asks: list[Callable[[Any], Any]] = [len, lambda reader: reader.metadata, ODPSDataReader.create_shards]
    for ask in asks:
        with pytest.raises(ConnectionError) as caught:
            ask(reader_of(service, endpoint="http://127.0.0.1:1", max_attempts=2))
        assert caught.value.filename == "odps://training/t"


def test_a_table_that_grew(service: OdpsServer) -> None:
    reader = reader_of(service)
    shards_of(reader)
    reader.close()
    service.tables["t"].rows[""] = [*ROWS, ROWS[0]]
    with pytest.raises(StaleFileError, match="104 rows, and had 103"):
        list(reader.read_records(Task(0, "t", 0, 5)))


def test_a_session_that_is_over_is_opened_anew(service: OdpsServer) -> None:
    """Each lasts for 24 hours, and PyODPS asks for the one that its thread opened: a job of days meets that."""
    service.failing_sessions = 2
    reader = reader_of(service, values="typed", columns=["id"])
    for start, end in ((0, 5), (10, 100)):
        assert list(reader.read_records(Task(0, "t", start, end))) == [[values[0]] for values in ROWS[start:end]]
        service.expired_sessions = service.sessions


def test_the_factory_takes_the_account_from_the_environment(
    service: OdpsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"PROJECT": "project", "AK": "access_id", "SK": "access_key"}
    for name, option in (names | {"ENDPOINT": "endpoint", "TUNNEL_ENDPOINT": "tunnel_endpoint"}).items():
        monkeypatch.setenv(f"MAXCOMPUTE_{name}", service.options[option])
    reader = create_data_reader("parted", 1, partition="pt=1", columns=["y"])
    assert [shard.count for shard in shards_of(reader)] == [1, 1]
    assert read_all(reader) == [["a"], ["b"]]


def test_without_pyodps(service: OdpsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "odps", None)
    reader = reader_of(service)
    with pytest.raises(MissingDependencyError, match=r"fsabs\[odps\]"):
        shards_of(reader)
    with pytest.raises(MissingDependencyError):
        reader.metadata  # noqa: B018
