"""What all tests share: the servers, and a cache directory that is nobody's."""

import os
import tempfile

from tests.servers.fixtures import ceph, dav, hdfs, moto

__all__ = ["ceph", "dav", "hdfs", "moto"]

_cache = tempfile.TemporaryDirectory(prefix="fsabs-cache-")
os.environ["FSABS_CACHE_DIR"] = _cache.name  # for the children of tests, too
