"""The client of a nameservice: which NameNode is active, attempts within a deadline, and whether a DataNode was silent.

An operation has a deadline, and each attempt at it a share of that. A NameNode that can't be reached, that is a standby
or in safe mode has not executed a call, and the next one is tried, with a backoff once all have been. Where no response
comes, the other NameNodes are asked whether they are active meanwhile; a slow one is waited for. The active one is
remembered for the process and its children.

Each NameNode has clients of its own in the library, which would wait for one that is silent, and behind it, for ever;
such clients are left alone, and replaced. Each costs threads and descriptors: once a second call has not been answered
either, the next ones wait for that one. A connection may be lost without a sign: after a minute, and then after twice
as long each time, a call is made all the same.

The library chooses the DataNodes, and waits for each of them as long as its client is configured to. Once one was
silent, a client with a shorter time limit is used for a minute: a file whose other replicas are served does not wait
again.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import methodcaller
from stat import S_IFDIR, S_IFREG
from typing import Any, NamedTuple, TypeVar

from ...core import process
from ...core.stats import FileStat
from .configuration import HadoopConfiguration, NameNodeAddress
from .library import Pending, Verdict, begin, library, no_answer, not_asked, not_connected, translated, verdict

T = TypeVar("T")

PROBE_INTERVAL = 1.0
"""Seconds without a response after which the other NameNodes are asked whether they are active."""
SILENCE_REMEMBERED = 60.0
"""Seconds for which it is remembered that a DataNode was silent, or at first a NameNode."""
SHORT_TIMEOUT = 0.1
"""Seconds to wait for each DataNode during that time."""
SHORT_ATTEMPTS = 4
"""Failures after which that time is taken for too short."""
_PAGE = 1000  # members of a directory that the NameNode sends at once
_UNCHANGED = 2**64 - 1  # -1 as the library takes it: leave the time of access alone


class Silence(NamedTuple):
    """A DataNode of a nameservice was silent."""

    until: float
    """When it is forgotten, by `time.monotonic`."""
    failures: int = 0
    """Transfers that have failed since."""


class Unanswered(NamedTuple):
    """A call that a NameNode has not answered in time, for which others wait."""

    pending: Pending[Any]
    seconds: float
    until: float
    """When the next call is made all the same, by `time.monotonic`: a connection may be lost without a sign."""


_unanswered: process.PerProcess[dict[str, Unanswered]] = process.PerProcess(dict)  # by NameNode
# By nameservice, and inherited by forked children: the NameNode that has answered last, and a DataNode's silence.
_active: dict[tuple[str, ...], str] = {}
_silence: dict[tuple[str, ...], Silence] = {}


class HdfsOptions(NamedTuple):
    """The options of an `Hdfs`, which override Hadoop's configuration."""

    timeout: float = 60.0
    replication: int | None = None
    block_size: int | None = None
    configuration: Mapping[str, str] | None = None
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None


class Deadline:
    """The end of the time of one operation, which `attempts` attempts share."""

    def __init__(self, seconds: float, attempts: int = 3) -> None:
        self.end = time.monotonic() + seconds
        self._share = seconds / attempts

    def left(self) -> float:
        """Return the seconds that are left; a thousandth once there are none."""
        return max(0.001, self.end - time.monotonic())

    def share(self) -> float:
        """Return the seconds for the next attempt."""
        return min(self.left(), self._share)

    def has(self, seconds: float) -> bool:
        """Return whether more than so many seconds are left."""
        return time.monotonic() + seconds < self.end


class HdfsRetryPolicy(NamedTuple):
    """The times and the number of a call's retries, from the options and Hadoop's settings."""

    timeout: float
    """Seconds that an operation may take, with all its repetitions."""
    connect_timeout: float
    """Seconds for one connection."""
    datanode_timeout: float
    """Seconds to wait for one DataNode: a frozen one must leave time for the other replicas."""
    max_attempts: int | None
    """Repetitions of a call that no NameNode has taken; None for as many as the time allows."""
    first_contact: float
    """Seconds to wait for a nameservice that has never answered this process."""
    backoff: float
    max_backoff: float

    @classmethod
    def of(cls, timeout: float, conf: HadoopConfiguration, nodes: int) -> HdfsRetryPolicy:
        """Return the policy for a nameservice of so many NameNodes."""
        retries = conf.optional_number("ipc.client.connect.max.retries")
        interval = conf.number("ipc.client.connect.retry.interval", 1000) / 1000
        first_contact = (10 if retries is None else retries) * interval
        if nodes > 1:
            retries = conf.optional_number("dfs.client.failover.max.attempts")
            base = conf.number("dfs.client.failover.sleep.base.millis", 200) / 1000
            longest = conf.number("dfs.client.failover.sleep.max.millis", 2000) / 1000
        else:
            base = longest = interval
        connect = min(conf.number("ipc.client.connect.timeout", 20_000) / 1000, timeout / 2)
        datanode = max(SHORT_TIMEOUT, min(conf.number("dfs.client.socket-timeout", 60_000) / 1000, timeout / 6))
        return cls(timeout, connect, datanode, retries, min(first_contact, timeout), base, longest)

    def delay(self, rounds: int) -> float:
        """Return the seconds to wait after `rounds` rounds through all NameNodes."""
        longest: float = min(self.max_backoff, self.backoff * 2 ** min(rounds, 30))
        return longest * (0.5 + random.random() / 2)


class NameNode:
    """One NameNode, and this process's clients of it."""

    def __init__(self, address: NameNodeAddress, connect: Callable[[NameNodeAddress, float], Any]) -> None:
        self.address = address
        self.name = f"{address.host}:{address.port}" if address.host else address.url
        """`host:port`, or the nameservice."""
        self._connect = connect
        self._clients: process.PerProcess[dict[float, Any]] = process.PerProcess(dict)
        self._reached = False

    def ask(self, request: Callable[[Any], T], policy: HdfsRetryPolicy, datanode_timeout: float) -> T:
        """Return what `request(client)` returns; connects first, so that a dead host is known in time."""
        with translated:
            if not self._reached and self.address.host:
                self._reach(policy.connect_timeout)
            clients = self._clients.get()
            if datanode_timeout not in clients:
                clients[datanode_timeout] = self._connect(self.address, datanode_timeout)
            found = request(clients[datanode_timeout])
        self._reached = True
        _unanswered.get().pop(self.name, None)
        return found

    def _reach(self, seconds: float) -> None:
        try:
            socket.create_connection((self.address.host, self.address.port), seconds).close()
        except TimeoutError as exc:
            raise not_connected(self.name, seconds) from exc

    def lose_connection(self) -> None:
        """Have the next call find out first whether the host can be reached."""
        self._reached = False

    def unanswered(self) -> Pending[Any] | None:
        """Return the call that others wait for, if there is one."""
        found = _unanswered.get().get(self.name)
        if found is None or found.pending.wait(0) or time.monotonic() >= found.until:
            return None
        return found.pending

    def give_up(self, pending: Pending[Any]) -> None:
        """Leave a call alone that is not answered, and have the next ones wait for it."""
        pending.abandon()
        self.replace_clients()
        if self.address.host and self.unanswered() is None:  # else it is several NameNodes, and one of them is silent
            before = _unanswered.get().get(self.name)
            seconds = max(SILENCE_REMEMBERED, 2 * before.seconds) if before else 0.0
            _unanswered.get()[self.name] = Unanswered(pending, seconds, time.monotonic() + seconds)

    def replace_clients(self) -> None:
        """Have the next call connect anew; calls that wait for the present clients keep them."""
        self._clients.close()
        self._reached = False


class Nameservice:
    """The NameNodes of one nameservice, for one process."""

    def __init__(
        self,
        addresses: Sequence[NameNodeAddress],
        policy: HdfsRetryPolicy,
        connect: Callable[[NameNodeAddress, float], Any],
    ) -> None:
        """`connect(address, seconds)` makes a client of the library that waits so long for each DataNode."""
        self.policy = policy
        self._nodes = [NameNode(address, connect) for address in addresses]
        self._key = tuple(node.name for node in self._nodes)
        self._by_name = dict(zip(self._key, self._nodes, strict=True))

    # ---- calls of a NameNode

    def call_on(
        self, what: str, request: Callable[[Any], T], *, repeat: bool = True, deadline: Deadline | None = None
    ) -> tuple[NameNode, T]:
        """Return what `request(client)` returns on the active NameNode, and that.

        With `repeat` it may be executed twice; else an error whose `verdict` is UNKNOWN is raised as it comes.
        """
        begun, deadline = time.monotonic(), deadline or Deadline(self.policy.timeout)
        attempts, node = 0, self._remembered()
        said: dict[
            str, tuple[int | None, str | None]
        ] = {}  # by each NameNode at last; errors would refer to this frame
        while True:
            known = node if attempts == 0 else self._remembered()
            try:
                found = self._ask(what, request, self._share(deadline), node)
            except OSError as exc:
                said[node.name] = exc.errno, exc.strerror
                if not (self._may_repeat(exc, node, attempts, repeat) and self._wait(exc, attempts, begun, deadline)):
                    telling = max(said.values(), key=_tells)
                    if verdict(exc) is Verdict.NOT_EXECUTED and _tells(telling) > _tells(said[node.name]):
                        raise OSError(*telling) from exc
                    raise
                now = self._remembered()
                following = self._nodes[(self._nodes.index(node) + 1) % len(self._nodes)]
                node = now if now is not known and now is not node else following
                attempts += 1
            else:
                if _active.get(self._key) != node.name:
                    _active[self._key] = node.name
                return node, found

    def call_once(self, request: Callable[[Any], T]) -> T:
        """Return what `request(client)` returns on the NameNode that was active last: no repetition, no time limit."""
        node = self._remembered()
        if node.unanswered() is not None:
            raise not_asked(node.name, 0)
        return node.ask(request, self.policy, self.datanode_timeout)

    def _remembered(self) -> NameNode:
        return self._by_name.get(_active.get(self._key, ""), self._nodes[0])

    def _share(self, deadline: Deadline) -> float:
        """Return the seconds for one attempt, which leave time to ask the others."""
        return min(deadline.left(), max(deadline.share(), 2 * PROBE_INTERVAL))

    def _may_repeat(self, exc: OSError, node: NameNode, attempts: int, repeat: bool) -> bool:
        """Return whether a call that `exc` has ended on `node` may be tried again."""
        found = verdict(exc)
        if found is not Verdict.FINAL and exc.errno not in (errno.EHOSTDOWN, errno.EROFS):
            node.lose_connection()
        if found is Verdict.FINAL or (found is Verdict.UNKNOWN and not repeat):
            return False
        return self.policy.max_attempts is None or attempts < self.policy.max_attempts

    def _wait(self, exc: OSError, attempts: int, begun: float, deadline: Deadline) -> bool:
        """Wait once all NameNodes have been tried; return False if the time is over."""
        rounds, place = divmod(attempts + 1, len(self._nodes))
        delay = self.policy.delay(rounds - 1) if place == 0 else 0.0
        contacted = self._key in _active or exc.errno in (errno.EHOSTDOWN, errno.EROFS)
        first = not contacted and verdict(exc) is Verdict.NOT_EXECUTED
        if not deadline.has(delay) or (first and time.monotonic() + delay >= begun + self.policy.first_contact):
            return False
        time.sleep(delay)
        return True

    def _ask(self, what: str, request: Callable[[Any], T], seconds: float, node: NameNode) -> T:
        """Return what `request(client)` returns on `node`, after what it has not answered yet; as `_attempt` else."""
        begun = time.monotonic()
        if (earlier := node.unanswered()) is not None and not self._ends(earlier, seconds, node):
            raise not_asked(node.name, time.monotonic() - begun)
        pending: Pending[T] = begin(node.ask, request, self.policy, self.datanode_timeout)
        if not self._ends(pending, begun + seconds - time.monotonic(), node):
            node.give_up(pending)
            raise no_answer(f"{what} from {node.name}", time.monotonic() - begun)
        return pending.result()

    def _attempt(self, what: str, function: Callable[[], T], seconds: float, node: NameNode | None = None) -> T:
        """Return what `function()` returns; `TimeoutError` after `seconds`, or once another than `node` is active."""
        begun = time.monotonic()
        pending = begin(function)
        if not self._ends(pending, seconds, node):
            pending.abandon()
            if node is not None:
                node.replace_clients()
            raise no_answer(what, time.monotonic() - begun)
        return pending.result()

    def _ends(self, pending: Pending[Any], seconds: float, node: NameNode | None) -> bool:
        """Return whether a call ends within `seconds`, and before another NameNode than `node` is known as active."""
        end = time.monotonic() + seconds
        while not pending.wait(min(PROBE_INTERVAL, end - time.monotonic())):
            other = self._find_active(node, end) if node else None
            late = time.monotonic() >= end
            if pending.wait(0):
                break
            if other is not None:
                _active[self._key] = other.name
            if other is not None or late:
                return False
        return True

    def _find_active(self, silent: NameNode, end: float) -> NameNode | None:
        """Return a NameNode beside `silent` that answers as the active one does."""
        limit = min(end, time.monotonic() + PROBE_INTERVAL)
        probe = functools.partial(_is_active, policy=self.policy._replace(connect_timeout=PROBE_INTERVAL))
        others = [node for node in self._nodes if node is not silent and node.unanswered() is None]
        asked: list[tuple[NameNode, Pending[None]]] = [(node, begin(probe, node)) for node in others]
        found = None
        for node, pending in asked:
            if not pending.wait(0 if found else limit - time.monotonic()):
                node.give_up(pending)
            elif found is None:
                with contextlib.suppress(OSError):
                    pending.result()
                    found = node
        return found

    # ---- data

    @property
    def datanode_timeout(self) -> float:
        """Seconds that a client waits for each DataNode: few, while one is remembered as silent."""
        silence = _silence.get(self._key)
        short = silence is not None and silence.failures < SHORT_ATTEMPTS and time.monotonic() < silence.until
        return SHORT_TIMEOUT if short else self.policy.datanode_timeout

    @contextlib.contextmanager
    def noticing_silence(self) -> Iterator[None]:
        """A context for a transfer of data; one that takes as long as a DataNode is waited for has met a silent one."""
        begun, failed = time.monotonic(), True
        try:
            yield
            failed = False
        finally:
            now, silence = time.monotonic(), _silence.get(self._key)
            if now - begun >= self.policy.datanode_timeout:
                _silence[self._key] = Silence(now + SILENCE_REMEMBERED)
            elif failed and silence is not None:
                _silence[self._key] = silence._replace(failures=silence.failures + 1)

    def transfer(self, what: str, function: Callable[[], T], deadline: Deadline, node: NameNode | None = None) -> T:
        """Return what `function()` returns, which transfers data: one attempt.

        It is given up once another NameNode than `node` is known to be active.
        """
        with translated, self.noticing_silence():
            return self._attempt(what, function, deadline.share(), node)

    def list_directory(self, path: str) -> list[Any]:
        """Return the statuses of a directory's members, or that of a file.

        A listing whose NameNode is lost in the middle begins again.
        """
        again: Deadline | None = None
        while True:
            node, (found, entries) = self.call_on("list", functools.partial(first_page, path=path), deadline=again)
            page = found
            try:
                while len(page) >= _PAGE:
                    seconds = self._share(Deadline(self.policy.timeout))
                    page = self._attempt("list", functools.partial(_next_page, entries), seconds, node)
                    found += page
                return found
            except OSError as exc:
                again = again or Deadline(self.policy.timeout)
                if verdict(exc) is Verdict.FINAL or not again.has(0):
                    raise


class HdfsPlace(NamedTuple):
    """The place of a path: its nameservice, and its path there."""

    nameservice: Nameservice
    path: str

    def beside(self, path: str) -> HdfsPlace:
        """Return the place of another path of the same nameservice."""
        return self._replace(path=path)

    def call(self, method: str, *arguments: Any, repeat: bool = True, deadline: Deadline | None = None) -> Any:
        """Return what a method of the library's client returns for the path; see `Nameservice.call_on`."""
        request = methodcaller(method, self.path, *arguments)
        return self.nameservice.call_on(method, request, repeat=repeat, deadline=deadline)[1]

    def status(self, deadline: Deadline | None = None) -> Any:
        """Return the library's status; `FileNotFoundError`."""
        return self.call("get_file_info", deadline=deadline)

    def delete(self, deadline: Deadline | None = None, recursive: bool = True) -> None:
        """Remove a file, or a directory with all that is in it, or else an empty one; what is missing is no error."""
        self.call("delete", recursive, deadline=deadline)

    def set_modified(self, when: float, deadline: Deadline | None = None) -> None:
        """Set the time of modification of a file, to milliseconds."""
        self.call("set_times", int(when * 1000 + 0.5), _UNCHANGED, deadline=deadline)

    def rename(self, target: HdfsPlace, overwrite: bool, deadline: Deadline) -> None:
        """Move in one step, once, even if the response to a request is lost.

        Without `overwrite`, `FileExistsError` if there is something at `target`.
        """
        lost = False
        while True:
            try:
                self.call("rename", target.path, overwrite, repeat=False, deadline=deadline)
                return
            except OSError as exc:
                found = verdict(exc)
                lost = lost or found is Verdict.UNKNOWN
                if lost and found is not Verdict.NOT_EXECUTED and self._has_moved(target, deadline):
                    return
                if found is not Verdict.UNKNOWN or not deadline.has(0):
                    raise

    def _has_moved(self, target: HdfsPlace, deadline: Deadline) -> bool:
        """Return whether nothing is here any more, and something at `target`."""
        try:
            self.status(deadline)
        except FileNotFoundError:
            target.status(deadline)
            return True
        return False


class HdfsClient:
    """The client of one file system for one process: its nameservice, and how files are written there.

    A mount table (`viewfs://`) is one client of the library, which finds the nameservice of each path and the active
    one of its NameNodes. It lists what the fallback has: the directories that lead to mount points are added here.
    """

    def __init__(self, scheme: str, authority: str, options: HdfsOptions) -> None:
        self._conf = conf = HadoopConfiguration.load(options.configuration)
        self._library = library()
        self.swept: set[str] = set()
        """Directories in which files of dead writers were looked for."""
        if os.environ.get("HADOOP_PROXY_USER") and not conf.kerberos:
            reason = "HADOOP_PROXY_USER needs Kerberos; on a cluster without it, HADOOP_USER_NAME names the user"
            raise OSError(errno.EOPNOTSUPP, reason)
        for name, path in (("keytab", options.keytab), ("ticket cache", options.ticket_cache)):
            if path and not os.access(path.removeprefix("FILE:"), os.R_OK):
                raise PermissionError(errno.EACCES, f"the Kerberos {name} {path} can't be read")
        scheme, authority = conf.file_system(scheme, authority)
        self._mount_points = list(conf.mounts(authority)) if scheme == "viewfs" else []
        addresses = conf.addresses(scheme, authority)
        policy = HdfsRetryPolicy.of(options.timeout, conf, len(addresses))
        # No method of this object, which would be in a cycle that only the garbage collector frees.
        self._nameservice = Nameservice(addresses, policy, functools.partial(_connect, conf, options))
        self._write_options = {
            "block_size": options.block_size or conf.size("dfs.blocksize") or conf.size("dfs.block.size"),
            "replication": options.replication or conf.optional_number("dfs.replication"),
            "overwrite": False,
            "create_parent": False,
        }

    @property
    def umask(self) -> int:
        """The permissions that new files and directories do not get."""
        return self._conf.umask()

    def write_options(self, permission: int) -> Any:
        """Return the library's options for a new file."""
        return self._library.WriteOptions(**self._write_options, permission=permission)

    def place(self, key: str) -> HdfsPlace:
        """Return the place of a key."""
        return HdfsPlace(self._nameservice, "/" + key)

    def mounts_below(self, key: str) -> list[str]:
        """Return the names in a directory that are mount points, or lead to one."""
        prefix = f"/{key}/" if key else "/"
        return sorted({path[len(prefix) :].partition("/")[0] for path in self._mount_points if path.startswith(prefix)})


def _connect(conf: HadoopConfiguration, options: HdfsOptions, address: NameNodeAddress, datanode_timeout: float) -> Any:
    """Return a client of the library that waits `datanode_timeout` seconds for each DataNode."""
    timeout = {"dfs.client.socket-timeout": str(int(datanode_timeout * 1000))}
    settings = {**conf.settings(), **dict(address.settings), **timeout}
    if address.host:
        settings["dfs.client.failover.max.attempts"] = "0"  # `Nameservice` repeats
    principal, keytab, tickets = options.principal, options.keytab, options.ticket_cache
    return library().RawClient(address.url, settings, None, principal, keytab, tickets)


def _tells(said: tuple[int | None, str | None]) -> int:
    """Return how much an error tells: a standby refuses whatever is wrong with the active one, safe mode is its own."""
    return {errno.EHOSTDOWN: 0, errno.EROFS: 2}.get(said[0] or 0, 1)


def _is_active(node: NameNode, policy: HdfsRetryPolicy) -> None:
    node.ask(methodcaller("get_file_info", "/"), policy, policy.datanode_timeout)


def first_page(client: Any, path: str) -> tuple[list[Any], Iterator[Any]]:
    """Return the statuses of the first thousand or so members of a directory, and an iterator of the others."""
    entries = client.list_status(path, False)
    return _next_page(entries), entries


def _next_page(entries: Iterator[Any]) -> list[Any]:
    with translated:
        return list(itertools.islice(entries, _PAGE))


def file_stat(status: Any, name: str, new: Callable[..., FileStat] = tuple.__new__) -> FileStat:
    """Return the stat, made without the arguments of `FileStat` by name: a listing has many."""
    modified = status.modification_time
    mode = status.permission & 0o1777
    if status.isdir:
        return new(FileStat, (name, 0, True, modified / 1000, S_IFDIR | mode, None))
    size = status.length
    version = f"{modified:x}-{size:x}"
    return new(FileStat, (name, size, False, modified / 1000, S_IFREG | mode, version))
