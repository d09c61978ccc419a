"""HDFS, with no JVM: the FS of a nameservice.

`tree.py` has the FS, over the driver in `native.py` (the library hdfs-native; each process has its own copy, by
`library.py`). `namenodes.py` finds the active NameNode and repeats calls, `reading.py` and `writing.py` do so for
data, and `configuration.py` reads Hadoop's.
"""

from __future__ import annotations

from .tree import Hdfs, ViewFs

__all__ = ["Hdfs", "ViewFs"]
