"""New interpreters."""

from __future__ import annotations

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
