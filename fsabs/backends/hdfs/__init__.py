"""HDFS: the FS of a nameservice.

`tree.py` has the FS, over one of two drivers: `native.py` speaks HDFS itself (the library hdfs-native, no JVM), and
`libhdfs.py` goes through pyarrow and an installed Hadoop. `driver.py` says what a driver does.
"""

from __future__ import annotations

from .tree import Hdfs

__all__ = ["Hdfs"]
