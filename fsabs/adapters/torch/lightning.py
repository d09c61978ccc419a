"""Lightning's `CheckpointIO` on any FS: `Trainer(plugins=[FsabsCheckpointIO()])`."""

from __future__ import annotations

import os
from typing import Any

from ... import errors
from ...paths import Path
from .checkpoints import load, save

try:
    from lightning.pytorch.plugins.io import CheckpointIO
except ImportError:
    try:
        from pytorch_lightning.plugins.io import CheckpointIO
    except ImportError:
        raise errors.MissingDependencyError(
            "FsabsCheckpointIO needs Lightning: pip install lightning", name="lightning"
        ) from None


class FsabsCheckpointIO(CheckpointIO):  # type: ignore[misc]
    """Saves, loads and removes Lightning's checkpoints at URLs; each is whole or not at all."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any | None = None
    ) -> None:
        """Save a checkpoint."""
        if storage_options is not None:
            raise TypeError("storage_options: options of a store belong to a custom scheme of pfio.ini")
        where = Path(path)
        if where.parent.fs.capabilities.mkdir:
            where.parent.mkdir(parents=True, exist_ok=True)
        save(checkpoint, where)

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load a checkpoint."""
        found: dict[str, Any] = load(path, map_location, weights_only=weights_only is not False)
        return found

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint."""
        Path(path).unlink(missing_ok=True)
