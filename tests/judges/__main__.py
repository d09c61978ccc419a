"""`python -m tests.judges [--short] [NAME...]`: run the suites of other projects, and compare with `expected.toml`.

The packages that suites come with are installed, pinned, into `.venv-judges`, which finds those of the tests, too. Each
suite runs in a process of its own for each store, two at once. The exit status is 1 if a test fails that the list does
not name, or passes that it names. A run of everything writes `RESULTS.txt`.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.judges import sources
from tests.judges.suites import SUITES, Suite
from tests.release.__main__ import AT_ONCE, ROOT, kept_environment
from tests.servers import guard

FOLDER = ROOT / ".venv-judges"
EXPECTED = Path(__file__).with_name("expected.toml")
RESULTS = Path(__file__).with_name("RESULTS.txt")
HEAD = """`make judges` writes this file. expected.toml names each test that did not pass, and the reason.
"""
ROW = "{:<72}  {:<11}  {:<9}  {:>6}  {:>10}  {:>20}"
PYTHON = (3, 11)
"""The version whose own tests the list is about; those of another are run, and not compared."""
LIMIT = 1800.0
"""Seconds after which a suite counts as hung."""
PACKAGES = sorted({name for suite in SUITES.values() for name in (suite.package, *suite.beside) if name})
SOURCES = FOLDER / "sources"


class Run(NamedTuple):
    """A suite on a store, and what came of it."""

    name: str
    place: str
    outcomes: dict[str, str]
    output: str
    seconds: float

    @property
    def counts(self) -> Counter[str]:
        """The number of tests by outcome."""
        return Counter(self.outcomes.values())


class Expected(NamedTuple):
    """Tests of a suite that do not pass, and why. In a name `*` stands for any text."""

    suite: str
    reason: str
    tests: list[str]
    places: list[str] | None = None

    def names(self, test: str) -> str | None:
        """Return the line of the list that a test is named by."""
        return next((line for line in self.tests if re.fullmatch(re.escape(line).replace(r"\*", ".*"), test)), None)


def run(python: Path, name: str, place: str) -> Run:
    """Run a suite on a store, in a folder of its own."""
    suite = SUITES[name]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fsabs-judges-") as folder:
        outcomes = Path(folder, "outcomes.json")
        foreign = ("AWS_", "S3_", "PYTEST_", "FSABS_")  # a user's settings, but not the mark of the guard
        env = {key: value for key, value in os.environ.items() if key == guard.VARIABLE or not key.startswith(foreign)}
        env |= {"FSABS_JUDGES_PLACE": place, "FSABS_JUDGES_OUTCOMES": str(outcomes), "HOME": folder, "TMPDIR": folder}
        env["FSABS_JUDGES_SOURCES"] = str(SOURCES)
        source = sources.folder_of(suite, SOURCES) if suite.sdist else ROOT
        env["PYTHONPATH"] = f"{ROOT}{os.pathsep}{source}"
        command = [str(python), "-X", "faulthandler", "-m", *arguments(suite)]
        with Path(folder, "output").open("w+", errors="replace") as output:
            process = subprocess.Popen(
                command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                print(f"{name} on {place} takes longer than {LIMIT:.0f} s", flush=True)
            finally:
                process.kill()  # what it has started ends with it, or by the guard
                process.wait()
            output.seek(0)
            found = json.loads(outcomes.read_text()) if outcomes.exists() else {"no outcomes were written": "failed"}
            return Run(name, place, found, output.read(), time.monotonic() - begin)


def arguments(suite: Suite) -> list[str]:
    """Return the arguments of the interpreter that runs a suite."""
    if suite.modules:
        return ["tests.judges.unittests", *suite.modules]
    plugins = ["tests.judges.recording", *suite.plugins]
    files = ["--pyargs", *suite.targets]
    if suite.targets:
        plugins.append(f"tests.judges.shims.{suite.shim}")
    else:
        files = [str(Path(__file__).with_name("shims") / f"{suite.shim}.py")]
    options = ["-c", os.devnull, f"--rootdir={ROOT}", "-q", "-p", "no:cacheprovider", "--timeout=300", "--tb=short"]
    options += ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
    options += [f"-p{plugin}" for plugin in plugins]
    return ["pytest", *options, *files]


def load() -> list[Expected]:
    """Return the list of what does not pass."""
    tables: dict[str, list[dict[str, Any]]] = tomllib.loads(EXPECTED.read_text())
    return [Expected(suite, **table) for suite, found in tables.items() for table in found]


def compare(run: Run, expected: Iterable[Expected]) -> list[str]:
    """Return what is not as the list says."""
    mine = [one for one in expected if one.suite == run.name and run.place in (one.places or [run.place])]
    unused = {line for one in mine for line in one.tests}
    problems = []
    for test, outcome in sorted(run.outcomes.items()):
        lines = {line for one in mine if (line := one.names(test))}
        unused -= lines
        if outcome == "failed" and not lines:
            problems.append(f"fails: {test}")
        elif outcome != "failed" and lines:
            problems.append(f"is {outcome}, and listed: {test}")
    return problems + [f"is listed, and no test: {line}" for line in sorted(unused)]


def document(runs: Iterable[Run]) -> None:
    """Write the table of what the suites have given."""
    lines = [HEAD, ROW.format("suite", "version", "store", "passed", "not passed", "skipped by the suite")]
    for one in runs:
        suite, counts = SUITES[one.name], one.counts
        version = suite.package.partition("==")[2] or "Python {}.{}".format(*sys.version_info)
        numbers = (counts[outcome] for outcome in ("passed", "failed", "skipped"))
        lines.append(ROW.format(suite.title, version, one.place, *numbers))
    RESULTS.write_text("\n".join([*lines, ""]))


def main() -> int:
    """Run the suites; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.judges")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*SUITES, []], help=f"of {', '.join(SUITES)}")
    parser.add_argument("--short", action="store_true", help="run what takes some minutes")
    parser.add_argument("--output", action="store_true", help="show what the suites print")
    chosen = parser.parse_args()
    guard.start()
    python, expected, failed, runs = kept_environment(FOLDER, PACKAGES) / "bin/python", load(), False, []
    SOURCES.mkdir(exist_ok=True)
    names = chosen.names or [*SUITES]
    for name in names:
        sources.fetch(SUITES[name], SOURCES)
    places = operator.attrgetter("short" if chosen.short else "places")
    wanted = [(name, place) for name in names for place in places(SUITES[name])]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for done in threads.map(lambda one: run(python, *one), wanted):
            runs.append(done)
            counts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(done.counts.items()))
            print(f"{done.name} on {done.place}: {counts} in {done.seconds:.0f} s", flush=True)
            listed = not SUITES[done.name].modules or sys.version_info[:2] == PYTHON
            problems = compare(done, expected) if listed else []
            if problems or chosen.output:
                print(done.output, *problems, sep="\n", flush=True)
            failed |= bool(problems)
    if not (failed or chosen.names or chosen.short):
        document(runs)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
