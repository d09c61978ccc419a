"""Map-style data sets: files, images in folders and RecordIO files, whose batches are read ahead of their use; and the
orders of any map-style data set's epochs.
"""

from __future__ import annotations

import abc
import errno
import functools
import inspect
import io
import itertools
import operator
import os
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset, Sampler

from ...core import errors, keys, process
from ...core.fs import FS, StrPath
from ...readers.data import RecordIODataReader, Shard, shards_of
from ...readers.data.base import LOST, OnError, ShardContent, check_skipped, digest_of
from ...readers.data.files import Location, visible
from ...readers.data.images import EXTENSIONS
from ...readers.data.order import Epoch, Interval, RandomOrder, drop, gathered, key_of, length, permuted
from ...readers.epochs.content import OrderContent
from ...readers.epochs.reading import joined
from ...readers.prefetch import MAX_BYTES, hand_over, read_batches_ahead
from ...urls import opening
from .datasets import (
    Base,
    Batch,
    EpochDataset,
    PlannedStep,
    SamplePlace,
    StepReader,
    Transform,
    guarded,
    record_numbers,
    without_lost,
)


class ReadAheadDataset(Dataset[Any], abc.ABC):
    """A map-style data set whose batches are read together, and ahead of their use where it is known which ones come:
    from a `Loader` or `EpochBatches`.
    """

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: so much is read ahead, at most."""
        self._max_bytes = max_bytes
        self._steps: StepReader | None = None  # of batches of `EpochBatches` in another loader than ours

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abc.abstractmethod
    def fetch(self, indices: Sequence[int]) -> list[Any]:
        """Read the contents of samples; `LOST` for a damaged one that is skipped."""

    @abc.abstractmethod
    def read_ahead(self, coming: ComingNumbers) -> process.Resumable[Any] | None:
        """Begin to read contents ahead; None where that gains nothing."""

    @abc.abstractmethod
    def sample(self, index: int, content: Any) -> Any:
        """Return the sample of a content."""

    def skip(self, count: int) -> None:
        """Count damaged records that were skipped."""

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of a batch, which are read together."""
        if isinstance(indices, Batch):
            if self._steps is None:
                self._steps = StepReader(IndexedDataset(self, None))
            found, lost = self._steps.read(indices.step)
        else:
            found, lost = without_lost(self.made(indices, self.fetch(indices)))
        if lost:
            self.skip(lost)
            if not found:
                raise errors.corrupt(type(self).__name__, "all records of a batch are damaged", "read_records")
        return found

    def made(self, indices: Iterable[int], contents: Iterable[Any]) -> list[Any]:
        """Return the samples of contents; `LOST` stays."""
        made: list[Any] = guarded(self._made, indices, contents)
        return made

    def _made(self, indices: Iterable[int], contents: Iterable[Any]) -> list[Any]:
        pairs = zip(indices, contents, strict=True)
        return [content if content is LOST else self.sample(index, content) for index, content in pairs]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_steps": None}


# ---- files


class FileDataset(ReadAheadDataset):
    """The files at `paths` of an FS (or of the FS at a URL); a sample is a file's bytes, or `transform` of them.

    A `transform` with a parameter called `path` is given the file's path, too: `transform(data, path=...)`.

    `paths` of None are all files of the FS, sorted, but for those that begin with a dot or are below a directory that
    does. A batch is one `read_many` (`__getitems__`, which torch's `DataLoader` calls). Where it is known which batches
    come (docs/datasets.md), they are read ahead while the last one is worked on, within `max_bytes` bytes in each
    worker.

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
        super().__init__(max_bytes)
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
        return guarded(self.sample, index, self.fs.read_bytes(self.paths[index]))

    def __len__(self) -> int:
        return len(self.paths)

    def fetch(self, indices: Sequence[int]) -> list[bytes]:
        """Read files."""
        return list(self.fs.read_many([self.paths[index] for index in indices]))

    def read_ahead(self, coming: ComingNumbers) -> process.Resumable[bytes]:
        """Begin to read files ahead."""
        begin = functools.partial(_hand_over, self.fs, self.paths)
        read = functools.partial(_read_many, self.fs, self.paths)  # not a method: the thread must not hold the data set
        return read_batches_ahead(read, coming, len, max_bytes=self._max_bytes, begin=begin)

    def contents(self) -> list[tuple[int, int, ShardContent]]:
        """Return what distinguishes this data set from others, for states: a digest of its paths."""
        paths = "\0".join(self.paths).encode("utf-8", "surrogatepass")
        return [(0, len(self.paths), ShardContent("the list of paths", None, digest_of(paths)))]


def _takes_path(transform: Transform) -> bool:
    try:
        return "path" in inspect.signature(transform).parameters
    except (TypeError, ValueError):  # of a function in C
        return False


def _read_many(fs: FS, paths: Sequence[str], indices: Sequence[int]) -> Iterator[bytes]:
    return fs.read_many([paths[index] for index in indices])


def _hand_over(fs: FS, paths: Sequence[str], coming: ComingNumbers) -> None:
    hand_over(fs, (paths[index] for index in coming.all()))  # of all workers, in place of this one's files


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

    With `on_error="skip"`, damaged records are left out of their batch, and `skipped` counts them: those of all workers
    in a `Loader`, in each pass anew. More than `max_skipped` of them, or a batch of nothing else, raise.
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
        super().__init__(max_bytes)
        self.reader = RecordIODataReader(location, on_error=on_error)
        self.max_skipped = max_skipped
        self.skipped = 0
        """How many damaged records were skipped."""
        self.shards = [shard for shard in shards_of(self.reader) if shard.count]
        self.transform = transform
        self._records = ShardRecords(self.reader, self.shards, on_error == "skip")

    def __getitem__(self, index: int) -> Any:
        record = self._records.record(operator.index(index))
        if record is LOST:
            self.skip(1)
            raise errors.corrupt(self.shards[0].name, f"record {index} is damaged", "read_records")
        return guarded(self.sample, index, record)

    def sample(self, index: int, content: bytes) -> Any:
        """Return the sample of a record."""
        return content if self.transform is None else self.transform(content)

    def __len__(self) -> int:
        return self._records.total

    def fetch(self, indices: Sequence[int]) -> list[Any]:
        """Read records."""
        return self._records.fetch(indices)

    def read_ahead(self, coming: ComingNumbers) -> process.Resumable[Any] | None:
        """Begin to read records ahead; on a local disk, a thread costs more than it gains."""
        if not self.reader.reads_ahead:
            return None
        read = self._records.fetch  # not a method of this: the thread must not hold the data set
        return read_batches_ahead(read, coming, _weight, max_bytes=self._max_bytes, largest_batch=_LARGEST_BATCH)

    def skip(self, count: int) -> None:
        """Count damaged records; `CorruptFileError` if more were skipped than may be."""
        self.skipped += count
        check_skipped(self.skipped, self.max_skipped, self.shards[0].name)

    def contents(self) -> list[tuple[int, int, ShardContent]]:
        """Return what distinguishes this data set from others, for states: its shards."""
        return [(shard.start, shard.count, self.reader.content_of(shard.name)) for shard in self.shards]

    def close(self) -> None:
        """Free what the reader holds in this process."""
        self.reader.close()


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

    def fetch(self, indices: Sequence[int]) -> list[Any]:
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


# ---- orders


class IndexedDataset(EpochDataset):
    """The orders of a map-style data set's epochs, of this package or the user's own: all samples at random places."""

    def __init__(self, dataset: Any, seed: int | None) -> None:
        super().__init__(None, None, None, None)
        self.dataset = dataset
        self._seed = None if seed is None else operator.index(seed)
        self._total = len(dataset)
        contents = getattr(dataset, "contents", lambda: [(0, self._total, ShardContent(""))])()
        self._content = OrderContent(contents, [self._seed])
        self._shards = len(contents)

    def first_base(self, divided: int) -> Base:
        """Return the seed."""
        return {"seed": self._seed}

    def shape(self, epoch: int, base: Base) -> tuple[int, tuple[int, ...]]:
        """Return the number of samples."""
        return self._total, ()

    def order(self, epoch: int, base: Base) -> Epoch:
        """Return the order of an epoch."""
        return RandomOrder([Shard("", 0, self._total)], base["seed"]).epoch(epoch)

    def numbers(self, order: Epoch, intervals: Iterable[Interval]) -> list[int]:
        """Return the numbers of the samples at positions."""
        return record_numbers(order, intervals, np.zeros(1, np.int64))

    def places(self, order: Epoch, intervals: Iterable[Interval]) -> list[SamplePlace]:
        """Return the name of the data set's class, and the numbers of the samples at positions."""
        return [SamplePlace("", self.name, number) for number in self.numbers(order, intervals)]

    def described(self, base: Base) -> dict[str, Any]:
        """Return what a state says of the content."""
        return self._content.described(self._shards)

    def check(self, content: Mapping[str, Any]) -> None:
        """Raise `ValueError` if a state's content is another one: the order is of all samples."""
        self._content.check(content)
        if content["shards"] != self._shards:
            raise ValueError(
                f"the state is of {content['shards']} shards, and there are {self._shards}: the samples of a map-style "
                "data set have another order then"
            )

    @property
    def total(self) -> int:
        """The number of samples."""
        return self._total

    @property
    def name(self) -> str:
        """The name of the data set's class."""
        return type(self.dataset).__name__

    def fetch(self, numbers: Sequence[int]) -> list[Any]:
        """Return samples by their numbers."""
        return self._by_number(list(numbers))

    def records(self, order: Epoch, intervals: Iterable[Interval], threads: object) -> Iterator[Any]:
        """Yield the samples at positions."""
        for piece in joined(order, intervals):
            yield from self._by_number(self.numbers(order, [piece]))

    def stream(self, step: PlannedStep, stride: int) -> process.Resumable[Any]:
        """Return the samples of each `stride`-th batch; a data set of this package reads them ahead."""
        return process.Resumable(functools.partial(self._samples_from, step, stride))

    def _samples_from(self, step: PlannedStep, stride: int, taken: int) -> Iterator[Any]:
        coming = ComingNumbers(step, stride, taken)
        ahead = self.dataset.read_ahead(coming) if isinstance(self.dataset, ReadAheadDataset) else None
        if ahead is None:
            return itertools.chain.from_iterable(map(self._by_number, coming.batches()))
        return self._read_ahead(coming, ahead)

    def _read_ahead(self, coming: ComingNumbers, ahead: process.Resumable[Any]) -> Iterator[Any]:
        try:
            for batch in coming.batches():
                yield from self.dataset.made(batch, ahead.take(len(batch)))
        finally:
            ahead.close()

    def _by_number(self, numbers: list[int]) -> list[Any]:
        dataset = self.dataset
        if isinstance(dataset, ReadAheadDataset):
            return dataset.made(numbers, dataset.fetch(numbers))
        many = getattr(dataset, "__getitems__", None)
        found = guarded(many or _one_by_one(dataset), numbers)
        if len(found) != len(numbers):
            raise RuntimeError(f"{type(dataset).__name__} gave {len(found)} samples of {len(numbers)}")
        return list(found)

    def close(self) -> None:
        """Free what the data set holds in this process."""
        getattr(self.dataset, "close", lambda: None)()


_FEWEST, _MOST = 1 << 10, 1 << 16  # numbers that are computed at once: each time costs as much as hundreds of them


def _groups(intervals: Iterable[Interval], size: int) -> Iterator[list[Interval]]:
    """Yield the intervals in groups, cut where these are full: of `size` positions, then of up to twice as many."""
    group: list[Interval] = []
    room = size
    for start, end in intervals:
        while start < end:
            cut = min(end, start + room)
            group.append((start, cut))
            room -= cut - start
            start = cut
            if not room:
                yield group
                group, size = [], max(size, min(2 * size, _MOST))
                room = size
    if group:
        yield group


def _one_by_one(dataset: Any) -> Callable[[list[int]], list[Any]]:
    return lambda numbers: [dataset[number] for number in numbers]


class ComingNumbers(Sequence[int]):
    """The numbers of the samples that a worker reads from a step of a pass on, computed where they are asked for."""

    # It has not the data set, which a thread that has these must not hold.

    def __init__(self, step: PlannedStep, stride: int, taken: int) -> None:
        self._plan = step.plan
        self._first, self._stride, self._taken = step.number, stride, taken
        self._size = step.plan.batch_size // step.plan.ranks
        steps = range(step.number, len(step.plan), stride)
        last = length(step.plan.positions(steps[-1])) if steps else 0
        self._total = max(0, len(steps) - 1) * self._size + last - taken
        self._kept: tuple[int, list[int]] = (0, [])  # numbers that were computed last, from one on

    def __len__(self) -> int:
        return self._total

    def batches(self, start: int = 0) -> Iterator[list[int]]:
        """Yield the numbers of each batch, from one of the numbers on."""
        numbers = self._from(start, _FEWEST)
        size = self._size - (start + self._taken) % self._size
        while batch := list(itertools.islice(numbers, size)):
            yield batch
            size = self._size

    def _from(self, start: int, together: int) -> Iterator[int]:
        """Return the numbers from one of them on, of which so many are computed at first."""
        steps, skipped = divmod(start + self._taken, self._size)
        coming = self._plan.coming(self._first + steps * self._stride, self._stride)
        return self._of_epoch(self._plan.epoch, drop(coming, skipped), together)

    def _of_epoch(self, epoch: int, intervals: Iterable[Interval], together: int) -> Iterator[int]:
        """Return the numbers at positions, as `RandomOrder` has them."""
        seed, total = self._plan.base["seed"], self._plan.total
        key = None if seed is None else key_of(seed, epoch)
        groups = (np.concatenate([np.arange(*one) for one in group]) for group in _groups(intervals, together))
        numbers = groups if key is None else (permuted(at, total, key) for at in groups)
        return itertools.chain.from_iterable(at.tolist() for at in numbers)

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self[index : index + 1][0]
        start, end, _ = index.indices(self._total)
        first, found = self._kept
        if not first <= start <= end <= first + len(found):
            count = max(end - start, _FEWEST, min(2 * len(found), _MOST))
            first, found = self._kept = start, list(itertools.islice(self._from(start, count), count))
        return found[start - first : end - first]

    def all(self) -> Iterator[int]:
        """Yield the numbers of all workers of this rank, then those of the next epoch."""
        plan = self._plan
        yield from self._of_epoch(plan.epoch, plan.coming(self._first, 1), _MOST)
        yield from self._of_epoch(plan.epoch + 1, [(0, plan.total)], _MOST)


def ordered(dataset: Any, seed: int | None) -> EpochDataset:
    """Return the orders of any map-style data set; `TypeError` for what is none."""
    if isinstance(dataset, EpochDataset):
        if seed is not None:
            raise TypeError(f"the seed of a {type(dataset).__name__} is given to the data set")
        return dataset
    if isinstance(dataset, Sampler) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise TypeError(f"a map-style data set is needed, with a length and samples by number, not {dataset!r}")
    return IndexedDataset(dataset, seed)
