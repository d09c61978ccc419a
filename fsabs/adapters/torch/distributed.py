"""Checkpoints of `torch.distributed.checkpoint` on any FS: `DistributedWriter` and `DistributedReader`."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import IO, Any, NamedTuple

import torch
from torch.distributed.checkpoint.filesystem import (
    DEFAULT_SUFFIX,
    FileSystemBase,
    FileSystemReader,
    FileSystemWriter,
    _StorageInfo,
)
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from ...core.remembering import RememberingFile, remembering
from ...core.threads import Threads
from ...paths import Path

SMALL_BYTES = 1024 * 1024
"""Size up to which an item is collected in memory; larger ones are streamed to their file."""
FILE_BYTES = 32 * 1024 * 1024
"""Size up to which items share a file."""


class _OfPaths:
    """The methods that torch requires of readers and writers of checkpoints at URLs and paths."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Return whether it may be a directory's URL or path."""
        return isinstance(checkpoint_id, (str, os.PathLike))


class _TorchFiles(_OfPaths, FileSystemBase):
    """The file operations of `torch.distributed.checkpoint`, done on paths of ours. It has no state."""

    def create_stream(self, path: Any, mode: str) -> Any:
        return Path(path).open(mode)

    def concat_path(self, path: Any, suffix: str) -> Path:
        return Path(path) / suffix

    def init_path(self, path: Any) -> Path:
        return Path(path)

    def rename(self, path: Any, new_path: Any) -> None:
        Path(path).replace(Path(new_path))

    def mkdir(self, path: Any) -> None:
        if Path(path).parent.fs.capabilities.mkdir:  # the directory itself need not be there
            Path(path).mkdir(parents=True, exist_ok=True)

    def exists(self, path: Any) -> bool:
        return Path(path).exists()

    def rm_file(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)

    def ls(self, path: Any) -> list[str]:
        return [str(member) for member in Path(path).iterdir()]


class _Group(NamedTuple):
    """The items of a plan that make one file."""

    name: str
    items: list[WriteItem]
    large: bool


class DistributedWriter(_OfPaths, FileSystemWriter):
    """Write a checkpoint of `torch.distributed.checkpoint` into a directory at a URL or `Path`.

    Tensors share files of some 32 MiB; files of small ones are written many at once, and large ones are streamed. Each
    file is whole or not at all, and `.metadata`, which makes the checkpoint complete, is the last: torch writes it only
    if all others were. It refuses a directory that holds a complete checkpoint: a new one goes into a new directory.

    Args:
        path: the directory; it need not exist.
        thread_count: how many large files are streamed at once, and how many small ones are written at once beside
            them.
    """

    def __init__(self, path: str | os.PathLike[str], *, thread_count: int = 4) -> None:
        super().__init__("unused", sync_files=False, overwrite=False, thread_count=thread_count)
        self.fs: Any = _TorchFiles()  # in place of those that torch has made for a local directory
        self.path = self.fs.init_path(path)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the tensors and objects of a plan; raise the first failure, after all other writes have ended."""
        directory, results = Path(self.path), list[WriteResult]()
        groups = _grouped(plan.items, plan.storage_data.prefix)
        with Threads[list[WriteResult]](self.thread_count, wait=True) as threads:
            waits = [threads.start(partial(_write_large, directory, group, planner)) for group in groups if group.large]
            small = (group for group in groups if not group.large)
            directory.write_many(_contents(small, planner, results), concurrency=self.thread_count)
            for wait in waits:
                results += wait()
        done: Future[list[WriteResult]] = Future()  # torch waits for one
        done.set_result(results)
        return done


def _grouped(items: list[WriteItem], prefix: str) -> list[_Group]:
    """Return the files of a plan: small items together, and large ones together, in their order."""
    groups: list[_Group] = []
    current: dict[bool, _Group] = {}
    sizes = {False: 0, True: 0}
    for item in items:
        size = _size_of(item)
        large = size > SMALL_BYTES
        if large not in current or sizes[large] + size > FILE_BYTES:
            current[large] = _Group(f"{prefix}{len(groups)}{DEFAULT_SUFFIX}", [], large)
            groups.append(current[large])
            sizes[large] = 0
        current[large].items.append(item)
        sizes[large] += size
    return groups


def _size_of(item: WriteItem) -> int:
    """Return the bytes of a tensor; 0 for an object, whose size is not known before it is pickled."""
    if item.tensor_data is None:
        return 0
    chunk = item.tensor_data.chunk.sizes
    return math.prod(chunk) * item.tensor_data.properties.dtype.itemsize


def _contents(
    groups: Iterable[_Group], planner: SavePlanner, results: list[WriteResult]
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file, made when it is asked for, and add its items to `results`."""
    for group in groups:
        stream = io.BytesIO()
        results += _write_items(stream, group, planner)
        yield group.name, stream.getvalue()


def _write_large(directory: Path, group: _Group, planner: SavePlanner) -> list[WriteResult]:
    with (directory / group.name).open("wb") as file, remembering(RememberingFile(file)) as stream:
        return _write_items(stream, group, planner)


def _write_items(stream: Any, group: _Group, planner: SavePlanner) -> list[WriteResult]:
    """Write the items of a file one after the other, each as `torch.save` does; return the place of each."""
    results = []
    for item in group.items:
        data, offset = planner.resolve_data(item), stream.tell()
        if isinstance(data, torch.Tensor):
            tensor = data.detach().cpu()
            if tensor.untyped_storage().nbytes() != tensor.nbytes:
                tensor = tensor.clone()  # a part of a larger tensor is saved without the rest
            torch.save(tensor, stream)
        else:
            stream.write(data.getbuffer())
        size = stream.tell() - offset
        results.append(WriteResult(item.index, size, _StorageInfo(group.name, offset, size)))
    return results


class DistributedReader(_OfPaths, FileSystemReader):
    """Read a checkpoint of `torch.distributed.checkpoint` from a directory at a URL or `Path`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__("unused")
        self.fs: Any = _TorchFiles()  # in place of those that torch has made for a local directory
        self.path = self.fs.init_path(path)

    def _slice_file(self, file: IO[bytes], sinfo: _StorageInfo) -> IO[bytes]:
        """Return the bytes of an item, read by one positioned read."""
        file.seek(sinfo.offset)
        return io.BytesIO(file.read(sinfo.length))
