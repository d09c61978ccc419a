"""What a checkpoint's own file raises is what the caller gets, and an interrupt never aborts the process."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

import fsabs
from fsabs.adapters.torch import CheckpointManager, load_checkpoint, save_checkpoint
from fsabs.adapters.torch.distributed import DistributedReader, DistributedWriter
from fsabs.testing import Fault, FaultyFS, Raise
from tests import preloaded
from tests.adapters import stores

STATE = {"w": torch.ones(400_000), "v": torch.ones(100), "step": 1}
FAILURES = [KeyboardInterrupt("x"), SystemExit(3), PermissionError(13, "no credentials"), TimeoutError(110, "gone")]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda exc: type(exc).__name__)
@pytest.mark.parametrize("patched", [False, True], ids=["ours", "patched"])
def test_a_failure_of_the_file_is_what_is_raised(failure: Any, patched: bool) -> None:
    """By the n-th write or read, until there is no n-th."""
    store = fsabs.Memory()
    save_checkpoint(STATE, fsabs.Path("x.pt", fs=store))
    with fsabs.patch("torch"):
        save, load = (torch.save, torch.load) if patched else (save_checkpoint, load_checkpoint)
        for operation in ("write", "read"):
            raised = 0
            for at in range(1, 100):
                faulty = FaultyFS(store, Fault(operation, Raise(failure), at=at))
                path: Any = fsabs.Path("x.pt", fs=faulty)
                try:
                    save(STATE, path) if operation == "write" else load(path)
                    break
                except type(failure):
                    raised += 1
            assert raised > 1
            assert load_checkpoint(fsabs.Path("x.pt", fs=store))["step"] == 1


@pytest.mark.parametrize("failure", FAILURES, ids=lambda exc: type(exc).__name__)
def test_torchs_exception_has_the_failure_of_a_distributed_checkpoint(failure: Any) -> None:
    """Of its files and its metadata; where nothing was saved, it has the FileNotFoundError."""
    state = {"small": torch.ones(9), "large": torch.ones(400_000)}

    def raised(operation: Any, at: int) -> list[type[BaseException]]:
        store = fsabs.Memory()
        if operation == "read":
            dcp_save(state, storage_writer=DistributedWriter(fsabs.Path("run", fs=store)), no_dist=True)
        path = fsabs.Path("run", fs=FaultyFS(store, Fault(operation, Raise(failure), at=at)))
        try:
            if operation == "read":
                dcp_load(state, storage_reader=DistributedReader(path), no_dist=True)
            else:
                dcp_save(state, storage_writer=DistributedWriter(path), no_dist=True)
        except CheckpointException as exc:
            return [type(one) for one, _ in exc.failures.values()]
        return []

    for operation in ("write", "read"):
        found = [*itertools.takewhile(bool, (raised(operation, at) for at in range(1, 100)))]
        assert len(found) > 3
        assert found == [[type(failure)]] * len(found)
    with pytest.raises(CheckpointException) as nothing:
        dcp_load(state, storage_reader=DistributedReader(fsabs.Path("run", fs=fsabs.Memory())), no_dist=True)
    assert isinstance(nothing.value.failures[0][0], FileNotFoundError)


def test_an_error_in_the_handling_of_an_interrupt_stays_what_it_is() -> None:
    faulty = FaultyFS(fsabs.Memory(), Fault("write", Raise(PermissionError(13, "no credentials"))))
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(PermissionError):
            save_checkpoint(STATE, fsabs.Path("x.pt", fs=faulty))


INTERRUPTED = """
import collections, json, os, sys, torch
from fsabs.adapters.torch import save_checkpoint

path, step = sys.argv[1], int(sys.argv[2])
state = {"w": torch.ones(100), "list": [torch.zeros(3)], "step": 1}
lines, at, there = 0, -1, ""

def trace(frame, event, argument):
    global lines, there
    lines += event == "line"
    if event == "line" and lines == at:
        sys.settrace(None)
        there = f"{os.path.basename(frame.f_code.co_filename)} {frame.f_code.co_name}"
        raise KeyboardInterrupt
    return trace

def save():
    sys.settrace(trace)
    try:
        save_checkpoint(state, path)
    finally:
        sys.settrace(None)

save(), save()
lines = 0
save()
total, ends = lines, collections.Counter()
for number in range(1, total + 1, step):
    reading, writing = os.pipe()
    if not (child := os.fork()):
        lines, at, end = 0, number, "saved"
        try:
            save()
        except BaseException as exc:
            end = type(exc).__name__
        os.write(writing, f"{end} {there}".encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as told:
        said = told.read()
    ends[said if not os.waitpid(child, 0)[1] else f"aborted {said}"] += 1
    torch.load(path)
print(json.dumps(ends))
"""


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.timeout(300)
def test_interrupts_at_the_lines_of_a_save_abort_nothing(step: int, tmp_path: Path) -> None:
    """Each comes out as KeyboardInterrupt, but where CPython drops it, as in a finalizer."""
    command = [sys.executable, "-W", "ignore", "-c", INTERRUPTED, str(tmp_path / "x.pt"), str(step)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280)
    ends = json.loads(ended.stdout)
    assert {end.partition(" ")[0] for end in ends} <= {"KeyboardInterrupt", "saved"}, ends
    dropped = sum(count for end, count in ends.items() if end.startswith("saved "))
    assert dropped <= 0.05 * sum(ends.values()), ends
    assert sum(ends.values()) >= 500 // step
    assert [name for name in os.listdir(tmp_path) if not name.startswith(".")] == ["x.pt"]


WAITS = """
import os, signal, sys, threading, time
import torch
from fsabs.adapters.torch import CheckpointManager

waiting, interrupted = threading.Event(), threading.Event()

class Slow:
    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        waiting.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
        interrupted.wait(60)
        time.sleep(0.5)  # the program could end now
        return str, ()

manager = CheckpointManager(sys.argv[1])
manager.save_async(1, {"slow": Slow(), "w": torch.ones(400_000)})
waiting.set()
try:
    manager.wait()
finally:
    interrupted.set()
"""


def test_a_checkpoint_that_was_waited_for_is_written_after_an_interrupt(tmp_path: Path) -> None:
    """Before the program ends, as by any Ctrl-C."""
    ended = preloaded.run(preloaded.TORCH, ["-c", WAITS, tmp_path], cwd=stores.ROOT, timeout=100)
    assert ended.returncode == -signal.SIGINT, ended.stderr
    assert CheckpointManager(tmp_path).load(weights_only=False)["w"].sum() == 400_000
