"""hdfs-native as it is used here: one copy of its extension for each process, its calls in threads, and its errors.

Its connections to DataNodes are kept in a table of the *process*, for three seconds, so that even a new client in a
forked child would send its requests through the parent's socket and leave the parent with the child's bytes. A child
therefore loads another copy, with a table of its own. The copy is a file in memory that the parent makes before it
forks: a child needs no writable directory, and its siblings map the same pages.

What the parent's copy has made is never freed in a child: the end of a client waits for threads, which a child hasn't
got. `process.PerProcess` sees to the clients that are in use. Others may still be in reference cycles (the traceback
of an error holds what its frames held), and only the garbage collector would free these: it leaves alone what a child
of a process that uses HDFS has inherited.

Each call is made in a thread of its own, with a time limit, and none is under way when the interpreter ends:
hdfs-native waits for a silent NameNode for ever. A call whose time is over goes on in its thread, and its outcome is
dropped. What it raises becomes Python's own errors: one line, and whether asking again may help.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import errno
import functools
import gc
import importlib.machinery
import importlib.util
import os
import queue
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar

from ...core import errors, process
from ...core.threads import TaskOutcome

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


A = TypeVar("A")
T = TypeVar("T")


class _Calls:
    """The calls that are under way, which the end of the interpreter waits for.

    Python ends a thread that comes back from such a call later, and Rust does not let that pass: the process is
    aborted.
    """

    _MAX_WAIT = 10.0  # seconds; one that comes back in the very moment of the end is unlikely then

    def __init__(self) -> None:
        self._under_way: set[object] = set()  # changes in one step, without a lock
        self.ending = False
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._under_way.clear)

    def begin(self, call: object, for_main: bool = False) -> None:
        """Note a call before it begins; once the interpreter ends, only what the main thread asks for still does."""
        self._under_way.add(call)
        if self.ending and not for_main and threading.current_thread() is not threading.main_thread():
            self.done(call)
            queue.SimpleQueue[None]().get()  # for ever

    def done(self, call: object) -> None:
        """A call has ended, or is given up."""
        self._under_way.discard(call)

    def _end(self) -> None:
        self.ending = True
        end = time.monotonic() + self._MAX_WAIT
        while self._under_way and time.monotonic() < end:
            time.sleep(0.001)


_calls = _Calls()


class Pending(Generic[T]):
    """A call that is under way in a thread of its own, or will be."""

    __slots__ = ("_outcome", "_outcomes")

    def __init__(self) -> None:
        self._outcomes: queue.SimpleQueue[TaskOutcome[T]] = queue.SimpleQueue()
        self._outcome: TaskOutcome[T] | None = None

    def run(self, call: Callable[[], T]) -> Callable[[], None]:
        """Make the call, in the thread that it is for; return what hands its outcome to the thread that waits."""
        outcome = TaskOutcome(call)
        _calls.done(self._outcomes)
        return functools.partial(self._outcomes.put, outcome)

    def begin(self, for_main: bool = False) -> None:
        """Note that the call begins."""
        _calls.begin(self._outcomes, for_main)

    def wait(self, seconds: float) -> bool:
        """Return whether the call has ended, after `seconds` at the latest."""
        if self._outcome is None:
            try:
                self._outcome = self._outcomes.get(timeout=max(0.0, seconds))
            except queue.Empty:
                return False
            self._outcomes.put(self._outcome)  # for another thread that waits
        return True

    def result(self) -> T:
        """Return what the call that has ended has returned, or raise what it has raised."""
        assert self._outcome is not None
        return self._outcome.result()

    def abandon(self) -> None:
        """Leave the call alone: its outcome is dropped, and the end of the interpreter does not wait for it."""
        _calls.done(self._outcomes)


class _CallThread(threading.Thread):
    """A thread that makes calls for others, one at a time, and is idle in between."""

    def __init__(self, idle: deque[_CallThread]) -> None:
        super().__init__(daemon=True, name="fsabs-hdfs")
        self._idle = idle
        self.calls: queue.SimpleQueue[tuple[Pending[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        """Make the calls, for ever."""
        while True:
            pending, call = self.calls.get()
            report = pending.run(call)
            self._idle.append(self)
            report()
            del pending, call, report  # what they hold must not wait for the next call


# The threads of this process that have nothing to do; a forked child has none of its parent's.
_idle: process.PerProcess[deque[_CallThread]] = process.PerProcess(deque)


def begin(function: Callable[..., T], *arguments: Any) -> Pending[T]:
    """Begin `function(*arguments)` in a thread."""
    idle, pending = _idle.get(), Pending[T]()
    try:
        thread = idle.pop()
    except IndexError:
        thread = _CallThread(idle)
    pending.begin()
    thread.calls.put((pending, functools.partial(function, *arguments) if arguments else function))
    return pending


def no_answer(what: str, seconds: float) -> TimeoutError:
    """Return the error of a call whose time is over."""
    return TimeoutError(errno.ETIMEDOUT, f"no answer to {what} within {seconds:.3g} s")


def each(function: Callable[[A], T], items: Sequence[A], width: int) -> Generator[Pending[T], None, None]:
    """Yield the call of `function` with each of `items`, in order; `width` calls are under way at once.

    As many more outcomes may wait to be taken: a thread goes on to the next item by itself, which costs less than to
    be given one at a time.
    """
    todo: queue.SimpleQueue[tuple[Pending[T], A] | None] = queue.SimpleQueue()
    pending: deque[Pending[T]] = deque()
    threads = min(width, len(items))
    try:
        for _ in range(threads):
            begin(_work, todo, function).abandon()  # it waits, and notes its calls itself
        for item in items:
            pending.append(Pending())
            todo.put((pending[-1], item))
            if len(pending) >= 2 * width:
                yield pending.popleft()
        for _ in range(threads):
            todo.put(None)  # which ends a thread
        while pending:
            yield pending.popleft()
    finally:
        with contextlib.suppress(queue.Empty):  # what is not begun is dropped
            while True:
                todo.get_nowait()
        for _ in range(threads):
            todo.put(None)


def _work(todo: queue.SimpleQueue[tuple[Pending[T], A] | None], function: Callable[[A], T]) -> None:
    """Make the calls of one `each`, until there are no more."""
    for_main = _calls.ending
    while (task := todo.get()) is not None:
        pending, item = task
        pending.begin(for_main)
        pending.run(functools.partial(function, item))()
        del pending, item, task


class Verdict(enum.Enum):
    """The meaning of an error for the request that it ended."""

    FINAL = "final"
    """The NameNode has refused it: asking again gives the same."""
    NOT_EXECUTED = "not executed"
    """No NameNode has taken it: a standby, safe mode, no connection."""
    UNKNOWN = "unknown"
    """The connection broke, or no response came: it may have been executed."""


RECOVER_LEASE = "if its writer is gone, recover_lease(path) of hdfs_native.Client closes the file"
"""What helps against a file that another client writes."""

# What an error says, and its errno. The library's own types come first: they may be a path alone.
_ERRNO = [
    (r"^FileNotFoundError: Path is not a file|^IsADirectoryError: ", errno.EISDIR),
    (r"^FileNotFoundError: ", errno.ENOENT),
    (r"^FileExistsError: .*already exists as a directory\.?$", errno.EISDIR),
    (r"^FileExistsError: Path is not a directory", errno.ENOTDIR),
    (r"^FileExistsError: [Ff]ailed to ", errno.EBUSY),
    (r"^FileExistsError: ", errno.EEXIST),
    (r"StandbyException|ObserverRetryOnActive", errno.EHOSTDOWN),
    (r"SafeModeException|in safe mode", errno.EROFS),
    (r"RetriableException|RpcServerException: .*too busy|server too busy", errno.EBUSY),
    (r"File does not exist", errno.ENOENT),
    (r"LeaseExpired|No lease on", errno.EBUSY),
    (r"AccessControlException|Permission denied|AuthorizationException", errno.EACCES),
    (r"Kerberos: |SASLError|SaslException|GSSException|NoSASLMechanism|InvalidToken", errno.EACCES),
    (r"PathIsNotEmptyDirectory|directory is not empty", errno.ENOTEMPTY),
    (r"ParentNotDirectory|is not a directory|must both be directories", errno.ENOTDIR),
    (r"TooLong", errno.ENAMETOOLONG),
    (r"InvalidPath|IllegalArgument|InvalidArgument|UrlParse|cannot be the root|under source", errno.EINVAL),
    (r"^No viewfs fallback mount|^No NameNode hosts|^Only hdfs mounts", errno.EINVAL),
    (r"^Unicode\w+: |^OverflowError: ", errno.EINVAL),
    (r"across different name services", errno.EXDEV),
    (r"QuotaExceeded", errno.EDQUOT),
    (r"^NotImplementedError: |encryption zone|UnknownCryptoProtocolVersion|UnsupportedFeature", errno.EOPNOTSUPP),
    (r"Connection refused", errno.ECONNREFUSED),
    (r"lookup address|No route to host|Network is unreachable", errno.EHOSTUNREACH),
    (r"RPC listener disconnected|Connection reset|Broken pipe|early eof|unexpected end of file", errno.ECONNRESET),
    (r"No data received|[Tt]imed out|deadline", errno.ETIMEDOUT),
    (r"lease|AlreadyBeingCreated|RecoveryInProgress", errno.EBUSY),
]
# What is added to a message that begins so.
_ADVICE = [
    (r"Failed to |failed to create|\w+: [Ff]ailed to |RecoveryInProgress", f"; {RECOVER_LEASE}"),
    (r"no DataNode could serve", ": it is silent or off, has lost it, or its bytes don't match their checksums"),
    (r"No viewfs fallback mount", ": the mount table needs a linkFallback"),
    (r"No NameNode hosts", ": a link leads to host:port, or to a nameservice that has dfs.ha.namenodes"),
    (r"All nodes failed for write", "; what is without checksums (dfs.checksum.type NULL) can't be appended to"),
]
_NOT_EXECUTED = {errno.EHOSTDOWN, errno.EROFS, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH}
_NO_CONNECTION, _NO_CALL = "no connection to", "no call to"
_RETRIABLE = re.compile(
    rf"RetriableException|RpcServerException: .*too busy|server too busy|{_NO_CONNECTION}|{_NO_CALL}"
)
_UNKNOWN = {errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT}
_STACK = re.compile(r"(?:\\+n|\n)\s*(?:\\+t|\t|\s)*at [\w.$]+\(|\\+n\\+tat |\n\tat ")
_JAVA = re.compile(r'(?:Fatal)?RPCError\("[\w.]*\.([\w$]+)", "(.*)', re.DOTALL)
_GSSAPI = re.compile(r'GSSAPIError\(.*?, \d+, "(.*)', re.DOTALL)
_NODE = re.compile(r'ip_addr: \\*"([^"\\]*).*?xfer_port: (\d+)', re.DOTALL)
_VARIANT = re.compile(
    r'(?:OperationFailed|InvalidArgument|InvalidPath|UnsupportedFeature|DataTransferError)\("(.*)"\)', re.DOTALL
)
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_QUOTED = re.compile(r'\\+(["\'\\])')
_PATH = re.compile(r"/[^\s:,;]*")


def not_connected(node: str, seconds: float) -> TimeoutError:
    """Return the error of a host that does not answer: the request was not sent."""
    return TimeoutError(errno.ETIMEDOUT, f"{_NO_CONNECTION} {node} within {seconds:g} s")


def not_asked(node: str, seconds: float) -> TimeoutError:
    """Return the error of a node that was not sent a request, since it has not answered an earlier one."""
    return TimeoutError(
        errno.ETIMEDOUT, f"{_NO_CALL} {node} within {seconds:.3g} s: it has not answered the one before"
    )


def verdict(exc: OSError) -> Verdict:
    """Return what `exc`, raised by `translated`, says of its request."""
    if exc.errno in _NOT_EXECUTED or _RETRIABLE.match(exc.strerror or ""):
        return Verdict.NOT_EXECUTED
    return Verdict.UNKNOWN if exc.errno in _UNKNOWN else Verdict.FINAL


class Translated:
    """A context that turns what hdfs-native raises into Python's own errors; one serves any number of calls."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, trace: TracebackType | None) -> None:
        if exc is not None and (found := _translation(exc)) is not None:
            try:
                raise found from exc
            finally:
                del found  # it refers to this frame, and this frame to it


translated = Translated()


def _translation(exc: BaseException) -> OSError | None:
    """Return what to raise in place of `exc`, None to let it pass."""
    name = type(exc).__name__  # Rust's panics are no Exception, and must not pass
    if isinstance(exc, socket.gaierror):
        return OSError(errno.EHOSTUNREACH, f"the host's name can't be resolved: {exc.strerror}")
    if name == "PanicException":
        return OSError(errno.EIO, one_line(f"hdfs-native failed: {exc}"))
    if isinstance(exc, OSError) and exc.errno is not None:
        return None
    found = isinstance(exc, OSError | RuntimeError | UnicodeError | OverflowError | NotImplementedError)
    return _error(exc) if found else None


def one_line(text: str) -> str:
    """Return a message of hdfs-native without Java's stack, dumps of structures and escapes."""
    text = _STACK.split(text, maxsplit=1)[0].strip()
    if java := _JAVA.match(text):
        text = f"{java[1]}: {java[2]}"
    elif gssapi := _GSSAPI.match(text):
        text = f"Kerberos: {gssapi[1]}"
    elif variant := _VARIANT.fullmatch(text):
        text = variant[1]
    if "All DataNodes failed" in text:
        nodes = ", ".join(f"{host}:{port}" for host, port in _NODE.findall(text))
        text = f"no DataNode could serve the block (tried: {nodes or 'none, it has no location'})"
    text = re.sub(r"(?:\\+[nrt]|\s)+", " ", text)
    return _QUOTED.sub(r"\1", text).strip().removesuffix('")').strip()


def _error(exc: BaseException) -> OSError:
    text, kind = one_line(str(exc)), type(exc).__name__
    says = f"{kind}: {text}" if type(exc) not in (OSError, RuntimeError) else _PATH.sub("", text)
    code = next((code for pattern, code in _ERRNO if re.search(pattern, says)), errno.EIO)
    if code == errno.EIO and (system := _OS_ERROR.search(says)):
        return errors.of_client(OSError(int(system[1]), text))
    if code in (errno.ENOENT, errno.EEXIST):
        return OSError(code, os.strerror(code))
    if code == errno.ECONNRESET and (user := os.environ.get("HADOOP_PROXY_USER")):
        text += f"; a NameNode that doesn't let this principal act for {user!r} ends the connection so"
    return OSError(code, text + "".join(advice for pattern, advice in _ADVICE if re.match(pattern, text)))
