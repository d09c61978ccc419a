"""HDFS against hdfs-native, the library below: files of 100 KB, stats, opens, small writes, a listing, a large file."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .frame.measure import at_least, at_most
from .frame.race import Bench

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
        _many(bench, cluster.url, names, environment)
        _small(bench, cluster.url, names[:50], environment)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: cluster.put(f"/list/{number:06}", b""), range(ENTRIES)))
        cluster.put("/large/data.bin", os.urandom(LARGE))
        _listing_and_large(bench, cluster.url, environment)


def _many(bench: Bench, root: str, names: list[str], environment: dict[str, str]) -> None:
    url = f"{root}/data"
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
        race.faster(many, single)


def _small(bench: Bench, root: str, names: list[str], environment: dict[str, str]) -> None:
    url, count = f"{root}/small", len(names)
    with bench.race("stat on HDFS", "call", rounds=20, environment=environment) as race:
        mine = race.ours("fs.stat", "hdfs.fsabs_stat", count, url=url, names=names)
        theirs = race.peer("hdfs-native", "hdfs-native", "hdfs.native_stat", count, url=url, names=names)
        race.run()
        race.table("seconds", "us/call", 1e6)
        race.cheaper(mine, theirs, at_most(1.3), "seconds", "time")
    with bench.race("4 KB files on HDFS, read", "file", rounds=20, environment=environment) as race:
        opened = race.ours("fs.open and read", "files.fsabs_open", count, path=url, names=names, size=SMALL)
        race.ours("fs.read_bytes", "files.fsabs_read_bytes", count, path=url, names=names, size=SMALL)
        theirs = race.peer("hdfs-native", "hdfs-native", "files.hdfs_native", count, url=url, names=names, size=SMALL)
        race.run()
        race.table("seconds", "us/file", 1e6)
        race.cheaper(opened, theirs, at_most(1.3), "seconds", "time")
    with bench.race("4 KB files on HDFS, written", "file", rounds=10, environment=environment) as race:
        options: dict[str, Any] = {"count": count, "size": SMALL}
        mine = race.ours("fs.write_bytes", "hdfs.fsabs_write", count, url=f"{root}/w1", **options)
        many = race.ours("fs.write_many", "hdfs.fsabs_write_many", count, url=f"{root}/w2", **options)
        plain = race.peer("hdfs-native", "hdfs-native", "hdfs.native_write", count, url=f"{root}/w3", **options)
        race.run()
        race.table("seconds", "us/file", 1e6)
        race.cheaper(mine, plain, at_most(1.1), "seconds", "time")
        race.faster(many, plain, at_least(2))


def _listing_and_large(bench: Bench, root: str, environment: dict[str, str]) -> None:
    with bench.race("20,000 entries of a directory on HDFS", "entry", rounds=10, environment=environment) as race:
        mine = race.ours("fs.list(detail=True)", "hdfs.fsabs_list", ENTRIES, url=f"{root}/list", entries=ENTRIES)
        theirs = race.peer(
            "hdfs-native", "hdfs-native", "hdfs.native_list", ENTRIES, url=f"{root}/list", entries=ENTRIES
        )
        race.run()
        race.table("seconds", "us/entry", 1e6)
        race.cheaper(mine, theirs, at_most(1.5), "seconds", "time")
    with bench.race("a file of 128 MiB on HDFS", "file", rounds=8, environment=environment) as race:
        mine = race.ours("fs.read_bytes", "hdfs.fsabs_read_large", 1, url=f"{root}/large/data.bin", size=LARGE)
        theirs = race.peer(
            "hdfs-native", "hdfs-native", "hdfs.native_read_large", 1, url=f"{root}/large/data.bin", size=LARGE
        )
        race.run()
        race.table("seconds", "ms/file", 1e3)
        race.cheaper(mine, theirs, at_most(1), "seconds", "time")
