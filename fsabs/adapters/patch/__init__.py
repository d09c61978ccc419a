"""Patches: functions of other libraries that open a URL, or a `Path`, through this library once they are patched.

`patch("cv2", "PIL")` patches them for good, in a `with` block or around a function; `FSABS_PATCH=cv2,PIL` in the
environment does it when `fsabs` is imported, which an installed package does at the start of Python.
"""

from __future__ import annotations

import os
import sys

from .engine import Patched, applied, patch, unpatch

__all__ = ["Patched", "applied", "from_environment", "patch", "unpatch"]


def from_environment() -> None:
    """Patch what `$FSABS_PATCH` names; a library that is not installed is passed over, an unknown name is reported."""
    for name in os.environ.get("FSABS_PATCH", "").split(","):
        try:
            if name.strip():
                patch(name.strip(), missing_ok=True)
        except ValueError as exc:
            print(f"FSABS_PATCH: {exc}", file=sys.stderr)
