"""`python -m tests.soak`: run the tests marked `soak` with new seeds until `$SOAK_MINUTES` are over.

Each run of a test is a process of its own with a time limit. The state (the next seed of each test, what was tried,
what failed) is a JSON file, so that an interrupted soak continues with the next seed. `RESULTS.txt` has the totals. The
exit status is 1 if a run failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.servers import guard

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".soak.json"
RESULTS = Path(__file__).with_name("RESULTS.txt")
HEAD = """`make soak` writes this file: what all runs of a soak have tried.
"""
ROW = "{:<70}  {:>4}  {:>7}  {:>6}  {}"
FACTOR = int(os.environ.get("SOAK_FACTOR", "5"))
"""How many times the rounds of the suite each run has."""
LIMIT = 900.0
"""Seconds after which a run counts as hung."""


def collected() -> list[str]:
    """Return the ids of all tests marked `soak`."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "soak", *sys.argv[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if "::" in line and not line.startswith(("=", "E", " "))]
    if not found:
        sys.exit(f"no test is marked soak:\n{done.stdout}{done.stderr}")
    return found


def load() -> dict[str, Any]:
    """Return the state of an earlier soak, or an empty one."""
    return json.loads(STATE.read_text()) if STATE.exists() else {}


def save(state: dict[str, Any]) -> None:
    """Write the state, whole or not at all."""
    aside = STATE.with_suffix(".new")
    aside.write_text(json.dumps(state, indent=1, sort_keys=True))
    aside.replace(STATE)


def run(test: str, seed: int, seconds: float) -> tuple[bool, Counter[str], str]:
    """Run one test with `seed`; return if it passed, what it counted, and the end of its output."""
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as counts:
        settings = {"FSABS_SOAK_SEED": str(seed), "FSABS_SOAK_FACTOR": str(FACTOR), "FSABS_SOAK_COUNTS": counts.name}
        limits = [f"--timeout={seconds:.0f}", f"--override-ini=faulthandler_timeout={seconds:.0f}"]
        command = [sys.executable, "-m", "pytest", "-q", *limits, "-p", "no:cacheprovider", test]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, timeout=seconds + 60
            )
            passed, output = done.returncode == 0, done.stdout + done.stderr
        except subprocess.TimeoutExpired as exc:
            passed, output = False, f"no end after {seconds:.0f} s: {exc.stdout!r}"
        tried: Counter[str] = Counter()
        for line in counts:
            tried.update(json.loads(line))
    return passed, tried, output[-4000:]


def turns(tests: list[str], state: dict[str, Any], end: float) -> Iterator[str]:
    """Yield the test that has had the least time so far, in all soaks, until the time is over."""
    while time.monotonic() < end:
        yield min(tests, key=lambda test: (state[test]["seconds"] if test in state else 0.0, tests.index(test)))


def main() -> int:
    """Run the soak; return the exit status."""
    guard.start()
    minutes = float(os.environ.get("SOAK_MINUTES", "60"))
    tests, state = collected(), load()
    print(f"{len(tests)} tests for {minutes:g} minutes; state in {STATE.name}", flush=True)
    failures = 0
    for test in turns(tests, state, time.monotonic() + 60 * minutes):
        mine = state.setdefault(test, {"seed": 1000, "runs": 0, "seconds": 0.0, "tried": {}, "failed": []})
        seed, begin = mine["seed"], time.monotonic()
        mine["seed"] = seed + 1
        mine["seconds"] += 1.0  # if the soak is killed in this run, the next one begins with another test
        save(state)
        passed, tried, output = run(test, seed, LIMIT)
        mine["runs"] += 1
        mine["seconds"] += time.monotonic() - begin - 1.0
        mine["tried"] = dict(Counter(mine["tried"]) + tried)
        if not passed:
            failures += 1
            mine["failed"].append({"seed": seed, "output": output})
            print(output, flush=True)
        print(f"{'passed' if passed else 'FAILED'} seed {seed} {test} {dict(tried)}", flush=True)
        save(state)
    document(state)
    return 1 if failures else 0


def document(state: dict[str, Any]) -> None:
    """Write the totals."""
    lines = [HEAD, ROW.format("test", "runs", "minutes", "failed", "tried")]
    for test, mine in sorted(state.items()):
        name = test.partition("::")[2].replace("::", " ").removeprefix("test_").replace("_", " ")
        tried = ", ".join(f"{number:,} {what}" for what, number in sorted(mine["tried"].items()))
        minutes = f"{mine['seconds'] / 60:.1f}"
        lines.append(ROW.format(name, mine["runs"], minutes, len(mine["failed"]), tried).rstrip())
    RESULTS.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    sys.exit(main())
