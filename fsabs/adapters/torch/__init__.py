"""Data sets for PyTorch over any FS: files, images in folders, RecordIO files, and shards that resume exactly.

`FileDataset`, `ImageFolder` and `RecordIODataset` are map-style and read whole batches at once; `ShardedDataset` is
iterable, split over ranks and workers, with a state that resumes mid-epoch; `TaskDataset` reads the tasks of a
dispatcher; `Loader` is torch's `DataLoader` around it. `save_checkpoint`, `load_checkpoint` and
`CheckpointManager` keep checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core import errors
from ...core.lazy import exports

try:
    import torch as _torch  # noqa: F401 - these classes are torch's subclasses, so there is no doing without
except ImportError:
    raise errors.missing("torch", "torch", "fsabs.adapters.torch") from None

from .checkpoints import CheckpointManager, load_checkpoint, save_checkpoint
from .loader import Loader
from .map_style import FileDataset, ImageFolder, RecordIODataset, decode_image
from .mixture import Mixture
from .packing import Packing
from .sampler import EpochSampler, PlannedBatches
from .sharded import ShardedDataset, TokenDataset
from .tags import Tagged

if TYPE_CHECKING:
    from .tasks import TaskDataset

__all__ = [
    "CheckpointManager",
    "EpochSampler",
    "FileDataset",
    "ImageFolder",
    "Loader",
    "Mixture",
    "Packing",
    "PlannedBatches",
    "RecordIODataset",
    "ShardedDataset",
    "Tagged",
    "TaskDataset",
    "TokenDataset",
    "decode_image",
    "load_checkpoint",
    "save_checkpoint",
]

__getattr__, __dir__ = exports(__name__, {"TaskDataset": "tasks"})  # which needs the extra `sql`
