"""Ranks that end an epoch together, where the number of their batches is not known before they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

_END: Any = object()


def agreed(
    batches: Iterator[Any], drops: bool, filler: Callable[[Any], Any], on_drop: Callable[[], None]
) -> Iterator[Any]:
    """Yield the batches of this rank, as many as every other rank has.

    All ranks call this together. It costs one collective operation a batch, on the CPU.

    Args:
        batches: of this rank.
        drops: all ranks end with the first one; else with the last one.
        filler: makes a batch of the last one of this rank, for the time after its end.
        on_drop: is called if the epoch ends while another rank, or this one, had batches left.
    """
    import torch.distributed as distributed

    if not distributed.is_initialized():
        raise RuntimeError("how many batches each rank has is not known: torch.distributed has to be initialized")
    group = None if "gloo" in distributed.get_backend() else distributed.new_group(backend="gloo")
    last = _END
    while True:
        batch = next(batches, _END)
        count = torch.tensor([batch is not _END], dtype=torch.int64)
        distributed.all_reduce(count, group=group)
        if not count or (drops and count < distributed.get_world_size()):
            if count:
                on_drop()
            return
        if batch is _END and last is _END:
            raise RuntimeError("this rank has no batch at all, and others have: there are too few documents")
        last = batch if batch is not _END else filler(last)
        yield last
