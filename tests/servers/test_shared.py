"""Servers of a test run: one of each kind for all of its processes, whichever of them starts it or is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import guard
from tests.servers.process import Server
from tests.servers.shared import unique
from tests.test_guard import assert_removed, left_by

ROOT = Path(__file__).parents[1]
RUN = """
import os, subprocess, sys
from tests.servers import guard
guard.start()
print(os.environ[guard.VARIABLE], os.environ[guard.FOLDER], flush=True)
sys.stdin.read()
"""
ASK = """
import signal, sys
from tests import test_shared
from tests.servers.shared import shared
try:
    print(shared(getattr(test_shared, sys.argv[1])).address()["port"], flush=True)
except RuntimeError as error:
    print(error, flush=True)
signal.pause()
"""


class Listening(Server):
    """A server that notes each start of its."""

    name = "listening"
    missing = staticmethod(lambda: None)

    def launch(self) -> None:
        """Start it."""
        self.spawn(self.name, [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(self._port)])
        with open(f"{os.environ[guard.FOLDER]}/starts", "a") as file:
            file.write("x")

    def probe(self) -> bool:
        """Return True if it listens."""
        return listens(self._port)


class Broken(Listening):
    """A server that does not start."""

    name = "broken"

    def launch(self) -> None:
        """End at once."""
        super().launch()
        self.spawn(self.name, [sys.executable, "-c", "raise SystemExit('no luck')"])

    def probe(self) -> bool:
        """Return False."""
        return False


class Killed(Listening):
    """A server whose start ends the process that starts it."""

    name = "killed"

    def launch(self) -> None:
        """Kill this process."""
        os.kill(os.getpid(), signal.SIGKILL)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Run:
    """A run of its own, with processes that ask for a server."""

    def __init__(self) -> None:
        settings = {name: value for name, value in os.environ.items() if name not in (guard.VARIABLE, guard.FOLDER)}
        self._process = self._start(RUN, settings)
        self.mark, self.folder = self.said(self._process).split()
        self._settings = {**settings, guard.VARIABLE: self.mark, guard.FOLDER: self.folder}
        self._asking: list[subprocess.Popen[str]] = []

    @staticmethod
    def _start(code: str, settings: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=settings, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    @staticmethod
    def said(process: subprocess.Popen[str]) -> str:
        """Return the next line of a process."""
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def ask(self, kind: str, processes: int) -> list[str]:
        """Have so many processes ask for a server at once; return the answers."""
        asking = [self._start(ASK, self._settings, kind) for _ in range(processes)]
        self._asking += asking
        return [self.said(process) for process in asking]

    def kill_asking(self) -> None:
        """Kill the processes that have asked."""
        while self._asking:
            with self._asking.pop() as process:
                process.kill()

    @property
    def starts(self) -> int:
        """How often the server was started."""
        return len(Path(self.folder, "starts").read_text())

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill_asking()
        with self._process as process:
            process.kill()
        assert not left_by(self.mark)
        assert_removed(self.folder)


def test_one_server_serves_all_processes_of_a_run_and_ends_with_it() -> None:
    with Run() as run:
        first, *others = run.ask("Listening", 3)
        assert others == [first] * 2
        run.kill_asking()
        assert run.ask("Listening", 1) == [first]  # as a worker that takes the place of another one
        assert run.starts == 1
        assert listens(int(first))
    assert not listens(int(first))


def test_all_are_told_that_a_server_did_not_start_and_it_is_tried_once() -> None:
    with Run() as run:
        said = run.ask("Broken", 3) + run.ask("Broken", 1)
        assert len(set(said)) == 1, said
        assert "broken did not start: RuntimeError" in said[0]
        assert run.starts == 1


def test_a_server_that_is_killed_while_it_starts_is_an_error() -> None:
    with Run() as run:
        assert run.ask("Killed", 2) == ["what starts killed was killed:"] * 2


def test_a_server_that_is_shared_is_not_stopped() -> None:
    with Listening() as one:
        found = Listening.at(one.address())
        for call in (found.pause, found.start):
            with pytest.raises(RuntimeError, match="takes one of its own"):
                call()
        found.stop()
        assert found.probe()
        assert found.folder.is_dir()
    assert not one.probe()


def test_names_are_not_those_of_other_processes() -> None:
    command = [sys.executable, "-c", "from tests.servers.shared import unique; print(unique('x'))"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, cwd=ROOT)
    assert len({done.stdout.strip(), unique("x"), unique("x")}) == 3
