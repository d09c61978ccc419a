"""Distance on loopback: a proxy that waits, one thread in a process of its own.

It sends each piece on when it is as old as the delay. That needs nothing of the kernel, which `tc netem` does, so that
figures of all machines are made in the same way; but the proxy shares the CPUs with client and server.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
from collections.abc import Iterator
from typing import cast

from . import serving

LIMIT = 64 << 20
"""Bytes that are old enough, and that a slow client has not taken, from which on no more is read for it."""


@contextlib.contextmanager
def proxy(port: int, milliseconds: float) -> Iterator[int]:
    """The port of a proxy to `port` on loopback, half of `milliseconds` away each way."""
    with serving.started(serve, port, milliseconds / 2000) as near:
        yield int(near)


def serve(port: int, seconds: float) -> None:
    """Print the port, and pass on what comes. The loop waits by select, since epoll counts whole milliseconds only."""
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    loop.run_until_complete(_accept(port, seconds))


async def _accept(port: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        listener.setblocking(False)
        serving.announce(listener.getsockname()[1])
        while True:
            accepted, _ = await loop.sock_accept(listener)
            near, far = _End(seconds), _End(seconds)
            near.other, far.other = far, near
            await loop.create_connection(far.itself, "127.0.0.1", port)
            await loop.connect_accepted_socket(near.itself, accepted)


class _End(asyncio.Protocol):
    """One end of a connection: what it receives, the other end sends when it is old enough; so does it close."""

    other: _End

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()

    def itself(self) -> _End:
        """Return the end, where asyncio wants a function that makes a protocol."""
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(LIMIT)

    def data_received(self, data: bytes) -> None:
        self._loop.call_later(self._seconds, self.other.transport.write, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._loop.call_later(self._seconds, self.other.transport.close)

    def pause_writing(self) -> None:
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.other.transport.resume_reading()
