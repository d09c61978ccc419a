"""What all tests share: the servers, a cache directory that is nobody's, and a process that stays small."""

import atexit
import ctypes
import itertools
import os
import tempfile

import pytest

from tests.servers import guard
from tests.servers.fixtures import ceph, dav, hdfs, moto, postgresql

__all__ = ["ceph", "dav", "hdfs", "moto", "postgresql"]

guard.start()

_cache = tempfile.TemporaryDirectory(prefix="fsabs-cache-")
atexit.register(_cache.cleanup)
os.environ["FSABS_CACHE_DIR"] = _cache.name  # for the children of tests, too


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the kit first, and give each test its group: the tests of a group share a process (xdist).

    The kit's tests fork most, and a fork takes three times as long at the end of the others.
    """
    items.sort(key=lambda item: "testing" not in item.path.parts)
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group_of(item)))


def group_of(item: pytest.Item) -> str:
    """Return the server that a test needs (one of each is started), else its class (conformance tests) or file."""
    for server in ("hdfs", "ceph"):  # moto and nginx start in a moment
        if server in getattr(item, "fixturenames", ()) or f"[{server}" in item.name:
            return server
    if item.parent is not None and "conformance" in item.path.parts:
        return item.parent.nodeid
    return str(item.path)


_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
_ended = itertools.count(1)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Give back what earlier tests took: a fork takes as long as the process is large, and thousands of tests fork."""
    module_ends = nextitem is not None and nextitem.path != item.path
    if _trim is not None and (module_ends or next(_ended) % 50 == 0):
        _trim(0)
