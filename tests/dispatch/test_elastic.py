"""The example of elastic training under torchrun: workers are killed and nodes join in the middle of an epoch.

Without kills and with them, every record of every epoch is in the trained model exactly once, and so it is in the
ledger. The loss is "as without kills" in this sense: batches differ with the number of processes, so the weights are
not bitwise equal; the mean loss over all records differs by at most 5 % from that of an undisturbed run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fsabs.dispatch import Task, TaskDispatcher
from tests import preloaded
from tests.servers.process import free_port

pytestmark = pytest.mark.nightly

EXAMPLE = Path(__file__).parents[2] / "examples" / "elastic.py"
_spec = importlib.util.spec_from_file_location("elastic", EXAMPLE)
assert _spec is not None
assert _spec.loader is not None
elastic: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(elastic)


def environment(**values: str) -> dict[str, str]:
    own = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return {**os.environ, **own, **values}


@contextlib.contextmanager
def node(folder: Path, port: int, local: bool) -> Iterator[preloaded.Program]:
    """Start a node of torchrun; its processes end with the block."""
    command = ["-m", "torch.distributed.run", "--nnodes=1:3", "--nproc-per-node=1", "--max-restarts=20"]
    command += [
        "--rdzv-backend=c10d",
        "--rdzv-id=elastic",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "--monitor-interval=0.1",
    ]
    command += [f"--rdzv-conf=is_host={int(local)},last_call_timeout=1,join_timeout=300", "--local-addr=127.0.0.1"]
    command += [str(EXAMPLE), str(folder)]
    with (folder / f"log-{time.monotonic()}").open("ab") as log, open(os.devnull) as nothing:
        files = (nothing.fileno(), log.fileno(), log.fileno())
        process = preloaded.start(
            ("torch", "torch.distributed.run"), command, files, env=environment(ELASTIC_DELAY="0.03")
        )
    try:
        yield process
    finally:
        for pid in children(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()


def children(pid: int) -> list[int]:
    """Return the pids of the worker processes of a node."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(line) for line in found.split()]


def kill_worker(process: preloaded.Program) -> None:
    """Kill the worker of a node; it may be starting again."""
    deadline = time.monotonic() + 60
    while not (found := children(process.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(found[0], signal.SIGKILL)


def saved(folder: Path) -> Any:
    """Return what the file of a run has."""
    training = elastic.Training(folder, None)
    if training.file.exists():
        found = torch.load(training.file, weights_only=True)
        training.weights, training.seen, training.steps = found["weights"], found["seen"], found["steps"]
    return training


def wait_for_records(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 240
    while int(saved(folder).seen.sum()) < count:
        assert time.monotonic() < deadline, [log.read_text()[-2000:] for log in folder.glob("log-*")]
        time.sleep(0.1)


def loss(weights: torch.Tensor) -> float:
    """Return the mean squared error over all records."""
    task = Task(shard_name="points", start=0, end=elastic.RECORDS)
    points = elastic.Points().read_records(task)
    mean: float = sum(float((point @ weights - height) ** 2) for _, point, height in points) / elastic.RECORDS
    return mean


def check(folder: Path) -> Any:
    """Every record of every epoch is in the model once, and in the ledger."""
    training = saved(folder)
    assert training.seen.tolist() == [elastic.EPOCHS] * elastic.RECORDS
    with TaskDispatcher(f"sqlite:///{folder}/job.db") as job:
        assert job.status().state == "finished"
        for epoch in range(elastic.EPOCHS):
            entries = list(job.ledger(epoch))
            assert {entry.state for entry in entries} == {"done"}
            assert sum(entry.records for entry in entries) == elastic.RECORDS
    return training


@pytest.mark.timeout(600)
def test_workers_are_killed_and_added_in_the_middle_of_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, disturbed = tmp_path / "alone", tmp_path / "disturbed"
    for folder in (alone, disturbed):
        folder.mkdir()
        elastic.create(folder)
    port = free_port()
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(node(disturbed, port, number == 0)) for number in range(2)]
        single = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        with monkeypatch.context() as patch:
            for name, value in single.items():
                patch.setenv(name, value)
            elastic.train(alone)
        wait_for_records(disturbed, 150)
        nodes.append(stack.enter_context(node(disturbed, port, False)))
        kill_worker(nodes[1])
        wait_for_records(disturbed, 450)
        kill_worker(nodes[0])
        assert nodes[0].wait(240) == 0
    quiet, after = check(alone), check(disturbed)
    assert loss(after.weights) == pytest.approx(loss(quiet.weights), rel=0.05)
