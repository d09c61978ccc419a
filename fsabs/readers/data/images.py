"""Readers of raw images as they lie in a store: a folder of them, a folder for each label, or a list in a CSV file.

Images are not decoded here: a record is an image's bytes with its label and path. A shard is a run of the list of
images, read in batches.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...core import errors, keys
from .base import Metadata, ShardContent, SlicedDataReader, Task, digest_of
from .files import Files, Location

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""What torchvision takes for images."""
BATCH = 64  # images of one read_many


class RawImage(NamedTuple):
    """A record: one image, not decoded."""

    data: bytes
    label: int | str | None
    """The number of the label's folder, or the label as the list has it, or None."""
    path: str
    """Where it lies, in the FS."""


class _ImageDataReader(SlicedDataReader):
    """The base of the image readers: a list of (path, label), and its reading."""

    def __init__(self, files: Files, name: str, records_per_task: int | None) -> None:
        super().__init__(name, records_per_task)
        self._files = files
        self._found: list[tuple[str, int | str | None]] | None = None
        self._digest: str | None = None

    def _list(self) -> list[tuple[str, int | str | None]]:
        raise NotImplementedError

    @property
    def images(self) -> list[tuple[str, int | str | None]]:
        """Path and label of every image, in order."""
        if self._found is None:
            self._found = self._list()
        return self._found

    def __len__(self) -> int:
        """The number of images."""
        return len(self.images)

    def content_of(self, shard_name: str) -> ShardContent:
        """Return the shard's number, and a digest of the paths and labels of its images."""
        if self._digest is None:
            self._digest = digest_of(repr(self.images).encode("utf-8", "surrogatepass"))
        return ShardContent(shard_name.removeprefix(self._name), None, self._digest)

    def _read(self, numbers: Sequence[int]) -> Iterator[RawImage]:
        for at in range(0, len(numbers), BATCH):
            wanted = [self.images[number] for number in numbers[at : at + BATCH]]
            contents = self._files.fs.read_many([path for path, _ in wanted])
            for (path, label), data in zip(wanted, contents, strict=True):
                yield RawImage(data, label, path)

    def read_at(self, shard_name: str, numbers: Sequence[int]) -> Iterator[RawImage]:
        """The images with these numbers, in one batch."""
        return self.read_records(Task(0, shard_name, indices=tuple(numbers)))

    def set_order(self, shard_names: Iterable[str]) -> None:
        """Hand the files of these shards, in order, to a cache below."""
        shards = {shard.name: shard for shard in self.create_shards()}
        chosen = (shards[name] for name in shard_names)
        self._files.set_order(path for shard in chosen for path, _ in self.images[shard.start : shard.end])

    @property
    def metadata(self) -> Metadata:
        """The parts of a record."""
        return Metadata(["data", "label", "path"])

    def close(self) -> None:
        """Free what the FS holds in this process."""
        self._files.close()


class ImageFolderDataReader(_ImageDataReader):
    """The images below the directory `data_dir` (a URL, a path, an FS), sorted by path; a record is a `RawImage`.

    Where they lie in folders below it, the first folder of an image's path is its label: `label` is its number in
    `label_names`, which is sorted. Where they all lie in `data_dir` itself, they have no label. Both at once is a
    `ValueError`: which of them are labels is ambiguous. Files with other extensions, and
    those that begin with a dot, are left out. A shard has `records_per_task` images, or all.
    """

    def __init__(
        self,
        data_dir: Location,
        records_per_task: int | None = None,
        *,
        extensions: Sequence[str] = EXTENSIONS,
    ) -> None:
        files = Files(data_dir)
        super().__init__(files, files.name("").rstrip("/"), records_per_task)
        self._extensions = tuple(extension.lower() for extension in extensions)
        self._label_names: list[str] = []

    @property
    def label_names(self) -> list[str]:
        """The names of the labels, by number; empty if there are none."""
        return self._label_names if self.images else []

    def _list(self) -> list[tuple[str, int | str | None]]:
        paths = [stat.filename for stat in self._files.list() if stat.filename.lower().endswith(self._extensions)]
        loose = [path for path in paths if "/" not in path]
        if loose and len(loose) < len(paths):
            raise ValueError(f"{self._name} has images ({loose[0]}, ...) beside folders of images: are folders labels?")
        if loose:
            return [(path, None) for path in paths]
        self._label_names = sorted({path.partition("/")[0] for path in paths})
        number_of = {name: number for number, name in enumerate(self._label_names)}
        return [(path, number_of[path.partition("/")[0]]) for path in paths]

    @property
    def records_output_types(self) -> tuple[str, str, str]:
        """Bytes, a number, text."""
        return "string", "int64", "string"


class FileListDataReader(_ImageDataReader):
    """The images that a CSV file lists: one a row, its path and its label; a record is a `RawImage`.

    Args:
        filename: the list: a URL or a path.
        data_dir: what the paths are relative to: a URL, a path, an FS; None is the directory of the list.
        records_per_task: images of a shard; None is all.
        path_column, label_column: numbers of the columns, or their names: the first row then is a header. A
            `label_column` of None means no labels. Labels are text, as in the list.
        sep: what separates the columns.
    """

    def __init__(
        self,
        filename: Location,
        records_per_task: int | None = None,
        *,
        data_dir: Location | None = None,
        path_column: int | str = 0,
        label_column: int | str | None = 1,
        sep: str = ",",
    ) -> None:
        self._list_file = Files(filename)
        self._list_path = self._list_file.one()
        name = self._list_file.name(self._list_path)
        self._folder = keys.parent(self._list_path) if data_dir is None else ""
        super().__init__(self._list_file if data_dir is None else Files(data_dir), name, records_per_task)
        self._columns = (path_column, label_column)
        self._sep = sep

    def _list(self) -> list[tuple[str, int | str | None]]:
        try:
            text = self._list_file.fs.read_bytes(self._list_path).decode("utf-8-sig")
            rows = iter(list(csv.reader(io.StringIO(text, newline=""), delimiter=self._sep)))
        except (UnicodeDecodeError, csv.Error) as exc:
            raise errors.corrupt(self._name, f"no CSV file in UTF-8: {exc}", "create_shards") from None
        header = next(rows, []) if any(isinstance(column, str) for column in self._columns) else None
        path_at, label_at = (self._place(column, header) for column in self._columns)
        assert path_at is not None
        found: list[tuple[str, int | str | None]] = []
        for number, row in enumerate(rows, 1 if header is None else 2):
            if not row:
                continue  # a blank line
            if len(row) <= max(path_at, label_at or 0):
                raise errors.corrupt(self._name, f"row {number} has {len(row)} columns: {row}", "create_shards")
            found.append((keys.join(self._folder, row[path_at]), None if label_at is None else row[label_at]))
        return found

    def _place(self, column: int | str | None, header: list[str] | None) -> int | None:
        if isinstance(column, str):
            if column not in (header or []):
                raise ValueError(f"{self._name} has no column {column!r}; its first row has {header}")
            assert header is not None
            return header.index(column)
        return column

    @property
    def records_output_types(self) -> tuple[str, str, str]:
        """Bytes and two texts."""
        return "string", "string", "string"
