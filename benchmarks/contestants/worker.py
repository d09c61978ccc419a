"""The process of one contestant: a line of JSON in, a line of JSON out.

`python -m benchmarks.contestants.worker objects.obstore '{"endpoint": ...}'` prepares the contestant and says
`{"ready": true}`, or `{"absent": "why"}`. Each line `{"run": n}` then is one round: the answer is its seconds, its CPU
seconds (threads and children that have ended included) and what else the contestant counts, or `{"failed": "why"}`.
What libraries print goes to stderr.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import sys
import time
import traceback
from typing import TextIO

from . import Run


def cpu_seconds() -> float:
    """User and system time of this process with all its threads, and of its children that have ended."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def measured(run: Run) -> dict[str, float]:
    """One round."""
    gc.collect()
    cpu, start = cpu_seconds(), time.perf_counter()
    counted = run()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "cpu": cpu_seconds() - cpu, **(counted or {})}


def prepare(name: str, options: str) -> Run:
    """The contestant `MODULE.FUNCTION` of this package."""
    module, _, function = name.rpartition(".")
    made: Run = getattr(importlib.import_module(f"{__package__}.{module}"), function)(**json.loads(options))
    return made


def reason(exc: BaseException) -> str:
    """One line, for a table."""
    return " ".join(traceback.format_exception_only(exc)[-1].split())[:300]


def answer(out: TextIO, **content: object) -> None:
    """One line."""
    out.write(json.dumps(content) + "\n")
    out.flush()


def main(name: str, options: str) -> None:
    """Prepare, then run whenever a line asks for it, until stdin ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        run = prepare(name, options)
    except Exception as exc:  # whatever a peer raises: it is absent, and this is why
        traceback.print_exc()
        answer(out, absent=reason(exc))
        return
    answer(out, ready=True)
    for _ in sys.stdin:
        try:
            answer(out, **measured(run))
        except Exception as exc:  # as above
            traceback.print_exc()
            answer(out, failed=reason(exc))


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # some clients wait for threads of theirs for ever
