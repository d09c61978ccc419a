"""The stores: local disk, memory, HDFS, stores of objects and what fsspec opens; each knows nothing of the others."""

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
"""The capabilities of every store that files and directories are written to."""
