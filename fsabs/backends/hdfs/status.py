"""The status of HDFS files and directories beyond `FileStat`: plain data."""

from __future__ import annotations

from typing import NamedTuple


class HdfsStatus(NamedTuple):
    """Owner, permissions and replication of a file or directory."""

    owner: str
    group: str
    mode: int
    """Permission bits."""
    replication: int
    """Copies of each block; 0 for a directory."""
    block_size: int
    """Bytes of a block; 0 for a directory."""
    last_accessed: float
    """Seconds since 1970, to the precision that the NameNode keeps; 0 for a directory."""


class ContentSummary(NamedTuple):
    """The number and size of the files below a path, as the NameNode counts them."""

    size: int
    """Bytes of all files."""
    files: int
    directories: int
    """A directory itself is counted."""
    space_consumed: int
    """Bytes of all replicas."""
    quota: int | None
    """How many files and directories may lie there, None if there is no limit."""
    space_quota: int | None
    """How many bytes of replicas may lie there, None if there is no limit."""
