"""How the servers of the tests are run: free ports, child processes that die with their parent, waiting and stopping.

Nothing here knows any particular server, and nothing here imports pytest: the fixtures and the command lines of
``tests/servers`` share it.
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import fcntl
import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

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


@contextlib.contextmanager
def locked(path: Path) -> Iterator[IO[str]]:
    """Hold an exclusive lock on a file, and give that; the kernel lets it go when no process has it open any more."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


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


def stop(process: subprocess.Popen[bytes], grace: float = 5.0, how: signal.Signals = signal.SIGTERM) -> None:
    """Ends `process`, by the signal `how` and after `grace` seconds by SIGKILL, and reaps it; harmless when it has
    ended.
    """
    if process.poll() is None:
        process.send_signal(how)
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


class Server(Service):
    """Programs on 127.0.0.1 with a folder of their own, which are started and stopped together.

    Another process uses one that is running by what `address` returns: `at` returns an object that has all that a
    client needs, and that neither stops it nor starts it again.
    """

    name: str
    """What it is called in the names of its folder and its files."""
    missing: Callable[[], str | None]
    """Returns None if it can be started here, else a sentence that says what is missing."""
    timeout = 60.0
    """The seconds that a step of its start may take."""
    end_signal = signal.SIGTERM

    def __init__(self) -> None:
        self._port = 0
        self._root: Path | None = None
        self._owner = 0
        self._processes: list[tuple[subprocess.Popen[bytes], Path]] = []

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        if self._root is None:
            raise RuntimeError(f"{self.name} is not started")
        return self._root

    def address(self) -> dict[str, Any]:
        """Return what another process needs to use it, as values of JSON."""
        return {"port": self._port, "folder": str(self.folder)}

    @classmethod
    def at(cls, address: Mapping[str, Any]) -> Self:
        """Return the one at an address, which another process has started."""
        found = cls()
        found._port, found._root = address["port"], Path(address["folder"])
        return found

    def prepare(self) -> None:
        """Make the folder and choose the port; a subclass writes what its programs need, too."""
        self._root = Path(tempfile.mkdtemp(prefix=f"fsabs-{self.name}-"))
        self._port = free_port()

    @abc.abstractmethod
    def launch(self) -> None:
        """Start the programs."""

    @abc.abstractmethod
    def probe(self) -> bool:
        """Return True if it works. It may fail until then, by OSError or HTTPException."""

    def start(self) -> None:
        """Return once it works; raise RuntimeError with what a program said. After `pause`, as it was, at its port."""
        if (reason := self.missing()) is not None:
            raise RuntimeError(reason)
        try:
            if self._root is None:
                self._owner = os.getpid()
                self.prepare()
            self._check_own()
            self.launch()
            self.wait_for(self._works, f"{self.name} to work")
        except BaseException:
            self.stop()
            raise

    def pause(self) -> None:
        """End the programs, and keep their folder and their port."""
        self._check_own()
        self.end()

    def stop(self) -> None:
        """End the programs and remove their folder; harmless when not started here, as in a forked child."""
        if self._root is not None and self._owner == os.getpid():
            self.end()
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    def end(self) -> None:
        """End the programs, the last started first."""
        while self._processes:
            stop(self._processes.pop()[0], 30, self.end_signal)

    def _check_own(self) -> None:
        if self._owner != os.getpid():
            raise RuntimeError(f"{self.name} is shared: a test that stops or starts it takes one of its own")

    def spawn(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start a program, with its output in the file `name`.out of the folder."""
        log = self.folder / f"{name}.out"
        self._processes.append((spawn(command, log, environment), log))

    def wait_for(self, predicate: Callable[[], bool], what: str) -> None:
        """Wait until `predicate()` is true, while all programs run."""

        def holds() -> bool:
            for process, log in self._processes:
                check_alive(process, log)
            return predicate()

        wait_until(holds, self.timeout, what)

    def _works(self) -> bool:
        try:
            return self.probe()
        except (OSError, http.client.HTTPException):
            return False


class HTTPServer(Server):
    """A program that serves HTTP; empty at `start`."""

    @property
    def endpoint(self) -> str:
        """The URL to give to a client."""
        return f"http://127.0.0.1:{self._port}"

    def send(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a request on a connection of its own; return the status and the body of the response."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)) as connection:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
