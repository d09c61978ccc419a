"""Epochs of torch's DataLoader: fork, two workers, every image decoded, every epoch with what was cached removed.

Peers with a format of their own write the images of the folder `source` to the folder `target` first.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
import types
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from . import Run, by_open, for_each, library, stores, whole

WORKERS = 2


def decoded(data: bytes) -> int:
    """Decode a JPEG; its number of pixels, so that batches of numbers are all that workers send."""
    with library("PIL.Image").open(io.BytesIO(data)) as image:
        image.load()
        size: tuple[int, int] = image.size
    return size[0] * size[1]


def first(batch: list[Any]) -> list[Any]:
    """Collates nothing."""
    return batch


def _epoch(dataset: Any, count: int, **options: Any) -> Run:
    """One DataLoader an epoch: its workers start anew each time, as they do in training."""

    def run() -> None:
        loader = library("torch.utils.data").DataLoader(
            dataset, num_workers=WORKERS, multiprocessing_context="fork", collate_fn=first, **options
        )
        whole(range(sum(len(batch) for batch in loader)), count)

    return run


class Images:
    """A map-style data set over what reads many names."""

    def __init__(self, names: list[str], many: Callable[[list[str]], Iterable[bytes]]) -> None:
        self.names, self.many = names, many

    def __len__(self) -> int:
        return len(self.names)

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [decoded(data) for data in self.many([self.names[index] for index in indices])]


def ours(fs: Any, names: list[str], batch: int) -> Run:
    """Batches by `read_many` of an FS, shuffled."""
    return _epoch(Images(names, fs.read_many), len(names), batch_size=batch, shuffle=True)


def fsabs(endpoint: str, names: list[str], batch: int) -> Run:
    """Batches by `read_many`, shuffled."""
    return ours(stores.ours(endpoint, path="/train.zip"), names, batch)


def fsabs_local(path: str, names: list[str], batch: int, folders: Sequence[str] = ("",)) -> Run:
    """The same from a local zip: what the network and the server cost is the difference; each name of each folder."""
    return ours(library("fsabs").from_url(path), [folder + name for folder in folders for name in names], batch)


def fsabs_traced(path: str, names: list[str], batch: int, folders: Sequence[str] = ("",)) -> Run:
    """The same with a trace on, which is started and stopped with each epoch."""
    trace = library("fsabs.trace")
    wanted = [folder + name for folder in folders for name in names]
    epoch = ours(library("fsabs").from_url(path), wanted, batch)
    folder = tempfile.TemporaryDirectory()

    def run() -> None:
        with trace.record(os.path.join(folder.name, "trace")):
            epoch()

    return run


def decode_only(folder: str, names: list[str]) -> Run:
    """The decoding, without a DataLoader and without reading: half of it is the least that two CPUs could take."""
    data = [Path(folder, name).read_bytes() for name in names]
    return for_each(decoded, data)


def pfio(endpoint: str, names: list[str], batch: int) -> Run:
    """One by one, shuffled, as PFIO's users do."""
    fs = library("pfio.v2").from_url("s3://bucket/train.zip", endpoint=endpoint)
    return _epoch(Images(names, lambda some: map(by_open(fs.open), some)), len(names), batch_size=batch, shuffle=True)


def webdataset(endpoint: str, count: int, batch: int) -> Run:
    """Four tars in order, two for each worker."""
    web = library("webdataset")
    urls = [f"{endpoint}/bucket/{shard}.tar" for shard in range(4)]
    dataset = web.WebDataset(urls, shardshuffle=False).map(_decoded_sample).batched(batch, collation_fn=first)
    return _epoch(dataset, count, batch_size=None)


def _decoded_sample(sample: dict[str, bytes]) -> int:
    return decoded(sample["jpg"])


def _decoding(base: Any) -> Any:
    """A data set class whose items, dictionaries with the image under `jpg`, are decoded."""

    class Decoding(base):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> int:
            return decoded(super().__getitem__(index)["jpg"])

    return Decoding


def _images(source: str) -> list[str]:
    return sorted(map(str, Path(source).rglob("*.jpg")))


def _sample(path: str) -> dict[str, bytes]:
    return {"jpg": Path(path).read_bytes()}


def streaming() -> Any:
    """MosaicML streaming: it imports torchvision, which PyPI has for CUDA only, for classes that nobody uses here."""
    library(
        "transformers.tokenization_utils_base"
    )  # which looks whether there is a torchvision: before there seems to be
    for name in ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["torchvision.datasets"].__dict__.update(VisionDataset=object, CIFAR10=object)
    sys.modules["torchvision.transforms.functional"].__dict__["to_tensor"] = None
    return library("streaming")


def mds(endpoint: str, count: int, batch: int, local: str, source: str, target: str) -> Run:
    """MosaicML streaming from S3, in order; shards of 4 MB."""
    os.environ["S3_ENDPOINT_URL"] = endpoint
    with streaming().MDSWriter(out=target, columns={"jpg": "bytes"}, size_limit=4 << 20) as writer:
        for path in _images(source):
            writer.write(_sample(path))
    made = _decoding(streaming().StreamingDataset)

    def run() -> None:
        shutil.rmtree(local, ignore_errors=True)
        library("streaming.base.util").clean_stale_shared_memory()
        dataset = made(remote="s3://bucket/mds", local=local, shuffle=False, batch_size=batch)
        _epoch(dataset, count, batch_size=batch)()

    return run


def lit(endpoint: str, count: int, batch: int, local: str, source: str, target: str) -> Run:
    """litdata from S3, in order, by its own DataLoader, which its data sets need; chunks of 4 MB."""
    data = library("litdata")
    data.optimize(_sample, _images(source), target, chunk_bytes=4 << 20, num_workers=1)
    # Its obstore refuses plain http, and there is no option to tell it otherwise.
    library("litdata.streaming.downloader")._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    made = _decoding(data.StreamingDataset)

    def run() -> None:
        shutil.rmtree(local, ignore_errors=True)
        dataset = made("s3://bucket/lit", cache_dir=local, storage_options={"endpoint_url": endpoint}, shuffle=False)
        loader = data.StreamingDataLoader(
            dataset, batch_size=batch, num_workers=WORKERS, multiprocessing_context="fork", collate_fn=first
        )
        whole(range(sum(len(one) for one in loader)), count)

    return run
