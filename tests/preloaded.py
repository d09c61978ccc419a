"""Programs of Python that start at once: each is forked from a process that has imported what takes seconds.

`run` and `start` take a command as `subprocess` does, without the interpreter: a script, `-c CODE` or `-m MODULE`,
behind `-W ACTION` or not. Such a program has a session, a `__main__`, an environment and warning filters of its own and
ends as any other, exit handlers included. What is imported before are libraries of others, never fsabs; they run on one
thread.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TORCHRUN = ("torch", "torch.distributed.launcher.api")
TORCH = ("torch", "torch._dynamo")
"""torch, and what its optimizers and distributed models import when there is the first."""


_LENGTH = 8  # of the length of an order


class _Server:
    """The process that has imported some libraries."""

    def __init__(self, libraries: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *libraries],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

        atexit.register(self._end, os.getpid())

    def _end(self, owner: int) -> None:
        if os.getpid() == owner:
            self._process.kill()
            self._process.wait()
            self._control.close()

    def ask(self, order: Mapping[str, Any], files: Sequence[int] = ()) -> Any:
        """Return the answer to an order: the number of a process, or how one ended."""
        message = json.dumps(order).encode()
        with self._lock:
            socket.send_fds(self._control, [len(message).to_bytes(_LENGTH, "big")], files)
            self._control.sendall(message)
            answer = self._control.recv(100)
        if not answer:
            raise RuntimeError("the process that programs are forked from has ended")
        return json.loads(answer)


_servers: dict[tuple[str, ...], _Server] = {}


class Program:
    """A program that runs."""

    def __init__(self, server: _Server, order: Mapping[str, Any], files: Sequence[int]) -> None:
        self._server = server
        self.pid = server.ask(order, files)
        self.returncode: int | None = None

    def wait(self, timeout: float) -> int:
        """Return how it ended, as `subprocess` does; a program that takes longer is killed, and an error."""
        end, pause = time.monotonic() + timeout, 0.001
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                self.kill()
                raise subprocess.TimeoutExpired(f"program {self.pid}", timeout)
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        return code

    def poll(self) -> int | None:
        """Return how it ended; None if it runs."""
        if self.returncode is None:
            self.returncode = self._server.ask({"ended": self.pid})
        return self.returncode

    def kill(self) -> None:
        """Kill it, with the processes of its session, and wait for its end."""
        if self.poll() is None:
            for kill in (os.killpg, os.kill):  # it may not have a session yet
                with contextlib.suppress(ProcessLookupError):
                    kill(self.pid, signal.SIGKILL)
            self.wait(60)


def start(
    libraries: tuple[str, ...],
    command: Sequence[object],
    files: tuple[int, int, int],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Program:
    """Start a program whose standard streams are open files."""
    server = _servers.get(libraries) or _servers.setdefault(libraries, _Server(libraries))
    order = {"command": list(map(str, command)), "cwd": str(cwd or Path.cwd()), "env": {**(env or os.environ)}}
    return Program(server, order, files)


def run(
    libraries: tuple[str, ...],
    command: Sequence[object],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    input: bytes = b"",
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its standard streams are pipes."""
    (reads, given), (out, writes), (err, complains) = os.pipe(), os.pipe(), os.pipe()
    theirs = reads, writes, complains
    program = start(libraries, command, theirs, cwd=cwd, env=env)
    for file in theirs:
        os.close(file)
    with ThreadPoolExecutor(3) as threads:
        threads.submit(_write, given, input)
        texts = [threads.submit(_read, file) for file in (out, err)]
        code = program.wait(timeout)
        return subprocess.CompletedProcess([*map(str, command)], code, *(text.result() for text in texts))


def _write(file: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(file, "wb") as stream:
        stream.write(data)


def _read(file: int) -> str:
    with open(file, "rb") as stream:
        return stream.read().decode(errors="surrogateescape")


# ---- the process that has imported the libraries


def _serve(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork a process for each order; return in it."""
    while True:
        head, files, _, _ = socket.recv_fds(control, _LENGTH, 3)
        if not head:
            os._exit(0)
        length, parts = int.from_bytes(head, "big"), []
        while length:
            parts.append(control.recv(length))
            length -= len(parts[-1])
        order = json.loads(b"".join(parts))
        if "ended" in order:
            pid, status = os.waitpid(order["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif not (answer := os.fork()):
            control.close()
            return order, files
        for file in files:
            os.close(file)
        control.send(json.dumps(answer).encode())


def _become(command: list[str], cwd: str, env: dict[str, str], files: list[int]) -> None:
    """Run a program in this process, which was forked."""
    os.setsid()
    for file, (number, name) in zip(files, enumerate(("stdin", "stdout", "stderr")), strict=True):
        os.dup2(file, number)
        os.close(file)
        was = getattr(sys, name)  # of another kind of file, which could be sought in
        options = {
            "encoding": was.encoding,
            "errors": was.errors,
            "closefd": False,
            "buffering": 1 if number == 2 else -1,
        }
        stream = open(number, "w" if number else "r", **options)  # noqa: SIM115 - it stays
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    time.tzset()
    if command[0] == "-W":
        sys.warnoptions.append(command[1])
        warnings.simplefilter(command[1])  # type: ignore[arg-type]
        command = command[2:]
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    found = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    if command[0] == "-m":
        sys.argv, sys.path[:1] = command[1:], [cwd, *found]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    if command[0] == "-c":
        sys.argv, sys.path[:1] = ["-c", *command[2:]], ["", *found]
        code = compile(command[1], "<string>", "exec", dont_inherit=True)
    else:
        sys.argv, sys.path[:1] = command, [str(Path(command[0]).resolve().parent), *found]
        main.__file__ = command[0]
        code = compile(Path(command[0]).read_bytes(), command[0], "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


if __name__ == "__main__":
    for _library in sys.argv[2:]:
        importlib.import_module(_library)
    gc.collect()
    gc.freeze()
    _order, _files = _serve(socket.socket(fileno=int(sys.argv[1])))
    _kept = sys.modules["__main__"]  # the program takes its place, and this one would be emptied as it is freed
    _become(**_order, files=_files)
