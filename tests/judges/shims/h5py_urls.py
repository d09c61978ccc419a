"""h5py's tests with h5py, `open` and `os` patched, and the URL of a file wherever they make a name for one."""

from __future__ import annotations

from h5py.tests import common

import fsabs

fsabs.patch("h5py", "builtins", "os")
_mktemp = common.TestCase.mktemp


def mktemp(self, *arguments, **named):
    """Return a URL."""
    return f"file://{_mktemp(self, *arguments, **named)}"


common.TestCase.mktemp = mktemp
