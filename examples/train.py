"""Train on pictures, with checkpoints: a job that is killed resumes where it was.

    python train.py s3://bucket/pictures.zip s3://bucket/run-1
    torchrun --nproc-per-node=2 train.py s3://bucket/pictures.zip s3://bucket/run-2

Run the same command again after a kill: model, optimizer and place in the epoch come from the newest checkpoint.
"""

import argparse
import os
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from fsabs.adapters.torch import CheckpointManager, ImageFolder, Loader


def pixels(image: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(image.convert("L"), "f4") / 255).flatten()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("pictures", help="URL or path: a folder for each class")
    parser.add_argument("run", help="URL or path for the checkpoints")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if ranks > 1:  # started by torchrun
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = ImageFolder(args.pictures, transform=pixels)
    loader = Loader(dataset, 16, seed=0, num_workers=args.workers, uneven="repeat")
    model = torch.nn.Linear(64, len(dataset.classes))
    trained = DistributedDataParallel(model) if ranks > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    checkpoints = CheckpointManager(args.run, keep=2)

    def save(step: int) -> None:
        if rank == 0:  # the loader's state is the same on all of them
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            checkpoints.save(step, {**state, "loader": loader.state_dict()})

    step = 0
    if checkpoints.checkpoints():
        saved = checkpoints.load()
        step = saved["step"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        print(f"rank {rank} resumes after step {step}", flush=True)
    for epoch in range(loader.epoch, args.epochs):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(trained(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
            if step % 4 == 0:
                save(step)
    save(step)
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
