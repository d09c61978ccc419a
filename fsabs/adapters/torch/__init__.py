"""Data sets for PyTorch over any FS: files, images in folders, records, rows and tokens, in epochs that resume exactly.

`FileDataset`, `ImageFolder`, `RecordIODataset`, `ShardedDataset`, `TokenDataset` and `Mixture` are map-style. `Loader`
is torch's `DataLoader` around any of them, and `EpochBatches` a `batch_sampler` for other loaders: their batches are
functions of the number of the step, whatever ranks and workers there are. `TaskDataset` reads the tasks of a
dispatcher. `save_checkpoint`, `load_checkpoint` and `CheckpointManager` keep checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core import errors
from ...core.lazy import exports

try:
    import torch as _torch  # noqa: F401 - these classes are torch's subclasses, so there is no doing without
except ImportError:
    raise errors.missing("torch", "torch", "fsabs.adapters.torch") from None

from ...readers.epochs.packing import Packing
from .batches import EpochBatches
from .checkpoints import CheckpointManager, load_checkpoint, save_checkpoint
from .loader import Loader
from .map_style import FileDataset, ImageFolder, RecordIODataset, decode_image
from .mixture import Mixture
from .sharded import ShardedDataset, TokenDataset

if TYPE_CHECKING:
    from .tasks import TaskDataset

__all__ = [
    "CheckpointManager",
    "EpochBatches",
    "FileDataset",
    "ImageFolder",
    "Loader",
    "Mixture",
    "Packing",
    "RecordIODataset",
    "ShardedDataset",
    "TaskDataset",
    "TokenDataset",
    "decode_image",
    "load_checkpoint",
    "save_checkpoint",
]

__getattr__, __dir__ = exports(__name__, {"TaskDataset": "tasks"})  # which needs the extra `sql`
