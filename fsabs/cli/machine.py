"""The checks of `fsabs doctor` that are about this machine: cache directory, workers, descriptors, shared memory."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator

from ..core import process, redaction
from ..disk import mounts
from ..disk.folders import cache_directory
from ..urls import config
from .checking import CheckFinding, ok
from .output import size_text

_FREE = 10 * 1000**3
_DESCRIPTORS = 4096
_SHARED = 1000**3


def findings() -> Iterator[CheckFinding]:
    """Yield what is found on this machine."""
    yield from _configuration()
    yield from _cache()
    yield from _workers()
    yield from _descriptors()
    yield from _shared_memory()


def _configuration() -> Iterator[CheckFinding]:
    path = config.config_path()
    if not os.path.exists(path):
        yield ok("configuration", f"{path} is not there, and need not be")
        return
    try:
        problems = config.problems()
    except (OSError, ValueError) as exc:
        yield CheckFinding("configuration", "fault", str(exc), "make the file readable, in UTF-8")
        return
    for problem in problems:
        yield CheckFinding(
            "configuration", "fault", problem, "mend the section; `fsabs config check` shows all that is wrong"
        )
    if not problems:
        yield ok("configuration", f"{path}: {len(config.sections())} sections")
    mode = os.stat(path).st_mode
    if mode & 0o044 and any(redaction.HIDDEN in redaction.shown(key, value) for key, value in _written()):
        yield CheckFinding(
            "configuration", "warning", f"{path} may have secrets and is readable by others", f"chmod 600 {path}"
        )


def _written() -> Iterator[tuple[str, object]]:
    return (item for name in config.sections() for item in (config.get_custom_scheme(name) or {}).items())


def _cache() -> Iterator[CheckFinding]:
    folder = cache_directory()
    if folder is None:
        yield CheckFinding(
            "cache directory", "warning", "none: nothing is kept", "set FSABS_CACHE_DIR to a local folder"
        )
        return
    at = str(folder)
    while not os.path.isdir(at):
        at = os.path.dirname(at)
    try:
        with tempfile.TemporaryFile(dir=at):
            pass
    except OSError as exc:
        yield CheckFinding(
            "cache directory", "fault", f"{folder}: {exc.strerror}", "set FSABS_CACHE_DIR to another folder"
        )
        return
    kind = mounts.filesystem_of(at)
    if mounts.is_network(kind):
        yield CheckFinding(
            "cache directory", "warning", f"{folder} is on a network ({kind})", "set FSABS_CACHE_DIR to a local disk"
        )
    else:
        yield ok("cache directory", f"{folder} ({kind or 'unknown filesystem'})")
    free = shutil.disk_usage(at).free
    if free < _FREE:
        yield CheckFinding(
            "cache space", "warning", f"{size_text(free)} free", "free some, or set FSABS_CACHE_DIR elsewhere"
        )
    else:
        yield ok("cache space", f"{size_text(free)} free")


def _workers() -> Iterator[CheckFinding]:
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_context().get_start_method()
    cpus = process.cpu_count()
    yield ok("workers", f"start method {method}, {cpus} CPUs for this process")


def _descriptors() -> Iterator[CheckFinding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = "no limit" if soft == resource.RLIM_INFINITY else f"{soft}"
    if soft != resource.RLIM_INFINITY and soft < _DESCRIPTORS:
        most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        yield CheckFinding(
            "file descriptors", "warning", text, f"raise the limit: ulimit -n {min(65536, hard) if hard > 0 else most}"
        )
    else:
        yield ok("file descriptors", text)


def _shared_memory() -> Iterator[CheckFinding]:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:
        yield CheckFinding("/dev/shm", "warning", "not there", "DataLoader workers need it: mount a tmpfs at /dev/shm")
        return
    text = f"{size_text(usage.free)} of {size_text(usage.total)} free"
    if usage.free < _SHARED:
        yield CheckFinding(
            "/dev/shm", "warning", text, "DataLoader workers pass batches there: docker run --shm-size=8g"
        )
    else:
        yield ok("/dev/shm", text)
