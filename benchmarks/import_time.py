"""What `import fsabs` adds to the start of an interpreter, and what the first local directory adds to that."""

from __future__ import annotations

import functools
import subprocess
import sys

from measure import compare, save, show

ROUNDS = 20
PROGRAMS = {
    "python, empty program": "pass",
    "import fsabs": "import fsabs",
    "fsabs.from_url of a directory": "import fsabs; fsabs.from_url('.')",
    "import zipfile": "import zipfile",
    "import fsspec": "import fsspec",
    "import boto3": "import boto3",
}


def start(program: str) -> None:
    """Run an interpreter with one line of code."""
    subprocess.run([sys.executable, "-c", program], check=True)


def main() -> None:
    """Measure, print and save."""
    title = "Start of an interpreter"
    results = compare({name: functools.partial(start, code) for name, code in PROGRAMS.items()}, ROUNDS)
    show(title, results, 1, "us")
    save("import_time", {title: results})


if __name__ == "__main__":
    main()
