"""The data reader of a sharded data set's source."""

from __future__ import annotations

import os

from ...fs import FS
from ...readers.data import AbstractDataReader, ArchiveDataReader, MDSDataReader, RecordIODataReader
from ...readers.data.base import OnError, adopt
from ...readers.data.files import Files, Location
from ...readers.data.mds import INDEX

_ARCHIVES = (".tar", ".zip", ".tar.gz", ".tgz")


def reader_of(source: AbstractDataReader | Location, on_error: OnError) -> AbstractDataReader:
    """Return the data reader of a location, or the one that is given."""
    if not isinstance(source, FS | str | os.PathLike):
        return adopt(source)
    files = Files(source, suffixes=_ARCHIVES)
    try:
        names = [stat.filename.lower() for stat in files.list()]
    finally:
        if files.fs is not source:
            files.close()
    if INDEX in names and any(".mds" in name for name in names):
        return MDSDataReader(source)
    if any(name.endswith(_ARCHIVES) for name in names):
        return ArchiveDataReader(source)
    return RecordIODataReader(source, on_error=on_error)
