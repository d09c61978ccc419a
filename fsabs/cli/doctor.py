"""`fsabs doctor`: checks of this machine and of a store, each ok, a warning or a fault, with what to do."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator

from ..core import process, redaction
from ..core.fs import FS
from ..disk import mounts
from ..disk.folders import cache_directory
from ..urls import config, locations, opening
from .checking import (
    CheckFinding,
    address_of,
    credentials,
    fault,
    guarded,
    hadoop,
    judged,
    network,
    ok,
    permissions,
    speed,
    warning,
    within,
)
from .explain import backend_of
from .output import coloured, size_text
from .paths import path_argument
from .program import FAILED, Invocation, command

_COLOURS = {"ok": "good", "warning": "warning", "fault": "error"}
_FREE = 10 * 1000**3
_DESCRIPTORS = 4096
_SHARED = 1000**3


@command(path_argument("url", "?"))
def doctor(invocation: Invocation, given: Namespace) -> int:
    """Check this machine and, given URL, its store: network, TLS, clock, credentials, permissions, speed.

    A scratch file is written at URL and removed. The exit code is 1 if there is a fault.

    Example: fsabs doctor s3://bucket/train
    """
    output = invocation.output
    worst = 0
    url, advice = given.url, "`fsabs explain` shows how the URL resolves"
    of_store = guarded("url", lambda: _of_url(url), advice) if url is not None else ()
    for found in itertools.chain(of_machine(), of_store):
        text = f"{found.status:<7}  {found.check}: {found.detail}" + (f"; {found.advice}" if found.advice else "")
        status = coloured(text[:7], _COLOURS[found.status], sys.stdout)
        output.record(found._asdict(), status + text[7:])
        worst = FAILED if found.status == "fault" else worst
    return worst


def of_machine() -> Iterator[CheckFinding]:
    """Yield what is found on this machine."""
    for check in (_configuration, _cache, _workers, _descriptors, _shared_memory):
        yield from check()


def _of_url(url: str) -> Iterator[CheckFinding]:
    with within(_outermost, url) as store:
        bottom = backend_of(store)
        facts = within(bottom._describe_store)
        yield from credentials(facts)
        if bottom.scheme in ("hdfs", "viewfs"):
            yield from hadoop(facts)
        elif (address := address_of(facts)) is not None:
            yield from network(address)
    with within(opening.from_url, url) as fs:
        yield from permissions(fs, bottom)
        if bottom._notes.records_requests:
            yield from speed(fs)


def _outermost(url: str) -> FS:
    """Return the FS of the store that a URL is in, of which nothing is asked."""
    opener, location, options, _ = opening.find_backend(locations.parse(url)._replace(path="/"), {}, strict=False)
    return opener(location.authority, location.path, options)


def _configuration() -> Iterator[CheckFinding]:
    path = config.config_path()
    if not os.path.exists(path):
        yield ok("configuration", f"{path} is not there, and need not be")
        return
    try:
        problems = config.problems()
    except (OSError, ValueError) as exc:
        yield fault("configuration", str(exc), "make the file readable, in UTF-8")
        return
    for problem in problems:
        yield fault("configuration", problem, "mend the section; `fsabs config check` shows all that is wrong")
    if not problems:
        yield ok("configuration", f"{path}: {len(config.sections())} sections")
    mode = os.stat(path).st_mode
    if mode & 0o044 and any(redaction.HIDDEN in redaction.shown(key, value) for key, value in _written()):
        yield warning("configuration", f"{path} may have secrets and is readable by others", f"chmod 600 {path}")


def _written() -> Iterator[tuple[str, object]]:
    return (item for name in config.sections() for item in (config.get_custom_scheme(name) or {}).items())


def _cache() -> Iterator[CheckFinding]:
    folder = cache_directory()
    if folder is None:
        yield warning("cache directory", "none: nothing is kept", "set FSABS_CACHE_DIR to a local folder")
        return
    at = str(folder)
    while not os.path.isdir(at):
        at = os.path.dirname(at)
    try:
        with tempfile.TemporaryFile(dir=at):
            pass
    except OSError as exc:
        yield fault("cache directory", f"{folder}: {exc.strerror}", "set FSABS_CACHE_DIR to another folder")
        return
    kind = mounts.filesystem_of(at)
    remote = mounts.is_network(kind)
    text = f"{folder} is on a network ({kind})" if remote else f"{folder} ({kind or 'unknown filesystem'})"
    yield judged("cache directory", not remote, text, "set FSABS_CACHE_DIR to a local disk")
    free = shutil.disk_usage(at).free
    advice = "free some, or set FSABS_CACHE_DIR elsewhere"
    yield judged("cache space", free >= _FREE, f"{size_text(free)} free", advice)


def _workers() -> Iterator[CheckFinding]:
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_context().get_start_method()
    cpus = process.cpu_count()
    yield ok("workers", f"start method {method}, {cpus} CPUs for this process")


def _descriptors() -> Iterator[CheckFinding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = "no limit" if soft == resource.RLIM_INFINITY else f"{soft}"
    most = "unlimited" if hard == resource.RLIM_INFINITY else min(65536, hard)
    fine = soft == resource.RLIM_INFINITY or soft >= _DESCRIPTORS
    yield judged("file descriptors", fine, text, f"raise the limit: ulimit -n {most}")


def _shared_memory() -> Iterator[CheckFinding]:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:
        yield warning("/dev/shm", "not there", "DataLoader workers need it: mount a tmpfs at /dev/shm")
        return
    text = f"{size_text(usage.free)} of {size_text(usage.total)} free"
    advice = "DataLoader workers pass batches there: docker run --shm-size=8g"
    yield judged("/dev/shm", usage.free >= _SHARED, text, advice)
