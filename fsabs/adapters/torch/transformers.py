"""For Hugging Face's Trainer: the epochs of a `Loader`, which resume after any step."""

from __future__ import annotations

import json
import math
import os
import warnings
from typing import Any

from ...core import errors
from ...disk.files import Replacement
from .loader import LENGTH_CHANGED, Loader

try:
    from transformers import Trainer
except ImportError:
    raise errors.missing("transformers", "", "fsabs.adapters.torch.transformers") from None
if not hasattr(Trainer, "_init_training_state"):
    raise errors.MissingDependencyError(
        "fsabs.adapters.torch.transformers needs transformers 5: pip install 'transformers>=5'", name="transformers"
    )

_STATE = "fsabs_loader.json"
"""The file with the loader's state, in the folder of a checkpoint."""


class LoaderTrainer(Trainer):
    """A `Trainer` that trains on the batches of a `Loader`, whose state is saved with each checkpoint.

    `train(resume_from_checkpoint=...)` continues with the batch that would have come, or with other batch sizes and
    numbers of workers and ranks with the samples that the epoch has left: nothing is read again to be skipped.

    Args:
        train_loader: the batches, on the host; of packed windows and several ranks, a loader with `gather=True`.
        args, options: the `Trainer`'s others. The batch size of the loader is its own, and not that of the
            `TrainingArguments`.
    """

    def __init__(self, *args: Any, train_loader: Loader, **options: Any) -> None:
        super().__init__(*args, **options)
        self._loader = train_loader

    def get_train_dataloader(self) -> Loader:
        """Return the loader."""
        return self._loader

    def _init_training_state(
        self, max_steps: int, steps_per_epoch: int, num_train_epochs: int, checkpoint: str | None, trial: Any
    ) -> tuple[int, int]:
        """Load the state of the loader, too, and count epochs and steps by it."""
        begun: tuple[int, int] = super()._init_training_state(
            max_steps, steps_per_epoch, num_train_epochs, checkpoint, trial
        )
        if checkpoint is None:
            return begun
        loader = self._loader
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=LENGTH_CHANGED)
            loader.load_state_dict(_loaded(checkpoint))
        if self.args.max_steps < 0:  # the end is that of an epoch
            left = -(-loader.batches_left // self.args.gradient_accumulation_steps)
            more = math.ceil((self.args.num_train_epochs - loader.epoch - 1) * steps_per_epoch)
            self.state.max_steps = self.state.global_step + max(0, left + more)
        return loader.epoch, 0

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save the state of the loader, of all ranks; before the rest, at whose end older checkpoints are removed."""
        saved = self._loader.state_dict()
        if self.args.should_save:
            folder = os.path.join(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
            os.makedirs(folder, exist_ok=True)
            with Replacement(os.path.join(folder, _STATE)) as file:
                file.write(json.dumps(saved).encode())
        super()._save_checkpoint(model, trial)


def _loaded(checkpoint: str) -> Any:
    path = os.path.join(checkpoint, _STATE)
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        reason = "there is no state of the loader: the run ended before it was saved, or had no LoaderTrainer"
        raise errors.error(2, "load", path, reason) from None
