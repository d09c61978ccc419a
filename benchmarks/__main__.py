"""`python -m benchmarks [NAME...]`: run the benchmarks, all or those named, each in a process of its own.

Prints tables of medians and ratios and whether each target was reached, and writes `benchmarks/results/NAME.json` and
`NAME.svg`. The exit status is that of the running: a target that is missed is printed, and is no error.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time

from .frame import document, one, servers


def listed() -> str:
    """Each name with the first line of its module."""
    return "".join(f"{name:<14} {one.title(name)}\n" for name in one.names())


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Ours against the peers, in turns.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all without one")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--install", action="store_true", help="install nginx and wrk, or say how")
    parser.add_argument("--document", action="store_true", help="write benchmarks/results/tables.md anew")
    parser.add_argument("--full", action="store_true", help="the full sizes, which take longer")
    parser.add_argument("--rounds", type=int, help="in place of each benchmark's own number of rounds (at least 1)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in this process: for a profiler
    return parser


def run(names: list[str], options: list[str]) -> int:
    """Run each in its own process; how many failed."""
    failed = []
    for name in names:
        start = time.monotonic()
        status = in_a_process([sys.executable, "-m", "benchmarks", "--here", *options, name])
        sys.stdout.write(f"  ({name}: {time.monotonic() - start:.0f} s)\n")
        sys.stdout.flush()
        failed += [name] if status else []
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}\n")
    return len(failed)


def in_a_process(command: list[str]) -> int:
    """Its exit status. What ends this process ends that one first, which stops its servers and removes its files."""
    with subprocess.Popen(command, cwd=one.ROOT) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise


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
    if chosen.list:
        sys.stdout.write(listed())
        return 0
    if chosen.install:
        return min(servers.install(), 1)
    if chosen.document:
        document.write()
        return 0
    if chosen.here:
        for name in chosen.names:
            one.run(name, full=chosen.full, rounds=chosen.rounds)
        return 0
    options = ["--full"] if chosen.full else []
    options += ["--rounds", str(chosen.rounds)] if chosen.rounds else []
    return min(run(chosen.names or one.names(), options), 1)


if __name__ == "__main__":
    sys.exit(main())
