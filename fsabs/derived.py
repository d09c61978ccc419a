"""Files that are derived from others (indexes of archives, say), kept in the cache directory for all processes."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path | None:
    """Where what can be made again is kept: `$FSABS_CACHE_DIR`, else `$XDG_CACHE_HOME/fsabs`, else `~/.cache/fsabs`.

    None where `$FSABS_CACHE_DIR` is set to nothing, or there is no home: nothing is kept then.
    """
    chosen = os.environ.get("FSABS_CACHE_DIR")
    if chosen is not None:
        return Path(chosen).absolute() if chosen else None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home, "fsabs") if os.path.isabs(home) else None
