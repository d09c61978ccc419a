"""A Loader in Hugging Face's Trainer: its checkpoints have the loader's state, and resuming skips nothing."""

import json
import os

from transformers import Trainer, TrainerCallback

STATE = "fsabs-loader.json"


class SavesLoader(TrainerCallback):
    """Writes the loader's state into each checkpoint."""

    def __init__(self, loader):
        self._loader = loader

    def on_save(self, args, state, control, **kwargs):
        """Write the state of this process's rank."""
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        with open(os.path.join(folder, f"{args.process_index}-{STATE}"), "w") as file:
            json.dump(self._loader.state_dict(), file)


class LoaderTrainer(Trainer):
    """A Trainer that reads a `Loader`; another number of ranks may resume."""

    def __init__(self, *args, loader, **kwargs):
        super().__init__(*args, **kwargs)
        self._loader = loader
        self.add_callback(SavesLoader(loader))

    def get_train_dataloader(self):
        """Return the loader, which splits its data over ranks itself."""
        return self._loader

    def train(self, resume_from_checkpoint=None, **kwargs):
        """Train, from a checkpoint's batch on if one is given."""
        if resume_from_checkpoint:
            self.args.ignore_data_skip = True  # the loader continues where it was
            names = sorted(name for name in os.listdir(resume_from_checkpoint) if name.endswith(STATE))
            states = []
            for name in names:
                with open(os.path.join(resume_from_checkpoint, name)) as file:
                    states.append(json.load(file))
            self._loader.load_state_dict(states)
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)
