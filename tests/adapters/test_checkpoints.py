"""Checkpoints: what is saved comes back, the newest and the best stay, and no kill leaves fewer good ones."""

from __future__ import annotations

import json
import os
import pickle
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

import fsabs
from fsabs import trace
from fsabs.adapters.torch import checkpoints
from fsabs.adapters.torch.checkpoints import CheckpointManager
from fsabs.adapters.torch.distributed import DistributedReader, DistributedWriter
from tests import preloaded, scarce
from tests.adapters import stores
from tests.adapters.drivers import IMPORTS
from tests.adapters.workers import wait_for


@pytest.fixture(params=["local", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A directory that isn't there yet: one that torch reads by its path, and one that it does not."""
    with stores.opened(request.param, request, tmp_path) as url:
        yield f"{url}/run"


def state(step: int) -> dict[str, Any]:
    """What is saved for a step."""
    return {"w": torch.full((8, 8), float(step)), "step": step, "list": [torch.tensor(step)]}


def test_save_and_load(url: str, tmp_path: Path) -> None:
    stores.fill(url, {})
    checkpoints.save_checkpoint(state(3), f"{url}/x.pt")
    for mmap in (None, True, False):
        found = checkpoints.load_checkpoint(f"{url}/x.pt", mmap=mmap)
        assert torch.equal(found["w"], state(3)["w"])
    torch.save(state(4), tmp_path / "plain.pt")
    assert checkpoints.load_checkpoint(tmp_path / "plain.pt")["step"] == 4
    torch.save(state(4), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert checkpoints.load_checkpoint(tmp_path / "old.pt")["step"] == 4
    with pytest.raises(FileNotFoundError):
        checkpoints.load_checkpoint(f"{url}/none.pt")
    with pytest.raises(Exception, match="pickle"):
        checkpoints.save_checkpoint({"x": lambda: None}, f"{url}/bad.pt")
    assert not fsabs.Path(f"{url}/bad.pt").exists()


def test_a_save_beside_others_fails_at_nothing(url: str, tmp_path: Path) -> None:
    """What fails in a healthy job hides in its trace what does not."""
    manager = CheckpointManager(url)
    manager.save(1, state(1))
    with trace.record(tmp_path / "trace"):
        manager.save(2, state(2))
    calls = [event for event in trace.events(tmp_path / "trace") if event.kind == "fs"]
    failed = [(call.operation, call.error) for call in calls if call.error]
    assert calls
    assert not failed


def test_the_newest_and_the_best_stay(url: str) -> None:
    manager = CheckpointManager(url, keep=2, keep_best=2)
    assert (manager.latest(), manager.best(), manager.load()) == (None, None, None)
    for step, loss in enumerate([5.0, 1.5, 3.0, float("nan"), 2.0, 4.0]):
        manager.save(step, state(step), loss)
    assert [each.step for each in manager.checkpoints()] == [1, 4, 5]
    best, latest = manager.best(), manager.latest()
    assert best is not None
    assert latest is not None
    assert (best.step, best.metric, latest.step) == (1, 1.5, 5)
    assert manager.load()["step"] == 5
    assert manager.load(1)["step"] == 1
    with pytest.raises(FileNotFoundError, match="step 2"):
        manager.load(2)
    with fsabs.from_url(url) as fs:
        assert [each.step for each in CheckpointManager(fs, mode="max").checkpoints()] == [1, 4, 5]


def test_a_step_that_is_saved_again_and_a_run_that_goes_back(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, keep=2)
    manager.save(10, {"x": 1}, metric=0.9)
    manager.save(10, {"x": 2}, metric=0.5)
    assert manager.load() == manager.load(10) == {"x": 2}
    assert len(manager.checkpoints()) == 1
    for step in (20, 30, 40):
        manager.save(step, {"x": step})
    assert manager.load(30) == {"x": 30}
    for step in (31, 32, 33):  # from there
        manager.save(step, {"x": step})
        assert manager.load() == {"x": step}
    assert [one.step for one in manager.checkpoints()] == [32, 33]
    again = CheckpointManager(tmp_path, keep=2)
    again.save(34, {"x": 34})
    assert [one.step for one in again.checkpoints()] == [33, 34]


def test_two_processes_that_save_one_step_leave_a_checkpoint() -> None:
    both = threading.Barrier(2, timeout=30)

    class InStep(fsabs.spi.LayerFS):
        """Lists when the other process does: before each has written, and when each looks for old ones."""

        def _list(self, key: str, *how: Any) -> Iterator[fsabs.FileStat]:
            both.wait()
            return super()._list(key, *how)

    with fsabs.Memory() as store:
        CheckpointManager(store, keep=1).save(1, {"x": 1}, 9.0)
        ranks = [CheckpointManager(InStep(store), keep=1) for _ in range(2)]
        threads = [threading.Thread(target=rank.save, args=(2, {"x": 2}, 1.0 + at)) for at, rank in enumerate(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        left = CheckpointManager(store)
        assert {each.step for each in left.checkpoints()} == {2}
        assert left.load() == {"x": 2}


# ---- damage


def test_a_damaged_newest_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = CheckpointManager(tmp_path, keep=3)
    for step in range(2):
        path = Path(manager.save(step, state(step), metric=1.0))
    whole = path.read_bytes()
    (tmp_path / "checkpoint-1=best.pt").write_bytes(whole)  # is none of ours
    assert [each.step for each in manager.checkpoints()] == [0, 1]
    assert manager.load()["step"] == 1
    for damaged in (whole[:-100], bytes(len(whole)), b""):  # cut, or as a power cut may leave it
        caplog.clear()
        path.write_bytes(damaged)
        assert manager.load()["step"] == 0
        assert "damaged" in caplog.text
    for checkpoint in manager.checkpoints():
        Path(checkpoint.path).write_bytes(b"")
    with pytest.raises(fsabs.CorruptFileError):
        manager.load()


def test_what_memory_a_device_or_the_caller_lacks_is_no_damage(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    for step in (1, 2):
        manager.save(step, {"x": torch.ones(3)})

    def full(storage: Any, location: str) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        manager.load(map_location=full)
    newest = manager.checkpoints()[-1].path
    newest.write_bytes(newest.read_bytes()[:-100])
    assert manager.load()["x"].tolist() == [1.0] * 3
    manager.save(3, {"x": Path("x")})
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):
        manager.load()


def test_a_full_disk_is_the_error_of_the_file(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, state(1))
        large = {"w": torch.zeros(3_000_000)}
        with scarce.file_size(100_000), pytest.raises(OSError, match="too large") as caught:
            manager.save(2, large)
        assert caught.value.filename == f"file://{tmp_path}/run/checkpoint-000000000002.pt"
        assert os.listdir(tmp_path / "run") == ["checkpoint-000000000001.pt"]
        manager.save(2, large)


# ---- in the background


class Slow(fsabs.spi.LayerFS):
    """A store that takes its time, and has no space for some steps."""

    def __init__(self, inner: fsabs.FS) -> None:
        super().__init__(inner)
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.full: set[int] = set()

    def _create(self, key: str, exclusive: bool, *how: Any) -> Any:
        self.begun.set()
        assert self.go_on.wait(30)
        if any(f"{step:012}" in key for step in self.full):
            raise OSError(28, "No space left on device")
        return super()._create(key, exclusive, *how)


def test_training_waits_for_the_copy_only(caplog: pytest.LogCaptureFixture) -> None:
    """While one checkpoint is being written, one more waits; another one takes its place, which is logged."""
    fs = Slow(fsabs.Memory())
    manager = CheckpointManager(fs, keep=9)
    tensor = torch.zeros(4)
    for step in range(4):
        tensor.fill_(step)
        manager.save_async(step, {"w": tensor, "step": step})
        assert fs.begun.wait(30)  # with the first one
    tensor.fill_(99)
    assert manager.checkpoints() == []
    fs.go_on.set()
    manager.wait()
    assert [each.step for each in manager.checkpoints()] == [0, 3]
    assert manager.load()["w"].tolist() == [3.0] * 4
    assert [record.args for record in caplog.records] == [(1, 2), (2, 3)]


def test_a_failure_in_the_background_costs_one_checkpoint(caplog: pytest.LogCaptureFixture) -> None:
    fs = Slow(fsabs.Memory())
    fs.go_on.set()
    fs.full = {1, 3, 5}
    manager = CheckpointManager(fs)
    manager.save_async(1, {"x": 1})
    with pytest.raises(OSError, match="No space"):
        manager.save(2, {"x": 2})
    assert "step 1 could not be written" in caplog.text
    manager.save_async(3, {"x": 3})
    wait_for(lambda: "fsabs-checkpoint" not in {thread.name for thread in threading.enumerate()})
    with pytest.raises(OSError, match="No space"):
        manager.save_async(4, {"x": 4})
    manager.wait()
    manager.save_async(5, {"x": 5})
    with pytest.raises(OSError, match="No space"):
        manager.close()
    manager.close()
    assert [each.step for each in manager.checkpoints()] == [2, 4]
    with pytest.raises(ValueError, match="metric"):
        manager.save_async(5, {"x": 5}, "low")  # type: ignore[arg-type]


def test_a_state_is_copied_with_its_types() -> None:
    """Schedulers and each optimizer of torch go on from a copy as from themselves."""
    model = torch.nn.Linear(2, 2).state_dict()  # a dict with attributes
    state: dict[str, Any] = {
        "milestones": Counter(a=3),
        "groups": defaultdict(list, a=[torch.ones(1)]),
        "model": model,
    }
    copied = checkpoints.on_host(state)
    state["groups"]["a"][0].zero_()
    assert copied["milestones"] == Counter(a=3)
    assert copied["groups"]["b"] == []
    assert copied["groups"]["a"] == [torch.ones(1)]
    assert vars(copied["model"]) == vars(model) != {}
    for scheduler in _schedulers():
        assert _trained(scheduler) == _trained(scheduler, copies=True)
    for name, optimizer in vars(torch.optim).items():
        if isinstance(optimizer, type) and name not in ("Optimizer", "LBFGS", "SparseAdam"):
            assert _trained(None, optimizer) == _trained(None, optimizer, copies=True), name


class _OnAccess(Mapping[int, torch.Tensor]):
    """Tensors that are made whenever they are asked for."""

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.full((2,), number)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return 100


class _Rebuilt:
    """An object that is copied by a tensor that is made for the copy."""

    def __init__(self, content: torch.Tensor) -> None:
        self.content = content

    def __reduce__(self) -> Any:
        return _Rebuilt, (self.content.clone(),)


def test_tensors_that_are_made_on_access_are_taken_for_no_others() -> None:
    rebuilt = [_Rebuilt(torch.full((2,), number)) for number in range(100, 140)]
    copied = checkpoints.on_host({"rebuilt": rebuilt, "lazy": _OnAccess()})
    assert [one.content[0].item() for one in copied["rebuilt"]] == list(range(100, 140))
    assert copied["lazy"][7].tolist() == [7, 7]


def _schedulers() -> list[Any]:
    schedulers: Any = torch.optim.lr_scheduler
    chained: list[Any] = [schedulers.ConstantLR, lambda optimizer: schedulers.StepLR(optimizer, 2)]
    return [
        lambda optimizer: schedulers.LambdaLR(optimizer, lambda step: 0.9**step),
        lambda optimizer: schedulers.OneCycleLR(optimizer, 0.1, 20),
        lambda optimizer: schedulers.SequentialLR(optimizer, [one(optimizer) for one in chained], [3]),
    ]


def _trained(scheduler: Any, optimizer: Any = torch.optim.SGD, copies: bool = False) -> list[Any]:
    """Train for ten steps, resumed in the middle from a copy of the state; return the rates and the weights."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2, bias=False)  # which Muon takes

    def made() -> tuple[Any, Any]:
        one = optimizer(model.parameters(), lr=0.1)
        return one, None if scheduler is None else scheduler(one)

    steps, rates = made(), []
    for step in range(10):
        if copies and step == 4:
            held = checkpoints.on_host([model.state_dict(), *(one and one.state_dict() for one in steps)])
            model.load_state_dict(held[0])
            steps = made()
            for one, state in zip(steps, held[1:], strict=True):
                one and one.load_state_dict(state)
        steps[0].zero_grad()
        model(torch.ones(2)).square().sum().backward()
        steps[0].step()
        steps[1] and steps[1].step()
        rates.append(steps[0].param_groups[0]["lr"])
    return [rates, [parameter.tolist() for parameter in model.parameters()]]


# ---- of several ranks


def test_distributed_checkpoints(url: str) -> None:
    saved: dict[str, Any] = {"model": {"w": torch.arange(1000.0), "b": torch.ones(3)}, "step": 7}
    dcp_save(saved, storage_writer=DistributedWriter(f"{url}/one"), no_dist=True)
    assert fsabs.Path(f"{url}/one/.metadata").exists()
    loaded: dict[str, Any] = {"model": {"w": torch.zeros(1000), "b": torch.zeros(3)}, "step": 0}
    dcp_load(loaded, storage_reader=DistributedReader(f"{url}/one"), no_dist=True)
    assert torch.equal(loaded["model"]["w"], saved["model"]["w"])
    assert loaded["step"] == 7
    with pytest.raises(CheckpointException, match="overwrite"):
        dcp_save(saved, storage_writer=DistributedWriter(f"{url}/one"), no_dist=True)


class Full(fsabs.spi.LayerFS):
    """A store in which files beyond the first can't be made."""

    def __init__(self, inner: fsabs.FS) -> None:
        super().__init__(inner)
        self.made = 0

    def _create(self, key: str, exclusive: bool, *how: Any) -> Any:
        if key.endswith(".distcp"):
            self.made += 1
            if self.made > 1:
                raise OSError(28, "No space left on device")
        return super()._create(key, exclusive, *how)


MIB = 1 << 18
"""Elements of a float tensor."""


@pytest.mark.parametrize("sizes", [[MIB] * 33, [MIB, 2 * MIB]])
def test_a_failure_leaves_a_distributed_checkpoint_incomplete(sizes: list[int]) -> None:
    """In the second file of small tensors, and in one of a large tensor."""
    saved = {f"w{number}": torch.full((size,), float(number)) for number, size in enumerate(sizes)}
    store = fsabs.Memory()
    with pytest.raises(CheckpointException, match="No space"):
        dcp_save(saved, storage_writer=DistributedWriter(fsabs.Path("run", fs=Full(store))), no_dist=True)
    assert not store.exists("run/.metadata")


def test_files_of_a_distributed_checkpoint(tmp_path: Path) -> None:
    whole = torch.arange(17.0 * MIB)
    saved: dict[str, Any] = {f"w{number}": torch.full((MIB,), float(number)) for number in range(33)}
    saved |= {
        "large": whole,
        "other": whole + 1,
        "part": whole[10:20],
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "empty": torch.empty(0),
    }
    saved |= {"bool": torch.tensor([True]), "bf16": torch.ones(3, dtype=torch.bfloat16), "object": {"a": [1, 2]}}
    dcp_save(saved, storage_writer=DistributedWriter(tmp_path / "run"), no_dist=True)
    sizes = sorted(path.stat().st_size >> 20 for path in (tmp_path / "run").iterdir() if path.suffix == ".distcp")
    assert sizes == [1, 17, 17, 32]  # and "part" has no copy of the large one
    for reader in (DistributedReader(tmp_path / "run"), FileSystemReader(tmp_path / "run")):
        loaded: dict[str, Any] = {
            name: torch.zeros_like(value) if isinstance(value, torch.Tensor) else {"a": [0, 0]}
            for name, value in saved.items()
        }
        dcp_load(loaded, storage_reader=reader, no_dist=True)
        for name, value in saved.items():
            assert torch.equal(loaded[name], value) if isinstance(value, torch.Tensor) else loaded[name] == value, name


DCP_RANKS = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from fsabs.adapters.torch import Loader
from fsabs.adapters.torch.distributed import DistributedReader, DistributedWriter

what, kind, folder, rank, ranks = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
dist.init_process_group("gloo", init_method=f"file://{folder}-{what}-{kind}-store", rank=rank, world_size=ranks)
mesh = init_device_mesh("cpu", (ranks,))
whole = torch.arange(10007.0)
loader = Loader(list(range(64)), 4, seed=1, uneven="keep")
seen = []

def state(tensor):
    model = {"w": distribute_tensor(tensor, mesh, [Shard(0)]), "b": torch.ones(3) * bool(tensor.sum())}
    return {"model": model, "loader": loader.state_dict() if what == "save" else {}}

if what == "save":
    for number, batch in enumerate(loader):
        seen += batch.tolist()
        if number == 3:
            break
    writer = DistributedWriter(folder) if kind == "ours" else FileSystemWriter(folder)
    save(state(whole), storage_writer=writer)
else:
    loaded = state(torch.zeros(10007))
    loaded["loader"] = loader
    reader = DistributedReader(folder) if kind == "ours" else FileSystemReader(folder)
    load(loaded, storage_reader=reader)
    assert torch.equal(loaded["model"]["w"].full_tensor(), whole)
    assert loaded["model"]["b"].tolist() == [1, 1, 1]
    for batch in loader:
        seen += batch.tolist()
print("seen", seen, flush=True)
dist.barrier()
os._exit(0)  # the end of a process group may abort a process
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("writer", "readers"),
    [
        ("ours", [("theirs", 1), ("ours", 3)]),
        pytest.param("theirs", [("ours", 1)], marks=pytest.mark.nightly),
    ],
)
def test_distributed_checkpoints_of_ranks_are_torchs_own(
    writer: str, readers: list[tuple[str, int]], tmp_path: Path
) -> None:
    """Written by two ranks and read by other numbers, by ours and by torch's; the loader's state is in them."""

    def run(what: str, kind: str, ranks: int) -> list[int]:
        command = ["-c", DCP_RANKS, what, kind, tmp_path / "saved"]
        logs = [tmp_path / f"log-{rank}" for rank in range(ranks)]
        running = []
        for rank, log in enumerate(logs):
            with log.open("w") as output, open(os.devnull) as nothing:
                files = (nothing.fileno(), output.fileno(), output.fileno())
                running.append(preloaded.start(IMPORTS, [*command, rank, ranks], files))
        ended = [program.wait(100) for program in running]
        found = [log.read_text() for log in logs]
        assert ended == [0] * ranks, found
        return [number for text in found for number in json.loads(text.partition("seen")[2].splitlines()[0])]

    seen = run("save", writer, 2)
    for reader, ranks in readers:
        assert sorted(seen + run("load", reader, ranks)) == list(range(64)), (reader, ranks)
