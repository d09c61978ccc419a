"""pandas' tests of files with pandas and Python's own modules patched: what no URL of ours names is as it was."""

from __future__ import annotations

import fsabs

fsabs.patch("pandas", "builtins", "os", "shutil", "glob", "pathlib")


def pytest_configure(config):
    """Skip what reads pandas' own data files, which its wheel leaves out."""
    config.option.strict_data_files = False


def pytest_collection_modifyitems(items):
    """Leave out what needs the network."""
    items[:] = [item for item in items if item.get_closest_marker("network") is None]
