"""What the servers of the tests need from Debian: the command that a person would type, and running it."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable

_APT = ("apt-get", "install", "-y", "--no-install-recommends")
_one_at_a_time = threading.Lock()  # apt-get gives up where another one is under way


def command(*packages: str) -> str:
    """What to type, as root, to have `packages`."""
    return " ".join((*_APT, *packages))


def install(missing: Callable[[], str | None], *packages: str) -> None:
    """Installs `packages` when `missing()` says that something is; needs root or a `sudo` that asks no password."""
    with _one_at_a_time:
        if missing() is None:
            return
        sudo = () if os.geteuid() == 0 else ("sudo", "-n")
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run([*sudo, "apt-get", "update"], check=True, env=env)
        subprocess.run([*sudo, *_APT, *packages], check=True, env=env)
        if (still := missing()) is not None:
            raise RuntimeError(still)
