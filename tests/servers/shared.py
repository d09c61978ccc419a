"""Servers that all processes of a test run share: one of each kind, started when the first of them asks for it.

A server is kept by a process of its own, so that it outlives the worker whose test asked first; it ends with the run
(`guard.py`). What a client needs to know is in a file of the run's folder: the address, or why the server did not
start. Until that is written the keeper holds a lock, which all others wait for.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, TypeVar

from tests.servers import guard
from tests.servers.process import Server, locked

ROOT = Path(__file__).parents[2]
S = TypeVar("S", bound=Server)
_keepers: list[subprocess.Popen[bytes]] = []
"""They are not waited for: the guard ends them."""
_numbers = itertools.count(1)


def unique(name: str) -> str:
    """Return the name of a bucket or a directory that no other test of the run has, in whatever process."""
    return f"{name}-{os.getpid()}-{next(_numbers)}"


def shared(server: type[S]) -> S:
    """Return the run's server of a kind; raise RuntimeError with the reason if it did not start, now or earlier."""
    folder = Path(os.environ[guard.FOLDER])
    state, log = folder / f"{server.name}.json", folder / f"{server.name}.log"
    for started in (False, True):
        with locked(folder / f"{server.name}.lock") as lock:
            if state.exists():
                break
            if started:
                raise RuntimeError(f"what starts {server.name} was killed:\n{log.read_text(errors='replace')[-2000:]}")
            with log.open("ab") as output:
                _start_keeper(server, folder, lock, output)
    found: dict[str, Any] = json.loads(state.read_text())
    if "error" in found:
        raise RuntimeError(f"{server.name} did not start: {found['error']}")
    return server.at(found)


def _start_keeper(server: type[Server], folder: Path, lock: IO[str], output: IO[bytes]) -> None:
    """Start the process that keeps a server. It has the lock, too, as its standard input."""
    command = [sys.executable, "-m", "tests.servers.shared", server.__module__, server.__name__, str(folder)]
    environment = {**os.environ, "TMPDIR": str(folder)}  # not that of this process, which may end before the run
    keeper = subprocess.Popen(
        command, stdin=lock, stdout=output, stderr=output, cwd=ROOT, env=environment, start_new_session=True
    )
    _keepers.append(keeper)


def keep(server: type[Server], folder: Path) -> None:
    """Start a server, write its address or the error into a file of a folder, and keep it until this process ends."""
    state, aside = folder / f"{server.name}.json", folder / f"{server.name}.new"
    try:
        with server() as one:
            aside.write_text(json.dumps(one.address()))
            aside.rename(state)
            os.close(0)  # the lock
            signal.pause()
    except Exception as error:
        aside.write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        aside.rename(state)
        raise


if __name__ == "__main__":
    keep(getattr(importlib.import_module(sys.argv[1]), sys.argv[2]), Path(sys.argv[3]))
