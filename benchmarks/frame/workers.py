"""A contestant in a process of its own: started in the environment where its client is installed, asked by lines."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from .measure import Dropped, Round

ROOT = Path(__file__).parents[2]
PATIENCE = 180.0
"""Seconds that a contestant may take for its preparations, and for one round."""


class Worker:
    """`benchmarks.contestants.NAME(**options)` in the interpreter `python`."""

    def __init__(self, python: str, name: str, options: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        """Starts it, and waits until it is ready. Raises `Dropped` where it can't be.

        Args:
            python: the interpreter.
            name: `MODULE.FUNCTION` of `benchmarks.contestants`.
            options: its arguments, as JSON can say them.
            environment: variables in addition to ours.
        """
        self._log = open(Path(environment["HOME"]) / "contestants.log", "ab")  # noqa: SIM115 - closed in close()
        command = [python, "-m", "benchmarks.contestants.worker", name, json.dumps(options)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def round(self) -> Round:
        """Have one round run. Raises `Dropped`, and has ended then, where it fails or takes too long."""
        assert self._process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # it has ended: the answer says how
                self._process.stdin.write(b'{"run": 1}\n')
                self._process.stdin.flush()
            return self._answer()
        except Dropped:
            self.close()
            raise

    def close(self) -> None:
        """End it, by force if it doesn't by itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            self._process.kill()
            raise Dropped(f"it hung: no answer in {PATIENCE:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise Dropped(f"its process ended with status {self._process.wait()}")
        answer = json.loads(line)
        if why := answer.get("absent") or answer.get("failed"):
            raise Dropped(why)
        figures: dict[str, float] = answer
        return figures


class Here:
    """A contestant that is another program, which this process starts: `run` gives the figures of one round."""

    def __init__(self, run: Callable[[], Round]) -> None:
        self._run = run

    def round(self) -> Round:
        """One round."""
        return self._run()

    def close(self) -> None:
        """Nothing is kept."""


def in_a_process(
    command: Sequence[str], log: IO[bytes] | None = None, timeout: float | None = None, **options: Any
) -> int:
    """Run a command to its end, and return its exit status.

    If this process is ended first, it ends the command, which stops its servers and removes its files.

    Args:
        command: a program and its arguments.
        log: where its output goes, in place of this process's.
        timeout: seconds after which it is ended, and `subprocess.TimeoutExpired` is raised.
        options: of `subprocess.Popen`.
    """
    with subprocess.Popen(command, stdout=log, stderr=log, **options) as process:
        try:
            return process.wait(timeout)
        except BaseException:
            process.terminate()
            process.wait()
            raise


def run_script(
    python: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path = ROOT,
    timeout: float | None = PATIENCE,
) -> None:
    """Run `python -m ARGUMENTS` in a folder to its end. Raises `OSError` with its last words where it fails."""
    with tempfile.TemporaryFile() as log:
        variables = {**os.environ, **environment}
        status = in_a_process([python, "-m", *arguments], log, timeout, cwd=folder, env=variables)
        log.seek(0)
        words = log.read().decode(errors="replace").strip().splitlines()
    if status:
        raise OSError(words[-1] if words else f"status {status}")
