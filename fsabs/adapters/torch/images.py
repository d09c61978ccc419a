"""ImageFolder: torchvision's data set of a folder for each class, over any FS."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Sequence
from typing import Any

from ...core import errors, keys
from ...core.fs import FS, Path
from ...readers.data.images import EXTENSIONS
from ...readers.prefetch import MAX_BYTES
from ...urls import opening
from .files import FileDataset, Transform


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
