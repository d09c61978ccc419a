"""For Lightning: checkpoints on any FS, and epochs that resume with other batches."""

from __future__ import annotations

import os
import warnings
from typing import Any

from ...core import errors
from ...paths import Path
from .checkpoints import load_checkpoint, save_checkpoint
from .loader import LENGTH_CHANGED, Loader

try:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.plugins.io import CheckpointIO
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
        from pytorch_lightning.plugins.io import CheckpointIO
    except ImportError:
        raise errors.MissingDependencyError(
            "fsabs.adapters.torch.lightning needs Lightning: pip install lightning", name="lightning"
        ) from None


class FsabsCheckpointIO(CheckpointIO):  # type: ignore[misc]
    """Saves, loads and removes Lightning's checkpoints at URLs; each is whole or not at all.

    Lightning keeps the checkpoint that it resumed from only where that is a local file. Elsewhere, its removal is a
    warning.
    """

    def __init__(self) -> None:
        self._loaded: set[str] = set()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any | None = None
    ) -> None:
        """Save a checkpoint."""
        if storage_options is not None:
            raise TypeError("storage_options: options of a store belong to a custom scheme of pfio.ini")
        where = Path(path)
        can = where.parent.fs.capabilities
        if can.mkdir and not can.implied_directories:
            where.parent.mkdir(parents=True, exist_ok=True)
        save_checkpoint(checkpoint, where)

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load a checkpoint."""
        found: dict[str, Any] = load_checkpoint(path, map_location, weights_only=weights_only is not False)
        self._loaded.add(os.fspath(path))
        return found

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint."""
        if os.fspath(path) in self._loaded:
            warnings.warn(
                f"the checkpoint that was resumed from is removed: {errors.without_secrets(os.fspath(path))}",
                stacklevel=2,
            )
        Path(path).unlink(missing_ok=True)


class ResumedEpochs(Callback):  # type: ignore[misc]
    """Has a Trainer count the batches that a `Loader` has in each epoch.

    Lightning asks for the length once, before it loads the state of the loader. An epoch that resumes with another
    batch size or other workers has another one, and so has the epoch after it. Where no length is known, of packed
    windows and of a job's tasks, Lightning takes a batch ahead, and a checkpoint has that one still to come. Lightning
    finds this class by an entry point where fsabs is installed, so that it need not be given to the Trainer.
    """

    def __init__(self) -> None:
        super().__init__()
        self._length: int | None = None  # of the epoch that begins, until its first batch

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Keep quiet about lengths, which are followed here."""
        warnings.filterwarnings("ignore", message=LENGTH_CHANGED)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take over the length of the epoch that begins or resumes."""
        loop = trainer.fit_loop
        ours = all(isinstance(one, Loader) for one in loop._combined_loader.flattened)
        if ours and loop._combined_loader_states_to_load:
            # Lightning does not load the state where its counters say that the epoch had ended; after a checkpoint
            # of an epoch's last batch they say so in the middle of the next one, too.
            loop._combined_loader._load_state_dicts(loop._combined_loader_states_to_load)
            loop._combined_loader_states_to_load = []
            iter(loop._data_fetcher)  # in place of the pass that has begun before
        self._follow(trainer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Take over the length of the next epoch."""
        self._follow(trainer)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Take over the length of the epoch where it was not known to Lightning."""
        if self._length is not None:
            trainer.fit_loop.max_batches, self._length = self._length, None
        _set_held(trainer.fit_loop)

    def _follow(self, trainer: Any) -> None:
        loop = trainer.fit_loop
        _set_held(loop)
        combined, fetcher = loop._combined_loader, loop._data_fetcher
        if trainer.limit_train_batches != 1.0 or not all(isinstance(one, Loader) for one in combined.flattened):
            return
        for number in range(len(combined.limits)):
            combined.limits[number] = float("inf")  # in place: the iterator that has begun has this list
        try:
            length = len(combined)
        except TypeError:  # of a job's tasks
            return
        loop.max_batches = fetcher.length = length
        progress = loop.epoch_loop.batch_progress
        if loop.restarting and progress.is_last_batch:
            # The checkpoint is of the last batch of an epoch. Lightning begins to count at 0 if the former epoch had as
            # many batches as this one.
            loop.max_batches, self._length = progress.current.ready, length
        if isinstance(trainer.val_check_interval, float) and trainer.val_check_batch is not None:
            trainer.val_check_batch = max(1, int(length * trainer.val_check_interval))


def _set_held(loop: Any) -> None:
    """Tell the loaders how many batches Lightning has taken ahead."""
    held = len(getattr(loop._data_fetcher, "batches", ()))
    for loader in loop._combined_loader.flattened:
        if isinstance(loader, Loader):
            loader.held = held


def callbacks() -> list[Callback]:
    """Return the callbacks that Lightning adds to every Trainer."""
    return [ResumedEpochs()]
