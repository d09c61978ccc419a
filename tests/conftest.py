"""What all tests share: the servers."""

from tests.servers.fixtures import ceph, hdfs, moto

__all__ = ["ceph", "hdfs", "moto"]
