"""Reading images through any FS, in worker processes: what to copy into a training script of your own.

The FS is opened once, before the workers start. They inherit it by `fork` and just use it: no `worker_init_fn`, no
opening in `__getitem__`, no lock.
"""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fsabs import FS, trace

Pixels = NDArray[np.float32]


class Sample(NamedTuple):
    """One image as a worker sends it."""

    number: int
    """Its place among the names, in their order."""
    label: int
    pixels: Pixels
    """64 numbers from 0 to 1."""
    size: int
    """Bytes of the PNG file."""
    sha256: bytes
    """Of the PNG file."""


class Digits:
    """The images of an FS with a folder for each digit: a map-style data set, as torch's `DataLoader` takes it."""

    def __init__(self, fs: FS) -> None:
        self.fs = fs
        self.names = sorted(fs.glob("*/*.png"))

    def __len__(self) -> int:
        return len(self.names)

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """A whole batch at once, so that the FS can read its files side by side."""
        contents = self.fs.read_many(self.names[i] for i in indices)
        return [self.decode(i, data) for i, data in zip(indices, contents, strict=True)]

    def decode(self, number: int, png: bytes) -> Sample:
        """The sample of the PNG file `png`."""
        with trace.span("decode"):  # does nothing where no trace is on
            pixels = np.asarray(Image.open(io.BytesIO(png)), np.float32).ravel() / np.float32(240)
            label = int(self.names[number].split("/")[0])
            return Sample(number, label, pixels, len(png), hashlib.sha256(png).digest())


class Loader(Protocol):
    """What a training loop goes through once an epoch."""

    def __iter__(self) -> Iterator[list[Sample]]: ...

    def __len__(self) -> int: ...


def make_loader(digits: Digits, batch_size: int, workers: int, seed: int, with_torch: bool) -> Loader:
    """Batches of `digits` in a new random order each epoch, read by `workers` forked processes."""
    if not with_torch:
        return PoolLoader(digits, batch_size, workers, seed)
    import torch
    from torch.utils.data import DataLoader

    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than processors, on purpose
    return DataLoader(
        digits,  # type: ignore[arg-type]  # it need not be a Dataset
        batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(seed),
        collate_fn=list,
        num_workers=workers,
        multiprocessing_context="fork",
        persistent_workers=True,
    )


class PoolLoader:
    """`DataLoader` in small, for where torch is not installed: a pool of forked processes for each epoch."""

    def __init__(self, digits: Digits, batch_size: int, workers: int, seed: int) -> None:
        self.digits = digits
        self.batch_size = batch_size
        self.workers = workers
        self.random = np.random.default_rng(seed)

    def __len__(self) -> int:
        return -(-len(self.digits) // self.batch_size)

    def __iter__(self) -> Iterator[list[Sample]]:
        order = self.random.permutation(len(self.digits)).tolist()
        batches = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
        # What `initargs` holds is inherited, not pickled.
        with multiprocessing.get_context("fork").Pool(self.workers, _inherit, (self.digits,)) as pool:
            yield from pool.imap(_read, batches)
            pool.close()
            pool.join()  # the `with` alone would kill them


_digits: Digits  # a worker's, from its parent


def _inherit(digits: Digits) -> None:
    global _digits
    _digits = digits


def _read(indices: list[int]) -> list[Sample]:
    return _digits.__getitems__(indices)
