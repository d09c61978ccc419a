"""Checkpoints of `torch.distributed.checkpoint` on any FS: `DistributedWriter` and `DistributedReader`."""

from __future__ import annotations

import io
import math
import os
import struct
from collections.abc import Iterable, Iterator
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import torch
from torch.distributed.checkpoint.filesystem import (
    DEFAULT_SUFFIX,
    FileSystemBase,
    FileSystemReader,
    FileSystemWriter,
    _StorageInfo,
)
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from ...containers.decoding import crc32
from ...core import errors
from ...core.remembering import RememberingFile, remembering
from ...core.threads import Threads
from ...core.writing import durable
from ...paths import Path

if TYPE_CHECKING:
    from typing_extensions import Buffer

SMALL_BYTES = 1024 * 1024
"""Size up to which an item is collected in memory; larger ones are streamed to their file."""
FILE_BYTES = 32 * 1024 * 1024
"""Size up to which items share a file."""

_METADATA = ".metadata"  # what the name of a file of metadata is, or ends in
_CHECKSUM = "fsabs_crc32"
"""The attribute of an item's place that has the checksum of its bytes."""
_TRAILER = struct.Struct(">8sIc")  # behind the metadata; its last byte is none that a pickle ends in
_TRAILER_MAGIC = b"fsabsCRC"


class _OfPaths:
    """The methods that torch requires of readers and writers of checkpoints at URLs and paths."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Return whether it may be a directory's URL or path."""
        return isinstance(checkpoint_id, (str, os.PathLike))


class _TorchFiles(_OfPaths, FileSystemBase):
    """The file operations of `torch.distributed.checkpoint`, done on paths of ours."""

    def __init__(self, verify: bool = True) -> None:
        self._verify = verify

    def create_stream(self, path: Any, mode: str) -> Any:
        if mode == "wb":
            return _Metadata(Path(path))
        if not Path(path).name.endswith(_METADATA):
            return Path(path).open(mode)
        content = Path(path).read_bytes()
        if self._verify:
            _check_metadata(Path(path), content)
        return io.BytesIO(content)

    def concat_path(self, path: Any, suffix: str) -> Path:
        return Path(path) / suffix

    def init_path(self, path: Any) -> Path:
        return Path(path)

    def rename(self, path: Any, new_path: Any) -> None:
        Path(path).replace(Path(new_path)).make_durable()

    def mkdir(self, path: Any) -> None:
        if Path(path).parent.fs.capabilities.mkdir:  # the directory itself need not be there
            Path(path).mkdir(parents=True, exist_ok=True)

    def exists(self, path: Any) -> bool:
        return Path(path).exists()

    def rm_file(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)

    def ls(self, path: Any) -> list[str]:
        return [str(member) for member in Path(path).iterdir()]


class _Metadata:
    """A file of metadata that is written, with its checksum behind the pickle, where torch does not read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content = io.BytesIO()

    def __enter__(self) -> IO[bytes]:
        return self._content

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            content = self._content.getvalue()
            with durable(self._path.open("wb")) as file:
                file.write(content + _TRAILER.pack(_TRAILER_MAGIC, crc32(content), b"\n"))


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
            for group in groups:
                if not group.large:
                    (directory / group.name).make_durable()
            directory.make_durable()  # which may be new
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
        content = io.BytesIO()
        results += _write_items(_Checksummed(content), group, planner)
        yield group.name, content.getvalue()


def _write_large(directory: Path, group: _Group, planner: SavePlanner) -> list[WriteResult]:
    with durable((directory / group.name).open("wb")) as file, remembering(_Checksummed(file)) as stream:
        return _write_items(stream, group, planner)


def _write_items(stream: _Checksummed, group: _Group, planner: SavePlanner) -> list[WriteResult]:
    """Write the items of a file one after the other, each as `torch.save` does; return the place of each."""
    results = []
    file: Any = stream
    for item in group.items:
        data, offset = planner.resolve_data(item), stream.tell()
        if isinstance(data, torch.Tensor):
            tensor = data.detach().cpu()
            if tensor.untyped_storage().nbytes() != tensor.nbytes:
                tensor = tensor.clone()  # a part of a larger tensor is saved without the rest
            torch.save(tensor, file)
        else:
            stream.write(data.getbuffer())
        size = stream.tell() - offset
        info = _StorageInfo(group.name, offset, size)
        setattr(info, _CHECKSUM, stream.take())  # which is pickled, and which torch does not look at
        results.append(WriteResult(item.index, size, info))
    return results


class _Checksummed(RememberingFile):
    """A file that is written, with the checksum of what was written last."""

    _crc = 0

    def write(self, data: Buffer, /) -> int:
        """Write all of `data`; return the number of its bytes."""
        self._crc = crc32(data, self._crc)
        return super().write(data)

    def take(self) -> int:
        """Return the checksum of what was written since the last call."""
        crc, self._crc = self._crc, 0
        return crc


class DistributedReader(_OfPaths, FileSystemReader):
    """Read a checkpoint of `torch.distributed.checkpoint` from a directory at a URL or `Path`.

    What `DistributedWriter` has written is compared with its checksums. Damage is a `CorruptFileError`, which torch
    raises in its `CheckpointException`, as any other failure.

    Args:
        path: the directory.
        verify: False leaves the checksums alone.
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = True) -> None:
        super().__init__("unused")
        self.fs: Any = _TorchFiles(verify)  # in place of those that torch has made for a local directory
        self.path = self.fs.init_path(path)
        self._verify = verify
        self._failure: Exception | None = None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # torch looks for this name
        """Return the metadata, compared with its checksum.

        torch drops what is raised, asks for the metadata of its rank, and drops what that raises.
        `set_up_storage_reader` raises it then.
        """
        try:
            found = super().read_metadata(*args, **kwargs)
        except Exception as exc:
            self._failure = self._failure or exc
            if "rank" not in kwargs:
                raise
            return Metadata({})
        self._failure = None
        return found

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Take over the metadata, or raise what kept it from being read."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        super().set_up_storage_reader(metadata, is_coordinator, *args, **kwargs)

    def _slice_file(self, file: IO[bytes], sinfo: _StorageInfo) -> IO[bytes]:
        """Return the bytes of an item, read by one positioned read."""
        file.seek(sinfo.offset)
        content = file.read(sinfo.length)
        crc = getattr(sinfo, _CHECKSUM, None)
        if self._verify and crc is not None and (len(content) != sinfo.length or crc32(content) != crc):
            reason = f"{sinfo.length} bytes from {sinfo.offset} on are not as their checksum says"
            raise errors.corrupt(file.name, reason, "load")
        return io.BytesIO(content)

    def check(self) -> None:
        """Read all of the checkpoint, and raise `CorruptFileError` if any of it isn't as its checksum says."""
        by_file: dict[str, list[_StorageInfo]] = {}
        for info in self.read_metadata().storage_data.values():
            by_file.setdefault(info.relative_path, []).append(info)
        for name, infos in by_file.items():
            with self.fs.create_stream(self.fs.concat_path(self.path, name), "rb") as file:
                for info in sorted(infos, key=lambda info: int(info.offset)):
                    self._slice_file(file, info)


def _check_metadata(path: Path, content: bytes) -> None:
    if content.endswith(b"."):  # the end of a pickle: torch has written it
        return
    pickled, trailer = content[: -_TRAILER.size], content[-_TRAILER.size :]
    if trailer != _TRAILER.pack(_TRAILER_MAGIC, crc32(pickled), b"\n"):
        raise errors.corrupt(path.absolute().as_uri(), "the metadata is not as its checksum says", "load")
