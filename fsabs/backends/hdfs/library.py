"""One copy of hdfs-native's extension for each process.

Its connections to DataNodes are kept in a table of the *process*, for three seconds, so that even a new client in a
forked child would send its requests through the parent's socket and leave the parent with the child's bytes. A child
therefore loads another copy, with a table of its own. The copy is a file in memory that the parent makes before it
forks: a child needs no writable directory, and its siblings map the same pages.

What the parent's copy has made is never freed in a child: the end of a client waits for threads, which a child hasn't
got. `process.PerProcess` sees to the clients that are in use. Others may still be in reference cycles (the traceback
of an error holds what its frames held), and only the garbage collector would free these: it leaves alone what a child
of a process that uses HDFS has inherited.
"""

from __future__ import annotations

import errno
import gc
import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

from ...core import errors, process

_NAME = "hdfs_native._internal"


class _MemoryFile(NamedTuple):
    """A file in memory with a copy of the extension, and what distinguishes its descriptor from a later one."""

    fd: int
    device: int
    inode: int

    def is_open(self) -> bool:
        """Return whether the descriptor is still this file: a daemon closes all that it has inherited."""
        try:
            stat = os.fstat(self.fd)
        except OSError:
            return False
        return (stat.st_dev, stat.st_ino) == (self.device, self.inode)


_loaded_in = -1  # the generation that has loaded the extension
_prepared: _MemoryFile | None = None  # for the children of that generation


def library() -> Any:
    """Return the extension of this process."""
    return _library.get()


def _load() -> Any:
    global _loaded_in
    try:
        import hdfs_native._internal as imported
    except ImportError as exc:
        raise errors.missing("hdfs-native", "hdfs", "reading HDFS without Hadoop") from exc
    found = imported if _imported_by == process.generation() else _load_copy(imported.__file__)
    _loaded_in = process.generation()
    return found


def _load_copy(path: str) -> Any:
    """Load the extension once more, from a file of its own, so that it has static variables of its own."""
    global _prepared
    inherited, _prepared = _prepared, None
    failures = []
    ways: list[Callable[[], Any]] = [lambda: _from_memory(path), lambda: _from_temporary_file(path)]
    if inherited is not None and inherited.is_open():
        ways.insert(0, lambda: _import(_path_of(inherited)))
    try:
        for load in ways:
            try:
                return load()
            except (OSError, ImportError) as exc:
                failures.append(str(exc))
    finally:
        if inherited is not None and inherited.is_open():
            os.close(inherited.fd)
    raise OSError(
        errno.ENOEXEC, f"a forked child can't load its own copy of hdfs-native ({path}): {'; '.join(failures)}"
    )


def _from_memory(path: str) -> Any:
    copy = _copy_to_memory(path)
    try:
        return _import(_path_of(copy))
    finally:
        os.close(copy.fd)


def _from_temporary_file(path: str) -> Any:
    """Load from a directory, where the system has no files in memory or `/proc` is not mounted."""
    fd, copy = tempfile.mkstemp(suffix=".so")
    try:
        with open(path, "rb") as source, open(fd, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        return _import(copy)
    finally:
        os.remove(copy)


def _copy_to_memory(path: str) -> _MemoryFile:
    if not hasattr(os, "memfd_create"):
        raise OSError(errno.ENOSYS, "this system has no files in memory")
    fd = os.memfd_create("fsabs-hdfs-native", os.MFD_CLOEXEC)
    try:
        with open(path, "rb") as source, open(fd, "wb", closefd=False) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        stat = os.fstat(fd)
    except BaseException:
        os.close(fd)
        raise
    return _MemoryFile(fd, stat.st_dev, stat.st_ino)


def _path_of(copy: _MemoryFile) -> str:
    """Return a path that no parent has loaded from: the dynamic loader takes the same path for the same library."""
    return f"/proc/{os.getpid()}/fd/{copy.fd}"


def _import(path: str) -> Any:
    loader = importlib.machinery.ExtensionFileLoader(_NAME, path)
    spec = importlib.util.spec_from_file_location(_NAME, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _before_fork() -> None:
    """Make the copy for the children of a process that uses HDFS; if that fails, each child tries by itself."""
    global _prepared
    if _loaded_in != process.generation() or (_prepared is not None and _prepared.is_open()):
        return
    try:
        _prepared = _copy_to_memory(sys.modules[_NAME].__file__ or "")
    except (OSError, KeyError):
        _prepared = None


_collecting: list[bool] = []  # whether the collector was on, of each fork that is under way


def _pause_collector() -> None:
    """Have nothing collected until the child has frozen what it inherits: the hooks of other modules come first."""
    _collecting.append(gc.isenabled())
    gc.disable()


def _resume_collector() -> None:
    if _collecting.pop():
        gc.enable()


def _freeze_inherited() -> None:
    if _loaded_in >= 0:
        gc.freeze()
    if any(_collecting):  # those of other threads, too, which this process has not got
        gc.enable()
    _collecting.clear()


os.register_at_fork(before=_before_fork)
os.register_at_fork(before=_pause_collector, after_in_parent=_resume_collector, after_in_child=_freeze_inherited)

_library: process.PerProcess[Any] = process.PerProcess(_load)
# The process whose extension is the one in sys.modules. If it is there before this module is, it may be inherited.
_imported_by = process.generation() if "hdfs_native" not in sys.modules or process.generation() == 0 else -1
