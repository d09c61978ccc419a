"""Pillow's tests with PIL and Python's own modules patched: what no URL of ours names is as it was."""

from __future__ import annotations

from pathlib import Path

import Tests
from Tests import helper

import fsabs

helper.magick_command = lambda: None  # a program named `convert` is not always ImageMagick's
fsabs.patch("PIL", "builtins", "os", "shutil", "glob", "pathlib")


def pytest_sessionstart():
    """Make what the tests name their images by: a folder in the current one."""
    Path("Tests").symlink_to(Path(Tests.__file__).parent)
