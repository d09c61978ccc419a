"""Patches: functions of other libraries that open a URL, or a `Path`, through this library once they are patched.

`patch("cv2", "PIL")` patches them for good, in a `with` block or around a function; `FSABS_PATCH=cv2,PIL` in the
environment does it when `fsabs` is imported, or in a whole program by `python -m fsabs.adapters.patch program.py`.
"""

from __future__ import annotations

import os

from .engine import Patched, applied, patch, unpatch

__all__ = ["Patched", "applied", "from_environment", "patch", "unpatch"]


def from_environment() -> None:
    """Patch what `$FSABS_PATCH` names; a library that is not installed is passed over."""
    names = [name.strip() for name in os.environ.get("FSABS_PATCH", "").split(",")]
    if names := [name for name in names if name]:
        patch(*names, missing_ok=True)
