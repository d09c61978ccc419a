"""TaskDataService: records of leased tasks, counted when they are processed."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.dispatch import JobFailedError, Task, TaskDataService, TaskDispatcher, TaskType, get_dataset
from fsabs.readers import RecordWriter
from fsabs.readers.data import AbstractDataReader, RecordIODataReader


class Numbers(AbstractDataReader):
    """Records that are (shard, number); every tenth is empty."""

    def __init__(self, shards: dict[str, tuple[int, int]], delay: float = 0.0) -> None:
        super().__init__()
        self.shards = shards
        self.delay = delay
        self.bad: set[tuple[str, int]] = set()
        self.threads: list[str] = []

    def create_shards(self) -> dict[str, tuple[int, int]]:
        return self.shards

    def read_records(self, task: Any) -> Iterator[Any]:
        for number in task.numbers():
            if self.delay:
                time.sleep(self.delay)
            self.threads.append(threading.current_thread().name)
            if (task.shard_name, number) in self.bad:
                raise OSError(f"record {number} can't be read")
            yield (task.shard_name, number) if number % 10 else ()


def create(url: str, reader: Any, **settings: Any) -> TaskDispatcher:
    settings = {"records_per_task": 7, "train_end_callback": False, **settings}
    return TaskDispatcher.create(url, training=reader, **settings)


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/tasks.db"


def test_every_record_comes_once(url: str) -> None:
    reader = Numbers({"a": (0, 100), "b": (3, 50)})
    with create(url, reader, seed=2) as dispatcher:
        batches = list(get_dataset(dispatcher, reader, "w", 4))
        assert Counter(record for batch in batches for record in batch)[()] == 10 + 5
        assert sum(map(len, batches)) == 150
        assert max(map(len, batches)) == 4
        status = dispatcher.status()
        assert (status.state, status.tasks.records, status.tasks.done) == ("finished", 150, 15 + 8)


def test_records_are_counted_by_the_caller(sqlite: str) -> None:
    reader = Numbers({"a": (0, 21)})
    with create(sqlite, reader) as dispatcher, TaskDataService(dispatcher, reader, "w") as service:
        records = service.get_dataset()
        taken = [next(records) for _ in range(10)]
        assert len(taken) == 10
        assert dispatcher.status().tasks.records == 0
        assert service.report_record_done(10)
        assert dispatcher.status().tasks.done == 1
        assert service.current_task is not None
        assert service.current_task.type == TaskType.TRAINING
        service.close()  # three of the second task were processed
        assert [entry.records for entry in dispatcher.ledger()] == [7, 3, 0]
        rest = [record for batch in get_dataset(dispatcher, reader, "w2", 100) for record in batch]
        assert sorted(rest) == sorted([("a", number) if number % 10 else () for number in range(10, 21)])


def test_shuffled_records(sqlite: str) -> None:
    reader = Numbers({"a": (0, 500)})
    with create(sqlite, reader, records_per_task=100, seed=1, shuffle_records=True) as dispatcher:
        found = [record for batch in get_dataset(dispatcher, reader, "w", 10) for record in batch]
        numbers = [record[1] for record in found if record]
        assert numbers != sorted(numbers)
        assert sorted(numbers) == [number for number in range(500) if number % 10]


def test_a_batch_that_fails_is_not_counted(sqlite: str) -> None:
    reader = Numbers({"a": (0, 20)})
    with create(sqlite, reader, records_per_task=20) as dispatcher:
        with pytest.raises(ZeroDivisionError), TaskDataService(dispatcher, reader, "w") as service:
            for number, _ in enumerate(service.batches(5)):
                1 / (2 - number)
        assert dispatcher.status().tasks.records == 10
        rest = [record for batch in get_dataset(dispatcher, reader, "w", 5) for record in batch]
        assert rest == [("a", number) if number % 10 else () for number in range(10, 20)]


def test_what_can_not_be_read_fails_its_task_alone(sqlite: str) -> None:
    reader = Numbers({"a": (0, 30)})
    reader.bad.add(("a", 12))
    with create(sqlite, reader, records_per_task=10, max_failures=1) as dispatcher:
        found = []
        with pytest.raises(JobFailedError, match="record 12 can't be read"):
            for batch in get_dataset(dispatcher, reader, "w", 1):
                found += batch
        assert dispatcher.status().tasks.records == 22  # the two before it, too
        reader.bad.clear()
        assert dispatcher.retry_failed() == 1
        found += [record for batch in get_dataset(dispatcher, reader, "w", 1) for record in batch]
        assert len(found) == 30


@pytest.mark.parametrize(("given", "reason"), [(4, "4 of 5 records"), (6, "more than 5 records")])
def test_a_reader_that_gives_too_few_or_too_many_fails_its_task(sqlite: str, given: int, reason: str) -> None:
    class Wrong(Numbers):
        def read_records(self, task: Any) -> Iterator[Any]:
            return iter(range(given))

    reader = Wrong({"a": (0, 5)})
    with create(sqlite, reader, max_failures=0) as dispatcher:
        with pytest.raises(JobFailedError, match=reason):
            list(get_dataset(dispatcher, reader, "w", 10))
        assert dispatcher.status().tasks.done == 0


def test_records_of_a_task_that_failed_count_for_no_other_task(sqlite: str) -> None:
    reader = Numbers({"a": (0, 6)})
    reader.bad.add(("a", 2))
    with create(sqlite, reader, records_per_task=3) as dispatcher, TaskDataService(dispatcher, reader, "w") as service:
        records = service.get_dataset()
        assert [next(records) for _ in range(3)] == [(), ("a", 1), ("a", 3)]  # the first task failed at its third
        assert not service.report_record_done(2)
        assert [entry.records for entry in dispatcher.ledger()] == [0, 0]
        assert service.report_record_done(1)
        service.close()
        assert [entry.records for entry in dispatcher.ledger()] == [0, 1]
        with pytest.raises(ValueError, match="4 records more were reported than handed out"):
            service.report_record_done(4)


@pytest.mark.timeout(60)
def test_records_of_a_lost_lease_count_for_no_other_task(sqlite: str) -> None:
    reader = Numbers({"a": (0, 400)})
    settings = {"records_per_task": 200, "lease_seconds": 6.0}
    with create(sqlite, reader, **settings) as dispatcher, TaskDataService(dispatcher, reader, "w") as service:
        records = service.get_dataset()
        handed_out = [next(records) for _ in range(128)]
        with warnings.catch_warnings(record=True) as found:
            freed = dispatcher.recover("w")  # the next task, too, if it was leased ahead by now
            deadline = time.monotonic() + 30
            while len(found) < freed and time.monotonic() < deadline:
                time.sleep(0.05)  # until a renewal finds it out
        assert len(found) == freed
        assert "they are dispatched again" in str(found[0].message)
        assert not service.report_record_done(128)
        sizes = {256: 128, 328: 72, 456: 128, 528: 72}  # of chunks, by their end
        for record in records:
            handed_out.append(record)
            if len(handed_out) in sizes:
                assert service.report_record_done(sizes[len(handed_out)])
        assert dispatcher.status().state == "finished"
        assert len(handed_out) == 528


def test_a_renewal_during_a_report_finds_no_lost_lease(sqlite: str) -> None:
    class Slow(TaskDispatcher):
        def report(self, *args: Any, **options: Any) -> bool:
            accepted = super().report(*args, **options)
            time.sleep(0.8)
            return accepted

    reader = Numbers({"a": (0, 4)})
    create(sqlite, reader, records_per_task=4, lease_seconds=1.5).close()
    with Slow(sqlite) as dispatcher:
        with warnings.catch_warnings(record=True) as found:
            assert sum(map(len, get_dataset(dispatcher, reader, "w", 2))) == 4
        assert not found
        assert dispatcher.status().tasks.done == 1


def test_the_consumer_reads_local_files_itself(sqlite: str, tmp_path: Path) -> None:
    class Threads(RecordIODataReader):
        def read_records(self, task: Any) -> Iterator[bytes]:
            found.add(threading.current_thread().name)
            yield from super().read_records(task)

    found: set[str] = set()
    with RecordWriter(fsabs.from_url(tmp_path / "data", create=True), "a") as writer:
        for number in range(4000):
            writer.write(b"%d" % number)
    reader = Threads(tmp_path / "data")
    with create(sqlite, reader, records_per_task=400) as dispatcher:
        assert sum(map(len, get_dataset(dispatcher, reader, "w", 100))) == 4000
    assert found == {threading.current_thread().name}


@pytest.mark.parametrize(("records_per_task", "batch_size"), [(20, None), (128, 16), (1000, 100)])
def test_the_next_records_are_read_while_the_consumer_computes(
    sqlite: str, records_per_task: int, batch_size: int | None
) -> None:
    read = threading.Semaphore(0)

    class Counting(Numbers):
        def read_records(self, task: Any) -> Iterator[Any]:
            for record in super().read_records(task):
                yield record
                read.release()

    reader = Counting({"a": (0, 1000)})
    with (
        create(sqlite, reader, records_per_task=records_per_task) as dispatcher,
        TaskDataService(dispatcher, reader, "w") as service,
    ):
        records: Iterator[Any] = service.get_dataset() if batch_size is None else service.batches(batch_size)
        next(records)
        for _ in range(60):  # of this task and the next ones: nothing more is asked for
            assert read.acquire(timeout=20)


@pytest.mark.parametrize("read", [0, 1])
def test_a_service_belongs_to_its_process(sqlite: str, read: int) -> None:
    reader = Numbers({"a": (0, 1000)})
    with (
        create(sqlite, reader, records_per_task=500) as dispatcher,
        TaskDataService(dispatcher, reader, "w") as service,
    ):
        batches = service.batches(200)
        taken = [len(next(batches)) for _ in range(read)]

        def use() -> None:
            with pytest.raises(RuntimeError):
                next(batches)
            service.close()

        child = multiprocessing.get_context("fork").Process(target=use)
        child.start()
        child.join(30)
        assert child.exitcode == 0
        assert sum(taken) + sum(map(len, batches)) == 1000


def test_an_error_of_the_caller_fails_the_task(sqlite: str) -> None:
    reader = Numbers({"a": (0, 7)})
    with create(sqlite, reader, max_failures=0) as dispatcher, TaskDataService(dispatcher, reader, "w") as service:
        records = service.get_dataset()
        next(records)
        service.report_record_done(1, error="loss is nan")
        with pytest.raises(JobFailedError, match="loss is nan"):
            list(records)


def test_leases_are_renewed_while_records_are_processed(sqlite: str) -> None:
    reader = Numbers({"a": (0, 8)})
    with create(sqlite, reader, records_per_task=8, lease_seconds=2) as dispatcher:
        for _ in get_dataset(dispatcher, reader, "slow", 1):
            time.sleep(0.3)
            assert dispatcher.get("other").task.type in (TaskType.WAIT, TaskType.NONE)
        assert dispatcher.status().tasks.records == 8


@pytest.mark.timeout(60)
@pytest.mark.parametrize("lease_seconds", [300.0, 2.0])
def test_a_task_is_reported_at_once_while_a_longer_one_is_read(sqlite: str, lease_seconds: float) -> None:
    """Nor is it renewed until then, and found to be another worker's."""
    reader = Numbers({"a": (0, 1200)})
    with (
        create(sqlite, reader, records_per_task=400, lease_seconds=lease_seconds) as dispatcher,
        warnings.catch_warnings(record=True) as found,
        TaskDataService(dispatcher, reader, "w") as service,
    ):
        warnings.simplefilter("always")
        batches = service.batches(16)
        for _ in range(26):  # the first task, and one batch of the second
            next(batches)
        deadline = time.monotonic() + 20
        while not dispatcher.status().tasks.done and time.monotonic() < deadline:
            time.sleep(0.01)
        assert dispatcher.status().tasks.done == 1
        time.sleep(2.2)  # some renewals, of the shorter lease
        assert sum(map(len, batches)) == 1200 - 26 * 16
        assert dispatcher.status().tasks.records == 1200
    assert not found


def test_a_lost_lease_is_said_and_its_records_go_to_another(sqlite: str) -> None:
    reader = Numbers({"a": (0, 4)})
    with create(sqlite, reader, records_per_task=4) as dispatcher, TaskDataService(dispatcher, reader, "w") as service:
        records = service.get_dataset()
        assert len([next(records) for _ in range(4)]) == 4
        dispatcher.recover("w")
        with pytest.warns(UserWarning, match="they are dispatched again"):
            assert not service.report_record_done(4)
        assert dispatcher.status().tasks.records == 0


def test_a_lost_lease_ends_no_renewals_where_warnings_are_errors(sqlite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lossy(TaskDispatcher):
        def renew(self, task: Task, lease: int, records: int = 0) -> bool:
            renewed.append(task.start)
            return task.start != 0

    renewed: list[int] = []
    shown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    reader = Numbers({"a": (0, 400)})
    create(sqlite, reader, records_per_task=200, lease_seconds=0.6).close()
    with Lossy(sqlite) as dispatcher, TaskDataService(dispatcher, reader, "w") as service:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            records = service.get_dataset()
            next(records)
            deadline = time.monotonic() + 30
            while renewed.count(200) < 3 and time.monotonic() < deadline:
                time.sleep(0.02)
        assert "they are dispatched again" in str(shown[0].exc_value)
        assert renewed.count(200) >= 3
        records.close()  # type: ignore[attr-defined]


def test_training_ends_with_one_callback(sqlite: str) -> None:
    reader = Numbers({"a": (0, 40)})
    ended: list[Task] = []
    with create(sqlite, reader, train_end_callback=True) as dispatcher:

        def work(name: str) -> None:
            with TaskDataService(dispatcher, reader, name, on_train_end=ended.append) as service:
                for _ in service.batches(3):
                    pass

        threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert [task.type for task in ended] == [TaskType.TRAIN_END_CALLBACK]
        assert dispatcher.status().state == "finished"


def test_what_is_reported_as_failed_was_accepted_or_not(sqlite: str) -> None:
    reader = Numbers({"a": (0, 100)})
    with create(sqlite, reader, records_per_task=100) as dispatcher:
        with TaskDataService(dispatcher, reader, "w") as service:
            list(itertools.islice(service.get_dataset(), 40))  # of more than one chunk
            assert service.report_record_done(40, "bad")
        assert dispatcher.status().tasks.todo == 1
        with TaskDataService(dispatcher, reader, "w") as service:
            list(itertools.islice(service.get_dataset(), 10))
            dispatcher.recover("w")
            assert not service.report_record_done(10, "bad")


def test_a_reason_that_a_database_does_not_take_is_stored_escaped(url: str) -> None:
    class Bad(Numbers):
        def read_records(self, task: Any) -> Iterator[Any]:
            raise ValueError("text: \ud800 \0")

    reader = Bad({"a": (0, 7)})
    with create(url, reader, max_failures=0) as dispatcher, TaskDataService(dispatcher, reader, "w") as service:
        with pytest.raises(JobFailedError):
            list(service.get_dataset())
        assert [task.reason for task in dispatcher.failed()] == ["ValueError: text: \\ud800 \\0"]
