"""Train a small language model on a mixture of sources, on any number of ranks, and resume on any other.

torchrun --nproc-per-node 2 train.py s3://bucket/text checkpoints --steps 200
"""

import argparse
import os
import signal

import torch
import torch.distributed as dist

from fsabs.adapters.torch import CheckpointManager, Loader, Mixture, Packing, ShardedDataset

END = 256  # the token after each document; the others are bytes
LENGTH = 64


def tokenize(document):
    """Return the tokens of a document: any tokenizer has its place here."""
    return [*document["text"].encode(), END]


def make_loader(url, steps, batch_size=8, weights=None):
    """Return the loader of this rank."""
    data = Mixture(
        {
            "web": ShardedDataset(f"{url}/web/*.parquet", columns=["text"], seed=1, window=4),
            "code": ShardedDataset(f"{url}/code/*.jsonl.gz", seed=2, window=4),
        },
        weights or {"web": 0.7, "code": 0.3},
        ending="repeat",  # what ends begins anew, in another order
        packing=Packing(tokenize, LENGTH),
    )
    return Loader(data, batch_size, steps=steps, lanes=(6, 1), gather=True)  # for 1, 2, 3 or 6 ranks


class Model(torch.nn.Module):
    """A recurrent network over bytes."""

    def __init__(self, size=96):
        super().__init__()
        self.embedding = torch.nn.Embedding(END + 1, size)
        self.recurrent = torch.nn.GRU(size, size, batch_first=True)
        self.head = torch.nn.Linear(size, END + 1)

    def forward(self, tokens):
        """Return the scores of the token after each."""
        hidden, _ = self.recurrent(self.embedding(tokens))
        return self.head(hidden)


def loss_of(model, batch):
    """Return the mean loss over the tokens that have a next one in their document."""
    tokens, segments = batch["tokens"], batch["segments"]
    scores = model(tokens[:, :-1])
    inside = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] >= 0)
    return torch.nn.functional.cross_entropy(scores[inside], tokens[:, 1:][inside])


def main():
    """Train to a number of steps, from the last checkpoint on if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("checkpoints")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--die-at", type=int, help="the step after which this process is killed, to show what then is")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = make_loader(arguments.data, arguments.steps)
    manager = CheckpointManager(arguments.checkpoints)
    step = 0
    if (found := manager.load()) is not None:
        step = found["step"]
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        loader.load_state_dict(found["loader"])  # of all ranks, however many they were
        if dist.get_rank() == 0:
            print(f"resumed at step {step}", flush=True)
    while step < arguments.steps:
        for batch in loader:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0 and dist.get_rank() == 0:
                print(f"step {step}: loss {loss.item():.3f}", flush=True)
            if step % arguments.every == 0:
                state = loader.state_dict()  # all ranks ask for it together
                if dist.get_rank() == 0:
                    everything = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": state}
                    manager.save(step, {"step": step, **everything})
                dist.barrier()
            if step == arguments.die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if step == arguments.steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
