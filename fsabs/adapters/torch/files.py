"""FileDataset: the files of any FS as a map-style data set, which reads ahead where it is known what comes."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...core import process
from ...core.fs import FS, Path
from ...readers.data.base import ShardContent, digest_of
from ...readers.data.files import visible
from ...readers.prefetch import MAX_BYTES, hand_over, is_immediate, read_ahead
from ...urls import opening
from .ahead import ReadAheadDataset
from .batches import EpochBatches

if TYPE_CHECKING:
    from .batches import Numbers

Transform = Callable[..., Any]


class FileDataset(ReadAheadDataset):
    """The files at `paths` of an FS (or of the FS at a URL); a sample is a file's bytes, or `transform` of them.

    A `transform` with a parameter called `path` is given the file's path, too: `transform(data, path=...)`.

    `paths` of None are all files of the FS, sorted, but for those that begin with a dot or are below a directory that
    does. A batch is one `read_many` (`__getitems__`, which torch's `DataLoader` calls). Where it is known which batches
    come (docs/datasets.md), they are read ahead while the last one is worked on, within `max_bytes` bytes in each
    worker; on a local disk only those of `PlannedBatches` are.

    Override `sample` for samples that need more than the bytes.
    """

    def __init__(
        self,
        fs: FS | str | os.PathLike[str],
        paths: Iterable[Path] | None = None,
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
        return self._transform(data, path=self.paths[index]) if self._takes_path else self._transform(data)

    def __getitem__(self, index: int) -> Any:
        return self.sample(index, self.fs.read_bytes(self.paths[index]))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A batch of samples, read together."""
        contents = self.read_batch(indices)
        return [self.sample(index, data) for index, data in zip(indices, contents, strict=True)]

    def _total(self) -> int:
        return len(self.paths)

    def _fetch(self, indices: Sequence[int]) -> list[bytes]:
        return list(self.fs.read_many([self.paths[index] for index in indices]))

    def _prefetch(self, batches: EpochBatches, own: Numbers) -> process.Resumable[bytes]:
        begin = functools.partial(_hand_over, self.fs, Chosen(self.paths, batches))
        read = functools.partial(_read_many, self.fs, self.paths)  # not a method: the thread must not hold the data set
        return read_ahead(read, own, len, max_bytes=self._max_bytes, begin=begin)

    def contents(self) -> list[tuple[int, int, ShardContent]]:
        """Return what tells this data set from others, for states: a digest of its paths."""
        paths = "\0".join(self.paths).encode("utf-8", "surrogatepass")
        return [(0, len(self.paths), ShardContent("the list of paths", None, digest_of(paths)))]


def _takes_path(transform: Transform) -> bool:
    try:
        return "path" in inspect.signature(transform).parameters
    except (TypeError, ValueError):  # of a function in C
        return False


class Chosen(Iterable[str]):
    """The paths that all workers read, in order; made when it is iterated, since only a cache wants them."""

    def __init__(self, paths: Sequence[str], batches: EpochBatches) -> None:
        self._paths, self._batches = paths, batches

    def __iter__(self) -> Iterator[str]:
        return (self._paths[index] for index in self._batches.all())


def _read_many(fs: FS, paths: Sequence[str], indices: Numbers) -> Iterator[bytes]:
    return fs.read_many([paths[index] for index in indices.tolist()])


def _hand_over(fs: FS, order: Iterable[str], coming: object) -> None:
    hand_over(fs, order)  # of all workers, in place of this one's files
