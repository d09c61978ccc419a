"""Networks that misbehave on purpose: ports that never answer or refuse, and a proxy that breaks connections.

Each is a context manager with an `endpoint` ("http://127.0.0.1:PORT") to give to a client in place of a server's. The
proxy knows just enough of HTTP/1.1 to tell heads from bodies, so it counts and cuts where a test says; it alters no
byte, so signatures hold. Plain HTTP only; nothing here imports pytest or knows S3.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import select
import socket
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Literal, Self

from tests.servers.process import Service, free_port

HOST = "127.0.0.1"
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Port:
    """A bound socket with an endpoint, closed with the `with` block."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server may have used it
        self._socket.bind((HOST, port))
        self.host = HOST
        self.port: int = self._socket.getsockname()[1]

    @property
    def endpoint(self) -> str:
        """The URL to give to a client."""
        return f"http://{self.host}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives the port back; harmless twice."""
        self._socket.close()


class Refused(_Port):
    """A port that refuses every connection: bound, so that nobody else takes it, and never listened on."""


class Blackhole(_Port):
    """A port that never answers.

    With `connects` a client connects at once and then waits for an answer in vain: its read times out. Without, the
    backlog is full and its connection attempts are dropped: its connect times out. `port` is that of a server that is
    gone; any free one if it is 0.
    """

    def __init__(self, *, connects: bool = True, port: int = 0) -> None:
        super().__init__(port)
        self._fillers: list[socket.socket] = []
        self._socket.listen(1024 if connects else 0)
        if not connects:
            self._fill()

    def close(self) -> None:
        """Gives the port back; harmless twice."""
        for filler in self._fillers:
            filler.close()
        super().close()

    def _fill(self) -> None:
        # How many fit is the kernel's business (one more than asked for on Linux): add until one is left outside.
        for _ in range(64):
            filler = socket.socket()
            self._fillers.append(filler)
            filler.settimeout(0.2)
            try:
                filler.connect((HOST, self.port))
            except TimeoutError:
                return
        raise RuntimeError("the backlog does not fill")


@dataclasses.dataclass(frozen=True)
class Request:
    """The head of a request that went through the proxy; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]


Where = Callable[[Request], bool]


@dataclasses.dataclass
class Traffic:
    """What went through the proxy: "up" is from client to server; `body_*` is the part of `bytes_*` after the heads.

    The sizes that frame a chunked body are not counted as body.
    """

    connections: int = 0
    requests: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    body_up: int = 0
    body_down: int = 0


@dataclasses.dataclass
class _Fault:
    kind: Literal["upload", "download", "lost", "answer"]
    amount: int = 0  # body bytes to let through, or the status to answer
    times: int | None = None
    where: Where | None = None
    reset: bool = True

    def strikes(self, request: Request) -> bool:
        """Whether it applies to `request`; counts it off when it does."""
        if self.times == 0 or (self.where is not None and not self.where(request)):
            return False
        if self.times is not None:
            self.times -= 1
        return True


class FaultProxy(Service):
    """A TCP proxy in front of one HTTP server that can be told, at any time, to break what goes through.

    It starts out passing everything. One of `drop_upload`, `drop_download`, `lose_answer`, `answer` or `refuse` is in
    force at a time, until `pass_through`; `times` limits it to that many requests, `where` to those it is true of.
    `delay` (seconds before each request goes up) is a plain attribute and adds to any of them.
    """

    def __init__(self, host: str, port: int) -> None:
        self.delay = 0.0
        self.host = HOST
        self.port = 0
        self._target = (host, port)
        self._lock = threading.Lock()
        self._fault: _Fault | None = None
        self._traffic = Traffic()
        self._requests: list[Request] = []
        self._links: set[_Link] = set()
        self._stopping = threading.Event()
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def before(cls, endpoint: str) -> FaultProxy:
        """Returns a proxy in front of "http://HOST:PORT"."""
        parts = urllib.parse.urlsplit(endpoint)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"not an http endpoint: {endpoint}")
        return cls(parts.hostname, parts.port or 80)

    @property
    def endpoint(self) -> str:
        """The URL to give to a client."""
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        """Listens on a free port; connections to the server are made as clients come."""
        self.port = free_port()
        self._listener = socket.create_server((HOST, self.port), backlog=128)
        self._listener.setblocking(False)
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Breaks every connection and frees the port; harmless when not started."""
        self._stopping.set()
        self.break_connections()
        if self._thread is not None and self._listener is not None:
            self._thread.join()
            self._listener.close()
            self.break_connections()

    # What it counted.

    def traffic(self) -> Traffic:
        """Returns a copy of the counts since the start or the last `clear`."""
        with self._lock:
            return dataclasses.replace(self._traffic)

    def requests(self) -> list[Request]:
        """Returns the requests since the start or the last `clear`, in order of arrival."""
        with self._lock:
            return list(self._requests)

    def clear(self) -> None:
        """Sets every count to zero; leaves the behaviour alone."""
        with self._lock:
            self._traffic = Traffic()
            self._requests = []

    # What it does to those who come.

    def pass_through(self) -> None:
        """Ends any fault, and listens again after `refuse`; `delay` stays."""
        self._set(None)
        if self._listener is not None:
            self._listener.listen(128)

    def drop_upload(
        self, after: int, *, times: int | None = None, where: Where | None = None, reset: bool = True
    ) -> None:
        """Breaks a connection once `after` bytes of a request's body went up; with 0, right after its head.

        With `reset` the client's connection is reset, else closed. A shorter body goes through untouched.
        """
        self._set(_Fault("upload", after, times, where, reset))

    def drop_download(
        self, after: int, *, times: int | None = None, where: Where | None = None, reset: bool = True
    ) -> None:
        """Breaks a connection once `after` bytes of an answer's body came down; with 0, right after its head.

        A reset may overtake bytes the client has not read yet; a close (`reset` false) does not.
        """
        self._set(_Fault("download", after, times, where, reset))

    def lose_answer(self, *, times: int | None = None, where: Where | None = None, reset: bool = True) -> None:
        """Lets the server carry a request out, then breaks the connection before any byte of its answer comes down."""
        self._set(_Fault("lost", 0, times, where, reset))

    def answer(self, status: int, *, times: int | None = None, where: Where | None = None) -> None:
        """Answers with `status` and no body in the server's place; the server sees nothing."""
        self._set(_Fault("answer", status, times, where))

    def refuse(self) -> None:
        """Resets every connection and refuses new ones, as when the server is down."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # no longer listens but stays bound: the port is not lost
        self.break_connections()

    def break_connections(self) -> None:
        """Resets every connection there is; new ones are served."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.abort()

    def _set(self, fault: _Fault | None) -> None:
        with self._lock:
            self._fault = fault

    # For its links, each in a thread of its own.

    def _accept(self, listener: socket.socket) -> None:
        while not self._stopping.is_set():
            select.select([listener], [], [], 0.1)
            try:
                client, _ = listener.accept()
            except OSError:  # nobody came, or it refuses: then select returns at once
                self._stopping.wait(0.02)
                continue
            link = _Link(self, client)
            with self._lock:
                self._links.add(link)
                self._traffic.connections += 1
            threading.Thread(target=link.run, args=(self._target,), daemon=True).start()

    def _forget(self, link: _Link) -> None:
        with self._lock:
            self._links.discard(link)

    def _request(self, request: Request) -> _Fault | None:
        """Counts the request, waits its delay, and returns the fault that strikes it."""
        with self._lock:
            self._requests.append(request)
            self._traffic.requests += 1
            fault = self._fault if self._fault is not None and self._fault.strikes(request) else None
        self._stopping.wait(self.delay)
        return fault

    def _count(self, up: bool, count: int, body: int) -> None:
        with self._lock:
            if up:
                self._traffic.bytes_up += count
                self._traffic.body_up += body
            else:
                self._traffic.bytes_down += count
                self._traffic.body_down += body


class _Cut(Exception):
    """The fault of the request in hand says to break the connection now."""


class _Link:
    """One client's connection and the one made to the server for it, served by a single thread."""

    def __init__(self, proxy: FaultProxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = socket.socket()
        self._fault: _Fault | None = None
        self._room: dict[bool, int | None] = {True: None, False: None}  # body bytes still to let through, by "up"
        self._methods: deque[str] = deque()
        self._framers = {True: _Framer(self._on_request), False: _Framer(self._on_response)}

    def run(self, target: tuple[str, int]) -> None:
        """Serves the connection until either side ends it or a fault does."""
        try:
            self._server.connect(target)
            for side in (self._client, self._server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                side.settimeout(60)
            while self._step():
                pass
        except (OSError, ValueError):  # ValueError: closed by `abort` in the middle of a select
            _reset(self._client)
        except _Cut:
            self._break()
        finally:
            self._close()

    def abort(self) -> None:
        """Resets both connections, from any thread; `run` then ends."""
        for side in (self._client, self._server):
            _reset(side)

    def _step(self) -> bool:
        ready, _, _ = select.select([self._client, self._server], [], [], 0.2)
        for source in ready:
            data = source.recv(1 << 18)
            if not data:
                return False
            self._forward(source is self._client, data)
        return True

    def _forward(self, up: bool, data: bytes) -> None:
        out = bytearray()
        body = 0
        try:
            for is_body, piece in self._framers[up].pieces(data):
                kept = piece[: self._room[up]] if is_body else piece
                out += kept
                body += len(kept) if is_body else 0
                self._spend(up, len(kept) if is_body else 0)
        finally:
            self._proxy._count(up, len(out), body)  # first: a client that has its answer may look at once
            (self._server if up else self._client).sendall(out)

    def _spend(self, up: bool, count: int) -> None:
        room = self._room[up]
        if room is None:
            return
        self._room[up] = room - count
        if room == count:
            raise _Cut

    def _on_request(self, lines: list[str]) -> int | Literal["chunked"]:
        method, target, _ = lines[0].split(" ", 2)
        headers = _headers(lines)
        self._methods.append(method)
        self._fault = fault = self._proxy._request(Request(method, target, headers))
        self._room = {True: None, False: None}
        if fault is not None and fault.kind == "answer":
            raise _Cut
        if fault is not None and fault.kind == "upload":
            self._room[True] = fault.amount
        return _body(headers, 0)

    def _on_response(self, lines: list[str]) -> int | Literal["chunked"]:
        status = int(lines[0].split(" ", 2)[1])
        if status < 200:  # "100 Continue": the answer is yet to come
            return 0
        fault = self._fault
        if fault is not None and fault.kind == "lost":
            raise _Cut
        if fault is not None and fault.kind == "download":
            self._room[False] = fault.amount
        method = self._methods.popleft() if self._methods else ""
        return 0 if method == "HEAD" or status in (204, 304) else _body(_headers(lines), _UNTIL_CLOSED)

    def _break(self) -> None:
        fault = self._fault
        if fault is not None and fault.kind == "answer":
            self._answer(fault.amount)
        elif fault is None or fault.reset:
            _reset(self._client)

    def _answer(self, status: int) -> None:
        head = f"HTTP/1.1 {status} Injected\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        end = time.monotonic() + 2
        with contextlib.suppress(OSError):
            self._client.sendall(head.encode())
            self._client.shutdown(socket.SHUT_WR)
            self._client.settimeout(0.5)
            while self._client.recv(65536) and time.monotonic() < end:  # closing over unread bytes would be a reset
                pass

    def _close(self) -> None:
        self._proxy._forget(self)
        for side in (self._client, self._server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)  # a forked child may hold a copy, which close alone would leave open
            side.close()


_UNTIL_CLOSED = 1 << 62


class _Framer:
    """Follows one direction of an HTTP/1.1 connection and tells its heads from its bodies (RFC 9112, section 6).

    `on_head` is called with the lines of each head and returns how many bytes of body follow, or "chunked".
    """

    def __init__(self, on_head: Callable[[list[str]], int | Literal["chunked"]]) -> None:
        self._on_head = on_head
        self._state: Literal["head", "size", "chunk", "trailer"] = "head"
        self._line = bytearray()
        self._head = bytearray()
        self._left = 0  # bytes still to come of the body, or of the chunk

    def pieces(self, data: bytes) -> Iterator[tuple[bool, bytes]]:
        """Splits `data` into pieces and tells of each whether it is body; a head comes out whole or not at all."""
        while data:
            if self._left:
                piece, data = data[: self._left], data[self._left :]
                self._left -= len(piece)
                yield True, piece
            else:
                end = data.find(b"\n") + 1 or len(data)
                self._line += data[:end]
                data = data[end:]
                if self._line.endswith(b"\n"):
                    line = bytes(self._line)
                    self._line.clear()
                    yield False, self._end_line(line)

    def _end_line(self, line: bytes) -> bytes:
        """Takes in one line outside of bodies and returns the bytes that may go on."""
        if self._state == "head":
            return self._end_head_line(line)
        if self._state == "size":
            self._left = int(line.split(b";")[0], 16)
            self._state = "chunk" if self._left else "trailer"
        elif self._state == "chunk":  # the line end after a chunk
            self._state = "size"
        elif not line.strip():
            self._state = "head"
        return line

    def _end_head_line(self, line: bytes) -> bytes:
        self._head += line
        if line.strip():
            return b""
        head, self._head = bytes(self._head), bytearray()
        lines = head.decode("latin-1").strip().split("\r\n")
        if lines != [""]:  # a stray empty line between requests is allowed
            body = self._on_head(lines)
            if body == "chunked":
                self._state = "size"
            else:
                self._left = body
        return head


def _headers(lines: list[str]) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines[1:])
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _body(headers: dict[str, str], otherwise: int) -> int | Literal["chunked"]:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return "chunked"
    return int(headers.get("content-length", otherwise))


def _reset(side: socket.socket) -> None:
    """Resets a connection at once, even while another thread or a forked child holds the socket too."""
    with contextlib.suppress(OSError):
        # connect(2) to an address of family AF_UNSPEC, which is 0, dissolves the connection: Linux sends a reset. The
        # portable way, a close with SO_LINGER of 0, waits for the last holder.
        if side.fileno() >= 0:
            _LIBC.connect(side.fileno(), bytes(16), 16)
