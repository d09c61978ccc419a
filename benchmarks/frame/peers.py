"""The peers' environments: made outside the tree on first use, with the versions of `peers.toml`.

`$FSABS_BENCH_CACHE`, else `$XDG_CACHE_HOME/fsabs-bench`, else `~/.cache/fsabs-bench`, holds one virtual environment for
each entry of `peers.toml`. Where a package can't be installed the others still are, and the reason is kept, so that a
table can name it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

PINNED = Path(__file__).with_name("peers.toml")
"""The requirements of each environment."""
OURS_ALONE = "FSABS_BENCH_OURS_ALONE"
"""Where this environment variable is set, no peer races."""


class Missing(Exception):
    """A peer that can't race, and why."""


def cache_directory() -> Path:
    """Where the environments are kept."""
    if own := os.environ.get("FSABS_BENCH_CACHE"):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fsabs-bench"


def interpreter(environment: str, package: str) -> str:
    """The Python of an environment that has `package`; the environment is made if it isn't there.

    Raises `Missing` where the package could not be installed.
    """
    folder, absent = _made(environment)
    if package in absent:
        raise Missing(absent[package])
    return str(folder / "bin" / "python")


def ensure_wanted() -> None:
    """Raise `Missing` where only ours are to race."""
    if os.environ.get(OURS_ALONE):
        raise Missing(f"{OURS_ALONE} is set")


def _made(environment: str) -> tuple[Path, dict[str, str]]:
    """The folder, and for each package that isn't there the reason."""
    groups = tuple(tomllib.loads(PINNED.read_text())[environment])
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256("\n".join((version, *groups)).encode()).hexdigest()[:12]
    folder = cache_directory() / f"{environment}-{digest}"
    stamp = folder / "absent.json"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel lets it go if the process dies
        if not stamp.exists():
            sys.stderr.write(f"making the environment of the peers, once: {folder}\n")
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            stamp.write_text(json.dumps(_installed(folder, groups)))
        absent: dict[str, str] = json.loads(stamp.read_text())
    return folder, absent


def _installed(folder: Path, groups: tuple[str, ...]) -> dict[str, str]:
    """Install one group after the other; the packages that failed, with pip's last word."""
    absent = {}
    for group in groups:
        command = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *group.split()]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            words = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
            for name in packages(group):
                absent[name] = words[-1]
    return absent


def packages(group: str) -> list[str]:
    """The names in a line of requirements."""
    return [word.partition("==")[0] for word in group.split() if not word.startswith("-")]
