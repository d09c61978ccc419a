"""Data sets for PyTorch over any FS: files, images in folders, RecordIO files, and shards that resume exactly.

`FileDataset`, `ImageFolder` and `RecordIODataset` are map-style and read whole batches at once; `ShardedDataset` is
iterable, split over ranks and workers, with a state that goes on mid-epoch; `Loader` is torch's `DataLoader` around it.
"""

from __future__ import annotations

from ... import errors

try:
    import torch as _torch  # noqa: F401 - these classes are torch's subclasses, so there is no doing without
except ImportError:
    raise errors.missing("torch", "torch", "fsabs.adapters.torch") from None

from .batches import PlannedBatches
from .files import FileDataset
from .images import ImageFolder, decode_image
from .loader import Loader, Tagged
from .records import RecordIODataset
from .sampler import EpochSampler
from .sharded import ShardedDataset

__all__ = [
    "EpochSampler",
    "FileDataset",
    "ImageFolder",
    "Loader",
    "PlannedBatches",
    "RecordIODataset",
    "ShardedDataset",
    "Tagged",
    "decode_image",
]
