"""What a test run starts ends with it, and all of its processes share one server of each kind, whichever starts it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers import guard
from tests.servers.process import Server
from tests.servers.shared import unique

ROOT = Path(__file__).parents[2]
SECONDS = 40
"""For processes to start and to end."""
RUN = """
import os, signal, subprocess, sys
from tests.servers import guard
guard.start()
if not os.fork():
    os.setsid()
    signal.pause()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
subprocess.Popen([sys.executable, "-c", "import os, time; os.fork(); time.sleep(600)"])
print(os.environ[guard.VARIABLE], os.environ[guard.FOLDER], flush=True)
sys.stdin.read()
"""
ASK = """
import signal, sys
from tests.servers import test_guard
from tests.servers.shared import shared
try:
    print(shared(getattr(test_guard, sys.argv[1])).address()["port"], flush=True)
except RuntimeError as error:
    print(error, flush=True)
signal.pause()
"""
CHILDREN = """
import os

def test_whose_child_raises():
    child = os.fork()
    if not child:
        raise OSError("in the child")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 70

def test_whose_child_returns():
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 70

def test_that_comes_later():
    with open(os.environ["NOTES"], "a") as file:
        file.write("once\\n")
"""
FAILING = """
import threading

def test_it():
    threading.Thread(target=threading.Event().wait, name="waiting", daemon=True).start()
    raise OSError
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
    """A run of its own, with processes that ask for a server; it is killed at the end of the block."""

    def __init__(self) -> None:
        settings = {name: value for name, value in os.environ.items() if name not in (guard.VARIABLE, guard.FOLDER)}
        self._process = self._start(RUN, settings)
        self._mark, self._folder = self._said(self._process).split()
        self._settings = {**settings, guard.VARIABLE: self._mark, guard.FOLDER: self._folder}

    @staticmethod
    def _start(code: str, settings: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=settings, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    @staticmethod
    def _said(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def ask(self, kind: str, processes: int) -> list[str]:
        """Have so many processes ask for a server at once, and kill them; return the answers."""
        asking = [self._start(ASK, self._settings, kind) for _ in range(processes)]
        answers = [self._said(process) for process in asking]
        for process in asking:
            with process:
                process.kill()
        return answers

    @property
    def starts(self) -> int:
        """How often a server was started."""
        return len(Path(self._folder, "starts").read_text())

    def processes(self) -> list[int]:
        """Return the processes that carry the mark of the run."""
        return [int(entry.name) for entry in Path("/proc").iterdir() if guard.is_marked(entry, self._mark)]

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._process as process:
            process.kill()
        deadline = time.monotonic() + SECONDS
        while (self.processes() or os.path.exists(self._folder)) and time.monotonic() < deadline:
            time.sleep(0.05)
        left = [pid for pid in self.processes() if guard.kill(pid)]
        assert not left
        assert not os.path.exists(self._folder)


def test_nothing_outlives_a_run_that_is_killed() -> None:
    with Run() as run:
        deadline = time.monotonic() + SECONDS
        while len(run.processes()) < 5 and time.monotonic() < deadline:  # the run and its four: they are still starting
            time.sleep(0.05)
        assert len(run.processes()) == 5


def test_one_server_serves_all_processes_of_a_run_and_ends_with_it() -> None:
    with Run() as run:
        first, *others = run.ask("Listening", 3)
        assert others == [first] * 2
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


def run_pytest(folder: Path, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder with no plugins but those named: others take seconds to import."""
    environment = {**os.environ, **settings, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "no:cacheprovider", "-n", "1", *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=50)


def test_a_child_never_runs_other_tests(tmp_path: Path) -> None:
    (tmp_path / "test_children.py").write_text(CHILDREN)
    done = run_pytest(tmp_path, "-p", "tests.escaped", NOTES=str(tmp_path / "notes"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert (tmp_path / "notes").read_text() == "once\n"


def test_a_failed_run_ends_with_room_seed_and_stacks(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "test_failing.py").write_text(FAILING)
    plugins = ("-p", "_hypothesis_pytestplugin", "-p", "tests.failures")
    done = run_pytest(tmp_path, *plugins, "--hypothesis-seed=17")
    last = done.stdout.partition("1 failed")[2]
    assert "room room, seed 17" in last
    assert "pytest 'room/test_failing.py::test_it' --hypothesis-seed=17" in last
    assert "waiting:" in last, "the stack of a thread by its name"
