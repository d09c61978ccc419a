"""`python -m tests.pythons [VERSION...] [PYTEST ARGUMENT...]`: the quick tests on the other Pythons of this machine.

They are run on each that the package is made for, or on those named ("3.12"); on the newest of them, or on this one if
there is no other, without the names that only Linux has (`make portable`).

Each has a virtual environment of its own (`.venv-3.12`) with the extra `quick`, which leaves out what only the tests
with servers need and what is large (torch). A Python is looked for on the PATH and beside the one that runs this, where
pyenv keeps them. The exit status is 1 if the tests fail on one of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.servers import guard

ROOT = Path(__file__).parents[1]
MINORS = range(11, 15)
PORTABLE = {"FSABS_TESTS_HIDE": "1"}
_is_version = re.compile(r"3\.\d+").fullmatch
TORCH = re.compile(r"^(import|from) (fsabs\.adapters\.)?torch\b", re.MULTILINE)


def interpreters() -> dict[str, str]:
    """Return the path of an interpreter for each other version from 3.11 on, by its name ("3.12")."""
    found: dict[str, str] = {}
    for minor in MINORS:
        name = f"3.{minor}"
        beside = sorted(Path(sys.base_prefix).parent.glob(f"{name}.*/bin/python3"))
        candidates = [shutil.which(f"python{name}"), *map(str, beside)]
        working = [path for path in candidates if path and _version(path) == name]
        if working and minor != sys.version_info[1]:
            found[name] = working[0]
    return found


def _version(path: str) -> str:
    code = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def run(name: str, interpreter: str, environment: dict[str, str], arguments: list[str]) -> int:
    """Run the quick tests on one Python; return the exit status."""
    folder = ROOT / f".venv-{name}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-compile", "--editable", ".[quick]"], cwd=ROOT, check=True)
    return tested(str(python), [*without_torch(), *arguments], environment)


def tested(python: str, options: list[str], environment: dict[str, str]) -> int:
    """Run the quick tests by a Python that has what they need; return the exit status."""
    pytest = [python, "-m", "pytest", "-q", "-n", "3", "--dist", "worksteal", "-m", "quick", *options]
    return subprocess.run(pytest, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode


def without_torch() -> list[str]:
    """Return pytest's options that leave out what can't be loaded without torch."""
    files = (path for path in (ROOT / "tests").rglob("test_*.py") if TORCH.search(path.read_text()))
    return [f"--ignore={path.relative_to(ROOT)}" for path in (ROOT / "tests/adapters", *files)]


def main(arguments: list[str]) -> int:
    """Run the quick tests on each Python; return the exit status."""
    found = interpreters()
    named = [one for one in arguments if _is_version(one)]
    options = [one for one in arguments if not _is_version(one)]
    chosen = [name for name in found if name in (named or found)]
    if not chosen:
        print(f"not on this machine: {', '.join(named) or 'another Python from 3.11 on'}", flush=True)
        return tested(sys.executable, options, PORTABLE)
    failed = []
    for name in chosen:
        portable = name == [*found][-1]
        print(f"--- Python {name}{', without the names that only Linux has' if portable else ''}", flush=True)
        if run(name, found[name], PORTABLE if portable else {}, options):
            failed.append(name)
    print(f"the quick tests failed on {', '.join(failed) or 'none'} of {', '.join(chosen)}")
    return 1 if failed else 0


if __name__ == "__main__":
    guard.start()
    sys.exit(main(sys.argv[1:]))
