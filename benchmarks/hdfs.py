"""Files of 100 KB on HDFS: many at a time, against hdfs-native one by one."""

from __future__ import annotations

import os
from typing import Any

from .frame.measure import at_least
from .frame.race import Bench

FILES = 200
SIZE = 100_000  # bytes


def run(bench: Bench) -> None:
    """On a NameNode and a DataNode of this machine."""
    from tests.servers import hdfs

    if why := hdfs.missing():
        raise SystemExit(f"this benchmark needs HDFS: {why}")
    names = [f"{number:05}.bin" for number in range(FILES)]
    with hdfs.HdfsCluster(hdfs.PRODUCTION) as cluster:
        for name in names:
            cluster.put(f"/data/{name}", os.urandom(SIZE))
        url = f"{cluster.url}/data"
        environment = {"HADOOP_CONF_DIR": str(cluster.conf_dir)}
        with bench.race("100 KB files on HDFS", "file", rounds=40, environment=environment) as race:
            ours: dict[str, Any] = {"path": url, "names": names, "size": SIZE}
            many = race.ours("fs.read_many", "files.fsabs_read_many", FILES, **ours)
            race.ours("fs.read_bytes", "files.fsabs_read_bytes", FILES, **ours)
            theirs: dict[str, Any] = {"url": url, "names": names, "size": SIZE}
            single = race.peer("hdfs-native, one by one", "hdfs-native", "files.hdfs_native", FILES, **theirs)
            race.peer("hdfs-native, 8 threads", "hdfs-native", "files.hdfs_native", FILES, threads=8, **theirs)
            race.run()
            race.table("seconds", "us/file", 1e6)
            race.table("cpu", "us/file", 1e6, f"{race.title}: CPU time of the client")
            race.faster(many, single, at_least(2))
