"""Checkpoints of `torch.distributed.checkpoint` on any FS."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemBase, FileSystemReader, FileSystemWriter

from ...paths import Path


class _Directory(FileSystemBase):
    """Files as `torch.distributed.checkpoint` asks for them."""

    @contextlib.contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        with Path(path).open(mode) as stream:
            yield stream

    def concat_path(self, path: Any, suffix: str) -> Path:
        return Path(path) / suffix

    def init_path(self, path: Any) -> Path:
        return Path(path)

    def rename(self, path: Any, new_path: Any) -> None:
        Path(path).replace(Path(new_path))

    def mkdir(self, path: Any) -> None:
        if Path(path).parent.fs.capabilities.mkdir:
            Path(path).mkdir(parents=True, exist_ok=True)

    def exists(self, path: Any) -> bool:
        return Path(path).exists()

    def rm_file(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)

    def ls(self, path: Any) -> list[str]:
        return [str(member) for member in Path(path).iterdir()]

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return isinstance(checkpoint_id, (str, os.PathLike))


class DistributedWriter(FileSystemWriter):
    """Write a checkpoint of `torch.distributed.checkpoint` into a directory at a URL or `Path`.

    Each file is whole or not at all, and `.metadata`, which makes the checkpoint complete, is the last. A directory
    that holds a complete checkpoint is refused: a new one goes into a new directory.
    """

    def __init__(self, path: str | os.PathLike[str], *, thread_count: int = 4) -> None:
        super().__init__("unused", sync_files=False, overwrite=False, thread_count=thread_count)
        self.fs: Any = _Directory()
        self.path = self.fs.init_path(path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Return whether it may be a directory's URL or path."""
        return _Directory.validate_checkpoint_id(checkpoint_id)


class DistributedReader(FileSystemReader):
    """Read a checkpoint of `torch.distributed.checkpoint` from a directory at a URL or `Path`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__("unused")
        self.fs: Any = _Directory()
        self.path = self.fs.init_path(path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Return whether it may be a directory's URL or path."""
        return _Directory.validate_checkpoint_id(checkpoint_id)
