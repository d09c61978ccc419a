"""RecordIO: files of records in checksummed chunks, as the Go implementation of ElasticDL and Paddle writes them.

`RecordWriter` makes a file, whole or not at all; `RecordReader` reads one over any FS, in order or by index, in threads
and after a fork; `Index` knows where the chunks lie; `Scanner` is the Go implementation's way to read a run of records.
"""

from __future__ import annotations

from .format import Chunk, Skipped
from .index import Index
from .reader import RecordReader, Scan, Scanner, open_recordio
from .writer import RecordWriter

__all__ = ["Chunk", "Index", "RecordReader", "RecordWriter", "Scan", "Scanner", "Skipped", "open_recordio"]
