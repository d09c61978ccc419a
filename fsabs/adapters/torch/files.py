"""FileDataset: the files of any FS as a map-style data set, which reads ahead where it is known what comes."""

from __future__ import annotations

import errno
import functools
import inspect
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...core import errors, keys, process
from ...core.fs import FS, Path
from ...readers.data.base import ShardContent, digest_of
from ...readers.data.files import visible
from ...readers.data.images import EXTENSIONS
from ...readers.prefetch import MAX_BYTES, hand_over, is_immediate, read_batches_ahead
from ...urls import opening
from .ahead import ReadAheadDataset
from .sampler import EpochBatches

if TYPE_CHECKING:
    from .sampler import Numbers


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
        return read_batches_ahead(read, own, len, max_bytes=self._max_bytes, begin=begin)

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
    matched in lower case unless `is_valid_file(path)`, given the path in the FS, decides; a class with no image, and no
    class at all, is a `FileNotFoundError`. `loader` makes an image of a file's *bytes*, where torchvision's is given a
    path.
    """

    def __init__(
        self,
        fs: FS | str | os.PathLike[str],
        root: Path = "",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        loader: Callable[[bytes], Any] = decode_image,
        is_valid_file: Callable[[str], bool] | None = None,
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
        found = [(path, number) for number, name in enumerate(self.classes) for path in self._images(fs, name)]
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

    def _images(self, fs: FS, name: str) -> list[str]:
        folder = f"{self.root.rstrip('/')}/{name}" if self.root else name
        files = (path for path in fs.list(folder, recursive=True) if not path.endswith("/"))
        found = [path for path in files if self._accepts(f"{folder}/{path}")]
        if not found:
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
