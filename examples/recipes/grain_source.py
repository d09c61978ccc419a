"""Grain over fsabs: a source by number, shuffled, batched and resumed by Grain."""

import grain

from fsabs.adapters.grain import RecordSource


def batches(url, batch_size, seed):
    """Return an iterator of batches with Grain's `get_state` and `set_state`."""
    dataset = grain.MapDataset.source(RecordSource(url)).seed(seed).shuffle().batch(batch_size)
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=8)))
