"""One benchmark in this process: which there are, how one is run, and where its results go."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

from . import report
from .race import Bench

BENCHMARKS = Path(__file__).parents[1]
ROOT = BENCHMARKS.parent
RESULTS = BENCHMARKS / "results"


def names(benchmarks: Path = BENCHMARKS) -> list[str]:
    """Every module beside the frame is a benchmark."""
    return sorted(path.stem for path in benchmarks.glob("*.py") if not path.stem.startswith("_"))


def title(name: str) -> str:
    """The first line of a benchmark's module."""
    words = importlib.import_module(f"benchmarks.{name}").__doc__ or ""
    return words.strip().splitlines()[0]


def run(name: str, rounds: int | None) -> None:
    """Run it, print what it found, and write `results/NAME.md`, and `NAME.json`, which `--against` reads."""
    module = importlib.import_module(f"benchmarks.{name}")
    with tempfile.TemporaryDirectory(prefix=f"fsabs-bench-{name}-") as folder:
        os.chmod(folder, 0o755)
        bench = Bench(Path(folder), rounds)
        try:
            module.run(bench)
        except BaseException:
            with contextlib.suppress(OSError):  # no contestant has started
                sys.stderr.write((Path(folder) / "home" / "contestants.log").read_text(errors="replace")[-3000:])
            raise
    options = f" --rounds {rounds}" if rounds else ""
    found = report.content(name, title(name), f"python -m benchmarks{options} {name}", bench)
    text = report.text(found)
    sys.stdout.write(f"\n{text}")
    sys.stdout.flush()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n")
    (RESULTS / f"{name}.md").write_text(text)
