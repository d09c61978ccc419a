"""HDFS with Kerberos: a real KDC, a NameNode that lets nobody in without a ticket, encrypted transfer of data."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fsabs
from tests.servers import hdfs as hdfs_server
from tests.servers import kerberos
from tests.servers.fixtures import require
from tests.servers.hdfs import HdfsCluster
from tests.servers.hdfs_jvm import QUICK_START, write_xml

SERVICE = "hdfs/localhost"
DATA = bytes(range(256)) * 1000


class Secure(NamedTuple):
    """A cluster with Kerberos, and the credentials of two of its users."""

    url: str
    conf_dir: Path
    configuration: Path
    """The `krb5.conf`."""
    tickets: Path
    """Ticket cache of alice, who may act for others."""
    keytab: Path
    """That of bob, who may not."""
    expired: Path


def settings(keytab: Path) -> dict[str, str]:
    principal = f"{SERVICE}@{kerberos.REALM}"
    return {
        "hadoop.security.authentication": "kerberos",
        "dfs.namenode.kerberos.principal": principal,
        "dfs.namenode.keytab.file": str(keytab),
        "dfs.datanode.kerberos.principal": principal,
        "dfs.datanode.keytab.file": str(keytab),
        "dfs.block.access.token.enable": "true",
        "dfs.data.transfer.protection": "privacy",
        "hadoop.proxyuser.alice.hosts": "*",
        "hadoop.proxyuser.alice.groups": "*",
        "hadoop.proxyuser.alice.users": "*",
        "ignore.secure.ports.for.testing": "true",  # else the DataNode wants to be started by root, or HTTPS
    }


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    require(hdfs_server.missing)
    require(kerberos.missing)
    folder = tmp_path_factory.mktemp("kerberos")
    with kerberos.KeyDistributionCenter() as kdc:
        service, keytab = kdc.add(SERVICE), kdc.add("bob")
        kdc.add("alice")
        kdc.login("alice", folder / "alice")
        kdc.login("bob", folder / "expired", "1s")
        server = settings(service)
        java = [f"-Djava.security.krb5.conf={kdc.configuration}"]
        java += ["--add-exports", "java.security.jgss/sun.security.krb5=ALL-UNNAMED"]
        with HdfsCluster((*QUICK_START, *java), server) as cluster:
            url = cluster.url.replace("127.0.0.1", "localhost")
            client = {name: value for name, value in server.items() if "keytab" not in name}
            write_xml(cluster.conf_dir, "core-site", {**client, "fs.defaultFS": url})
            write_xml(cluster.conf_dir, "hdfs-site", {**client, "dfs.replication": "1"})
            cluster.mkdir("/open")
            cluster.chmod("/open", 0o777)
            cluster.put("/open/a", DATA)
            expired = folder / "expired"
            yield Secure(f"{url}/open", cluster.conf_dir, kdc.configuration, folder / "alice", keytab, expired)


def environment(secure: Secure, **variables: object) -> dict[str, str]:
    """Return an environment without tickets, but for what `variables` say."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(("HADOOP_", "KRB5"))}
    known = {"HADOOP_CONF_DIR": secure.conf_dir, "KRB5_CONFIG": secure.configuration, "KRB5CCNAME": "/nonexistent"}
    return {**base, **{name: str(value) for name, value in {**known, **variables}.items()}}


def run(variables: Mapping[str, str], code: str) -> str:
    """Run a program, since a process reads the Kerberos configuration once; return its output."""
    command = [sys.executable, "-c", f"import os, fsabs\n{code}"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


USE = """
fs.write_bytes(name, b"written")
with fs.open("a", "rb") as file:
    file.seek(1000)
    print(fs.read_bytes(name) == b"written", file.read(7) == bytes(range(256))[1000 % 256 :][:7], fs.stat("a").size)
pid = os.fork()
if not pid:
    os._exit(int(fs.read_bytes("a") != fs.read_bytes("a")) if len(fs.read_bytes("a")) == 256000 else 2)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(list(fs.read_many(["a"] * 8))))
"""
USED = "True True 256000\n0 8"


@pytest.mark.timeout(300)
def test_a_ticket_or_a_keytab_opens_the_cluster(secure: Secure) -> None:
    keytab = {"keytab": str(secure.keytab)}
    for name, tickets, options in (
        ("environment", secure.tickets, {}),
        ("option", "/nonexistent", {"principal": "alice", "ticket_cache": str(secure.tickets)}),
        ("keytab", "/nonexistent", {"principal": "bob", **keytab}),
        ("realm", "/nonexistent", {"principal": f"bob@{kerberos.REALM}", **keytab}),
    ):
        code = f"name = {name!r}\nfs = fsabs.from_url({secure.url!r}, **{options!r}){USE}"
        assert run(environment(secure, KRB5CCNAME=tickets), code) == USED, name


@pytest.mark.timeout(120)
def test_one_user_acts_for_another(secure: Secure) -> None:
    code = (
        f"fs = fsabs.from_url({secure.url!r})\nfs.write_bytes('proxied', b'1')\nimport hdfs_native\n"
        "print(hdfs_native.Client().get_file_info('/open/proxied').owner)"
    )
    assert run(environment(secure, KRB5CCNAME=secure.tickets, HADOOP_PROXY_USER="carol"), code) == "carol"


REFUSED = """
try:
    fsabs.from_url(url, **options).read_bytes("a")
except PermissionError as exc:
    print(exc.errno, exc.filename, exc.strerror)
print(sorted(fsabs.from_url("memory://").list()))
"""


@pytest.mark.timeout(120)
def test_refusals_are_permission_errors_in_one_line(secure: Secure, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_bytes(secure.tickets.read_bytes()[:60])
    time.sleep(max(0.0, secure.expired.stat().st_mtime + 1.5 - time.time()))
    for tickets, options, reason in (
        ("/nonexistent", {}, "Kerberos: No credentials were supplied"),
        (secure.expired, {}, "Ticket expired"),
        ("/nonexistent", {"principal": "bob", "keytab": "/nonexistent"}, "keytab /nonexistent can't be read"),
        ("/nonexistent", {"principal": "mallory", "keytab": str(secure.keytab)}, "No credentials were supplied"),
        (damaged, {}, "Kerberos: "),
    ):
        code = f"url, options = {secure.url!r}, {options!r}{REFUSED}"
        line, rest = run(environment(secure, KRB5CCNAME=tickets), code).split("\n")
        assert line.startswith(f"13 {secure.url}")
        assert reason in line
        assert "{" not in line
        assert "\\" not in line
        assert rest == "[]"


@pytest.mark.quick
def test_credentials_without_their_principal_are_refused() -> None:
    for option in ("keytab", "ticket_cache"):
        options: Any = {option: "x"}
        with pytest.raises(ValueError, match="need principal="):
            fsabs.from_url("hdfs://nowhere/", **options)
