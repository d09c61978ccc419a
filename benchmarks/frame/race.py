"""A benchmark as its module sees it: `Bench` is its folder, its races and its findings; `Race` is one table.

A module's `run(bench)` starts its servers, enters the contestants of a race (ours first, since the tables show the
others against it), runs it, and claims: each claim is a figure, and says whether its target was reached.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import peers, servers
from .measure import Contestant, Dropped, Round, Spread, Target, ratios, spread, take_turns
from .workers import Here, Worker

_SCALES = {"ns": 1e9, "us": 1e6, "ms": 1e3, "KB": 1e-3, "MB": 1e-6}
"""Of seconds and bytes, by the unit that they are shown in; what is counted is shown as it is."""
_TITLES = {"seconds": "time", "cpu": "CPU time of the client", "bytes": "bytes fetched"}
"""Of the tables of figures."""


def scale(unit: str) -> float:
    """Return by what a figure is multiplied to be shown in a unit, as `ms` or `us/object`."""
    return _SCALES.get(unit.partition("/")[0], 1.0)


class Entrant(NamedTuple):
    """One who takes part."""

    name: str
    each: int
    """How many things (objects, members, ...) one round of it does."""
    mine: bool = False
    """Whether it is what is measured here, and not what that is measured against."""


class Claim(NamedTuple):
    """A figure with its target."""

    what: str
    figure: Spread | None
    """None: it could not be measured."""
    unit: str
    target: Target | None
    note: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the median reached the target; None where one of them isn't there."""
        if self.figure is None or self.target is None:
            return None
        return self.target.reached(self.figure.median)


class Row(NamedTuple):
    """A contestant in a table."""

    name: str
    value: Spread
    ratio: Spread
    """To the table's first line, within each round."""
    mine: bool
    """As of its entrant: drawn so that it stands out."""


class Table(NamedTuple):
    """One figure of all contestants of a race."""

    title: str
    unit: str
    rows: list[Row]


class Bench:
    """One benchmark: what it may use, and what it found."""

    def __init__(self, folder: Path, rounds: int | None) -> None:
        self.folder = folder
        """A temporary folder; everyone may look into it, so that a server of another user can."""
        self._rounds = rounds
        self.tables: list[Table] = []
        self.claims: list[Claim] = []
        self.cpu: dict[str, float] = {}
        """The median of the CPU seconds of each of ours, per thing: the time that other programs disturb least."""
        self.absent: dict[str, str] = {}
        self.notes: list[str] = []

    def race(self, title: str, thing: str, *, rounds: int, environment: Mapping[str, str] | None = None) -> Race:
        """A new race.

        Args:
            title: of its tables.
            thing: what one round does many of: `object`, `member`.
            rounds: how many, unless the command line says it.
            environment: variables for the contestants' processes.
        """
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        variables = {
            "HOME": str(home),
            "FSABS_CACHE_DIR": str(self.folder / "cache"),
            "PFIO_CONFIG_PATH": str(home / "none.ini"),
            "AWS_ACCESS_KEY_ID": "benchmark",
            "AWS_SECRET_ACCESS_KEY": "benchmark",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(home / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(home / "none"),
            "NO_PROXY": "*",
            "no_proxy": "*",
            **(environment or {}),
        }
        return Race(self, title, thing, self._rounds or rounds, variables)

    def claim(self, what: str, values: Sequence[float], unit: str, target: Target | None = None) -> None:
        """A figure over the rounds, in `unit`, and its target."""
        figure = spread(values) if values else None
        self.claims.append(Claim(what, figure, unit, target, "" if values else "not measured"))

    def unmeasured(self, what: str, target: Target | None, why: str) -> None:
        """A claim that can't be tested here, and why."""
        self.claims.append(Claim(what, None, "", target, why))

    def note(self, text: str) -> None:
        """A sentence under the tables: how it was measured, what it doesn't show."""
        if text not in self.notes:
            self.notes.append(text)


class Counted:
    """A contestant whose requests a server's log counts."""

    def __init__(self, contestant: Contestant, log: Path) -> None:
        self._contestant, self._log = contestant, log

    def round(self) -> Round:
        """The round, with its `requests` and the `bytes` that were sent for it."""
        start = self._log.stat().st_size
        figures = self._contestant.round()
        asked, _ = servers.requests(self._log, start)
        return {**figures, "requests": float(asked.number), "bytes": float(asked.size)}

    def close(self) -> None:
        """End it."""
        self._contestant.close()


class Race:
    """Contestants that do the same work, in turns; made by `Bench.race`, used as a context manager."""

    def __init__(self, bench: Bench, title: str, thing: str, rounds: int, environment: Mapping[str, str]) -> None:
        self._bench = bench
        self.title = title
        self.thing = thing
        self.rounds = rounds
        self.environment = environment
        """The variables of the contestants' processes."""
        self.log: Path | None = None
        """A server's log: whoever is entered from then on has the `requests` and `bytes` of each round counted."""
        self._contestants: dict[str, Contestant] = {}
        self._entrants: dict[str, Entrant] = {}
        self._absent: dict[str, str] = {}
        self._taken: dict[str, list[Round]] = {}

    def __enter__(self) -> Race:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.ExitStack() as stack:
            for contestant in self._contestants.values():
                stack.callback(contestant.close)

    # ---- who takes part

    def ours(
        self, name: str, contestant: str, each: int, of: tuple[str, str] | None = None, /, **options: Any
    ) -> Entrant:
        """One of ours, in this interpreter. It must run: what it raises ends the benchmark.

        Args:
            name: in the tables.
            contestant: `MODULE.FUNCTION` of `benchmarks.contestants`.
            each: how many things a round does.
            of: an environment of the peers and a package of it, to be run there.
            options: of the contestant.
        """
        python = peers.interpreter(*of) if of else sys.executable
        worker = Worker(python, contestant, options, self.environment)
        return self._entered(Entrant(name, each, True), worker)

    def beside(self, name: str, contestant: str, each: int, /, **options: Any) -> Entrant:
        """Python's own, or another that is installed in this interpreter. It must run, as ours."""
        worker = Worker(sys.executable, contestant, options, self.environment)
        return self._entered(Entrant(name, each), worker)

    def peer(
        self, name: str, package: str, contestant: str, each: int, /, *, of: str = "clients", **options: Any
    ) -> Entrant:
        """A peer, in its own environment (`of`). Where it can't run, it is absent, and the tables say why."""
        try:
            peers.ensure_wanted()
            python = peers.interpreter(of, package)
            return self._entered(Entrant(name, each), Worker(python, contestant, options, self.environment))
        except (peers.Missing, Dropped) as exc:
            return self.absent(name, exc)

    def program(self, name: str, run: Callable[[], Round] | None, each: int, why_not: str = "") -> Entrant:
        """Another program, started by `run`, which gives the figures of a round; None where it is missing."""
        try:
            peers.ensure_wanted()
        except peers.Missing as exc:
            return self.absent(name, exc)
        if run is None:
            return self.absent(name, Dropped(why_not))
        return self._entered(Entrant(name, each), Here(run))

    def absent(self, name: str, why: Exception) -> Entrant:
        """One who can't take part, and why."""
        self._drop(name, why)
        return Entrant(name, 1)

    def _entered(self, entrant: Entrant, contestant: Contestant) -> Entrant:
        self._contestants[entrant.name] = Counted(contestant, self.log) if self.log else contestant
        self._entrants[entrant.name] = entrant
        return entrant

    def _drop(self, name: str, why: Exception) -> None:
        self._absent[name] = self._bench.absent[f"{name} ({self.title})"] = str(why)

    # ---- what comes out

    def run(self, unit: str = "", *figures: str, warming: int = 1) -> None:
        """Run all rounds, and add a table of each of `figures`, or of the seconds.

        Args:
            unit: of the tables: `us/object` is microseconds for each thing. Without one there are none.
            figures: the first one's table has the race's title.
            warming: how many rounds come before, which don't count.
        """
        self._taken = take_turns(self._contestants, self.rounds, self._drop, warming)
        for name, entrant in self._entrants.items():
            if entrant.mine and self._has(name, "cpu"):
                self._bench.cpu[f"{self.title}, {name}"] = statistics.median(self.values(entrant, "cpu"))
        for number, figure in enumerate((figures or ("seconds",)) if unit else ()):
            self.table(figure, unit, f"{self.title}: {_TITLES[figure]}" if number else "")

    def values(self, entrant: Entrant, figure: str) -> list[float]:
        """A figure of one contestant, per thing, in each round; nothing where it is absent."""
        return [each[figure] / entrant.each for each in self._taken.get(entrant.name, [])]

    def counts(self, entrant: Entrant, figure: str) -> list[float]:
        """A figure of one contestant for a whole round."""
        return [each[figure] for each in self._taken.get(entrant.name, [])]

    def table(self, figure: str, unit: str, title: str = "", *, whole_round: bool = False) -> None:
        """Add a table of one figure of all contestants, each against the first.

        Args:
            figure: `seconds`, `cpu`, or what the contestants count.
            unit: what the values are shown in.
            title: in place of the race's, and of what the figure is.
            whole_round: the figure of a round, and not of one thing in it.
        """
        get = self.counts if whole_round else self.values
        taken = {name: get(one, figure) for name, one in self._entrants.items() if self._has(name, figure)}
        base = next(iter(taken.values()), [])
        if not base or not all(base):
            return
        rows = [
            Row(
                name,
                spread([value * scale(unit) for value in values]),
                spread(ratios(values, base)),
                self._entrants[name].mine,
            )
            for name, values in taken.items()
        ]
        self._bench.tables.append(Table(title or self.title, unit, rows))

    def _has(self, name: str, figure: str) -> bool:
        taken = self._taken.get(name, [])
        return bool(taken) and all(figure in each for each in taken)

    def faster(
        self,
        mine: Entrant,
        theirs: Entrant,
        target: Target | None = None,
        figure: str = "seconds",
        what: str = "speed",
    ) -> None:
        """Claim how many times as fast one is as another: `target` is at least so many times."""
        self._versus(f"{mine.name}: {what} against {theirs.name}", theirs, mine, figure, target)

    def cheaper(
        self, mine: Entrant, theirs: Entrant, target: Target | None, figure: str = "cpu", what: str = "CPU time"
    ) -> None:
        """Claim what part of another's cost one has: `target`, if there is one, is at most so many times."""
        self._versus(f"{mine.name}: {what} against {theirs.name}", mine, theirs, figure, target)

    def _versus(self, what: str, upper: Entrant, lower: Entrant, figure: str, target: Target | None) -> None:
        uppers, lowers = self.values(upper, figure), self.values(lower, figure)
        what = f"{self.title}, {what}"
        if uppers and lowers:
            self._bench.claim(what, ratios(uppers, lowers), "x", target)
        else:
            missing = upper.name if not uppers else lower.name
            self._bench.unmeasured(what, target, f"{missing} is absent: {self._absent.get(missing, 'no figures')}")

    def against_best(self, mine: Entrant, others: Sequence[Entrant], target: Target) -> None:
        """Claim the speed against the fastest of those that are there, round by round."""
        what = f"{self.title}, {mine.name}: speed against the best of {', '.join(one.name for one in others)}"
        theirs = [values for one in others if (values := self.values(one, "seconds"))]
        if not theirs:
            self._bench.unmeasured(what, target, "all of them are absent")
            return
        best = [min(values) for values in zip(*theirs, strict=True)]
        self._bench.claim(what, ratios(best, self.values(mine, "seconds")), "x", target)

    def rate(self, mine: Entrant, target: Target | None = None) -> None:
        """Claim how many things a second one does."""
        rates = [1 / seconds for seconds in self.values(mine, "seconds")]
        self._bench.claim(f"{self.title}, {mine.name}", rates, f"{self.thing}s/s", target)

    def claim(self, mine: Entrant, unit: str, target: Target, what: str = "", figure: str = "seconds") -> None:
        """Claim a figure of whole rounds, in `unit`."""
        values = [value * scale(unit) for value in self.counts(mine, figure)]
        self._bench.claim(what or f"{self.title}, {mine.name}", values, unit, target)
