"""Commands of a shell, each run as a process of its own: ours and its peers'."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import Run


def running(command: Sequence[str], removed: str = "", lines: int = 0) -> Run:
    """A command, before which a file or folder is removed, which is not timed.

    Args:
        command: its program and arguments; a program `fsabs` is this package's.
        removed: what an earlier round has written.
        lines: how many it writes to the standard output; 0 for any number.
    """
    program, *arguments = command
    own = os.path.join(os.path.dirname(sys.executable), program)
    started = [sys.executable, "-m", "fsabs"] if program == "fsabs" else [own if os.path.exists(own) else program]
    started += arguments
    variables = {**os.environ, "PYTHONPYCACHEPREFIX": os.path.join(os.environ["HOME"], "bytecode")}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed command has its bytecode, which pip compiles

    def run() -> dict[str, float]:
        if os.path.isdir(removed):
            shutil.rmtree(removed)
        elif removed:
            Path(removed).unlink(missing_ok=True)
        return _run(started, variables, lines)

    return run


def _run(command: Sequence[str], environment: dict[str, str], lines: int) -> dict[str, float]:
    start = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        written = 0
        while block := process.stdout.read(1 << 20):
            written += block.count(b"\n")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if process.returncode or (lines and written != lines):
        raise OSError(f"{' '.join(command)[:100]} ended with {process.returncode}, after {written} lines")
    return {"seconds": seconds, "cpu": usage.ru_utime + usage.ru_stime, "memory": usage.ru_maxrss * 1024.0}
