"""Elastic training: `torchrun --nnodes=1:3` with workers that are killed and added in the middle of an epoch.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --nnodes=1:3 --nproc-per-node=1 --max-restarts=20 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:29400 \\
        elastic.py FOLDER

Each process leases tasks of one job. A step adds up the gradients of all processes, of those that have a batch. Every
few steps the model and the job's state are saved in one file, atomically. If a worker is killed or one joins, torchrun
starts all of them again, and rank 0 puts the job back to the saved state, so that the model is trained on every record
of an epoch exactly once. `seen` in the saved file counts them.

Without the variable, torchrun (as of PyTorch 2.13) fails after a minute if a node joins while rank 0 stays: rank 0 does
not publish its address again, for which the new node waits.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import fsabs
from fsabs.adapters.torch import Loader, TaskDataset
from fsabs.dispatch import TaskDispatcher
from fsabs.readers.data import AbstractDataReader

RECORDS, PER_TASK, EPOCHS, BATCH, SAVE_EVERY = 600, 20, 2, 5, 5
END = object()
WEIGHTS = torch.tensor([2.0, -3.0, 0.5], dtype=torch.float64)


class Points(AbstractDataReader):
    """Numbered points of a plane, with some noise."""

    def create_shards(self) -> dict[str, int]:
        """One shard."""
        return {"points": RECORDS}

    def read_records(self, task: Any) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Yield the number of each point, its coordinates (and 1), and its height."""
        for number in task.numbers():
            noise = torch.Generator().manual_seed(number)
            point = torch.cat([torch.randn(2, generator=noise, dtype=torch.float64), torch.ones(1).double()])
            height = point @ WEIGHTS + 0.01 * torch.randn((), generator=noise, dtype=torch.float64)
            yield number, point, height


class Training:
    """A linear model, how often it was trained on each record, and the file of both."""

    def __init__(self, folder: Path, dataset: TaskDataset) -> None:
        self.file = folder / "model.pt"
        self.dataset = dataset
        self.weights = torch.zeros(3, dtype=torch.float64)
        self.seen = torch.zeros(RECORDS, dtype=torch.int64)
        self.steps = 0

    def load(self) -> None:
        """Continue from the file: every process loads the model, rank 0 puts the job back."""
        if self.file.exists():
            saved = torch.load(self.file, weights_only=True)
            self.weights, self.seen, self.steps = saved["weights"], saved["seen"], saved["steps"]
            if dist.get_rank() == 0:
                self.dataset.load_state_dict(saved["job"])
        elif dist.get_rank() == 0:
            self.dataset.dispatcher.reset()
        dist.barrier()

    def save(self) -> None:
        """Write the file, after all processes have reported what they consumed."""
        self.dataset.flush()
        dist.barrier()
        if dist.get_rank() == 0:
            job = self.dataset.state_dict()
            saved = {"weights": self.weights, "seen": self.seen, "steps": self.steps, "job": job}
            with fsabs.open_url(self.file, "wb") as file:
                torch.save(saved, file)
        dist.barrier()

    def step(self, batch: Any) -> None:
        """Add the gradients of all processes and move the weights."""
        gradient = torch.zeros(4, dtype=torch.float64)  # of the weights, and the number of records
        seen = torch.zeros(RECORDS, dtype=torch.int64)
        if batch is not None:
            numbers, points, heights = batch
            gradient[:3] = (points @ self.weights - heights) @ points
            gradient[3] = len(numbers)
            seen[numbers] = 1
        dist.all_reduce(gradient)
        dist.all_reduce(seen)
        if gradient[3]:
            self.weights -= 0.1 * gradient[:3] / gradient[3]
            self.seen += seen
            self.steps += 1


def train(folder: Path) -> None:
    """Train until the job has ended."""
    dist.init_process_group("gloo")
    name = f"rank {dist.get_rank()} {os.getpid()}"
    dataset = TaskDataset(f"sqlite:///{folder}/job.db", Points(), worker_id=name, idle_batches=True)
    training = Training(folder, dataset)
    training.load()
    steps = iter(Loader(dataset, BATCH))
    ended = torch.zeros(1)
    saved = training.steps
    while ended < dist.get_world_size():
        batch = next(steps, END)
        ended = torch.tensor([float(batch is END)])
        training.step(None if batch is END else batch)
        dist.all_reduce(ended)
        if training.steps >= saved + SAVE_EVERY:
            training.save()
            saved = training.steps
        time.sleep(float(os.environ.get("ELASTIC_DELAY", "0")))
    training.save()
    dist.destroy_process_group()


def create(folder: Path) -> None:
    """Create the job, unless it is there."""
    settings = {"records_per_task": PER_TASK, "num_epochs": EPOCHS, "seed": 1, "train_end_callback": False}
    url = f"sqlite:///{folder}/job.db"
    TaskDispatcher.create(url, training=Points(), lease_seconds=60, exist_ok=True, **settings).close()  # type: ignore[arg-type]


if __name__ == "__main__":
    create(Path(sys.argv[1]))
    train(Path(sys.argv[1]))
