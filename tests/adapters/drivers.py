"""`python -m tests.adapters.drivers`: a rank that trains by the loops of others, one stage of a job after the other.

A stage is a line of JSON on standard input: which driver, with which loader, from which states, and after how many
batches it stops. The answer is a line of JSON: what was read in each epoch, and the state that the stage leaves, or why
it was refused. A stage that is to be killed goes on after its answer. The process group, where there is more than one
rank, is made once.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from fsabs.adapters.torch import EpochBatches, Loader, ShardedDataset
from tests import preloaded
from tests.adapters.workers import Numbers

IMPORTS = (
    *preloaded.TORCH,
    *(
        name
        for name in ("torchdata.stateful_dataloader", "pytorch_lightning", "accelerate", "transformers.trainer")
        if importlib.util.find_spec(name.partition(".")[0])
    ),
)
"""What takes seconds to import, and is imported once for all programs of the adapters' tests."""
REFUSED = (ValueError, RuntimeError, TypeError)
"""What a driver raises where it can't resume, saying why."""


class Stage(NamedTuple):
    """A part of a job, which one set of processes runs."""

    driver: str
    kind: str
    """The data set: "sharded" or "map"."""
    counts: list[int]
    """Records of its shards."""
    uneven: str
    batch_size: int
    workers: int
    method: str
    """By which its workers are started."""
    persistent: bool
    """Its workers stay from one epoch to the next one."""
    epochs: int
    """How many the whole job has."""
    stop: int | None
    """Stop after so many batches; None runs to the end of the job."""
    killed: bool
    """Go on there, until somebody kills this process."""
    snapshots: int
    """Of a `StatefulDataLoader`: every how many batches."""
    epoch: int
    """The epoch of the states."""
    states: list[Any]
    """Those of all ranks of the stage before, of which all ranks get the same one; none in the first stage."""
    folder: str
    """Of files that a driver writes by itself."""


class Answer(NamedTuple):
    """What became of a stage on one rank."""

    seen: list[tuple[int, list[int]]]
    epoch: int = 0
    state: Any = None
    refused: str | None = None


class Reader:
    """The batches that a rank was given, by epoch, and its answer."""

    def __init__(self, stage: Stage, answers: Any) -> None:
        self._stage, self._answers = stage, answers
        self.seen: list[tuple[int, list[int]]] = []
        self.answered = False

    def take(self, epoch: int, batch: Any) -> bool:
        """Note a batch; return True where a state is saved."""
        self.seen.append((epoch, torch.as_tensor(batch).flatten().tolist()))
        return len(self.seen) == self._stage.stop

    def stop(self, epoch: int, state: Any) -> bool:
        """Answer by the state that was saved; return True if the stage ends there."""
        self.answer(Answer(self.seen, epoch, state))
        return not self._stage.killed

    def answer(self, answer: Answer) -> None:
        """Write the answer; nothing where it was written before."""
        if not self.answered:
            self.answered = True
            self._answers.write(json.dumps(answer) + "\n")
            self._answers.flush()


def data_of(stage: Stage) -> Any:
    """Return the data set of a stage."""
    if stage.kind == "map":
        return list(range(sum(stage.counts)))
    ends = [sum(stage.counts[:number]) for number in range(len(stage.counts))]
    return ShardedDataset(_Consecutive(stage.counts, ends), seed=11, buffer_size=7, block_size=5)


class _Consecutive(Numbers):
    """Shards of the numbers from 0 on."""

    def __init__(self, counts: list[int], starts: list[int]) -> None:
        super().__init__(counts)
        self._starts = starts

    def read_records(self, task: Any) -> Iterator[int]:
        base = self._starts[int(task.shard_name[1:])]
        yield from range(base + task.start, base + task.end)


def _workers(stage: Stage) -> dict[str, Any]:
    """Return the options of a loader's workers."""
    if not stage.workers:
        return {}
    return {
        "num_workers": stage.workers,
        "multiprocessing_context": stage.method,
        "persistent_workers": stage.persistent,
    }


def loader_of(stage: Stage, **given: Any) -> Loader:
    """Return a `Loader`."""
    seed = 11 if stage.kind == "map" else None
    return Loader(data_of(stage), stage.batch_size, seed=seed, uneven=stage.uneven, **given, **_workers(stage))  # type: ignore[arg-type]


def batches_of(stage: Stage, data: Any) -> EpochBatches:
    """Return the batches of another loader."""
    seed = 11 if stage.kind == "map" else None
    return EpochBatches(data, stage.batch_size, seed=seed, workers=stage.workers, uneven=stage.uneven)  # type: ignore[arg-type]


def _one_of(stage: Stage) -> Any:
    """Return the state of a rank, whichever."""
    return stage.states[stage.batch_size % len(stage.states)]


def _resume(target: Any, stage: Stage) -> None:
    if stage.states:
        target.load_state_dict(_one_of(stage))


# ---- the drivers


def by_loader(stage: Stage, reader: Reader) -> None:
    """A loop over a `Loader`."""
    loader = loader_of(stage)
    _resume(loader, stage)
    while True:
        for batch in loader:
            if reader.take(loader.epoch, batch) and reader.stop(loader.epoch, loader.state_dict()):
                return
        if loader.epoch >= stage.epochs - 1:
            return


def by_plain(stage: Stage, reader: Reader) -> None:
    """A loop over a plain `DataLoader`, which counts its steps."""
    data = data_of(stage)
    batches = batches_of(stage, data)
    loader: Any = DataLoader(data, batch_sampler=batches, **_workers(stage))
    _resume(batches, stage)
    while True:
        for steps, batch in enumerate(loader, 1):
            if reader.take(batches.epoch, batch) and reader.stop(batches.epoch, batches.state_dict(steps)):
                return
        if batches.epoch >= stage.epochs - 1:
            return


def by_stateful(stage: Stage, reader: Reader) -> None:
    """A loop over torchdata's `StatefulDataLoader`, which resumes by its own state, or by that of its batches."""
    from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]

    data = data_of(stage)
    batches = batches_of(stage, data)
    loader: Any = StatefulDataLoader(
        data, batch_sampler=batches, snapshot_every_n_steps=stage.snapshots, **_workers(stage)
    )
    if stage.states:
        saved = _one_of(stage)
        same_size = stage.snapshots == 1 or stage.batch_size == saved["batch_size"]
        if same_size and (len(stage.states), stage.workers) == (place()[1], saved["workers"]):
            loader.load_state_dict(saved["loader"])
        else:
            batches.load_state_dict(saved["loader"])
    while True:
        given = False
        for batch in loader:
            given = True
            if reader.take(batches.epoch, batch):
                state = {"loader": loader.state_dict(), "workers": stage.workers, "batch_size": stage.batch_size}
                if reader.stop(batches.epoch, state):
                    return
        if batches.epoch >= stage.epochs - 1 and given:
            return


def by_lightning(stage: Stage, reader: Reader) -> None:
    """Lightning's `Trainer`."""
    import pytorch_lightning as pl

    from fsabs.adapters.torch.lightning import FsabsCheckpointIO, ResumedEpochs

    checkpoint = f"file://{stage.folder}/checkpoints/last.ckpt"
    loader = loader_of(stage)

    class Mean(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.mean = torch.nn.Parameter(torch.zeros(()))

        def training_step(self, batch: Any, index: int) -> Any:
            self.stops = reader.take(self.current_epoch, batch)
            return (self.mean - batch.float()).square().mean()

        def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
            if self.stops:
                self.trainer.save_checkpoint(checkpoint)
                self.trainer.should_stop = reader.stop(self.current_epoch, "in the checkpoint")

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    ranks = place()[1]
    trainer = pl.Trainer(
        max_epochs=stage.epochs,
        min_epochs=0,
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        callbacks=[ResumedEpochs()],
        plugins=[FsabsCheckpointIO()],
        default_root_dir=stage.folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    resumed = {"ckpt_path": checkpoint, "weights_only": False} if stage.states else {}
    trainer.fit(Mean(), loader, **resumed)  # type: ignore[arg-type]
    if stage.stop is None:
        trainer.strategy.remove_checkpoint(checkpoint)


def by_accelerate(stage: Stage, reader: Reader) -> None:
    """A loop as accelerate's examples have it."""
    from accelerate import Accelerator  # type: ignore[import-untyped]
    from accelerate.state import (  # type: ignore[import-untyped]
        AcceleratorState,
        GradientState,
        PartialState,
    )

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    folder = f"{stage.folder}/accelerate"
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(1, 1)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.01), loader_of(stage)
    )
    accelerator.register_for_checkpointing(loader)
    if stage.states:
        accelerator.load_state(folder)
    while True:
        for batch in loader:
            accelerator.backward(model(batch.float().reshape(-1, 1)).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            if reader.take(loader.epoch, batch):
                accelerator.save_state(folder)
                if reader.stop(loader.epoch, "in the folder"):
                    return
        if loader.epoch >= stage.epochs - 1:
            return


def by_trainer(stage: Stage, reader: Reader) -> None:
    """Hugging Face's `Trainer`."""
    from transformers import TrainerCallback, TrainingArguments

    from fsabs.adapters.torch.transformers import LoaderTrainer

    folder = f"{stage.folder}/trainer"
    loader = loader_of(stage, collate_fn=_named)

    class Mean(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = torch.nn.Parameter(torch.zeros(()))

        def forward(self, numbers: Any) -> dict[str, Any]:
            self.stops = reader.take(loader.epoch, numbers)
            return {"loss": (self.mean - numbers.float()).square().mean()}

    model = Mean()

    class Stops(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
            control.should_save = model.stops
            return control

        def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
            control.should_training_stop = model.stops and reader.stop(loader.epoch, "in the folder")
            return control

    arguments = TrainingArguments(
        folder,
        num_train_epochs=stage.epochs,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        logging_strategy="no",
        max_grad_norm=0.0,
    )
    trainer = LoaderTrainer(model, arguments, train_loader=loader, callbacks=[Stops()])
    trainer.train(resume_from_checkpoint=_newest(folder) if stage.states else None)


def _named(samples: list[Any]) -> dict[str, Any]:
    return {"numbers": torch.stack(list(map(torch.as_tensor, samples)))}


def _newest(folder: str) -> str:
    return max(map(str, Path(folder).glob("checkpoint-*")), key=lambda path: int(path.rpartition("-")[2]))


DRIVERS: dict[str, Callable[[Stage, Reader], None]] = {
    "plain": by_plain,
    "loader": by_loader,
    "stateful": by_stateful,
    "lightning": by_lightning,
    "accelerate": by_accelerate,
    "trainer": by_trainer,
}


# ---- the process


def place() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def run(stage: Stage, answers: Any) -> None:
    """Run a stage, and answer; what is refused is part of the answer."""
    reader = Reader(stage, answers)
    try:
        DRIVERS[stage.driver](stage, reader)
    except REFUSED as exc:
        reader.answer(Answer([], refused=f"{type(exc).__name__}: {exc}"))
    reader.answer(Answer(reader.seen))


def serve() -> None:
    """Run the stages that come on standard input."""
    warnings.simplefilter("ignore")  # advice of the libraries
    for name in ("pytorch_lightning", "lightning.pytorch", "accelerate", "transformers"):
        logging.getLogger(name).setLevel("CRITICAL")
    torch.set_num_threads(1)
    multiprocessing.set_forkserver_preload(["fsabs.adapters.torch", "tests.adapters.workers"])
    if place()[1] > 1:
        rank, ranks = place()
        store = f"file://{os.environ['FSABS_TEST_STORE']}"
        torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    for line in sys.stdin:
        run(Stage(*json.loads(line)), answers)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        Path("lightning_logs").mkdir()
        serve()
