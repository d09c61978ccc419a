"""The working tree against a commit: each runs its own benchmarks on its own code, turn by turn, in one run.

Both sides are copies in a temporary folder, so that the results of neither are written into the working tree. A turn
runs a benchmark once in the working tree's copy and twice in the commit's: how far its second figures are from its
first shows what the machine adds by itself.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from . import one, peers
from .measure import Dropped, Round, Spread, ratios, spread, take_turns
from .report import figure
from .workers import Here, run_script

SLOWER = 1.03
"""A row is slower where the whole interval of its ratio lies above this."""
NEW, OLD, AGAIN = "new", "old", "old once more"
_more_is_better = re.compile(r"/s\b|%").search
"""Of a unit: rates, and the utilisation of a GPU."""


class Comparison(NamedTuple):
    """A figure of both sides."""

    row: str
    ratio: Spread
    """New to old, within each turn: above 1 is slower."""
    noise: Spread
    """Old once more to old, within each turn."""

    @property
    def slower(self) -> bool:
        """Whether the new side is slower by more than what may be chance."""
        return self.ratio.low > SLOWER


def run(commit: str, names: Sequence[str], turns: int, options: Sequence[str]) -> int:
    """Compare by the benchmarks `names`, or by all; return how many rows are slower and how many benchmarks failed.

    Args:
        commit: what the working tree is compared with.
        names: of benchmarks; all of both sides without one.
        turns: how many, after one that doesn't count.
        options: the command line's for a benchmark.
    """
    with tempfile.TemporaryDirectory(prefix="fsabs-bench-against-") as folder:
        new = checked_out(Path(folder, "new"), "add", "--all")
        old = checked_out(Path(folder, "old"), "read-tree", commit)
        of_new, of_old = (set(one.names(side / "benchmarks")) for side in (new, old))
        sys.stdout.write(f"new: the working tree, old: {commit}, in {turns} turns; above 1 is slower, also for rates\n")
        bad = 0
        for name in names or sorted(of_new | of_old):
            if name not in of_new & of_old:
                sys.stdout.write(f"\n=== {name}: missing in {OLD if name in of_new else NEW}\n")
                continue
            sides = {NEW: new, OLD: old, AGAIN: old}
            rounds = {side: functools.partial(figures, tree, name, options) for side, tree in sides.items()}
            bad += compare(name, {side: Here(run) for side, run in rounds.items()}, turns)
        return bad


def known(commit: str) -> bool:
    """Return whether git knows a commit."""
    command = ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
    return not subprocess.run(command, cwd=one.ROOT, stdout=subprocess.DEVNULL).returncode


def checked_out(folder: Path, *fill: str) -> Path:
    """Have a command of git fill an index of its own, write the index's files to a new folder, and return that."""
    environment = {**os.environ, "GIT_INDEX_FILE": f"{folder}.index"}
    for command in (fill, ("checkout-index", "--all", f"--prefix={folder}/")):
        subprocess.run(["git", *command], cwd=one.ROOT, env=environment, check=True)
    return folder


def figures(tree: Path, name: str, options: Sequence[str]) -> Round:
    """Run a benchmark of a tree on the tree's own code, without peers; return the median of each row of ours.

    The rows are those of the tables, the claims with a unit, and the CPU time of each contestant. A rate is returned as
    its inverse, so that less is better in every row. A figure of 0 has no ratio, and is left out.
    Raises `Dropped` where the benchmark fails.
    """
    path = os.pathsep.join(filter(None, (str(tree), os.environ.get("PYTHONPATH"))))
    environment = {"PYTHONPATH": path, peers.OURS_ALONE: "1", "PYTHONDONTWRITEBYTECODE": ""}
    try:
        run_script(sys.executable, ["benchmarks", "--here", *options, name], environment, tree, timeout=None)
    except OSError as exc:
        raise Dropped(str(exc)) from exc
    found = json.loads((tree / "benchmarks" / "results" / f"{name}.json").read_text())
    rows = [
        (f"{table['title']}, {row['name']}", table["unit"], row["value"]["median"])
        for table in found["tables"]
        for row in table["rows"]
        if row["mine"]
    ]
    rows += [
        (claim["what"], claim["unit"], claim["figure"]["median"])
        for claim in found["claims"]
        if claim["figure"] and claim["unit"] not in ("", "x")  # those are of several rows, or no amounts
    ]
    rows += [(what, "CPU seconds", seconds) for what, seconds in found.get("cpu", {}).items()]
    return {f"{what} [{unit}]": 1 / value if _more_is_better(unit) else value for what, unit, value in rows if value}


def compare(name: str, sides: Mapping[str, Here], turns: int) -> int:
    """Let the sides take turns, and print how they compare; return how many rows are slower, 1 where a side fails."""
    try:
        taken = take_turns(sides, turns, fail)
    except Dropped as exc:
        sys.stderr.write(f"failed: {name}, {exc}\n")
        return 1
    comparisons, others = compared(taken)
    lines = [f"\n=== {name}", f"{'new/old (10% .. 90%)':<28}{'old/old (10% .. 90%)':<28}"]
    for comparison in comparisons:
        both = (f"{figure(each._asdict()):<28}" for each in (comparison.ratio, comparison.noise))
        lines.append(f"{''.join(both)}{'SLOWER  ' if comparison.slower else ''}{comparison.row}")
    lines += [f"  {row}: missing in {', '.join(without)}" for row, without in others.items()]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    return sum(comparison.slower for comparison in comparisons)


def fail(side: str, why: Dropped) -> NoReturn:
    """Raise `Dropped`: where one side can't go on, there is nothing to compare."""
    raise Dropped(f"{side}: {why}")


def compared(taken: Mapping[str, Sequence[Round]]) -> tuple[list[Comparison], dict[str, list[str]]]:
    """Return a comparison of each row that all sides have in all turns, and for each other row who is without it."""
    comparisons, others = [], {}
    for row in dict.fromkeys(row for rounds in taken.values() for each in rounds for row in each):
        without = [side for side, rounds in taken.items() if not all(row in each for each in rounds)]
        if without:
            others[row] = without
            continue
        new, old, again = ([each[row] for each in taken[side]] for side in (NEW, OLD, AGAIN))
        comparisons.append(Comparison(row, spread(ratios(new, old)), spread(ratios(again, old))))
    return comparisons, others
