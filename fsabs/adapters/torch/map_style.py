"""Map-style data sets: files, images in folders and RecordIO files, whose batches are read ahead of their use."""

from __future__ import annotations

import errno
import functools
import inspect
import io
import operator
import os
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset, get_worker_info

from ...core import errors, keys, process
from ...core.fs import FS, StrPath
from ...readers.data import RecordIODataReader, Shard, shards_of
from ...readers.data.base import LOST, OnError, ShardContent, check_skipped, digest_of
from ...readers.data.files import Location, visible
from ...readers.data.images import EXTENSIONS
from ...readers.data.order import Numbers, gathered
from ...readers.prefetch import MAX_BYTES, hand_over, is_immediate, read_batches_ahead
from ...urls import opening
from .sampler import AnnouncedBatch, EpochBatches
from .tags import WorkerCounts

_CERTAIN = 4  # indices that follow one another, and are taken for a batch of a sampler in order at any position

_NONE: Numbers = np.empty(0, np.int64)


class ReadAheadDataset(Dataset[Any]):
    """A map-style data set whose batches are read ahead of their use, where it is known which ones come.

    They are known from the first batch of an epoch on where that comes from a `Loader` or `PlannedBatches`, and where
    indices come in order. A subclass implements `__len__`, `_fetch` and `_prefetch`.
    """

    def __init__(self, max_bytes: int, predicts: bool) -> None:
        """`predicts`: whether batches in order are read ahead; `max_bytes` of them are, at most."""
        self._max_bytes = max_bytes
        self._predicts = predicts
        self._ahead: process.Resumable[Any] | None = None  # the contents of this process's coming batches
        self._coming = _NONE  # their indices
        self._at = 0  # the number of the next one of these

    def __len__(self) -> int:
        """Return the number of samples."""
        raise NotImplementedError

    def _fetch(self, indices: Sequence[int]) -> list[Any]:
        """Read the contents of samples."""
        raise NotImplementedError

    def _prefetch(self, batches: EpochBatches, own: Numbers) -> process.Resumable[Any] | None:
        """Begin to read the contents of `own`, this process's indices, ahead; None where that gains nothing."""
        raise NotImplementedError

    def read_batch(self, indices: Sequence[int]) -> list[Any]:
        """Return the contents of a batch, which may have been read ahead."""
        if isinstance(indices, AnnouncedBatch):
            self._begin(indices.batches)
        elif self._predicts and not self._is_next(indices):
            self._begin(_in_order(list(indices), len(self)))
        if self._ahead is None or not self._is_next(indices):
            self._leave()  # the batches are not the ones that were announced
            return self._fetch(indices)
        self._at += len(indices)
        try:
            return self._ahead.take(len(indices))
        except BaseException:
            self._leave()  # nothing comes after an error: the next batch is read when it is asked for
            raise

    def _is_next(self, indices: Sequence[int]) -> bool:
        """Return whether `indices` are the next batch of those that are read ahead."""
        coming: list[int] = self._coming[self._at : self._at + len(indices)].tolist()
        return self._ahead is not None and coming == list(indices)

    def _begin(self, batches: EpochBatches | None) -> None:
        self._leave()
        if batches is None:
            return
        own = batches.own()
        self._ahead = self._prefetch(batches, own)
        if self._ahead is not None:
            self._coming, self._at = own, 0

    def _leave(self) -> None:
        ahead, self._ahead, self._coming = self._ahead, None, _NONE
        if ahead is not None:
            ahead.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ahead": None, "_coming": _NONE}


def _in_order(batch: list[int], total: int) -> EpochBatches | None:
    """Return the batches from this one on, if its indices follow one another as those of a sampler in order do."""
    info = get_worker_info()
    worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
    if not batch or batch != list(range(batch[0], batch[0] + len(batch))) or not 0 <= batch[0] < total:
        return None
    if batch[0] != worker * len(batch) and len(batch) < _CERTAIN:
        return None
    return EpochBatches(np.arange(batch[0], total), len(batch), workers)


# ---- files

Transform = Callable[..., Any]


class FileDataset(ReadAheadDataset):
    """The files at `paths` of an FS (or of the FS at a URL); a sample is a file's bytes, or `transform` of them.

    A `transform` with a parameter called `path` is given the file's path, too: `transform(data, path=...)`.

    `paths` of None are all files of the FS, sorted, but for those that begin with a dot or are below a directory that
    does. A batch is one `read_many` (`__getitems__`, which torch's `DataLoader` calls). Where it is known which batches
    come (docs/datasets.md), they are read ahead while the last one is worked on, within `max_bytes` bytes in each
    worker; on a local disk only those of a `Loader` or `PlannedBatches` are.

    Override `sample` for samples that need more than the bytes.
    """

    def __init__(
        self,
        fs: FS | str | os.PathLike[str],
        paths: Iterable[StrPath] | None = None,
        transform: Transform | None = None,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        if isinstance(paths, str):  # whose characters would be the paths
            raise TypeError(f"paths are several paths, not one str; of a pattern: fs.glob({paths!r})")
        self.fs = fs if isinstance(fs, FS) else opening.from_url(fs)
        super().__init__(max_bytes, predicts=not is_immediate(self.fs))
        if paths is None:
            names = sorted(self.fs.list("", recursive=True))
            paths = (path for path in names if not path.endswith("/") and visible(path))
        self.paths: list[str] = [os.fspath(path) for path in paths]
        if not self.paths:
            warnings.warn(f"a data set of no files of {self.fs.url()}", stacklevel=2)
        self.transform = transform

    @property
    def transform(self) -> Transform | None:
        """The function that makes a sample of a file's bytes."""
        return self._transform

    @transform.setter
    def transform(self, transform: Transform | None) -> None:
        self._transform = transform
        self._takes_path = transform is not None and _takes_path(transform)

    def sample(self, index: int, data: bytes) -> Any:
        """Return the sample of file number `index`, of its bytes."""
        if self._transform is None:
            return data
        try:
            return self._transform(data, path=self.paths[index]) if self._takes_path else self._transform(data)
        except Exception as exc:
            exc.add_note(f"while transforming {self.fs.url(self.paths[index])}")
            raise

    def __getitem__(self, index: int) -> Any:
        return self.sample(index, self.fs.read_bytes(self.paths[index]))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A batch of samples, read together."""
        contents = self.read_batch(indices)
        return [self.sample(index, data) for index, data in zip(indices, contents, strict=True)]

    def __len__(self) -> int:
        return len(self.paths)

    def _fetch(self, indices: Sequence[int]) -> list[bytes]:
        return list(self.fs.read_many([self.paths[index] for index in indices]))

    def _prefetch(self, batches: EpochBatches, own: Numbers) -> process.Resumable[bytes]:
        begin = functools.partial(_hand_over, self.fs, self.paths, batches)
        read = functools.partial(_read_many, self.fs, self.paths)  # not a method: the thread must not hold the data set
        return read_batches_ahead(read, own, len, max_bytes=self._max_bytes, begin=begin)

    def contents(self) -> list[tuple[int, int, ShardContent]]:
        """Return what distinguishes this data set from others, for states: a digest of its paths."""
        paths = "\0".join(self.paths).encode("utf-8", "surrogatepass")
        return [(0, len(self.paths), ShardContent("the list of paths", None, digest_of(paths)))]


def _takes_path(transform: Transform) -> bool:
    try:
        return "path" in inspect.signature(transform).parameters
    except (TypeError, ValueError):  # of a function in C
        return False


def _read_many(fs: FS, paths: Sequence[str], indices: Numbers) -> Iterator[bytes]:
    return fs.read_many([paths[index] for index in indices.tolist()])


def _hand_over(fs: FS, paths: Sequence[str], batches: EpochBatches, own: object) -> None:
    hand_over(fs, (paths[index] for index in batches.all()))  # of all workers, in place of this one's files


def decode_image(data: bytes) -> Any:
    """The image in `data` as a `PIL.Image` in RGB; `OSError` if it is none that PIL knows."""
    try:
        from PIL import Image
    except ImportError:
        raise errors.missing("pillow", "torch", "decoding images") from None
    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB")


class ImageFolder(FileDataset):
    """Images in a folder for each class, below `root` of an FS or URL; a sample is (image, number of its class).

    Everything is torchvision's: `classes` are the folders of `root`, sorted; `class_to_idx` numbers them; `samples` are
    (path, number), a class's by the paths of their folders, then by name, and `targets` their numbers; extensions are
    matched in lower case unless `is_valid_file(path)`, given the path in the FS, decides; a class with no image, unless
    `allow_empty`, and no class at all, is a `FileNotFoundError`. `loader` makes an image of a file's *bytes*, where
    torchvision's is given a path.
    """

    def __init__(
        self,
        fs: FS | str | os.PathLike[str],
        root: StrPath = "",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        loader: Callable[[bytes], Any] = decode_image,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        *,
        extensions: Sequence[str] = EXTENSIONS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        fs = fs if isinstance(fs, FS) else opening.from_url(fs)
        suffixes = tuple(extension.lower() for extension in extensions)
        self._accepts = is_valid_file or (lambda path: path.lower().endswith(suffixes))
        self.root = os.fspath(root)
        self.classes = sorted(name[:-1] for name in fs.list(self.root) if name.endswith("/"))
        if not self.classes:
            raise errors.error(errno.ENOENT, "ImageFolder", fs.url(self.root), "there is no folder of a class")
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        images = (self._images(fs, name, allow_empty) for name in self.classes)
        found = [(path, number) for number, paths in enumerate(images) for path in paths]
        self.targets = [number for _, number in found]
        self._samples: list[tuple[str, int]] | None = None
        self.loader = loader
        self.target_transform = target_transform
        del self._accepts  # may be a function that doesn't pickle
        super().__init__(fs, [path for path, _ in found], transform, max_bytes=max_bytes)

    @property
    def samples(self) -> list[tuple[str, int]]:
        """The path of each image, and the number of its class; also called `imgs`."""
        if self._samples is None:
            self._samples = list(zip(self.paths, self.targets, strict=True))
        return self._samples

    @samples.setter
    def samples(self, samples: list[tuple[str, int]]) -> None:
        self._samples = samples

    imgs = samples

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if self._samples is not None and self._samples == list(zip(self.paths, self.targets, strict=False)):
            state["_samples"] = None  # made again where it is asked for: workers do not
        return state

    def _images(self, fs: FS, name: str, allow_empty: bool) -> list[str]:
        folder = f"{self.root.rstrip('/')}/{name}" if self.root else name
        files = (path for path in fs.list(folder, recursive=True) if not path.endswith("/"))
        found = [path for path in files if self._accepts(f"{folder}/{path}")]
        if not found and not allow_empty:
            raise errors.error(errno.ENOENT, "ImageFolder", fs.url(folder), "the class has no image")
        found.sort(key=lambda path: (keys.parent(path), keys.name(path)))
        return [f"{folder}/{path}" for path in found]

    def sample(self, index: int, data: bytes) -> tuple[Any, Any]:
        """The image and its class, both transformed."""
        try:
            image = self.loader(data)
        except OSError as exc:
            errors.named(exc, "decode", self.fs.url(self.paths[index]))
            raise
        target: Any = self.targets[index]
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target


# ---- records

_LARGEST_BATCH = 4096  # records that are read ahead together: many of one chunk
_SHARDS_AT_ONCE = 8


class RecordIODataset(ReadAheadDataset):
    """The records of the RecordIO files at `location` (a directory or file, as a URL, a path or an FS), in their order.

    A sample is a record's bytes, or `transform` of them. A batch (`__getitems__`) reads each shard's records together,
    and each chunk of a file once. Where it is known which batches come (docs/datasets.md), they are read
    ahead, within `max_bytes` bytes in each worker, unless the files are on a local disk.

    With `on_error="skip"`, damaged records are left out of their batch, and `skipped` counts them in all workers; more
    than `max_skipped` of them, or a batch of nothing else, raise. A `Loader` counts in each pass anew.
    """

    def __init__(
        self,
        location: Location,
        transform: Transform | None = None,
        *,
        on_error: OnError = "raise",
        max_skipped: int | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.reader = RecordIODataReader(location, on_error=on_error)
        super().__init__(max_bytes, predicts=self.reader.reads_ahead)
        self._skips = on_error == "skip"
        self.max_skipped = max_skipped
        self._counts = WorkerCounts()
        self.shards = [shard for shard in shards_of(self.reader) if shard.count]
        self.transform = transform
        self._records = ShardRecords(self.reader, self.shards, self._skips)

    def __getitem__(self, index: int) -> Any:
        return self._samples([self._records.record(operator.index(index))])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A batch of samples, in the order of `indices`."""
        return self._samples(self.read_batch(indices))

    def _samples(self, found: list[Any]) -> list[Any]:
        transform = self.transform
        if transform is not None:
            found = [record if record is LOST else transform(record) for record in found]
        return self._without_lost(found) if self._skips else found

    def __len__(self) -> int:
        return self._records.total

    def _fetch(self, indices: Sequence[int]) -> list[Any]:
        return self._records.fetch(indices)

    def _prefetch(self, batches: EpochBatches, own: Numbers) -> process.Resumable[Any] | None:
        if not self._predicts:
            return None  # on a local disk, a thread costs more than it gains
        read = self._records.fetch  # not a method of this: the thread must not hold the data set
        return read_batches_ahead(read, own, _weight, max_bytes=self._max_bytes, largest_batch=_LARGEST_BATCH)

    def _without_lost(self, found: list[Any]) -> list[Any]:
        left = [sample for sample in found if sample is not LOST]
        if len(left) < len(found):
            self._counts.add(len(found) - len(left))
            check_skipped(self.skipped, self.max_skipped, self.shards[0].name)
            if not left:
                raise errors.corrupt(self.shards[0].name, "all records of a batch are damaged", "read_records")
        return left

    def begin_counting(self) -> None:
        """Count the records that are skipped from here on."""
        self._counts.clear()

    @property
    def skipped(self) -> int:
        """The number of damaged records that were skipped, by all workers: in a `Loader`, of its last pass."""
        return self._counts.total

    def contents(self) -> list[tuple[int, int, ShardContent]]:
        """Return what distinguishes this data set from others, for states: its shards."""
        return [(shard.start, shard.count, self.reader.content_of(shard.name)) for shard in self.shards]


class ShardRecords:
    """The records of all shards by number, read in batches."""

    def __init__(self, reader: RecordIODataReader, shards: list[Shard], skips: bool) -> None:
        self._reader = reader
        self._shards = shards
        self._skips = skips
        self._at_once = _SHARDS_AT_ONCE if reader.reads_ahead else 1
        counts = np.array([shard.count for shard in shards], np.int64)
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts
        self.total = int(counts.sum())

    def record(self, index: int) -> Any:
        """Return one record, or `LOST`."""
        at = index + self.total if index < 0 else index
        if not 0 <= at < self.total:
            raise self._missing(index)
        number = bisect_right(self._ends, at)
        found = self._read_shard(number, [at - int(self._starts[number])])
        self._reader.trim()
        return found[0]

    def fetch(self, indices: Sequence[int] | Numbers) -> list[Any]:
        """Return the records of these numbers, in their order; `LOST` for a damaged one that is skipped."""
        wanted = np.asarray(indices, np.int64)
        wanted = np.where(wanted < 0, wanted + self.total, wanted)
        if not ((wanted >= 0) & (wanted < self.total)).all():
            raise self._missing(next(index for index in indices if not -self.total <= index < self.total))
        shards = self._ends.searchsorted(wanted, side="right")
        found = gathered(shards, wanted - self._starts[shards], self._read_shard, self._at_once)
        self._reader.trim()
        return found

    def _missing(self, index: int) -> IndexError:
        return IndexError(f"record {index} of {self.total}")

    def _read_shard(self, number: int, records: list[int]) -> list[Any]:
        name = self._shards[number].name
        if self._skips:
            return list(self._reader.read_available(name, records))
        return self._reader.reader(name).read_many(records)


def _weight(record: Any) -> int:
    return len(record) if isinstance(record, bytes) else 0
