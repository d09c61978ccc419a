"""From an FS to training samples: record files, sharded data sets, instances, and the readers of Paddle.

The names here are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import exports

if TYPE_CHECKING:
    from .instances import decode, encode
    from .recordio import Index, RecordReader, RecordWriter, Scanner, Skipped, open_recordio
    from .sharded import convert, repair, verify

_HOMES = {
    "Index": "recordio",
    "RecordReader": "recordio",
    "Scanner": "recordio",
    "Skipped": "recordio",
    "RecordWriter": "recordio",
    "convert": "sharded",
    "decode": "instances",
    "encode": "instances",
    "open_recordio": "recordio",
    "repair": "sharded",
    "verify": "sharded",
}

__all__ = [
    "Index",
    "RecordReader",
    "RecordWriter",
    "Scanner",
    "Skipped",
    "convert",
    "decode",
    "encode",
    "open_recordio",
    "repair",
    "verify",
]

__getattr__, __dir__ = exports(__name__, _HOMES)
