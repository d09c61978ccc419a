"""Distance on loopback: a network namespace behind `tc netem`, or, where the kernel has none, a proxy that waits.

The proxy is one epoll loop in a process of its own. It moves bytes by `splice` through a pipe for each way of each
connection, so that they are not copied, and sends each piece on when it is as old as the delay; how much may be on the
way is the pipe's size (1 MiB), which at 5 ms is 200 MB/s a connection.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PIPE = 1 << 20


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
    command = [sys.executable, "-m", "benchmarks.frame.delay", str(port), str(milliseconds)]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()
        process.stdin.close()
        process.stdout.close()


class Way:
    """One direction of a connection: bytes from `source` wait in a pipe until they are due at `target`."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source, self.target = source, target
        self.out, self.into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # more than this user may have: then a smaller one
            fcntl.fcntl(self.into, fcntl.F_SETPIPE_SZ, PIPE)
        self.due = 0
        """Bytes that are old enough, and are still in the pipe."""
        self.ended = False
        self.full = False
        self.events = select.EPOLLIN
        """What is waited for at the source."""

    def take(self) -> int:
        """Move what has come into the pipe; its size, or 0 if nothing could be moved."""
        try:
            size = os.splice(self.source.fileno(), self.into, PIPE)
        except BlockingIOError:
            self.full = True
            return 0
        except OSError as exc:
            if exc.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT):
                raise
            size = 0
        self.ended = not size
        return size

    def give(self) -> None:
        """Move what is due to the target, as far as it takes it."""
        while self.due:
            try:
                self.due -= os.splice(self.out, self.target.fileno(), self.due)
            except BlockingIOError:
                return
            except OSError:  # the target has gone: what was for it is lost
                self.due, self.ended = 0, True
                return

    def close(self) -> None:
        """Free the pipe."""
        os.close(self.out)
        os.close(self.into)


class Proxy:
    """Accepts, connects on, and moves bytes when they are due."""

    def __init__(self, port: int, seconds: float) -> None:
        self._upstream = ("127.0.0.1", port)
        self._delay = seconds
        self._server = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._poll = select.epoll()
        self._poll.register(self._server.fileno(), select.EPOLLIN)
        self._from: dict[int, Way] = {}
        """The way that begins at a socket."""
        self._to: dict[int, Way] = {}
        """The way that ends there."""
        self._waiting: collections.deque[tuple[float, Way, int]] = collections.deque()
        """When, whose, and how many bytes (0: its end); in order, since the delay is one for all."""

    def run(self) -> None:
        """For ever. The wait is select's on the epoll, since epoll's own counts whole milliseconds only."""
        while True:
            left = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
            select.select([self._poll], [], [], left)
            for descriptor, event in self._poll.poll(0):
                self._handle(descriptor, event)
            self._deliver()

    def _handle(self, descriptor: int, event: int) -> None:
        if descriptor == self._server.fileno():
            self._accept()
            return
        if event & select.EPOLLOUT and (way := self._to.get(descriptor)) is not None:
            way.give()
            self._watch(way)
        if event & ~select.EPOLLOUT and (way := self._from.get(descriptor)) is not None and not way.ended:
            size = way.take()
            if size or way.ended:
                self._waiting.append((time.monotonic() + self._delay, way, size))
            else:
                self._watch(way)

    def _accept(self) -> None:
        client, _ = self._server.accept()
        server = socket.create_connection(self._upstream)
        for one in (client, server):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target in ((client, server), (server, client)):
            way = Way(source, target)
            self._from[source.fileno()] = self._to[target.fileno()] = way
            self._poll.register(source.fileno(), select.EPOLLIN)

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, way, size = self._waiting.popleft()
            if way.source.fileno() < 0:
                continue
            if not size:
                self._end(way)
                continue
            way.due += size
            way.give()
            way.full = False
            self._watch(way)

    def _watch(self, way: Way) -> None:
        """What the two sockets of a way are waited for."""
        back = self._to[way.source.fileno()]
        self._wait_for(way, back)
        self._wait_for(back, way)

    def _wait_for(self, out: Way, into: Way) -> None:
        events = (0 if out.full or out.ended else select.EPOLLIN) | (select.EPOLLOUT if into.due else 0)
        if events != out.events:
            out.events = events
            self._poll.modify(out.source.fileno(), events)

    def _end(self, way: Way) -> None:
        """One side has closed: so do both."""
        back = self._to[way.source.fileno()]
        for one in (way.source, way.target):
            self._poll.unregister(one.fileno())
            del self._from[one.fileno()], self._to[one.fileno()]
            one.close()
        way.close()
        back.close()


if __name__ == "__main__":
    running = Proxy(int(sys.argv[1]), float(sys.argv[2]) / 2000)
    sys.stdout.write(f"{running.port}\n")
    sys.stdout.flush()
    running.run()
