from __future__ import annotations

from ..core.fs import Capabilities

WRITABLE = Capabilities(
    write=True,
    exclusive=True,
    replace=True,
    mkdir=True,
    rename=True,
    remove=True,
    last_modified=True,
    versions=True,
)
"""What each store can do that is written to by files and directories."""
