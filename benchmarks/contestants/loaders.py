"""Epochs of torch's DataLoader: fork, two workers, every image decoded, every epoch with what was cached removed.

`python -m benchmarks.contestants.loaders FORM SOURCE TARGET` writes the images of a folder in a peer's own format.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import sys
import tempfile
import types
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from . import Run, library, whole

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
    """A map-style data set over what reads one name, or many."""

    def __init__(
        self, names: list[str], one: Callable[[str], bytes], many: Callable[[list[str]], Iterable[bytes]] | None
    ) -> None:
        self.names, self.one = names, one
        if many is not None:
            self.__getitems__ = lambda indices: [decoded(data) for data in many([names[i] for i in indices])]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> int:
        return decoded(self.one(self.names[index]))


def _ours(fs: Any, names: list[str], batch: int) -> Run:
    return _epoch(Images(names, fs.read_bytes, fs.read_many), len(names), batch_size=batch, shuffle=True)


def fsabs(endpoint: str, names: list[str], batch: int) -> Run:
    """Batches by `read_many`, shuffled."""
    fs = library("fsabs").from_url("s3://bucket/train.zip", endpoint=endpoint, region="us-east-1")
    return _ours(fs, names, batch)


def fsabs_local(path: str, names: list[str], batch: int, folders: Sequence[str] = ("",)) -> Run:
    """The same from a local zip: what the network and the server cost is the difference; each name of each folder."""
    return _ours(library("fsabs").from_url(path), [folder + name for folder in folders for name in names], batch)


def fsabs_traced(path: str, names: list[str], batch: int, folders: Sequence[str] = ("",)) -> Run:
    """The same with a trace on, which is started and stopped with each epoch."""
    trace = library("fsabs.trace")
    wanted = [folder + name for folder in folders for name in names]
    epoch = _ours(library("fsabs").from_url(path), wanted, batch)
    folder = tempfile.TemporaryDirectory()

    def run() -> None:
        with trace.record(os.path.join(folder.name, "trace")):
            epoch()

    return run


def decode_only(folder: str, names: list[str]) -> Run:
    """The decoding, without a DataLoader and without reading: half of it is the least that two CPUs could take."""
    data = [Path(folder, name).read_bytes() for name in names]

    def run() -> None:
        for one in data:
            decoded(one)

    return run


def pfio(endpoint: str, names: list[str], batch: int) -> Run:
    """One by one, shuffled, as PFIO's users do."""
    fs = library("pfio.v2").from_url("s3://bucket/train.zip", endpoint=endpoint)

    def one(name: str) -> bytes:
        with fs.open(name, "rb") as file:
            data: bytes = file.read()
            return data

    return _epoch(Images(names, one, None), len(names), batch_size=batch, shuffle=True)


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


def _streaming() -> Any:
    """MosaicML streaming: it imports torchvision, which PyPI has for CUDA only, for classes that nobody uses here."""
    library(
        "transformers.tokenization_utils_base"
    )  # which looks whether there is a torchvision: before there seems to be
    for name in ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["torchvision.datasets"].__dict__.update(VisionDataset=object, CIFAR10=object)
    sys.modules["torchvision.transforms.functional"].__dict__["to_tensor"] = None
    return library("streaming")


def mds(endpoint: str, count: int, batch: int, local: str) -> Run:
    """MosaicML streaming from S3, in order."""
    os.environ["S3_ENDPOINT_URL"] = endpoint
    made = _decoding(_streaming().StreamingDataset)

    def run() -> None:
        shutil.rmtree(local, ignore_errors=True)
        library("streaming.base.util").clean_stale_shared_memory()
        dataset = made(remote="s3://bucket/mds", local=local, shuffle=False, batch_size=batch)
        _epoch(dataset, count, batch_size=batch)()

    return run


def lit(endpoint: str, count: int, batch: int, local: str) -> Run:
    """litdata from S3, in order, by its own DataLoader, which its data sets need."""
    data = library("litdata")
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


# ---- writing


def write_mds(source: Path, target: Path) -> None:
    """Shards of 4 MB."""
    with _streaming().MDSWriter(out=str(target), columns={"jpg": "bytes"}, size_limit=4 << 20) as writer:
        for path in sorted(source.rglob("*.jpg")):
            writer.write({"jpg": path.read_bytes()})


def _sample(path: str) -> dict[str, bytes]:
    return {"jpg": Path(path).read_bytes()}


def write_lit(source: Path, target: Path) -> None:
    """Chunks of 4 MB."""
    paths = [str(path) for path in sorted(source.rglob("*.jpg"))]
    library("litdata").optimize(_sample, paths, str(target), chunk_bytes=4 << 20, num_workers=1)


if __name__ == "__main__":
    random.seed(0)
    {"mds": write_mds, "lit": write_lit}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
