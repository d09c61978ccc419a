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
from .explain import LISTED, backend_of
from .output import coloured, error_text, size_text
from .paths import path_argument
from .program import FAILED, Invocation, command
from .progress import RequestLog

T = TypeVar("T")

STEP_SECONDS = 5.0
"""Seconds that one step of a check of the network waits."""
CHECK_SECONDS = 10.0
"""Seconds after which a whole check is given up."""
_SPEED_SECONDS = 20.0
"""Seconds after which round trips are no longer measured."""
_COLOURS = {"ok": "good", "warning": "warning", "fault": "error"}
# Limits of a warning. Stores refuse requests from a skew of 300 to 900 seconds on.
_FREE, _SHARED, _DESCRIPTORS = 10 * 1000**3, 1000**3, 4096
_SKEW, _ROUND_TRIP, _BANDWIDTH = 60.0, 0.25, 2e6
_READS = 16
_MEASURED = 256 * 1024, 8 * 1024 * 1024
"""Bytes: bandwidth is measured of a file of the first, by the second at most."""


class CheckFinding(NamedTuple):
    """The result of one check."""

    check: str
    status: Literal["ok", "warning", "fault"]
    detail: str
    advice: str = ""
    """How to mend a warning or a fault."""


class Address(NamedTuple):
    """The address of a store."""

    host: str
    port: int
    tls: bool
    verify: bool | str = True
    url: str = ""
    """A URL to ask for the time; empty where the store speaks no HTTP."""


@command(path_argument("url", "?"))
def doctor(invocation: Invocation, given: Namespace) -> int:
    """Check this machine and, given URL, its store: network, TLS, clock, credentials, permissions, speed.

    A scratch file is written at URL and removed. The exit code is 1 if there is a fault.

    Example: fsabs doctor s3://bucket/train
    """
    worst = 0
    for found in itertools.chain(of_machine(), of_url(given.url) if given.url is not None else ()):
        status = coloured(f"{found.status:<7}", _COLOURS[found.status], sys.stdout)
        text = f"{status}  {found.check}: {found.detail}" + (f"; {found.advice}" if found.advice else "")
        invocation.output.record(found._asdict(), text)
        worst = FAILED if found.status == "fault" else worst
    return worst


def of_machine() -> Iterator[CheckFinding]:
    """Yield the findings on this machine."""
    for check in (_configuration, _cache, _workers, _descriptors, _shared_memory):
        yield from check()


def of_url(url: str) -> Iterator[CheckFinding]:
    """Yield the findings on the store of a URL; an error that ends the checks is a fault."""
    try:
        with within(_outermost, url) as outermost:
            store = backend_of(outermost)
            facts = within(store._describe_store)
            yield from _credentials(facts)
            if store.scheme in ("hdfs", "viewfs"):
                yield from _hadoop(facts)
            elif (address := _address_of(facts)) is not None:
                yield from network(address)
        with within(opening.from_url, url) as fs:
            yield from permissions(fs, store)
            if store._notes.records_requests:
                yield from speed(fs)
    except (OSError, ValueError, ImportError) as exc:
        yield CheckFinding("url", "fault", error_text(exc), "`fsabs explain` shows how the URL resolves")


def _outermost(url: str) -> FS:
    """Return the FS of the store that a URL is in, without a request to it."""
    opener, location, options, _ = opening.find_backend(locations.parse(url)._replace(path="/"), {}, strict=False)
    return opener(location.authority, location.path, options)


def _judged(check: str, fine: bool, detail: str, advice: str) -> CheckFinding:
    return CheckFinding(check, "ok", detail) if fine else CheckFinding(check, "warning", detail, advice)


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
        if done.done():  # the function's own
            raise
        raise TimeoutError(errno.ETIMEDOUT, f"no answer within {CHECK_SECONDS:.0f} s: the check was given up") from None


def _configuration() -> Iterator[CheckFinding]:
    path = config.config_path()
    if not os.path.exists(path):
        yield CheckFinding("configuration", "ok", f"{path} is not there, and need not be")
        return
    try:
        problems = config.problems()
    except (OSError, ValueError) as exc:
        yield CheckFinding("configuration", "fault", str(exc), "make the file readable, in UTF-8")
        return
    advice = "mend the section; `fsabs config check` shows all that is wrong"
    yield from (CheckFinding("configuration", "fault", problem, advice) for problem in problems)
    if not problems:
        yield CheckFinding("configuration", "ok", f"{path}: {len(config.sections())} sections")
    written = (item for name in config.sections() for item in (config.get_custom_scheme(name) or {}).items())
    if os.stat(path).st_mode & 0o044 and any(redaction.HIDDEN in redaction.shown(*item) for item in written):
        detail = f"{path} may have secrets and is readable by others"
        yield CheckFinding("configuration", "warning", detail, f"chmod 600 {path}")


def _cache() -> Iterator[CheckFinding]:
    folder = cache_directory()
    if folder is None:
        advice = "set FSABS_CACHE_DIR to a local folder"
        yield CheckFinding("cache directory", "warning", "none: nothing is kept", advice)
        return
    at = folders.existing(folder)
    try:
        tempfile.TemporaryFile(dir=at).close()
    except OSError as exc:
        advice = "set FSABS_CACHE_DIR to another folder"
        yield CheckFinding("cache directory", "fault", f"{folder}: {exc.strerror}", advice)
        return
    kind = folders.filesystem_of(at)
    remote = folders.is_network(kind)
    text = f"{folder} is on a network ({kind})" if remote else f"{folder} ({kind or 'unknown filesystem'})"
    yield _judged("cache directory", not remote, text, "set FSABS_CACHE_DIR to a local disk")
    free = shutil.disk_usage(at).free
    advice = "free some, or set FSABS_CACHE_DIR elsewhere"
    yield _judged("cache space", free >= _FREE, f"{size_text(free)} free", advice)


def _workers() -> Iterator[CheckFinding]:
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_context().get_start_method()
    yield CheckFinding("workers", "ok", f"start method {method}, {process.cpu_count()} CPUs for this process")


def _descriptors() -> Iterator[CheckFinding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    text = "no limit" if soft == unlimited else f"{soft}"
    advice = f"raise the limit: ulimit -n {'unlimited' if hard == unlimited else min(65536, hard)}"
    yield _judged("file descriptors", soft == unlimited or soft >= _DESCRIPTORS, text, advice)


def _shared_memory() -> Iterator[CheckFinding]:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:
        yield CheckFinding("/dev/shm", "warning", "not there", "DataLoader workers need it: mount a tmpfs at /dev/shm")
        return
    text = f"{size_text(usage.free)} of {size_text(usage.total)} free"
    advice = "DataLoader workers pass batches there: docker run --shm-size=8g"
    yield _judged("/dev/shm", usage.free >= _SHARED, text, advice)


# ---- the network


def network(address: Address) -> Iterator[CheckFinding]:
    """Check DNS, TCP, TLS and the clock."""
    try:
        found = within(socket.getaddrinfo, address.host, address.port, 0, socket.SOCK_STREAM)
    except OSError as exc:
        advice = "check the spelling of the endpoint, /etc/resolv.conf, and the VPN"
        yield CheckFinding("dns", "fault", f"{address.host}: {exc.strerror or exc}", advice)
        return
    addresses = sorted({str(each[4][0]) for each in found})
    shown = ", ".join([*addresses[:4], *(["..."] if len(addresses) > 4 else [])])
    yield CheckFinding("dns", "ok", f"{address.host} is {shown}")
    begin = time.monotonic()
    try:
        connection = socket.create_connection((address.host, address.port), STEP_SECONDS)
    except OSError as exc:
        advice = "check that the server runs, the port, firewalls, and proxies (HTTPS_PROXY, NO_PROXY)"
        yield CheckFinding("tcp", "fault", f"{address.host}:{address.port}: {exc.strerror or exc}", advice)
        return
    with connection:
        milliseconds = (time.monotonic() - begin) * 1e3
        yield CheckFinding("tcp", "ok", f"{address.host}:{address.port} in {milliseconds:.1f} ms")
        if address.tls:
            yield within(_tls, connection, address)
        elif address.url:
            yield CheckFinding("tls", "warning", "plain HTTP", "use https:// where the network is not yours alone")
    if address.url:
        yield within(_clock, address)


def _context(address: Address) -> ssl.SSLContext:
    """Return the TLS context that checks the certificates of a store."""
    context = ssl.create_default_context(cafile=address.verify if isinstance(address.verify, str) else None)
    if address.verify is False:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _tls(connection: socket.socket, address: Address) -> CheckFinding:
    try:
        with _context(address).wrap_socket(connection, server_hostname=address.host) as wrapped:
            version, certificate = wrapped.version(), wrapped.getpeercert() or {}
    except ssl.SSLCertVerificationError as exc:
        advice = "set verify= to the file of the certificates that signed it"
        return CheckFinding("tls", "fault", exc.verify_message, advice)
    except OSError as exc:
        return CheckFinding("tls", "fault", str(exc), "check that the endpoint's scheme and port belong together")
    if address.verify is False:
        return CheckFinding("tls", "warning", f"{version}, certificates are not checked", "remove verify=False")
    days = (ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()) / 86400
    ends = "is good for" if days >= 14 else "ends in"
    return _judged("tls", days >= 14, f"{version}, the certificate {ends} {days:.0f} days", "renew it")


def _clock(address: Address) -> CheckFinding:
    import urllib.error
    import urllib.request

    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_context(address))
    request = urllib.request.Request(address.url, method="HEAD")
    begin = time.time()
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=STEP_SECONDS) as response:
            date = response.headers.get("Date")
    except urllib.error.HTTPError as exc:  # a request without credentials is refused, with a date
        date = exc.headers.get("Date")
        exc.close()
    except OSError as exc:
        return CheckFinding("clock", "warning", f"the store did not tell its time: {exc}", "see tcp and tls")
    if not date:
        return CheckFinding("clock", "warning", "the store does not send its time", "compare the clocks by hand")
    skew = (begin + time.time()) / 2 - parsedate_to_datetime(date).timestamp() - 0.5
    if abs(skew) <= _SKEW:
        return CheckFinding("clock", "ok", f"{abs(skew):.0f} s from the store's")
    advice = "set this machine's clock by NTP: signed requests are refused from some minutes on"
    detail = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the store's"
    return CheckFinding("clock", "fault", detail, advice)


def _address_of(facts: dict[str, str]) -> Address | None:
    """Return the HTTP address of a store by its description; None for other stores."""
    url = facts.get("endpoint", "").partition(" (")[0]
    if not url.startswith(("http://", "https://")):
        return None
    parts, address = urlsplit(url), urlsplit(f"//{facts.get('address', '')}")
    host = address.hostname or parts.hostname or ""
    port = address.port or parts.port or (443 if parts.scheme == "https" else 80)
    shown = f"[{host}]" if ":" in host else host
    verify = facts.get("certificates") or "not checked" not in facts.get("tls", "")
    return Address(host, port, parts.scheme == "https", verify, f"{parts.scheme}://{shown}:{port}/")


def _credentials(facts: dict[str, str]) -> Iterator[CheckFinding]:
    """Check that credentials were found; only their source is named."""
    source = facts.get("credentials", "")
    if source.startswith("none found"):
        yield CheckFinding("credentials", "fault", "none found", source.partition(": ")[2])
    elif source:
        yield CheckFinding("credentials", "ok", source)


def _hadoop(facts: dict[str, str]) -> Iterator[CheckFinding]:
    """Check the configuration of HDFS, and that its NameNodes are reached; the client needs no Java."""
    folder = facts.get("configuration", "")
    none = folder.startswith("none")
    there = not none and os.path.isfile(os.path.join(folder, "core-site.xml"))
    advice = "point HADOOP_CONF_DIR at the folder of core-site.xml and hdfs-site.xml"
    advice = "set HADOOP_CONF_DIR; a URL with host and port works without" if none else advice
    yield _judged("hadoop configuration", there, folder + ("" if there or none else " has no core-site.xml"), advice)
    yield CheckFinding("java", "ok", "not needed: the client of HDFS is hdfs-native")
    for node in filter(None, facts.get("namenodes", "").split(", ")):
        host, _, port = node.removeprefix("hdfs://").rpartition(":")
        for found in network(Address(host.strip("[]"), int(port), False)) if host else ():
            yield found._replace(check=f"{found.check} of NameNode")


# ---- permissions


def permissions(fs: FS, store: FS) -> Iterator[CheckFinding]:
    """Check that a data set can be listed and read, and written in a scratch key, which is removed.

    `store` is the FS of the store that it is in.
    """
    name = ""
    try:
        name, listed = within(_first_file, fs)
        yield CheckFinding("list", "ok", listed)
    except OSError as exc:
        yield CheckFinding("list", "fault", _reason(exc), _advice(exc, store, "list"))
        if isinstance(exc, TimeoutError):  # the others would wait as long
            return
    if name:
        try:
            yield CheckFinding("read", "ok", f"{within(_read, fs, name, 1024)} bytes of {name}")
        except OSError as exc:
            yield CheckFinding("read", "fault", _reason(exc), _advice(exc, store, "read"))
    if not fs.capabilities.write:
        yield CheckFinding("write", "ok", "not checked: the FS is read-only")
        return
    scratch = f".fsabs-doctor-{os.getpid()}-{time.time_ns():x}"
    try:
        within(fs.write_bytes, scratch, b"fsabs doctor")
    except OSError as exc:
        advice = _advice(exc, store, "write") + "; jobs that only read need no such permission"
        if isinstance(exc, TimeoutError):  # it may be written yet
            advice += f"; remove {scratch} if it comes"
        yield CheckFinding("write", "warning", _reason(exc), advice)
        return
    try:
        within(fs.remove, scratch)
        yield CheckFinding("write", "ok", f"a scratch file was written and removed ({scratch})")
    except OSError as exc:
        detail = f"{scratch} was written and not removed: {_reason(exc)}"
        yield CheckFinding("write", "warning", detail, "remove it by hand")


def _first_file(fs: FS) -> tuple[str, str]:
    """Return the name of a file, or an empty string, and the finding of the listing."""
    try:
        name = next((name for name in fs.list("", recursive=True) if not name.endswith("/")), "")
    except io.UnsupportedOperation as exc:
        there = fs.exists("")  # the store answers, or this raises
        return "", f"not checked: {_reason(exc)}; at the URL there is {'a file' if there else 'none'}"
    return name, f"found {name}" if name else "there are no files"


def _read(fs: FS, name: str, size: int) -> int:
    """Read up to `size` bytes; return their number."""
    with fs.open_blob(name) as blob:
        return len(blob.pread(size, 0))


def _reason(exc: OSError) -> str:
    return " ".join((exc.strerror or str(exc)).split())


def _advice(exc: OSError, store: FS, operation: str) -> str:
    kind = type(store).__name__
    if "not a page of a listing" in str(exc):
        return f"the endpoint answers, but it is no {kind}: check `endpoint`"
    if isinstance(exc, FileNotFoundError):
        return "check the URL: bucket or directory, and prefix"
    if isinstance(exc, PermissionError):
        permission = store._notes.permissions.get(operation)
        named = f" (on {kind}: {permission})" if permission else ""
        return f"ask for the permission{named}, or for other credentials"
    return "see the checks above"


# ---- speed


def speed(fs: FS) -> Iterator[CheckFinding]:
    """Measure a store by reads of its largest file, of the first thousand."""
    try:
        found = within(_largest, fs)
    except OSError:  # the check of the listing has found it
        return
    if found is None:
        return
    least, most = _MEASURED
    try:
        with RequestLog() as log:
            with RequestLog() as ends:
                within(_read_ends, fs, found)
            with RequestLog() as whole:
                size = within(_read, fs, found.filename, min(most, found.size)) if found.size >= least else 0
    except OSError as exc:
        yield CheckFinding("speed", "fault", f"can't be measured: {exc.strerror or exc}", "see the checks above")
        return
    if not (trips := ends.milliseconds):
        return
    text = f"none of {log.requests} requests"
    if log.retries:
        share = log.retries / max(1, log.requests)
        text = (
            f"{log.retries} of {log.requests} requests were refused or failed ({share:.0%}), {log.held_back:.1f} s lost"
        )
    advice = "the store throttles or fails: fewer requests, or another endpoint"
    yield _judged("refusals", not log.retries, text, advice)
    median = statistics.median(trips) / 1e3
    text = f"median {median * 1e3:.3g} ms of {len(trips)} requests"
    advice = "use a store in this region or network; many requests in flight (read_many) hide it"
    yield _judged("round trip", median <= _ROUND_TRIP, text, advice)
    text = f"{ends.connections} connections for {len(trips)} requests"
    advice = "the store or a proxy closes connections: each request pays a new one"
    yield _judged("keep-alive", ends.connections <= 1 + len(trips) // 4 + log.retries, text, advice)
    if size:
        text = f"{size / whole.seconds / 1e6:.3g} MB/s, of {size:,} bytes"
        advice = "look at the network between this machine and the store"
        yield _judged("bandwidth", size / whole.seconds >= _BANDWIDTH, text, advice)


def _largest(fs: FS) -> FileStat | None:
    stats = itertools.islice(fs.list("", recursive=True, detail=True), LISTED)
    return max((stat for stat in stats if not stat.directory), key=lambda stat: stat.size, default=None)


def _read_ends(fs: FS, stat: FileStat) -> None:
    """Read single bytes of a file, one after another."""
    end = time.monotonic() + _SPEED_SECONDS
    with fs.open_blob(stat.filename) as blob:
        for number in range(_READS):
            if time.monotonic() < end:
                blob.pread(1, number * max(0, stat.size - 1) // _READS)
