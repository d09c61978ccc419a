"""A training job and a writer on a real HDFS, while its nodes die, freeze, restart and fail over.

Every byte is right, no operation takes longer than its deadline, no half-written file is left, and the job ends.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from typing import Any

import pytest

import fsabs
from fsabs.core.writing import PARTIAL_SUFFIX
from tests import soak
from tests.servers import hdfs as hdfs_server
from tests.servers.fixtures import require
from tests.servers.hdfs_pair import HdfsPair
from tests.servers.network import Blackhole

pytestmark = pytest.mark.nightly
FILES = 40
DEADLINE = 90.0
"""Seconds for each operation."""
SLACK = 5.0
"""Seconds that a busy machine may add."""
WORKERS = 4
STEP = 0.05
"""Seconds between two reads or writes of a process, as what trains takes: without them the clients have all the CPUs,
and the nodes, whose starts are waited for, none."""


@pytest.fixture(scope="module")
def pair() -> Iterator[HdfsPair]:
    require(hdfs_server.missing)
    with HdfsPair() as running:
        yield running


def content(number: int) -> bytes:
    return random.Random(number).randbytes(20_000 + 7919 * (number % 13) * (number % 4))


# ---- the job


class Files:
    """A data set for a `DataLoader`: an item is read in one of four ways, checked, and its time returned."""

    def __init__(self, fs: fsabs.FS) -> None:
        self._fs = fs
        self._open: dict[int, Any] = {}

    def __len__(self) -> int:
        return FILES

    def __getitem__(self, number: int) -> tuple[float, bool]:
        time.sleep(STEP)
        begun = time.monotonic()
        right = self._read(number, random.randrange(4))
        return time.monotonic() - begun, right

    def _read(self, number: int, way: int) -> bool:
        expected = content(number)
        if way == 0:
            return self._fs.read_bytes(f"{number}") == expected
        if way == 1:
            others = [number, (number + 1) % FILES]
            return list(self._fs.read_many([str(one) for one in others])) == [content(one) for one in others]
        if way == 2:
            return self._fs.stat(f"{number}").size == len(expected) and len(list(self._fs.list())) == FILES
        file = self._open.setdefault(number % 5, (number, self._fs.open(f"{number}", "rb", buffering=0)))
        start = random.randrange(1000)
        file[1].seek(start)
        return bool(file[1].read(5000) == content(file[0])[start : start + 5000])


def train(url: str, environment: dict[str, str], stop: Event, results: Any) -> None:
    """Read epoch after epoch by a DataLoader with forked workers, until told to stop."""
    os.environ.update(environment)
    from torch.utils.data import DataLoader

    fs = fsabs.from_url(f"{url}/data", timeout=DEADLINE)
    assert fs.exists("0")
    loader: Any = DataLoader(
        Files(fs),  # type: ignore[arg-type]
        batch_size=4,
        shuffle=True,
        num_workers=WORKERS,
        multiprocessing_context="fork",
        collate_fn=list,
        persistent_workers=True,
    )
    items = wrong = 0
    longest = 0.0
    while not stop.is_set():
        for batch in loader:
            items += len(batch)
            wrong += sum(not right for _, right in batch)
            longest = max([longest, *(seconds for seconds, _ in batch)])
            if stop.is_set():
                break
    results.put(("items read", items, wrong, longest))
    results.close()
    results.join_thread()
    os._exit(0)


def write(url: str, environment: dict[str, str], stop: Event, results: Any) -> None:
    """Write small and longer files, and read each back, until told to stop."""
    os.environ.update(environment)
    fs = fsabs.from_url(f"{url}/written", create=True, timeout=DEADLINE, block_size=1 << 20)
    written = wrong = 0
    longest = 0.0
    while not stop.is_set():
        time.sleep(STEP)
        name, data = f"{written}", content(written) * (100 if written % 5 == 0 else 1)
        begun = time.monotonic()
        if written % 3 == 2:
            fs.write_bytes(name + ".new", data)
            fs.rename(name + ".new", name)
        elif written % 3 == 1:
            stream(fs, name, data)
        else:
            fs.write_bytes(name, data)
        longest = max(longest, time.monotonic() - begun)
        wrong += fs.read_bytes(name) != data
        written += 1
    results.put(("files written", written, wrong, longest / 3))  # two or three operations each
    results.close()
    results.join_thread()
    os._exit(0)


def stream(fs: fsabs.FS, name: str, data: bytes) -> None:
    """Write a file by a stream, and again as often as it raises, as a program does."""
    end = time.monotonic() + DEADLINE
    while True:
        try:
            with fs.open(name, "wb") as file:
                file.write(data)
            return
        except OSError:
            assert not fs.exists(name) or fs.read_bytes(name) == data
            if time.monotonic() > end:
                raise


# ---- the faults


def kill(pair: HdfsPair) -> None:
    """SIGKILL the active NameNode, and fail over."""
    dead = pair.active
    pair.kill(f"nn{dead}")
    time.sleep(1)
    pair.activate(1 - dead)
    pair.start_namenode(dead)


def freeze(pair: HdfsPair) -> None:
    """SIGSTOP the active NameNode, fail over, and fence it."""
    frozen = pair.active
    pair.freeze(f"nn{frozen}")
    time.sleep(1.5)
    pair.activate(1 - frozen)
    time.sleep(1.5)
    pair.kill(f"nn{frozen}")
    pair.start_namenode(frozen)


def pause(pair: HdfsPair) -> None:
    """SIGSTOP the active NameNode for some seconds, as a long garbage collection does."""
    pair.freeze(f"nn{pair.active}")
    time.sleep(2.5)
    pair.thaw(f"nn{pair.active}")


def restart(pair: HdfsPair) -> None:
    """SIGKILL the active NameNode, and start it again as the active one."""
    number = pair.active
    pair.kill(f"nn{number}")
    pair.start_namenode(number)
    pair.activate(number)


def fail_over(pair: HdfsPair) -> None:
    """Move the active state, as an administrator does."""
    pair.fail_over()


def safe_mode(pair: HdfsPair) -> None:
    """Have the active NameNode refuse what changes anything for a while."""
    pair.administer("safe")
    time.sleep(2)
    pair.administer("unsafe")


def lose_datanode(pair: HdfsPair) -> None:
    """SIGKILL a DataNode, and start it again."""
    number = random.randrange(2)
    pair.kill(f"dn{number}")
    time.sleep(2)
    pair.start_datanode(number)


def blackhole(pair: HdfsPair) -> None:
    """Power the active NameNode off: its address drops connections; fail over."""
    dead = pair.active
    pair.kill(f"nn{dead}")
    with Blackhole(connects=False, port=pair.ports[dead]):
        pair.activate(1 - dead)
        time.sleep(3)
    pair.start_namenode(dead)


FAULTS: list[Callable[[HdfsPair], None]] = [
    kill,
    freeze,
    pause,
    restart,
    fail_over,
    safe_mode,
    lose_datanode,
    blackhole,
]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_job_and_a_writer_outlive_every_fault(pair: HdfsPair) -> None:
    seed = soak.seed(14)
    print(f"seed {seed}")
    order = random.Random(seed)
    for number in range(FILES):
        pair.put(f"/data/{number}", content(number), block_size=64 * 1024)
    environment = {"HADOOP_CONF_DIR": str(pair.conf_dir)}
    context = multiprocessing.get_context("spawn")
    stop, results = context.Event(), context.Queue()
    processes = [
        context.Process(target=target, args=(pair.url, environment, stop, results), daemon=daemon)
        for target, daemon in ((train, False), (write, True))
    ]
    for process in processes:
        process.start()
    found: dict[str, tuple[int, int, float]] = {}
    try:
        time.sleep(6)
        faults = rounds(order, soak.rounds(8))
        for fault in faults:
            fault(pair)
            time.sleep(order.random())
            assert all(process.is_alive() for process in processes), f"a process died after {fault.__name__}"
        stop.set()
        for _ in processes:
            name, *figures = results.get(timeout=2 * DEADLINE + 60)
            found[name] = tuple(figures)
        for process in processes:
            process.join(60)
            assert process.exitcode == 0
    finally:
        for process in processes:
            process.kill()
    for name, (count, wrong, longest) in found.items():
        print(f"{name}: {count}, longest operation {longest:.1f} s")
        soak.count(f"HDFS: {name} under faults", count)
        assert count > 0
        assert wrong == 0
        assert longest < DEADLINE + SLACK
    soak.count("HDFS: faults of nodes", len(faults))
    stored = [path for path, directory, _ in pair.ls("/", recursive=True) if not directory]
    assert not [path for path in stored if path.endswith(PARTIAL_SUFFIX)]
    for number in range(found["files written"][0]):
        expected = content(number) * (100 if number % 5 == 0 else 1)
        assert pair.get(f"/written/{number}") == expected


def rounds(order: random.Random, count: int) -> list[Callable[[HdfsPair], None]]:
    """Return `count` faults: each as often as the others, in an order by chance."""
    found: list[Callable[[HdfsPair], None]] = []
    while len(found) < count:
        found += order.sample(FAULTS, len(FAULTS))
    return found[:count]
