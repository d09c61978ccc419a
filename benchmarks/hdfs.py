"""HDFS against hdfs-native, the library below: files of 100 KB, stats, opens, small writes, a listing, a large file."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .frame.measure import at_least, at_most
from .frame.race import Bench, Race

FILES = 200
SIZE = 100_000  # bytes
SMALL = 4096  # bytes
ENTRIES = 20_000
LARGE = 128 * 1024 * 1024  # bytes


def run(bench: Bench) -> None:
    """On a NameNode and a DataNode of this machine."""
    from tests.servers import hdfs

    if why := hdfs.missing():
        raise SystemExit(f"this benchmark needs HDFS: {why}")
    names = [f"{number:05}.bin" for number in range(FILES)]
    with hdfs.HdfsCluster(hdfs.PRODUCTION) as cluster:
        for name in names:
            cluster.put(f"/data/{name}", os.urandom(SIZE))
            cluster.put(f"/small/{name}", os.urandom(SMALL))
        environment = {"HADOOP_CONF_DIR": str(cluster.conf_dir)}
        many(bench, cluster.url, names, environment)
        small(bench, cluster.url, names[:50], environment)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: cluster.put(f"/list/{number:06}", b""), range(ENTRIES)))
        cluster.put("/large/data.bin", os.urandom(LARGE))
        options: dict[str, Any] = {"url": f"{cluster.url}/list", "entries": ENTRIES}
        title = "20,000 entries of a directory on HDFS"
        with bench.race(title, "entry", rounds=10, environment=environment) as race:
            slower(race, "fs.list(detail=True)", "list", "us/entry", 1.5, ENTRIES, **options)
        options = {"url": f"{cluster.url}/large/data.bin", "size": LARGE}
        with bench.race("a file of 128 MiB on HDFS", "file", rounds=8, environment=environment) as race:
            slower(race, "fs.read_bytes", "read_large", "ms/file", 1, 1, **options)


def slower(race: Race, name: str, function: str, unit: str, most: float, each: int, **options: Any) -> None:
    """Run ours against theirs; claim the time."""
    mine = race.ours(name, f"hdfs.fsabs_{function}", each, **options)
    theirs = race.peer("hdfs-native", "hdfs-native", f"hdfs.native_{function}", each, **options)
    race.run(unit)
    race.cheaper(mine, theirs, at_most(most), "seconds", "time")


def many(bench: Bench, root: str, names: list[str], environment: dict[str, str]) -> None:
    """Files of 100 KB."""
    url = f"{root}/data"
    with bench.race("100 KB files on HDFS", "file", rounds=40, environment=environment) as race:
        ours: dict[str, Any] = {"path": url, "names": names, "size": SIZE}
        batch = race.ours("fs.read_many", "files.fsabs_read_many", FILES, **ours)
        race.ours("fs.read_bytes", "files.fsabs_read_bytes", FILES, **ours)
        theirs: dict[str, Any] = {"url": url, "names": names, "size": SIZE}
        single = race.peer("hdfs-native, one by one", "hdfs-native", "files.hdfs_native", FILES, **theirs)
        race.peer("hdfs-native, 8 threads", "hdfs-native", "files.hdfs_native", FILES, threads=8, **theirs)
        race.run("us/file", "seconds", "cpu")
        race.faster(batch, single)


def small(bench: Bench, root: str, names: list[str], environment: dict[str, str]) -> None:
    """Stats, and files of 4 KB that are read and written."""
    url, count = f"{root}/small", len(names)
    with bench.race("stat on HDFS", "call", rounds=20, environment=environment) as race:
        slower(race, "fs.stat", "stat", "us/call", 1.3, count, url=url, names=names)
    with bench.race("4 KB files on HDFS, read", "file", rounds=20, environment=environment) as race:
        opened = race.ours("fs.open and read", "files.fsabs_open", count, path=url, names=names, size=SMALL)
        race.ours("fs.read_bytes", "files.fsabs_read_bytes", count, path=url, names=names, size=SMALL)
        theirs = race.peer("hdfs-native", "hdfs-native", "files.hdfs_native", count, url=url, names=names, size=SMALL)
        race.run("us/file")
        race.cheaper(opened, theirs, at_most(1.3), "seconds", "time")
    with bench.race("4 KB files on HDFS, written", "file", rounds=10, environment=environment) as race:
        options: dict[str, Any] = {"count": count, "size": SMALL}
        mine = race.ours("fs.write_bytes", "hdfs.fsabs_write", count, url=f"{root}/w1", **options)
        batch = race.ours("fs.write_many", "hdfs.fsabs_write_many", count, url=f"{root}/w2", **options)
        plain = race.peer("hdfs-native", "hdfs-native", "hdfs.native_write", count, url=f"{root}/w3", **options)
        race.run("us/file")
        race.cheaper(mine, plain, at_most(1.1), "seconds", "time")
        race.faster(batch, plain, at_least(2))
