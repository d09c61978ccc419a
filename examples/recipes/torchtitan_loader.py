"""A data loader for torchtitan, whose state can be loaded with another number of data-parallel ranks.

In a model's configuration: `dataloader=FsabsDataLoader.Config(dataset="s3://bucket/tokens", num_workers=2)`.
"""

import pickle
from dataclasses import dataclass

from torchtitan.components.dataloader import BaseDataLoader

from fsabs.adapters.torch import Loader, TokenDataset


def inputs_and_labels(windows):
    """Make of a batch of windows what torchtitan's training step takes."""
    return {"input": windows[:, :-1]}, windows[:, 1:]


class FsabsDataLoader(BaseDataLoader):
    """Windows of tokens; give a `Mixture` in `dataset_of` for several sources."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """What torchtitan's configuration has of it."""

        num_workers: int = 0
        seed: int = 0
        dtype: str | None = None

    def __init__(self, config, *, dp_rank, dp_world_size, seq_len, local_batch_size, **unused):
        self._rank, self._ranks = dp_rank, dp_world_size
        dataset = self.dataset_of(config, seq_len)
        place = {"rank": dp_rank, "ranks": dp_world_size, "drop_last": True}
        self._loader = Loader(dataset, local_batch_size, num_workers=config.num_workers, **place)

    def dataset_of(self, config, seq_len):
        """Return the data set."""
        return TokenDataset(config.dataset, seq_len, dtype=config.dtype, seed=config.seed)

    def __iter__(self):
        while True:  # epochs, one after the other
            yield from map(inputs_and_labels, self._loader)

    def state_dict(self):
        """Return the state under the name of this rank, though it is the same for all."""
        return {f"dp_rank_{self._rank}_of_{self._ranks}": pickle.dumps(self._loader.state_dict())}

    def load_state_dict(self, state_dict):
        """Continue from the state of any rank, of which there may have been another number."""
        if state_dict:
            self._loader.load_state_dict(pickle.loads(next(iter(state_dict.values()))))
