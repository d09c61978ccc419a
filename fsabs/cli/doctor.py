"""`fsabs doctor`: checks of this machine and of a store; a `CheckFinding` is ok, a warning or a fault, with what to do.

A store's network, permissions and speed are checked, the last by reading one file. A check waits for some seconds for a
store that does not answer, and no longer.
"""

from __future__ import annotations

import errno
import io
import itertools
import multiprocessing
import os
import resource
import shutil
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ..core import process, redaction
from ..core.fs import FS, FileStat
from ..disk import folders
from ..disk.folders import cache_directory
from ..urls import config, locations, opening
from .explain import backend_of
from .output import coloured, error_text, size_text
from .paths import path_argument
from .program import FAILED, Invocation, command
from .progress import RequestLog

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
    at = folders.existing(folder)
    try:
        with tempfile.TemporaryFile(dir=at):
            pass
    except OSError as exc:
        yield fault("cache directory", f"{folder}: {exc.strerror}", "set FSABS_CACHE_DIR to another folder")
        return
    kind = folders.filesystem_of(at)
    remote = folders.is_network(kind)
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


T = TypeVar("T")

STEP_SECONDS = 5.0
"""Seconds that one step of a check of the network waits."""
CHECK_SECONDS = 10.0
"""Seconds after which a whole check is given up."""
_SKEW = 60.0  # seconds; stores refuse requests from 300 to 900 on
NO_LISTING = "not a page of a listing"
"""The text in the error of a listing where the response of a server is no listing."""
_SCRATCH = ".fsabs-doctor"
ROUND_TRIPS = 16
LARGE = 8 * 1024 * 1024
"""Bytes that are read at most to measure bandwidth."""
WORTH = 256 * 1024
"""Of fewer bytes, bandwidth is not measured."""
SLOW_ROUND_TRIP = 0.25
SLOW_BANDWIDTH = 2e6
"""Bytes a second."""
SECONDS = 20.0
"""Round trips are no longer measured after so many."""


class CheckFinding(NamedTuple):
    """The result of one check."""

    check: str
    status: Literal["ok", "warning", "fault"]
    detail: str
    advice: str = ""
    """How to mend a warning or a fault."""


def ok(check: str, detail: str) -> CheckFinding:
    """Return the finding of a check that passed."""
    return CheckFinding(check, "ok", detail)


def warning(check: str, detail: str, advice: str) -> CheckFinding:
    """Return the finding of a check that found something to look at."""
    return CheckFinding(check, "warning", detail, advice)


def fault(check: str, detail: str, advice: str) -> CheckFinding:
    """Return the finding of a check that found what does not work."""
    return CheckFinding(check, "fault", detail, advice)


def judged(check: str, fine: bool, detail: str, advice: str) -> CheckFinding:
    """Return the finding of a check that measured something: ok if it is fine, else a warning."""
    return ok(check, detail) if fine else warning(check, detail, advice)


def guarded(check: str, find: Callable[[], Iterator[CheckFinding]], advice: str) -> Iterator[CheckFinding]:
    """Yield what a check finds; an error that ends it is a fault."""
    try:
        yield from find()
    except (OSError, ValueError, ImportError) as exc:
        yield fault(check, error_text(exc), advice)


def within(function: Callable[..., T], *arguments: Any) -> T:
    """Return what a function returns; `TimeoutError` if it takes longer than a check may. Its thread is left behind."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(function(*arguments))
        except BaseException as exc:
            done.set_exception(exc)

    threading.Thread(target=run, daemon=True).start()
    try:
        return done.result(CHECK_SECONDS)
    except TimeoutError:
        if done.done():  # by its own
            raise
        raise TimeoutError(errno.ETIMEDOUT, f"no answer within {CHECK_SECONDS:.0f} s: the check was given up") from None


# ---- the network


class Address(NamedTuple):
    """The address of a store."""

    host: str
    port: int
    tls: bool
    verify: bool | str = True
    url: str = ""
    """A URL to ask for the time; empty where the store speaks no HTTP."""


def network(address: Address) -> Iterator[CheckFinding]:
    """Check DNS, TCP, TLS and the clock."""
    try:
        found = within(socket.getaddrinfo, address.host, address.port, 0, socket.SOCK_STREAM)
    except OSError as exc:
        advice = "check the spelling of the endpoint, /etc/resolv.conf, and the VPN"
        yield fault("dns", f"{address.host}: {exc.strerror or exc}", advice)
        return
    addresses = sorted({str(each[4][0]) for each in found})
    yield ok("dns", f"{address.host} is {', '.join(addresses[:4])}" + (", ..." if len(addresses) > 4 else ""))
    begin = time.monotonic()
    try:
        connection = socket.create_connection((address.host, address.port), STEP_SECONDS)
    except OSError as exc:
        advice = "check that the server runs, the port, firewalls, and proxies (HTTPS_PROXY, NO_PROXY)"
        yield fault("tcp", f"{address.host}:{address.port}: {exc.strerror or exc}", advice)
        return
    with connection:
        yield ok("tcp", f"{address.host}:{address.port} in {(time.monotonic() - begin) * 1e3:.1f} ms")
        if not address.tls:
            if address.url:
                yield warning("tls", "plain HTTP", "use https:// where the network is not yours alone")
        else:
            yield within(_tls, connection, address)
    if address.url:
        yield within(_clock, address)


def _context(address: Address) -> ssl.SSLContext:
    """Return how the certificates of a store are checked."""
    context = ssl.create_default_context(cafile=address.verify if isinstance(address.verify, str) else None)
    if address.verify is False:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _tls(connection: socket.socket, address: Address) -> CheckFinding:
    context = _context(address)
    try:
        with context.wrap_socket(connection, server_hostname=address.host) as wrapped:
            version, certificate = wrapped.version(), wrapped.getpeercert() or {}
    except ssl.SSLCertVerificationError as exc:
        advice = "set verify= to the file of the certificates that signed it"
        return fault("tls", exc.verify_message, advice)
    except OSError as exc:
        return fault("tls", str(exc), "check that the endpoint's scheme and port belong together")
    if address.verify is False:
        return warning("tls", f"{version}, certificates are not checked", "remove verify=False")
    days = (ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()) / 86400
    if days < 14:
        return warning("tls", f"{version}, the certificate ends in {days:.0f} days", "renew it")
    return ok("tls", f"{version}, the certificate is good for {days:.0f} days")


def _clock(address: Address) -> CheckFinding:
    import urllib.error
    import urllib.request

    context = _context(address)
    handler = urllib.request.HTTPSHandler(context=context)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), handler)
    request = urllib.request.Request(address.url, method="HEAD")
    begin = time.time()
    try:
        with opener.open(request, timeout=STEP_SECONDS) as response:
            date = response.headers.get("Date")
    except urllib.error.HTTPError as exc:  # a request without credentials is refused, with a date
        date = exc.headers.get("Date")
        exc.close()
    except OSError as exc:
        return warning("clock", f"the store did not tell its time: {exc}", "see tcp and tls")
    if not date:
        return warning("clock", "the store does not send its time", "compare the clocks by hand")
    skew = (begin + time.time()) / 2 - parsedate_to_datetime(date).timestamp() - 0.5
    if abs(skew) > _SKEW:
        advice = "set this machine's clock by NTP: signed requests are refused from some minutes on"
        return fault("clock", f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the store's", advice)
    return ok("clock", f"{abs(skew):.0f} s from the store's")


# ---- permissions


def permissions(fs: FS, store: FS) -> Iterator[CheckFinding]:
    """Check that a data set can be listed and read, and written in a scratch key, which is removed.

    `store` is the FS of the store that it is in.
    """
    name = ""
    try:
        name, listed = within(_first_file, fs)
        yield ok("list", listed)
    except OSError as exc:
        yield fault("list", _reason(exc), _advice(exc, store, "list"))
        if isinstance(exc, TimeoutError):  # the others would wait as long
            return
    if name:
        try:
            yield ok("read", f"{within(_read, fs, name, 1024)} bytes of {name}")
        except OSError as exc:
            yield fault("read", _reason(exc), _advice(exc, store, "read"))
    if not fs.capabilities.write:
        yield ok("write", "not checked: the FS is read-only")
        return
    scratch = f"{_SCRATCH}-{os.getpid()}-{time.time_ns():x}"
    try:
        within(fs.write_bytes, scratch, b"fsabs doctor")
    except OSError as exc:
        advice = _advice(exc, store, "write") + "; jobs that only read need no such permission"
        if isinstance(exc, TimeoutError):  # it may be written yet
            advice += f"; remove {scratch} if it comes"
        yield warning("write", _reason(exc), advice)
        return
    try:
        within(fs.remove, scratch)
        yield ok("write", f"a scratch file was written and removed ({scratch})")
    except OSError as exc:
        yield warning("write", f"{scratch} was written and not removed: {_reason(exc)}", "remove it by hand")


def _first_file(fs: FS) -> tuple[str, str]:
    """Return the name of a file, or an empty string, and what the listing has shown."""
    try:
        name = next((name for name in fs.list("", recursive=True) if not name.endswith("/")), "")
    except io.UnsupportedOperation as exc:
        there = fs.exists("")  # the store answers, or this raises
        return "", f"not checked: {_reason(exc)}; at the URL there is {'a file' if there else 'none'}"
    return name, f"found {name}" if name else "there are no files"


def _read(fs: FS, name: str, size: int) -> int:
    """Return how many bytes were read."""
    with fs.open_blob(name) as blob:
        return len(blob.pread(size, 0))


def _reason(exc: OSError) -> str:
    return " ".join((exc.strerror or str(exc)).split())


def _advice(exc: OSError, store: FS, operation: str) -> str:
    kind = type(store).__name__
    if NO_LISTING in str(exc):
        return f"the endpoint answers, but it is no {kind}: check `endpoint`"
    if isinstance(exc, FileNotFoundError):
        return "check the URL: bucket or directory, and prefix"
    if isinstance(exc, PermissionError):
        permission = store._notes.permissions.get(operation)
        named = f" (on {kind}: {permission})" if permission else ""
        return f"ask for the permission{named}, or for other credentials"
    return "see the checks above"


def address_of(facts: dict[str, str]) -> Address | None:
    """Return where a store that is so described is reached over HTTP; None for stores that are not."""
    url = facts.get("endpoint", "").partition(" (")[0]
    if not url.startswith(("http://", "https://")):
        return None
    parts = urlsplit(url)
    address = urlsplit(f"//{facts.get('address', '')}")
    host = address.hostname or parts.hostname or ""
    port = address.port or parts.port or (443 if parts.scheme == "https" else 80)
    shown = f"[{host}]" if ":" in host else host
    verify = facts.get("certificates") or "not checked" not in facts.get("tls", "")
    return Address(host, port, parts.scheme == "https", verify, f"{parts.scheme}://{shown}:{port}/")


def credentials(facts: dict[str, str]) -> Iterator[CheckFinding]:
    """Check that credentials were found; only their source is named."""
    source = facts.get("credentials")
    if source is None:
        return
    if source.startswith("none found"):
        yield fault("credentials", "none found", source.partition(": ")[2])
    else:
        yield ok("credentials", source)


def hadoop(facts: dict[str, Any]) -> Iterator[CheckFinding]:
    """Check the configuration of HDFS, and that its NameNodes are reached; the client needs no Java."""
    configuration = str(facts.get("configuration", ""))
    if configuration.startswith("none"):
        advice = "set HADOOP_CONF_DIR; a URL with host and port works without"
        yield warning("hadoop configuration", configuration, advice)
    elif not os.path.isfile(os.path.join(configuration, "core-site.xml")):
        advice = "point HADOOP_CONF_DIR at the folder of core-site.xml and hdfs-site.xml"
        yield warning("hadoop configuration", f"{configuration} has no core-site.xml", advice)
    else:
        yield ok("hadoop configuration", configuration)
    yield ok("java", "not needed: the client of HDFS is hdfs-native")
    for node in filter(None, str(facts.get("namenodes", "")).split(", ")):
        host, _, port = node.removeprefix("hdfs://").rpartition(":")
        for found in network(Address(host.strip("[]"), int(port), False)) if host else ():
            yield found._replace(check=f"{found.check} of NameNode")


# ---- speed


def speed(fs: FS) -> Iterator[CheckFinding]:
    """Measure a store by reads of its largest file, of the first thousand."""
    try:
        found = within(_largest, fs)
    except OSError:  # as the check of the listing has found
        return
    if found is None:
        return
    try:
        with RequestLog() as log:
            with RequestLog() as ends:
                within(_read_ends, fs, found)
            with RequestLog() as whole:
                size = within(_read, fs, found.filename, min(LARGE, found.size)) if found.size >= WORTH else 0
    except OSError as exc:
        yield fault("speed", f"can't be measured: {exc.strerror or exc}", "see the checks above")
        return
    trips = ends.milliseconds
    if not trips:
        return
    median = statistics.median(trips) / 1e3
    share = log.retries / max(1, log.requests)
    text = f"{log.retries} of {log.requests} requests were refused or failed ({share:.0%}), {log.held_back:.1f} s lost"
    advice = "the store throttles or fails: fewer requests, or another endpoint"
    yield judged("refusals", not log.retries, text if log.retries else f"none of {log.requests} requests", advice)
    text = f"median {median * 1e3:.3g} ms of {len(trips)} requests"
    advice = "use a store in this region or network; many requests in flight (read_many) hide it"
    yield judged("round trip", median <= SLOW_ROUND_TRIP, text, advice)
    text = f"{ends.connections} connections for {len(trips)} requests"
    advice = "the store or a proxy closes connections: each request pays a new one"
    yield judged("keep-alive", ends.connections <= 1 + len(trips) // 4 + log.retries, text, advice)
    if size:
        text = f"{size / whole.seconds / 1e6:.3g} MB/s, of {size:,} bytes"
        advice = "look at the network between this machine and the store"
        yield judged("bandwidth", size / whole.seconds >= SLOW_BANDWIDTH, text, advice)


def _largest(fs: FS) -> FileStat | None:
    stats = itertools.islice(fs.list("", recursive=True, detail=True), 1000)
    return max((stat for stat in stats if not stat.directory), key=lambda stat: stat.size, default=None)


def _read_ends(fs: FS, stat: FileStat) -> None:
    """Read single bytes of a file, one after another."""
    end = time.monotonic() + SECONDS
    with fs.open_blob(stat.filename) as blob:
        for number in range(ROUND_TRIPS):
            if time.monotonic() < end:
                blob.pread(1, number * max(0, stat.size - 1) // ROUND_TRIPS)
