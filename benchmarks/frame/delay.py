"""Distance on loopback: a network namespace behind `tc netem`, or, where the kernel has none, a proxy that waits.

The proxy is one thread in a process of its own, which sends each piece on when it is as old as the delay.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import socket
import subprocess
from collections.abc import Iterator
from typing import cast

from . import serving

# ---- a namespace


def netem_missing(ip: str | None, tc: str | None) -> str | None:
    """Why a network namespace with a delay can't be made here; None if it can."""
    if ip is None or tc is None:
        return "iproute2 is not installed"
    if os.geteuid() != 0:
        return "a network namespace needs root"
    try:
        with namespace(1):
            return None
    except subprocess.CalledProcessError as exc:
        words = (exc.stderr or b"").decode(errors="replace").split()
        return f"this kernel has no netem: {' '.join(words)}"


@contextlib.contextmanager
def namespace(milliseconds: float) -> Iterator[tuple[str, list[str]]]:
    """A network namespace half of `milliseconds` away, each way: its address, and the command that runs another in it.

    Raises `subprocess.CalledProcessError` where the kernel can't.
    """
    name, near, far = f"fsabs-{os.getpid()}", f"fsn{os.getpid()}", f"fsf{os.getpid()}"
    network = f"10.{os.getpid() >> 8 & 127}.{os.getpid() & 255}"
    netem = ["netem", "delay", f"{milliseconds / 2}ms", "limit", "1000000"]
    inside = ["ip", "netns", "exec", name]
    try:
        _run(["ip", "netns", "add", name])
        _run(["ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", name])
        _run(["ip", "address", "add", f"{network}.1/24", "dev", near])
        _run(["ip", "link", "set", near, "up"])
        _run([*inside, "ip", "address", "add", f"{network}.2/24", "dev", far])
        _run([*inside, "ip", "link", "set", far, "up"])
        _run(["tc", "qdisc", "add", "dev", near, "root", *netem])
        _run([*inside, "tc", "qdisc", "add", "dev", far, "root", *netem])
        yield f"{network}.2", inside
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):  # it may not have been made
            _run(["ip", "link", "delete", near])
        with contextlib.suppress(subprocess.CalledProcessError):
            _run(["ip", "netns", "delete", name])


def _run(command: list[str]) -> None:
    path = "/usr/sbin:/sbin:" + os.environ.get("PATH", "/usr/bin:/bin")
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PATH": path})


# ---- a proxy


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

    def data_received(self, data: bytes) -> None:
        self._loop.call_later(self._seconds, self.other.transport.write, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._loop.call_later(self._seconds, self.other.transport.close)

    def pause_writing(self) -> None:
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.other.transport.resume_reading()
