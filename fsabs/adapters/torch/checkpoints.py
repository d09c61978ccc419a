"""Checkpoints on any FS, as single files and by `CheckpointManager`, which keeps the newest and the best of them.

A checkpoint is one file, whole or not at all, and older ones are removed after it is visible: killing the program at
any moment leaves no fewer good checkpoints than there were.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from ...core import errors, process
from ...core.fs import FS
from ...core.remembering import RememberingFile, remembering
from ...core.threads import Flag
from ...core.writing import ClosesOnExit, durable
from ...paths import Path
from ...readers.locate import is_url
from .archives import CheckedArchive, check_archive, is_archive

logger = logging.getLogger(__name__)
_NAME = re.compile(r"checkpoint-(\d+)(?:\+(\d+))?(?:=([^/]+))?\.pt")


def save_checkpoint(obj: object, path: str | os.PathLike[str]) -> None:
    """Save an object as `torch.save` does, at a URL or `Path`, whole or not at all.

    On a local disk it is flushed before it takes the place of what was there.
    """
    with durable(Path(path).open("wb")) as file, remembering(RememberingFile(file)) as remembered:
        torch.save(obj, remembered)


def load_checkpoint(
    path: str | os.PathLike[str],
    map_location: Any = None,
    *,
    weights_only: bool = True,
    mmap: bool | None = None,
    verify: bool = True,
) -> Any:
    """Load what was saved, as `torch.load` does, and compare it with the checksums in the file.

    What is not as its checksum says is a `CorruptFileError`; any other failure is raised as it is.

    Args:
        path: the file.
        map_location: as of `torch.load`.
        weights_only: as of `torch.load`.
        mmap: map the file instead of reading it, for which a file that is not local is copied first; without it, local
            files are mapped and others are read.
        verify: False leaves the checksums alone. Then damage is found only where torch can't load the file.
    """
    return _loaded(Path(path), map_location, weights_only, mmap, verify)


def _loaded(where: Path, map_location: Any, weights_only: bool, mmap: bool | None, verify: bool) -> Any:
    try:
        return _read(where, map_location, weights_only, mmap, verify)
    except OSError:
        raise
    except Exception:  # of any kind: what is damaged may say anything
        check_archive(where)
        raise


def _read(where: Path, map_location: Any, weights_only: bool, mmap: bool | None, verify: bool) -> Any:
    try:
        local: str | None = os.fspath(where)
    except TypeError:
        local = None
    if local is not None and is_url(local):  # what a patch makes of it
        local = None
    if not mmap and (local is None or mmap is False):
        with where.open("rb") as file:
            given = CheckedArchive(file) if verify else RememberingFile(file)
            with remembering(given) as remembered:
                return torch.load(remembered, map_location, weights_only=weights_only)
    if local is None:
        with where.as_local() as copy_of_it:  # the map outlives the copy's name
            return _mapped(copy_of_it, map_location, weights_only, mmap, verify)
    try:
        return _mapped(local, map_location, weights_only, mmap, verify)
    except OSError as exc:
        raise errors.named(exc, "load", where.absolute().as_uri()) from None


def _mapped(local: str, map_location: Any, weights_only: bool, mmap: bool | None, verify: bool) -> Any:
    if verify:
        check_archive(Path(local), local)
    try:
        return torch.load(local, map_location, weights_only=weights_only, mmap=True)
    except RuntimeError as exc:
        if mmap is None and "mmap can only be used with files saved with" in str(exc):
            return torch.load(local, map_location, weights_only=weights_only)
        raise


class Checkpoint(NamedTuple):
    """A complete checkpoint in the store."""

    step: int
    metric: float | None
    path: Path
    generation: int = 0
    """How often the run had gone back to an earlier step, or saved one again, before this was saved."""


class CheckpointManager(ClosesOnExit):
    """The checkpoints in one directory of any FS: writes new ones, in the background too, and removes old ones.

    Args:
        location: a URL, a local path, a `Path`, or an FS, whose root is the directory.
        keep: how many of the newest are kept. Where a run goes back to an earlier step, its new checkpoints are newer
            than those after that step.
        keep_best: how many of the best by metric are kept beside them.
        mode: "min" if a lower metric is better, or "max".
    """

    def __init__(
        self, location: str | os.PathLike[str] | FS, *, keep: int = 3, keep_best: int = 0, mode: str = "min"
    ) -> None:
        if keep < 1 or keep_best < 0:
            raise ValueError(f"keep is at least 1 and keep_best at least 0, not {keep} and {keep_best}")
        if mode not in ("min", "max"):
            raise ValueError(f"mode is 'min' or 'max', not {mode!r}")
        self.directory = Path(fs=location) if isinstance(location, FS) else Path(location)
        self._keep = keep
        self._keep_best = keep_best
        self._sign = 1 if mode == "min" else -1
        self._writer = process.PerProcess(_BackgroundWriter)

    def save(self, step: int, state: object, metric: float | None = None) -> Path:
        """Write a checkpoint, and return its path when it is complete.

        What went wrong in the background before is raised then.
        """
        _check(step, metric)
        writer = self._writer.get()
        writer.join()
        path = self._write(step, state, metric)
        writer.raise_failure()
        return path

    def save_async(self, step: int, state: object, metric: float | None = None) -> None:
        """Copy `state` to host memory and write it in the background.

        The caller waits for the copy only. While one checkpoint is being written, at most one more waits for its turn:
        a newer one takes its place, which is logged. What goes wrong in the background is logged, and raised by the
        next call, which writes its own checkpoint all the same.
        """
        _check(step, metric)
        held, writer = on_host(state), self._writer.get()
        replaced = writer.put(step, lambda: self._write(step, held, metric))
        if replaced is not None:
            logger.warning(
                "the checkpoint of step %s is not written: that of step %s takes its place, since the one before it is "
                "still being written",
                replaced,
                step,
            )
        writer.raise_failure()

    def wait(self) -> None:
        """Wait until everything is written, and raise what went wrong."""
        self._writer.get().wait()

    def checkpoints(self) -> list[Checkpoint]:
        """Return the complete checkpoints in the order of the run: by steps, after those that it went back before."""
        found = []
        try:
            for path in self.directory.iterdir():
                if match := _NAME.fullmatch(path.name):
                    with contextlib.suppress(ValueError):  # a file of another's, such as checkpoint-1=best.pt
                        metric = None if match[3] is None else float(match[3])
                        found.append(Checkpoint(int(match[1]), metric, path, int(match[2] or 0)))
        except FileNotFoundError:
            return []
        return sorted(found, key=lambda each: (each.generation, each.step, each.path.name))

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint, or None."""
        return next(reversed(self.checkpoints()), None)

    def best(self) -> Checkpoint | None:
        """Return the checkpoint with the best metric, or None."""
        return next(iter(self._ranked(self.checkpoints())), None)

    def load(
        self, step: int | None = None, map_location: Any = None, *, weights_only: bool = True, verify: bool = True
    ) -> Any:
        """Load the checkpoint of `step`, or the newest one that is not damaged; None if there is none.

        A newest checkpoint that is damaged, which its checksums say, is logged and passed over; any other failure is
        raised. Where another process removes a checkpoint meanwhile, the directory is listed again. `verify=False` is
        that of `load_checkpoint`.
        """
        gone = set[Path]()
        while True:
            found = self._chosen(step)
            for checkpoint in reversed(found):
                try:
                    return _loaded_archive(checkpoint.path, map_location, weights_only, verify)
                except FileNotFoundError:
                    if checkpoint.path in gone:
                        raise
                    gone.add(checkpoint.path)
                    break
                except errors.CorruptFileError as exc:
                    if step is not None:
                        raise
                    logger.warning("skipping a damaged checkpoint: %s: %s", checkpoint.path, exc)
            else:
                if found:
                    raise errors.corrupt(f"{self.directory}", f"none of {len(found)} checkpoints can be read", "load")
                return None

    def _chosen(self, step: int | None) -> list[Checkpoint]:
        """Return all checkpoints, or the newest of a step."""
        found = self.checkpoints()
        if step is None:
            return found
        chosen = [each for each in found if each.step == step]
        if not chosen:
            raise errors.error(2, "load", f"{self.directory}", f"there is no checkpoint of step {step}")
        return chosen[-1:]

    def close(self) -> None:
        """Wait until everything is written."""
        self.wait()

    def _write(self, step: int, state: object, metric: float | None) -> Path:
        score = "" if metric is None else f"={float(metric)!r}"
        latest, generation = self.latest(), 0
        if latest is not None:
            generation = latest.generation + (step <= latest.step)
        path = self.directory / f"checkpoint-{step:012d}{f'+{generation}' if generation else ''}{score}.pt"
        if latest is None and self.directory.fs.capabilities.mkdir:
            self.directory.mkdir(parents=True, exist_ok=True)
        save_checkpoint(state, path)
        if latest is None:
            self.directory.make_durable()  # which may be new
        self._remove_old(step, generation, path)
        return path

    def _remove_old(self, step: int, generation: int, written: Path) -> None:
        everything = self.checkpoints()
        # Another process may have written this step, too: if each removed the other's, none would be left.
        found = [each for each in everything if each.step != step or each.generation >= generation]
        kept = {each.path for each in found[-self._keep :]} | {written}
        kept |= {each.path for each in self._ranked(found)[: self._keep_best]}
        for checkpoint in everything:
            if checkpoint.path not in kept:
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    checkpoint.path.unlink()

    def _ranked(self, found: list[Checkpoint]) -> list[Checkpoint]:
        scored = [each for each in found if each.metric is not None and not math.isnan(each.metric)]
        return sorted(scored, key=lambda each: (self._sign * (each.metric or 0.0), -each.step))


def _loaded_archive(path: Path, map_location: Any, weights_only: bool, verify: bool) -> Any:
    """Load a file that `save_checkpoint` has written; one that is no archive is damaged."""
    try:
        return _loaded(path, map_location, weights_only, None, verify)
    except OSError:
        raise
    except Exception as exc:
        if is_archive(path):
            raise
        raise errors.corrupt(path.as_uri(), f"not a file of torch.save: {exc}", "load") from None


def _check(step: int, metric: float | None) -> None:
    if step < 0 or (metric is not None and not isinstance(metric, (int, float))):
        raise ValueError(f"a step is not negative, and a metric is a number: {step!r}, {metric!r}")


class _BackgroundWriter:
    """A thread that writes one thing at a time, while at most one more waits.

    Python waits for it when it exits. Nothing here asks `threading` for its end: Python before 3.13 concludes from an
    interrupted `join` that the thread has ended, and exits under it, which a writer of C++ ends by an abort.
    """

    def __init__(self) -> None:
        self._lock = process.Lock()
        self._waiting: tuple[int, Callable[[], object]] | None = None
        self._ended: Flag | None = None  # of the thread that was started last
        self._failure: BaseException | None = None

    def put(self, step: int, write: Callable[[], object]) -> int | None:
        """Have `write` called; return the step that waited for its turn and is not written."""
        with self._lock:
            replaced, self._waiting = self._waiting, (step, write)
            if self._ended is None or self._ended.is_set():
                ended = Flag()
                threading.Thread(target=self._run, args=(ended,), name="fsabs-checkpoint").start()
                self._ended = ended
        return None if replaced is None else replaced[0]

    def _run(self, ended: Flag) -> None:
        while True:
            with self._lock:
                waiting, self._waiting = self._waiting, None
                if waiting is None:
                    ended.set()
                    return
            try:
                waiting[1]()
            except BaseException as exc:  # raised by the next call
                logger.error("the checkpoint of step %s could not be written: %s", waiting[0], exc)
                self._failure = exc

    def wait(self) -> None:
        """Wait until everything is written, and raise what went wrong."""
        self.join()
        self.raise_failure()

    def join(self) -> None:
        """Wait until nothing is left to write."""
        if self._ended is not None:
            self._ended.wait(math.inf)

    def raise_failure(self) -> None:
        """Raise what went wrong since the last call."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def on_host(state: Any) -> Any:
    """Return a deep copy of `state` with its tensors in host memory, which training may not change any more.

    What tensors share, they share in the copy: each storage is copied once, and as large as it is. Everything else is
    copied by its own rules: a `Counter`, a `defaultdict`, a dict with attributes stay what they are.
    """
    tensors = list(_tensors(state, set()))  # kept: a mapping may make them on access, and others would get their ids
    storages = _Storages()
    return copy.deepcopy(state, {id(tensor): _copied(tensor, storages) for tensor in tensors})


_Storages = dict[tuple[torch.device, int, int], torch.UntypedStorage]
"""The copies of storages, by the device, the address and the size of the original."""


def _copied(tensor: torch.Tensor, storages: _Storages) -> torch.Tensor:
    """Return a copy of a tensor in host memory, on the one copy of its storage."""
    detached = tensor.detach()
    plain = type(detached) is torch.Tensor and detached.layout == torch.strided and not detached.is_quantized
    if not plain or detached.is_nested or detached.is_meta or detached.is_conj() or detached.is_neg():
        return detached.to("cpu", copy=True)
    storage = detached.untyped_storage()
    key = storage.device, storage.data_ptr(), storage.nbytes()
    copied = storages.get(key)
    if copied is None:
        copied = storages[key] = torch.UntypedStorage(storage.nbytes())  # type: ignore[no-untyped-call]
        copied.copy_(storage)
    made = torch.empty(0, dtype=detached.dtype)
    return made.set_(copied, detached.storage_offset(), detached.size(), detached.stride())


def _tensors(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Yield the tensors in containers, and in the attributes of containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (Mapping, list, tuple, set, frozenset)) and id(value) not in seen:
        seen.add(id(value))
        members = itertools.chain(value.keys(), value.values()) if isinstance(value, Mapping) else iter(value)
        for member in itertools.chain(members, getattr(value, "__dict__", {}).values()):
            yield from _tensors(member, seen)
