"""How the servers of the tests are run: free ports, child processes that die with their parent, waiting and stopping.

Nothing here knows any particular server, and nothing here imports pytest: the fixtures and the command lines of
``tests/servers`` share it.
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded here: after a fork it is too late for the dynamic loader

# Below the kernel's range for outgoing connections (32768 and up on Linux), so that no client takes a port between
# the moment it is found free and the moment its server binds it.
_PORTS = range(15000, 32000)
_RANDOM = random.SystemRandom()  # a test that seeds `random` must not make two servers meet
_given: set[int] = set()


def free_port() -> int:
    """Returns a TCP port that nothing listens on at 127.0.0.1; never the same one twice in a process."""
    while True:
        port = _RANDOM.choice(_PORTS)
        if port not in _given and _bindable(port):
            _given.add(port)
            return port


def _bindable(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


def spawn(argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Starts `argv` with its output appended to `log`; the kernel kills it when its parent dies, however it dies.

    The kernel watches the *thread* that called: call this from one that lives as long as the server, such as the main
    thread. `env` replaces the environment; None inherits it. A session of its own keeps Ctrl-C for the tests alone.
    """
    parent = os.getpid()

    def die_with_parent() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call above
            os._exit(1)

    with log.open("ab") as output:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


def wait_until(predicate: Callable[[], bool], timeout: float, what: str) -> None:
    """Returns once `predicate()` is true; raises TimeoutError naming `what` after `timeout` seconds.

    An exception from `predicate` goes through: this is how a caller reports a process that ended while it waited.
    """
    end = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(0.05)


def check_alive(process: subprocess.Popen[bytes], log: Path) -> None:
    """Raises RuntimeError with the end of `log` if `process` has ended."""
    if process.poll() is not None:
        tail = log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}:\n{tail}")


def stop(process: subprocess.Popen[bytes], grace: float = 5.0) -> None:
    """Ends `process`, by SIGTERM and after `grace` seconds by SIGKILL, and reaps it; harmless when it has ended."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


class Service(abc.ABC):
    """Something that is started and stopped; as a context manager it does both."""

    @abc.abstractmethod
    def start(self) -> None:
        """Returns once it works."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends it; harmless when not started."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


class HTTPServer(Service):
    """A program that serves HTTP on a port of 127.0.0.1, with a folder for its output; empty at `start`."""

    name: str
    """What it is called in the names of its folder and its output."""
    missing: Callable[[], str | None]
    """Returns None if it can be started here, else a sentence that says what is missing."""

    def __init__(self) -> None:
        self._port = 0
        self._root: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The URL to give to a client."""
        return f"http://127.0.0.1:{self._port}"

    @abc.abstractmethod
    def command(self, port: int) -> list[str]:
        """Return the command that serves on `port`."""

    def environment(self) -> Mapping[str, str] | None:
        """Return the environment of the command; None is this process's."""
        return None

    @abc.abstractmethod
    def probe(self) -> bool:
        """Write an object and read it back; return whether it was the same. It may fail until the server works."""

    def start(self) -> None:
        """Return once an object was written and read back; raise RuntimeError with what the server said."""
        if (reason := self.missing()) is not None:
            raise RuntimeError(reason)
        self._port = free_port()
        self._root = Path(tempfile.mkdtemp(prefix=f"fsabs-{self.name}-"))
        log = self._root / f"{self.name}.out"
        try:
            self._process = process = spawn(self.command(self._port), log, self.environment())
            wait_until(lambda: self._works(process, log), 60, f"an object to come back from {self.name}")
        except BaseException:
            self.stop()
            raise

    def _works(self, process: subprocess.Popen[bytes], log: Path) -> bool:
        check_alive(process, log)
        try:
            return self.probe()
        except (OSError, http.client.HTTPException):
            return False

    def stop(self) -> None:
        """End the server and remove its folder; harmless when not started."""
        if self._process is not None:
            stop(self._process)
            self._process = None
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    def send(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a request on a connection of its own; return the status and the body of the response."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)) as connection:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
