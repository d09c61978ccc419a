"""Data readers: ElasticDL's interface of readers that cut data into shards and read the records of tasks.

`create_data_reader` chooses one; `AbstractDataReader` is what to write to add one's own; `shards_of` normalises what
its `create_shards` gives.
"""

from __future__ import annotations

from .archives import ArchiveDataReader
from .base import AbstractDataReader, Metadata, Mode, Shard, Task, TaskType
from .factory import create_custom_data_reader, create_data_reader, parse_params
from .images import FileListDataReader, ImageFolderDataReader, RawImage
from .jsonl import JsonLinesDataReader
from .mds import MDSDataReader
from .odps import ODPSDataReader
from .parquet import ParquetDataReader
from .recordio import RecordIODataReader
from .shards import shards_of
from .text import TextDataReader
from .tokens import TokenDataReader, TokenWriter

__all__ = [
    "AbstractDataReader",
    "ArchiveDataReader",
    "FileListDataReader",
    "ImageFolderDataReader",
    "JsonLinesDataReader",
    "MDSDataReader",
    "Metadata",
    "Mode",
    "ODPSDataReader",
    "ParquetDataReader",
    "RawImage",
    "RecordIODataReader",
    "Shard",
    "Task",
    "TaskType",
    "TextDataReader",
    "TokenDataReader",
    "TokenWriter",
    "create_custom_data_reader",
    "create_data_reader",
    "parse_params",
    "shards_of",
]
