"""Linux namespaces: a test's own mounts, in a process of its own."""

from __future__ import annotations

import subprocess

IN_ONE = ["unshare", "-rm"]
"""What a command begins with that has its own mounts, and may make more of them."""


def missing() -> str | None:
    """Why there are none on this system, or None."""
    if subprocess.run([*IN_ONE, "true"], check=False).returncode == 0:
        return None
    return "this test needs user namespaces: `sysctl kernel.unprivileged_userns_clone=1`, or run it as root"
