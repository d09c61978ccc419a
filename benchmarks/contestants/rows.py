"""Rows of Parquet files and windows of tokens: one round reads all of them, or as many batches as are asked for."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import Run, library, whole
from .stores import ours


def _counting(read: Callable[[], Iterable[int]], count: int) -> Run:
    def run() -> None:
        whole(range(sum(read())), count)

    return run


# ---- rows


def fsabs_in_order(folder: str, rows: int, batch: int) -> Run:
    """`ShardedDataset` with `batch_size`, iterated."""
    dataset = library("fsabs.adapters.torch").ShardedDataset(folder, batch_size=batch)
    return _counting(lambda: (one.num_rows for one in dataset), rows)


def pyarrow_in_order(folder: str, rows: int, batch: int) -> Run:
    """`ParquetFile.iter_batches` of each file, by one thread."""
    parquet = library("pyarrow.parquet")

    def read() -> Iterable[int]:
        for name in sorted(os.listdir(folder)):
            with parquet.ParquetFile(os.path.join(folder, name)) as file:
                yield from (one.num_rows for one in file.iter_batches(batch, use_threads=False))

    return _counting(read, rows)


def datasets_local(folder: str, rows: int, batch: int) -> Run:
    """`load_dataset(streaming=True)`, batches in Arrow's form."""
    files = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]

    def read() -> Iterable[int]:
        data = library("datasets").load_dataset("parquet", data_files=files, split="train", streaming=True)
        return (one.num_rows for one in data.with_format("arrow").iter(batch))

    return _counting(read, rows)


def fsabs_shuffled(endpoint: str, names: list[str], rows: int, buffer: int) -> Run:
    """Rows as dicts, shuffled in windows of 16 row groups; a new order each round."""
    fs = ours(endpoint, path="/text")
    dataset = library("fsabs.adapters.torch").ShardedDataset(fs, seed=1)
    return _counting(lambda: (1 for row in dataset if row["text"]), rows)


def datasets_shuffled(endpoint: str, names: list[str], rows: int, buffer: int) -> Run:
    """`load_dataset(streaming=True).shuffle`, through s3fs."""
    datasets = library("datasets")
    options = {"client_kwargs": {"endpoint_url": endpoint}, "key": "benchmark", "secret": "benchmark"}
    files = [f"s3://bucket/text/{name}" for name in names]

    def read() -> Iterable[int]:
        data = datasets.load_dataset(
            "parquet", data_files=files, split="train", streaming=True, storage_options=options
        )
        return (1 for row in data.shuffle(1, buffer_size=buffer) if row["text"])

    return _counting(read, rows)


# ---- tokens


def fsabs_tokens(path: str, length: int, batch: int, batches: int) -> Run:
    """Batches that the data set makes."""
    dataset = library("fsabs.adapters.torch").TokenDataset(path, length, dtype="uint16", seed=1, batch_size=batch)

    def run() -> None:
        total = 0
        for number, windows in enumerate(dataset):
            total += windows.shape[0]
            if number + 1 == batches:
                break
        whole(range(total), batch * batches)

    return run


def numpy_tokens(path: str, length: int, batch: int, batches: int) -> Run:
    """Random windows of a memmap, copied one by one and stacked, as training programs do it."""
    numpy = library("numpy")
    tokens = numpy.memmap(path, numpy.uint16, "r")
    rng = numpy.random.default_rng(1)

    def run() -> None:
        total = 0
        for _ in range(batches):
            starts = rng.integers(0, (len(tokens) - 1) // length, batch) * length
            windows = numpy.stack([tokens[at : at + length + 1].astype(numpy.int64) for at in starts])
            total += windows.shape[0]
        whole(range(total), batch * batches)

    return run


def fsabs_far_tokens(endpoint: str, length: int, batch: int, batches: int) -> Run:
    """Batches with a computation that takes about as long as fetching; and each of the two alone."""
    torch = library("fsabs.adapters.torch")

    def passes(compute: float) -> float:
        dataset = torch.TokenDataset(ours(endpoint, path="/tokens"), length, dtype="uint16", seed=1, batch_size=batch)
        begin = time.perf_counter()
        for number, _ in enumerate(dataset):
            if compute:
                time.sleep(compute)  # as a GPU computes: the CPU is free
            if number + 1 == batches:
                break
        return time.perf_counter() - begin

    def run() -> dict[str, float]:
        fetching = passes(0)
        each = fetching / batches
        return {"fetching": fetching, "computing": each * batches, "seconds": passes(each)}

    return run


def fsabs_epoch(endpoint: str, length: int, batch: int, block: int | None = None, buffer: int = 0) -> Run:
    """All windows in batches."""
    options = {"block_size": block, "buffer_size": buffer}
    dataset = library("fsabs.adapters.torch").TokenDataset(
        ours(endpoint, path="/tokens"), length, dtype="uint16", seed=1, batch_size=batch, **options
    )
    return _counting(lambda: (windows.shape[0] for windows in dataset), len(dataset))


def litdata_epoch(endpoint: str, length: int, batch: int, folder: str, tokens: str) -> Run:
    """`StreamingDataset` with `TokensLoader`, shuffled, in batches of its loader; with nothing cached."""
    litdata, numpy, torch = library("litdata"), library("numpy"), library("torch")
    loader = library("litdata.streaming.item_loader").TokensLoader
    if not os.path.exists(folder):
        _optimize(litdata, numpy, torch, folder, tokens, length)
    keys = {"aws_access_key_id": "benchmark", "aws_secret_access_key": "benchmark"}
    options = {"endpoint_url": endpoint, **keys}
    expected = (os.path.getsize(tokens) // 2 - 1) // length

    def run() -> None:
        cache = tempfile.mkdtemp()
        try:
            dataset = litdata.StreamingDataset(
                "s3://bucket/litdata", cache_dir=cache, item_loader=loader(length + 1), shuffle=True,
                storage_options=options,
            )  # fmt: skip
            count = sum(len(windows) for windows in litdata.StreamingDataLoader(dataset, batch_size=batch))
            if not 0.97 * expected <= count <= expected:  # its windows are disjoint
                raise RuntimeError(f"{count} of {expected} windows came")
        finally:
            shutil.rmtree(cache)

    return run


def _optimize(litdata: Any, numpy: Any, torch: Any, folder: str, tokens: str, length: int) -> None:
    writer = library("litdata.streaming.cache").Cache(
        folder, chunk_bytes="64MB", item_loader=library("litdata.streaming.item_loader").TokensLoader(length + 1)
    )
    values = numpy.fromfile(tokens, numpy.uint16)
    for number, at in enumerate(range(0, len(values), 1 << 16)):
        writer[number] = torch.from_numpy(values[at : at + (1 << 16)].astype(numpy.int32)).to(torch.uint16)
    writer.done()
    writer.merge()
