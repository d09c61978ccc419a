"""`python -m benchmarks [NAME...]`: run the benchmarks, all or those named, each in a process of its own.

Prints tables of medians and ratios and whether each target was reached, and writes `benchmarks/results/NAME.md`. The
exit status is that of the running: a target that is missed is printed, and is no error.

`--against REF` compares the working tree with a commit instead, and writes nothing: the exit status is 1 if a row is
slower.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time

from .frame import against, one
from .frame.workers import in_a_process


def listed() -> str:
    """Each name with the first line of its module."""
    return "".join(f"{name:<17}{one.title(name)}\n" for name in one.names())


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Ours against the peers, in turns.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all without one")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--rounds", type=int, help="in place of each benchmark's own number of rounds (at least 1)")
    parser.add_argument("--against", metavar="REF", help="compare the working tree with a commit, without the peers")
    parser.add_argument("--turns", type=int, default=9, help="how often --against runs each side (9; at least 1)")
    parser.add_argument(
        "--here", action="store_true", help=argparse.SUPPRESS
    )  # in this process: for --against, and a profiler
    return parser


def run(names: list[str], options: list[str]) -> int:
    """Run each in its own process; how many failed."""
    failed = []
    for name in names:
        start = time.monotonic()
        status = in_a_process([sys.executable, "-m", "benchmarks", "--here", *options, name], cwd=one.ROOT)
        sys.stdout.write(f"  ({name}: {time.monotonic() - start:.0f} s)\n")
        sys.stdout.flush()
        failed += [name] if status else []
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}\n")
    return len(failed)


def main() -> int:
    """The exit status."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    parser = arguments()
    chosen = parser.parse_args()
    unknown = set(chosen.names) - set(one.names())
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(one.names())}")
    if chosen.rounds is not None and chosen.rounds < 1:
        parser.error("--rounds is at least 1")
    if chosen.turns < 1:
        parser.error("--turns is at least 1")
    if chosen.against and not against.known(chosen.against):
        parser.error(f"no such commit: {chosen.against}")
    if chosen.list:
        sys.stdout.write(listed())
        return 0
    if chosen.here:
        for name in chosen.names:
            one.run(name, chosen.rounds)
        return 0
    if chosen.against:
        options = ["--rounds", str(chosen.rounds or 1)]
        return min(against.run(chosen.against, chosen.names, chosen.turns, options), 1)
    options = ["--rounds", str(chosen.rounds)] if chosen.rounds else []
    return min(run(chosen.names or one.names(), options), 1)


if __name__ == "__main__":
    sys.exit(main())
