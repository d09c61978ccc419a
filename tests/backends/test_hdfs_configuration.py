"""Hadoop's configuration, as a client of HDFS reads it; and what is written accordingly."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

import fsabs
from fsabs.backends.hdfs import Hdfs, ViewFs
from fsabs.backends.hdfs.configuration import HadoopConfiguration
from tests.backends.hdfs_paths import own_directory, status_of, without_settings
from tests.servers.hdfs import HdfsCluster
from tests.servers.shared import unique

PAIR = {
    "dfs.nameservices": "two, one",
    "dfs.ha.namenodes.two": "a, b",
    "dfs.namenode.rpc-address.two.a": "${first.host}:9000",
    "dfs.namenode.rpc-address.two.b": "second",
    "first.host": "first",
    "dfs.namenode.rpc-address.one": "third:9001",
}


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(monkeypatch)


def write(folder: Path, name: str, settings: dict[str, str], more: str = "") -> None:
    rows = "".join(f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in settings.items())
    (folder / name).write_text(
        f'<configuration xmlns:xi="http://www.w3.org/2001/XInclude">{more}{rows}</configuration>'
    )


# ---- files


@pytest.mark.quick
def test_files_are_read_with_variables_and_included_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "more.xml", {"included": "yes", "fs.defaultFS": "hdfs://other"})
    write(tmp_path, "core-site.xml", {"fs.defaultFS": "hdfs://${name}"}, '<xi:include href="more.xml"/>')
    write(tmp_path, "hdfs-site.xml", {"name": "two", "user": "${env.FSABS_TEST_NAME}", "endless": "${endless}x"})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("FSABS_TEST_NAME", "smith")
    conf = HadoopConfiguration.load({"own": "1"})
    assert conf.file_system("hdfs", "") == ("hdfs", "two")
    assert (conf.get("included"), conf.get("user"), conf.get("own")) == ("yes", "smith", "1")
    assert conf.get("endless").endswith("x")
    monkeypatch.delenv("HADOOP_CONF_DIR")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hadoop").symlink_to(tmp_path)
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
    assert HadoopConfiguration.load().get("name") == "two"


@pytest.mark.quick
def test_a_broken_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(OSError, match="core-site.xml is no configuration of Hadoop"):
        fsabs.from_url("hdfs:///x")


# ---- NameNodes


@pytest.mark.quick
def test_namenodes() -> None:
    conf = HadoopConfiguration(PAIR)
    for authority, expected in {
        "host": [("hdfs://host:8020", "host", 8020)],
        "host:9": [("hdfs://host:9", "host", 9)],
        "[::1]": [("hdfs://[::1]:8020", "::1", 8020)],
        "[::1]:9": [("hdfs://[::1]:9", "::1", 9)],
        "one": [("hdfs://third:9001", "third", 9001)],
        "two": [("hdfs://two", "first", 9000), ("hdfs://two", "second", 8020)],
    }.items():
        assert [node[:3] for node in conf.addresses("hdfs", authority)] == expected
    first = dict(conf.addresses("hdfs", "two")[0].settings)
    assert first["dfs.ha.namenodes.two"] == "a"
    assert first["dfs.namenode.rpc-address.two.a"] == "first:9000"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("settings", "authority", "message"),
    [
        ({}, "", "needs fs.defaultFS"),
        ({"fs.defaultFS": "file:///"}, "", "fs.defaultFS is 'file:///'"),
        ({"dfs.ha.namenodes.n": "a"}, "n", "dfs.namenode.rpc-address.n.a is not set"),
        ({}, "a:b:c", "not the address of a NameNode"),
        ({"dfs.replication": "two"}, "127.0.0.1:1", "dfs.replication is 'two'"),
        ({"dfs.blocksize": "big"}, "127.0.0.1:1", "dfs.blocksize is 'big'"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, str], authority: str, message: str) -> None:
    with pytest.raises(OSError, match=message):
        Hdfs("/x", authority, configuration=settings).exists("y")


@pytest.mark.quick
def test_names_of_one_file_system_are_one_identity() -> None:
    settings = {**PAIR, "fs.defaultFS": "hdfs://host"}
    conf = HadoopConfiguration(settings)
    assert conf.canonical_store("hdfs", "") == conf.canonical_store("hdfs", "host:8020") == "hdfs host:8020"
    assert conf.canonical_store("hdfs", "one") == "hdfs third:9001"
    assert conf.canonical_store("hdfs", "two") == "hdfs two first:9000 second"
    assert HadoopConfiguration({}).canonical_store("hdfs", "") == "hdfs"


@pytest.mark.quick
def test_umask_and_sizes() -> None:
    for text, mask in {"022": 0o22, "0077": 0o77, "u=rwx,g=rx,o=": 0o27, "a=rx": 0o222}.items():
        assert HadoopConfiguration({"fs.permissions.umask-mode": text}).umask() == mask
    for text, size in {"4096": 4096, "64m": 64 << 20, "1G": 1 << 30, "2mb": 2 << 20}.items():
        assert HadoopConfiguration({"dfs.blocksize": text}).size("dfs.blocksize") == size
    with pytest.raises(OSError, match="is no umask"):
        HadoopConfiguration({"fs.permissions.umask-mode": "rw"}).umask()


# ---- what is written


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_time_limit_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(ValueError, match="timeout= is a finite number of seconds"):
        Hdfs("/x", "127.0.0.1:8020", timeout=seconds)


def test_block_size_replication_and_umask(hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"dfs.blocksize": "1m", "dfs.replication": "2", "fs.permissions.umask-mode": "027"}
    fs = own_directory(hdfs, monkeypatch, configuration=settings)
    fs.write_bytes("x", b"1")
    found = status_of(fs, "x")
    assert (found.blocksize, found.replication, found.permission) == (1 << 20, 2, 0o640)
    fs.mkdir("d")
    assert fs.stat("d").mode & 0o777 == 0o750
    own = fsabs.from_url(fs.url(), configuration=settings, replication=1, block_size=2 << 20)
    own.write_bytes("y", b"1")
    assert (status_of(own, "y").blocksize, status_of(own, "y").replication) == (2 << 20, 1)
    before = os.umask(0o077)
    try:
        fsabs.from_url(fs.url()).write_bytes("z", b"1")
        assert fs.stat("z").mode & 0o777 == 0o600
    finally:
        os.umask(before)


@pytest.mark.quick
def test_a_proxy_user_without_kerberos_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would ignore it, and write as the user of the process."""
    monkeypatch.setenv("HADOOP_PROXY_USER", "alice")
    with pytest.raises(OSError, match="HADOOP_PROXY_USER needs Kerberos"):
        Hdfs("/x", "127.0.0.1:1").exists("y")


# ---- viewfs and federation

TABLE = "fs.viewfs.mounttable.cluster."


@pytest.fixture
def root() -> str:
    """The directory of a test, in which its mount table's links end."""
    return f"/{unique('federated')}"


@pytest.fixture
def federated(hdfs: HdfsCluster, root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HdfsCluster:
    """A cluster whose directories are one tree by the mount table `cluster`, which is the default file system."""
    settings = {
        "fs.defaultFS": "viewfs://cluster/",
        "dfs.nameservices": "one",
        "dfs.ha.namenodes.one": "a",
        "dfs.namenode.rpc-address.one.a": hdfs.authority,
        TABLE + "link./data/train": f"hdfs://one{root}/train",
        TABLE + "link./data/other": f"hdfs://{hdfs.authority}{root}/other/",
        TABLE + "linkFallback": f"hdfs://one{root}/rest",
    }
    write(tmp_path, "core-site.xml", settings)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    hdfs.put(f"{root}/train/x", b"1")
    hdfs.put(f"{root}/other/y", b"2")
    hdfs.put(f"{root}/rest/z", b"3")
    return hdfs


@pytest.mark.parametrize("url", ["viewfs://cluster/", "hdfs:///"])
def test_a_mount_table_is_read_and_listed(federated: HdfsCluster, url: str) -> None:
    """The directories that lead to mount points are listed, although the fallback has none of them."""
    fs = fsabs.from_url(url)
    found = list(fs.list(recursive=True))
    assert found == ["data/", "data/other/", "data/other/y", "data/train/", "data/train/x", "z"]
    assert list(fs.read_many(["data/train/x", "data/other/y", "z"])) == [b"1", b"2", b"3"]
    assert [path for path in ("data", "data/train", "data/train/x", "dat", "data/trai") if fs.isdir(path)] == [
        "data",
        "data/train",
    ]


def test_a_mount_table_is_written_to(federated: HdfsCluster, root: str) -> None:
    fs = fsabs.from_url("viewfs://cluster/data")
    assert isinstance(fs, ViewFs)
    assert fs.url("train/x") == "viewfs://cluster/data/train/x"
    fs.makedirs("train/a/b")
    fs.write_bytes("train/a/b/new", b"4")
    fs.rename("train/a/b/new", "train/a/newer")
    with fs.open("other/y", "wb") as file:
        file.write(b"5")
    assert federated.get(f"{root}/train/a/newer") == b"4"
    assert federated.get(f"{root}/other/y") == b"5"
    fs.remove("train/a", recursive=True)
    assert federated.ls(f"{root}/train") == [(f"{root}/train/x", False, 1)]
    with pytest.raises(OSError) as caught:
        fs.rename("train/x", "other/x")
    assert caught.value.errno == errno.EXDEV


def test_a_file_is_not_moved_onto_itself_by_its_other_url(federated: HdfsCluster, root: str) -> None:
    """It would be removed, as the source of a copy that is itself."""
    for url, other in (
        ("viewfs://cluster/data/train/x", f"hdfs://one{root}/train/x"),
        ("hdfs:///data/other/y", f"{federated.url}{root}/other/y"),
        ("viewfs:///z", f"hdfs://one{root}/rest/z"),
    ):
        for source, target in ((url, other), (other, url)):
            with pytest.raises(OSError, match="the same file") as caught:
                fsabs.Path(source).move(fsabs.Path(target))
            assert caught.value.errno == errno.EINVAL
    assert [federated.get(f"{root}/{name}") for name in ("train/x", "other/y", "rest/z")] == [b"1", b"2", b"3"]


def test_a_mount_point_in_a_mounted_directory_is_listed_once(federated: HdfsCluster, root: str) -> None:
    link = {TABLE + "link./data/train/a/b": f"hdfs://one{root}/rest"}
    federated.put(f"{root}/train/a/b/hidden", b"")
    federated.mkdir(f"{root}/train/a/c")
    nested = fsabs.from_url("viewfs://cluster/data/train", configuration=link)
    assert list(nested.list(recursive=True)) == ["a/", "a/b/", "a/b/z", "a/c/", "x"]


def test_a_directory_with_mount_points_is_neither_removed_nor_renamed(federated: HdfsCluster, root: str) -> None:
    """The fallback's directory would go, with what no listing shows, and what is mounted in it would stay."""
    federated.put(f"{root}/rest/data/train/hidden", b"6")
    fs = fsabs.from_url("viewfs://cluster/")
    attempts: list[Callable[[], None]] = [
        lambda: fs.remove("data", recursive=True),
        lambda: fs.rmdir("data"),
        lambda: fs.rename("data", "moved"),
    ]
    for attempt in attempts:
        with pytest.raises(OSError, match="mount points in the directory: other, train") as caught:
            attempt()
        assert caught.value.errno == errno.EBUSY
    assert federated.get(f"{root}/rest/data/train/hidden") == b"6"
    assert fs.read_bytes("data/train/x") == b"1"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "No viewfs fallback mount found: the mount table needs a linkFallback"),
        ({"linkFallback": "hdfs://plain/x"}, "No NameNode hosts found: a link leads to host:port, or to a nameservice"),
        ({"linkFallback": "s3a://bucket/x"}, "Only hdfs mounts are supported"),
        ({"linkFallback": "hdfs://127.0.0.1:9/x", "linkNfly../ads": "hdfs://n/x"}, "linkNfly../ads: only link"),
    ],
)
@pytest.mark.quick
def test_a_mount_table_that_the_library_does_not_serve_is_refused(settings: dict[str, str], message: str) -> None:
    configuration = {f"fs.viewfs.mounttable.t.{name}": value for name, value in settings.items()}
    with pytest.raises(OSError, match=message) as caught:
        ViewFs("/x", "t", configuration=configuration).exists("y")
    assert caught.value.filename == "viewfs://t/x/y"
    assert caught.value.errno in (errno.EINVAL, errno.EOPNOTSUPP)


@pytest.mark.quick
def test_mount_tables_are_one_file_system_if_they_mount_the_same() -> None:
    def resolved(**links: str) -> str:
        table = {f"fs.viewfs.mounttable.t.{name.replace('_', './')}": url for name, url in links.items()}
        return HadoopConfiguration({**PAIR, **table}).canonical_store("viewfs", "t")

    known = resolved(link_a="hdfs://one/x", linkFallback="hdfs://two/")
    assert known == resolved(linkFallback="hdfs://two/", link_a="hdfs://third:9001/x")
    others = [resolved(link_b="hdfs://one/x", linkFallback="hdfs://two/"), resolved(link_a="hdfs://one/y")]
    assert known not in others
