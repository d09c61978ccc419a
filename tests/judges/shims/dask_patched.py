"""Dask's tests of bytes with Python's own modules patched: what no URL of ours names is as it was."""

from __future__ import annotations

import fsabs

fsabs.patch("builtins", "os", "shutil", "glob", "pathlib")
