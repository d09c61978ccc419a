"""Many objects written at once, with requests in flight: small ones from one request pipeline or two, large ones by a
thread each.

Most of what a large content costs is its hash, which Python computes without its lock, as it sends: from `MIN_SHARED`
on, two pipelines, each in a thread, keep two processors busy. The caller's iterable is used in the caller's thread
alone.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

from ... import writemany
from ...threads import Threads
from .access import BucketAccess
from .client import Client
from .failures import UnsupportedResponse
from .messages import Request
from .pipeline import send_many
from .requests import send
from .writes import put_request

MAX_PIPELINED = 2 * 1024**2
"""Contents of up to so many bytes are sent by a pipeline; larger ones take a thread each."""
MIN_SHARED = 512 * 1024
"""If the first content has so many bytes, there are two pipelines: of smaller ones the threads wait for each other."""
SHARED_AHEAD = 8
"""Contents that wait for the second pipeline."""


def put_many(fs: BucketAccess, client: Client, pairs: Iterator[writemany.Content], width: int) -> int:
    """Write objects with up to `width` requests in flight; return how many."""
    count = 0
    for small, group in itertools.groupby(pairs, lambda pair: len(pair[1]) <= MAX_PIPELINED):
        if small:
            count += _SmallWrites(fs, client, group).run(width)
        else:
            count += writemany.in_threads(functools.partial(_put_named, fs), group, width)
    return count


def _put_named(fs: BucketAccess, key: str, data: bytes) -> None:
    try:
        fs._write_bytes(key, data)
    except OSError as exc:
        fs._named(exc, "write_many", key)
        raise


class _SmallWrites:
    """The writing of small contents: `run` is called once."""

    def __init__(self, fs: BucketAccess, client: Client, pairs: Iterator[writemany.Content]) -> None:
        self._fs = fs
        self._client = client
        self._pairs = pairs
        self._failures = writemany.Failures()
        self._shared: SimpleQueue[writemany.Content | None] = SimpleQueue()

    def run(self, width: int) -> int:
        """Write all; return how many."""
        first = next(self._pairs, None)
        if first is None:
            return 0
        self._pairs = itertools.chain((first,), self._pairs)
        if width < 2 or len(first[1]) < MIN_SHARED:
            count = self._put(self._own, width)
        else:
            with Threads[int](1, wait=True) as threads:
                second = threads.start(functools.partial(self._put, self._handed_over, width // 2))
                try:
                    count = self._put(self._own_and_shared, width - width // 2)
                except BaseException as exc:
                    self._failures.add(exc)  # the other thread takes no more
                    raise
                finally:
                    self._shared.put(None)
                count += second()
        self._failures.raise_first()
        return count

    def _own(self) -> Iterator[writemany.Content]:
        """Yield the caller's contents, until one has failed."""
        try:
            for pair in self._pairs:
                if self._failures:
                    return
                yield pair
        except GeneratorExit:
            raise
        except BaseException as exc:  # of the caller's iterable: what is under way still ends
            self._failures.add(exc)

    def _own_and_shared(self) -> Iterator[writemany.Content]:
        """As `_own`, but the other pipeline takes what it can."""
        for pair in self._own():
            self._shared.put(pair)
            if self._shared.qsize() > SHARED_AHEAD:
                with contextlib.suppress(Empty):
                    if (shared := self._shared.get_nowait()) is not None:
                        yield shared
        with contextlib.suppress(Empty):
            while not self._failures and (shared := self._shared.get_nowait()) is not None:
                yield shared

    def _handed_over(self) -> Iterator[writemany.Content]:
        while (pair := self._shared.get()) is not None and not self._failures:
            yield pair

    def _put(self, contents: Callable[[], Iterator[writemany.Content]], width: int) -> int:
        """Write contents by one pipeline, in this thread; return how many were written."""
        fs, under_way, count = self._fs, deque[Request](), 0

        def requests() -> Iterator[Request]:
            for key, data in contents():
                try:
                    request = put_request(fs, key, data)
                except OSError as exc:
                    fs._named(exc, "write_many", key)
                    self._failures.add(exc)
                    return
                under_way.append(request)
                yield request

        with contextlib.closing(send_many(self._client, requests(), width, ahead=width)) as outcomes:
            for outcome in outcomes:
                request = under_way.popleft()
                try:
                    if isinstance(outcome, UnsupportedResponse):
                        send(fs, request)
                    elif isinstance(outcome, OSError):
                        raise outcome
                    count += 1
                except OSError as exc:
                    fs._named(exc, "write_many", request.key)
                    self._failures.add(exc)
        return count
