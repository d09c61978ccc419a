"""The tests in parts: the files of each are run by one process of pytest, some processes at once.

A process collects its own files only, starts each server that they need once, and ends with them. It stays small: a
fork takes as long as the process is large, and thousands of tests fork. The longest parts begin first, so that no
process works on one of them when the others have ended.

A few tests that fail are run once more, with nothing beside them: a machine under load can be slower than a test allows
for. What succeeds only the second time is listed, and each of these is a fault to look into, of the test or of the
code.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
ADAPTERS = "tests/adapters/"
TORCH = re.compile(r"^(import|from) (fsabs\.adapters\.)?torch\b", re.MULTILINE)
SERVERS = re.compile(r"\b(azurite|ceph|dav|gcs|hdfs|moto|postgresql|spark)\b")
SUMMARY = re.compile(r"^(\d+ .*) in [\d.]+s\b", re.MULTILINE)
COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed)\b")
SECONDS = {
    "tests/prepare/test_spark.py": 200,
    "tests/conformance/test_cached.py": 120,
    "tests/backends/test_hdfs_silent.py": 100,
    "tests/conformance/test_hdfs.py": 90,
    "tests/conformance/test_moto.py": 80,
    "tests/prepare/test_engines.py": 80,
    "tests/conformance/test_ceph.py": 60,
    "tests/prepare/test_crashes.py": 60,
    "tests/test_dataloader.py": 60,
    "tests/conformance/test_containers_on_s3.py": 55,
    "tests/adapters/test_torch_tasks.py": 50,
    "tests/adapters/test_drivers.py": 50,
    "tests/test_demo.py": 50,
    "tests/test_docs.py": 50,
    "tests/backends/test_hdfs_pair.py": 45,
    "tests/cli/test_copying.py": 45,
    "tests/cli/test_archives.py": 40,
    "tests/dispatch/test_elastic.py": 40,
    "tests/cli/test_kills.py": 35,
    "tests/test_interrupts.py": 35,
    "tests/backends/test_hdfs_failover.py": 30,
    "tests/backends/test_hdfs_administration.py": 30,
    "tests/backends/test_hdfs_library.py": 25,
    "tests/cli/test_listing.py": 30,
    "tests/conformance/test_containers_on_hdfs.py": 30,
    "tests/adapters/test_checkpoints.py": 45,
    "tests/backends/test_s3_reads.py": 25,
    "tests/conformance/test_layers.py": 25,
    "tests/conformance/test_zip.py": 25,
    "tests/containers/test_tar_points.py": 25,
    "tests/containers/test_zip_damage.py": 25,
    "tests/dispatch/test_dispatcher.py": 25,
    "tests/adapters/test_patch_scripts.py": 40,
    "tests/adapters/test_torch_ahead.py": 20,
    "tests/rows/test_mixture.py": 45,
    "tests/rows/test_recipes.py": 30,
    "tests/rows/test_language_model.py": 60,
    "tests/prepare/test_tokens.py": 30,
    "tests/rows/test_jsonl.py": 12,
    "tests/adapters/test_torch_files.py": 20,
    "tests/adapters/test_torch_loader.py": 20,
    "tests/adapters/test_torch_resuming.py": 20,
    "tests/adapters/test_torch_sharded.py": 20,
    "tests/backends/test_s3.py": 20,
    "tests/backends/test_s3_contract.py": 20,
    "tests/backends/test_s3_uploads.py": 20,
    "tests/cli/test_manifest.py": 20,
    "tests/conformance/test_local.py": 20,
    "tests/containers/test_zip_streams.py": 20,
    "tests/test_identity.py": 20,
    "tests/test_typing.py": 20,
    "tests/testing/test_broken.py": 20,
    "tests/adapters/test_patch.py": 15,
    "tests/backends/test_hdfs.py": 15,
    "tests/backends/test_s3_options.py": 15,
    "tests/cache/test_cachedfs_faults.py": 15,
    "tests/cli/test_bench.py": 15,
    "tests/cli/test_doctor.py": 15,
    "tests/conformance/test_hdf5.py": 15,
    "tests/conformance/test_tar.py": 15,
    "tests/conformance/test_traced.py": 15,
    "tests/containers/test_tar_streams.py": 15,
    "tests/prepare/test_image.py": 15,
    "tests/test_limits.py": 15,
    "tests/test_resuming.py": 15,
}
"""About how long the files take that take long; a wrong figure costs time only."""
USUAL_SECONDS = 4
PART_SECONDS = 60
"""Files are put together until they take about this long."""
PROCESSES = 3
"""Tests wait, too: three keep two cores busy."""
FAILED, USAGE_ERROR, NO_TESTS = 1, 4, 5
"""pytest's exit status where tests failed, where it was called wrongly, and where it has collected none."""
MAX_REPEATED = 5
"""More failures than so many are not the machine's."""
MAX_SECONDS = 15 * 60
"""A part that takes longer hangs, in spite of the tests' own timeouts; the run is ended, and its processes with it."""


class File(NamedTuple):
    """A file of tests, and what is known of it without importing it."""

    path: str
    """Relative to the root of the repository."""
    with_torch: bool
    """Whether it can't be loaded without torch and the other libraries of the adapters."""
    servers: tuple[str, ...]
    """The servers that it names: files of the same servers are put together."""

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        return SECONDS.get(self.path, USUAL_SECONDS)


def files(paths: Iterable[str] = ("tests",)) -> list[File]:
    """Return the files of tests at and below `paths`."""
    found = []
    for path in paths:
        whole = (ROOT / path).resolve()
        for file in sorted(whole.rglob("test_*.py")) if whole.is_dir() else [whole]:
            name, text = str(file.relative_to(ROOT)), file.read_text()
            with_torch = name.startswith(ADAPTERS) or TORCH.search(text) is not None
            found.append(File(name, with_torch, tuple(sorted(set(SERVERS.findall(text))))))
    return found


def divide(found: Iterable[File]) -> list[list[str]]:
    """Return the paths of each part, the longest part first."""
    parts: list[list[File]] = []
    for file in sorted(found, key=lambda file: (file.with_torch, file.servers, file.path)):
        if parts and parts[-1][0].with_torch == file.with_torch and _seconds([*parts[-1], file]) <= PART_SECONDS:
            parts[-1].append(file)
        else:
            parts.append([file])
    return [[file.path for file in part] for part in sorted(parts, key=_seconds, reverse=True)]


def _seconds(part: Iterable[File]) -> float:
    return sum(file.seconds for file in part)


class Process:
    """A process of pytest that runs a part; what it prints is collected where several run at once."""

    def __init__(self, part: Sequence[str], options: Sequence[str], python: str, *, collected: bool) -> None:
        self.part = part
        self._folder = tempfile.TemporaryDirectory(prefix="fsabs-part-")
        self._output = Path(self._folder.name, "output")
        self._begin = time.monotonic()
        # A cache directory of its own: it has the names of the tests that fail.
        cache = f"cache_dir={self._folder.name}/cache"
        self._command = [python, "-m", "pytest", "-q", "-o", cache, *part, *options]
        # Thousands of processes start, and without bytecode each would compile what it imports.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with self._output.open("wb") if collected else contextlib.nullcontext() as output:
            error = subprocess.STDOUT if collected else None
            self._process = subprocess.Popen(self._command, cwd=ROOT, env=env, stdout=output, stderr=error)

    def ended(self) -> bool:
        """Return True if the process has ended."""
        if self._process.poll() is None and time.monotonic() - self._begin > MAX_SECONDS:
            self._process.send_signal(signal.SIGABRT)  # pytest's faulthandler prints the stacks
            self._process.wait()
            sys.exit(f"{self.outcome().output}\na part of the tests takes longer than {MAX_SECONDS} s: {self._command}")
        return self._process.returncode is not None

    def outcome(self) -> Outcome:
        """Return the outcome of a process that has ended."""
        output = self._output.read_text(errors="replace") if self._output.exists() else ""
        failed = Path(self._folder.name, "cache/v/cache/lastfailed")
        names = sorted(json.loads(failed.read_text())) if failed.exists() else []
        return Outcome(self._process.returncode, names, output, time.monotonic() - self._begin)

    def close(self) -> None:
        """End the process, if it still runs, and remove its files."""
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


class Outcome(NamedTuple):
    """What came of a part."""

    status: int
    """pytest's exit status."""
    failed: list[str]
    """The tests that failed."""
    output: str
    """What was printed, if it was collected."""
    seconds: float


def run(parts: Sequence[Sequence[str]], options: Sequence[str] = (), python: str = sys.executable) -> list[Outcome]:
    """Run the parts, some at once, and print the output of each when it ends; return their outcomes."""
    waiting, running = list(parts), list[Process]()
    outcomes = list[Outcome]()
    try:
        while waiting or running:
            while waiting and len(running) < PROCESSES:
                running.append(Process(waiting.pop(0), options, python, collected=len(parts) > 1))
            for process in [one for one in running if one.ended()]:
                outcomes.append(process.outcome())
                running.remove(process)
                process.close()
                _print(outcomes[-1], process.part)
                if outcomes[-1].status == USAGE_ERROR or (outcomes[-1].status == FAILED and "-x" in options):
                    waiting.clear()
            time.sleep(0.05)
    finally:
        for process in running:
            process.close()
    return outcomes


def _print(outcome: Outcome, part: Iterable[str]) -> None:
    """Print what a part printed, and how long it took: `SECONDS` should say the same."""
    if outcome.output:
        print(f"\n{' '.join(part)}: {outcome.seconds:.0f} s\n{outcome.output}", end="", flush=True)


def main(arguments: Sequence[str], python: str = sys.executable, with_torch: bool = True) -> int:
    """Run all tests, or those of the paths among pytest's arguments; return the exit status."""
    paths = [argument for argument in arguments if _names_tests(argument)]
    options = [argument for argument in arguments if argument not in paths]
    if any("::" in path for path in paths):
        parts = [paths]
    else:
        parts = divide(file for file in files(paths or ["tests"]) if with_torch or not file.with_torch)
    begin = time.monotonic()
    outcomes = run(parts, options, python)
    status, failed = _status(outcomes), [name for outcome in outcomes for name in outcome.failed]
    repeated: set[str] = set()
    if status == FAILED and 0 < len(failed) <= MAX_REPEATED:
        print(f"once more, with nothing beside them: {', '.join(failed)}", flush=True)
        [again] = run([failed], options, python)
        status, repeated, failed = again.status, set(failed) - set(again.failed), again.failed
    for name in failed:
        print(f"FAILED {name}")
    for name in sorted(repeated):
        print(f"failed beside others, and succeeded by itself: {name}")
    if len(parts) > 1:
        print(f"{_counts(outcomes)} in {_minutes(time.monotonic() - begin)}")
    return status


def _names_tests(argument: str) -> bool:
    path = Path(argument.partition("::")[0])
    return path.is_dir() or (path.suffix == ".py" and path.exists())


def _status(outcomes: Sequence[Outcome]) -> int:
    """Return the exit status of all: that of a part that was ended by more than failing tests, if there is one."""
    statuses = {outcome.status for outcome in outcomes}
    return next(iter([*(statuses - {0, FAILED, NO_TESTS}), *(statuses & {FAILED}), *(statuses & {0}), NO_TESTS]))


def _counts(outcomes: Iterable[Outcome]) -> str:
    """Return the sums of the counts in the parts' summaries; libraries may print something after them."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        for last in SUMMARY.findall(outcome.output)[-1:]:
            counts.update({kind: int(count) for count, kind in COUNTS.findall(last)})
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items()) or "no tests"


def _minutes(seconds: float) -> str:
    return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"
