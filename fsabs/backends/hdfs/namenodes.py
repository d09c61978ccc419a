"""The NameNodes of a nameservice: which one is active, and one policy of retries and failover around every call.

A call has a deadline. A NameNode that can't be reached, that is a standby or in safe mode has not executed the call,
and the next one is tried, with a backoff once all have been. Where no response comes, the other NameNodes are asked
whether they are active meanwhile; a slow one is waited for. The active one is remembered for the process and its
children.

Each NameNode has a client of its own in the library, which would wait for one that is silent, and behind it, for ever;
such a client is left alone, and replaced.
"""

from __future__ import annotations

import errno
import functools
import random
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from ... import process
from .calls import Pending, no_answer
from .configuration import HadoopConfiguration, NameNodeAddress
from .rpc_errors import Verdict, not_connected, translated, verdict

T = TypeVar("T")

PROBE_INTERVAL = 1.0
"""Seconds without a response after which the other NameNodes are asked whether they are active."""

# The address that has answered last, by nameservice: inherited by forked children.
_active: dict[tuple[str, ...], str] = {}


class HdfsRetryPolicy(NamedTuple):
    """The times and the number of a call's retries, from the options and Hadoop's settings."""

    timeout: float
    """Seconds that an operation may take, with all its repetitions."""
    connect_timeout: float
    """Seconds for one connection."""
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
        connect = conf.number("ipc.client.connect.timeout", 20_000) / 1000
        return cls(timeout, min(connect, timeout / 2), retries, min(first_contact, timeout), base, longest)

    def delay(self, rounds: int) -> float:
        """Return the seconds to wait after `rounds` rounds through all NameNodes."""
        longest: float = min(self.max_backoff, self.backoff * 2 ** min(rounds, 30))
        return longest * (0.5 + random.random() / 2)


class NameNode:
    """One NameNode, and this process's client of it."""

    def __init__(self, address: NameNodeAddress, connect: Callable[[NameNodeAddress], Any]) -> None:
        self.address = address
        self.name = f"{address.host}:{address.port}" if address.host else address.url
        """`host:port`, or the nameservice."""
        self._client: process.PerProcess[Any] = process.PerProcess(functools.partial(connect, address))
        self._reached = False

    def ask(self, request: Callable[[Any], T], connect_timeout: float) -> T:
        """Return what `request(client)` returns; connects first, so that a dead host is known in time."""
        with translated:
            if not self._reached and self.address.host:
                self._reach(connect_timeout)
            found = request(self._client.get())
        self._reached = True
        return found

    def _reach(self, seconds: float) -> None:
        try:
            socket.create_connection((self.address.host, self.address.port), seconds).close()
        except TimeoutError as exc:
            raise not_connected(self.name, seconds) from exc

    def lose_connection(self) -> None:
        """Have the next call find out first whether the host can be reached."""
        self._reached = False

    def replace_client(self) -> None:
        """Have the next call connect anew; calls that wait for the present client keep it."""
        self._client.close()
        self._reached = False


class NameNodes:
    """The NameNodes of one nameservice, for one process."""

    def __init__(
        self, addresses: Sequence[NameNodeAddress], policy: HdfsRetryPolicy, connect: Callable[[NameNodeAddress], Any]
    ) -> None:
        self.policy = policy
        self._nodes = [NameNode(address, connect) for address in addresses]
        self._key = tuple(node.name for node in self._nodes)
        self._by_name = dict(zip(self._key, self._nodes, strict=True))

    def call(self, what: str, request: Callable[[Any], T], *, repeat: bool, seconds: float | None = None) -> T:
        """Return what `request(client)` returns on the active NameNode.

        With `repeat` it may be executed twice; else an error whose `verdict` is UNKNOWN is raised as it comes.
        """
        begun = time.monotonic()
        until = begun + (self.policy.timeout if seconds is None else seconds)
        attempts, node = 0, self._remembered()
        while True:
            known = node if attempts == 0 else self._remembered()
            try:
                found = self._ask(node, what, request, repeat, until)
            except OSError as exc:
                self._check(exc, node, attempts, repeat)
                self._pause(exc, attempts, begun, until)
                now = self._remembered()
                following = self._nodes[(self._nodes.index(node) + 1) % len(self._nodes)]
                node = now if now is not known and now is not node else following
                attempts += 1
            else:
                if _active.get(self._key) != node.name:
                    _active[self._key] = node.name
                return found

    def ask_once(self, request: Callable[[Any], T]) -> T:
        """Return what `request(client)` returns on the NameNode that was active last: no repetition, no time limit."""
        return self._remembered().ask(request, self.policy.connect_timeout)

    def _remembered(self) -> NameNode:
        return self._by_name.get(_active.get(self._key, ""), self._nodes[0])

    def _check(self, exc: OSError, node: NameNode, attempts: int, repeat: bool) -> None:
        """Raise `exc` if the call must not be tried again."""
        found = verdict(exc)
        if found is not Verdict.FINAL and exc.errno not in (errno.EHOSTDOWN, errno.EROFS):
            node.lose_connection()
        if found is Verdict.FINAL or (found is Verdict.UNKNOWN and not repeat):
            raise exc
        if self.policy.max_attempts is not None and attempts >= self.policy.max_attempts:
            raise exc

    def _pause(self, exc: OSError, attempts: int, begun: float, until: float) -> None:
        """Wait once all NameNodes have been tried; raises `exc` if the time is over."""
        rounds, place = divmod(attempts + 1, len(self._nodes))
        delay = self.policy.delay(rounds - 1) if place == 0 else 0.0
        contacted = self._key in _active or exc.errno in (errno.EHOSTDOWN, errno.EROFS)
        if not contacted and verdict(exc) is Verdict.NOT_EXECUTED:
            until = min(until, begun + self.policy.first_contact)
        if time.monotonic() + delay >= until:
            raise exc
        time.sleep(delay)

    def _ask(self, node: NameNode, what: str, request: Callable[[Any], T], repeat: bool, until: float) -> T:
        """Return the response of `node`; an error once another NameNode is known to be active, or time is over."""
        begun = time.monotonic()
        # A dead connection that was never closed is detected by a second one.
        deadline = until if not repeat else min(until, begun + max(self.policy.timeout / 3, 2 * PROBE_INTERVAL))
        pending = Pending(node.ask, request, self.policy.connect_timeout)
        while not pending.wait(min(PROBE_INTERVAL, deadline - time.monotonic())):
            other = self._find_active(node, until)
            now = time.monotonic()
            if pending.wait(0):
                break
            if other is not None or now >= deadline:
                pending.abandon()
                node.replace_client()
                if other is not None:
                    _active[self._key] = other.name
                raise no_answer(f"{what} from {node.name}", now - begun)
        found: T = pending.result()
        return found

    def _find_active(self, silent: NameNode, until: float) -> NameNode | None:
        """Return a NameNode beside `silent` that answers as the active one does."""
        others = [node for node in self._nodes if node is not silent]
        limit = min(until, time.monotonic() + PROBE_INTERVAL)
        asked = [(node, Pending(node.ask, _is_active, PROBE_INTERVAL)) for node in others]
        found = None
        for node, pending in asked:
            if found is None and pending.wait(limit - time.monotonic()):
                try:
                    pending.result()
                except OSError:
                    continue
                found = node
            elif found is None:
                node.replace_client()
            pending.abandon()
        return found


def _is_active(client: Any) -> None:
    client.get_file_info("/")
