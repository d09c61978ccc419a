"""New interpreters."""

from __future__ import annotations

import os
import subprocess
import sys

from . import Run

_TIMED = "import time; start = time.perf_counter()\n{}\nprint(time.perf_counter() - start)"


def importing(code: str) -> Run:
    """The seconds that a line of code takes in an interpreter that has just started."""
    command = [sys.executable, "-c", _TIMED.format(code)]

    def run() -> dict[str, float]:
        return {"seconds": float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)}

    return run


def running(code: str) -> Run:
    """The CPU time of an interpreter that does no more than a line of code."""
    command = [sys.executable, "-c", code]

    def run() -> dict[str, float]:
        with subprocess.Popen(command) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise OSError(f"{code[:60]} ended with {process.returncode}")
        return {"cpu": usage.ru_utime + usage.ru_stime}

    return run
