"""Where the files of an FS lie on HDFS, for the side channel."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import fsabs


def path_of(fs: fsabs.FS, name: str = "") -> str:
    """Return the absolute path of a file on HDFS."""
    return unquote(urlsplit(fs.url(name)).path)
