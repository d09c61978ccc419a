"""HDFS, with no JVM: the FS of a nameservice.

`fs.py` has the FS, over the library hdfs-native, of which each process has its own copy (`library.py`). `client.py`
finds the active NameNode and repeats calls, which `library.py` makes in threads; `reading.py` and `writing.py` do so
for data. `configuration.py` reads Hadoop's.
"""

from __future__ import annotations

from .fs import Hdfs, ViewFs

__all__ = ["Hdfs", "ViewFs"]
