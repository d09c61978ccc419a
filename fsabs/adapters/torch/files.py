"""FileDataset: the files of any FS as a map-style data set, which reads ahead where the batches are announced."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch.utils.data import Dataset

from ... import urls
from ...fs import FS, Path
from ...readers.data.base import ShardContent, digest_of
from ...readers.data.files import visible
from ...readers.prefetch import MAX_BYTES, prefetch
from .batches import AnnouncedBatch

Transform = Callable[[Any], Any]


class FileDataset(Dataset[Any]):
    """The files at `paths` of an FS (or of the FS at a URL); a sample is a file's bytes, or `transform` of them.

    `paths` of None are all files of the FS, sorted, but for those that begin with a dot or are below a directory that
    does. A batch is one `read_many` (`__getitems__`, which torch's `DataLoader` calls); where the batches come from
    `PlannedBatches`, they are read ahead while the last one is worked on, within `max_bytes` bytes in each worker.

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
        self.fs = fs if isinstance(fs, FS) else urls.from_url(fs)
        if paths is None:
            names = sorted(self.fs.list("", recursive=True))
            paths = (path for path in names if not path.endswith("/") and visible(path))
        self.paths: list[str] = [os.fspath(path) for path in paths]
        self.transform = transform
        self._max_bytes = max_bytes
        self._ahead: _Ahead | None = None

    def sample(self, index: int, data: bytes) -> Any:
        """Return the sample of file number `index`, of its bytes."""
        return data if self.transform is None else self.transform(data)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return self.sample(index, self.fs.read_bytes(self.paths[index]))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A batch of samples, read together."""
        if isinstance(indices, AnnouncedBatch):
            self._leave()
            self._ahead = _Ahead(self, indices.coming)
        try:
            contents = None if self._ahead is None else self._ahead.batch(indices)
        except BaseException:
            self._leave()  # nothing comes behind an error: the next batch is read when it is asked for
            raise
        if contents is None:
            self._leave()  # the batches are not the ones that were announced
            contents = list(self.fs.read_many([self.paths[index] for index in indices]))
        return [self.sample(index, data) for index, data in zip(indices, contents, strict=True)]

    def contents(self) -> list[tuple[int, int, ShardContent]]:
        """Return what tells this data set from others, for states: a digest of its paths."""
        paths = "\0".join(self.paths).encode("utf-8", "surrogatepass")
        return [(0, len(self.paths), ShardContent("the list of paths", None, digest_of(paths)))]

    def _leave(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.contents.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ahead": None}


class _Ahead:
    """The files of a worker's coming batches, being read."""

    def __init__(self, dataset: FileDataset, coming: array[int]) -> None:
        self.contents = prefetch(dataset.fs, [dataset.paths[at] for at in coming], max_bytes=dataset._max_bytes)
        self._coming = coming
        self._at = 0

    def batch(self, indices: Sequence[int]) -> list[bytes] | None:
        """The contents of the next batch; None if `indices` are not it."""
        end = self._at + len(indices)
        if list(self._coming[self._at : end]) != list(indices):
            return None
        self._at = end
        return [next(self.contents) for _ in indices]
