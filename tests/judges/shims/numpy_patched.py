"""numpy's tests of files with numpy and Python's own modules patched: what no URL of ours names is as it was."""

from __future__ import annotations

import fsabs

fsabs.patch("numpy", "builtins", "os", "shutil", "glob", "pathlib")
