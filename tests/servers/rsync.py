"""rsync, which the command's copies are compared with. Nothing here imports pytest."""

from __future__ import annotations

import shutil

from tests.servers import debian


def missing() -> str | None:
    """Return None if rsync is there, else a sentence that names the command to run."""
    if shutil.which("rsync") is not None:
        return None
    return f"The comparison with rsync needs it: run `{debian.command('rsync')}` as root."


def install() -> None:
    """Install Debian's package."""
    debian.install(missing, "rsync")
