"""A real HDFS with high availability: two NameNodes with a shared edits directory, and two DataNodes, on loopback.

`HdfsPair` is the nameservice `pair`. A test kills, freezes and restarts its four JVMs, and moves the active state from
one NameNode to the other, as an administrator or ZooKeeper would; nothing does so by itself. An active NameNode that
was frozen has to be killed before it goes on, as a fencing would.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from tests.servers.hdfs import SideChannel
from tests.servers.hdfs_jvm import HDFS_SITE, QUICK_START, Daemon, missing, write_sources, write_xml
from tests.servers.process import Server, free_port

__all__ = ["HdfsPair"]

NAMESERVICE = "pair"
HOST = "127.0.0.1"


class HdfsPair(SideChannel, Server):
    """Two NameNodes (0 and 1, of which 0 is active at first) and two DataNodes (0 and 1)."""

    missing = staticmethod(missing)
    name = "hdfs-pair"
    replication = 2
    url = f"hdfs://{NAMESERVICE}"

    def __init__(self, jvm: Sequence[str] = QUICK_START) -> None:
        super().__init__()
        self._jvm = jvm
        self._daemons: dict[str, Daemon] = {}
        self._side_ports = [0, 0]
        #: The ports of the NameNodes.
        self.ports = [free_port(), free_port()]
        #: The number of the NameNode that is active.
        self.active = 0

    @property
    def conf_dir(self) -> Path:
        """A `HADOOP_CONF_DIR` for clients."""
        return self.folder / "client"

    def client_settings(self, ports: Sequence[int] | None = None) -> dict[str, str]:
        """The settings that name the NameNodes; other `ports` lead a client through proxies."""
        first, second = ports or self.ports
        return {
            "fs.defaultFS": self.url,
            "dfs.nameservices": NAMESERVICE,
            f"dfs.ha.namenodes.{NAMESERVICE}": "nn0,nn1",
            f"dfs.namenode.rpc-address.{NAMESERVICE}.nn0": f"{HOST}:{first}",
            f"dfs.namenode.rpc-address.{NAMESERVICE}.nn1": f"{HOST}:{second}",
            "dfs.replication": "2",
        }

    def prepare(self) -> None:
        """Write the configuration of clients."""
        super().prepare()
        write_xml(self.conf_dir, "core-site", {"fs.defaultFS": self.url})
        write_xml(self.conf_dir, "hdfs-site", self.client_settings())

    def launch(self) -> None:
        """Start all four."""
        self.start_namenode(0)
        formatted = self.folder / "nn0/dfs"
        shutil.copytree(formatted, self.folder / "nn1/dfs", ignore=shutil.ignore_patterns("in_use.lock"))
        self.start_namenode(1)
        self.activate(0)
        nodes = [self._launch_datanode(number) for number in (0, 1)]
        for node in nodes:
            node.ports()
        self.wait_until_writable()

    def probe(self) -> bool:
        """Return True: a file could be written."""
        return True

    def end(self) -> None:
        """Kill all four."""
        for name in list(self._daemons):
            self.kill(name)

    def _side_channel(self) -> tuple[str, int]:
        return HOST, self._side_ports[self.active]

    # ---- faults

    def kill(self, name: str) -> None:
        """SIGKILL `nn0`, `nn1`, `dn0` or `dn1`; harmless if it is not running."""
        if (daemon := self._daemons.pop(name, None)) is not None:
            daemon.kill()

    def freeze(self, name: str) -> None:
        """SIGSTOP one: it accepts connections, and answers none."""
        os.kill(self._daemons[name].process.pid, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """SIGCONT a frozen one."""
        os.kill(self._daemons[name].process.pid, signal.SIGCONT)

    def activate(self, number: int) -> None:
        """Make a NameNode active; the other one is a standby, frozen or dead."""
        self.active = number
        self.administer("active")

    def fail_over(self) -> None:
        """Make the active NameNode a standby, and the other one active."""
        self.administer("standby")
        self.activate(1 - self.active)

    def start_namenode(self, number: int) -> None:
        """Start a NameNode as a standby, on the port that it always has."""
        root = self.folder / f"nn{number}"
        self._write(root, {"dfs.ha.namenode.id": f"nn{number}", "dfs.namenode.http-address": f"{HOST}:0"})
        node = self._daemons[f"nn{number}"] = Daemon("namenode", self._jvm, root)
        _, self._side_ports[number] = node.ports()

    def start_datanode(self, number: int) -> None:
        """Start a DataNode again, and wait until it is up."""
        self._launch_datanode(number).ports()

    def _launch_datanode(self, number: int) -> Daemon:
        root = self.folder / f"dn{number}"
        self._write(root, {})
        node = self._daemons[f"dn{number}"] = Daemon("datanode", self._jvm, root, self.url)
        return node

    def _write(self, root: Path, settings: dict[str, str]) -> None:
        write_sources(root)
        write_xml(root / "etc", "core-site", {"fs.defaultFS": self.url, "hadoop.tmp.dir": str(root)})
        shared = {
            "dfs.namenode.shared.edits.dir": f"file://{self.folder}/shared",
            "dfs.ha.tail-edits.period": "1",
            "dfs.namenode.heartbeat.recheck-interval": "2000",  # a dead DataNode is known after 14 s
            "dfs.client.failover.proxy.provider.pair": (
                "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
            ),
        }
        write_xml(root / "etc", "hdfs-site", {**HDFS_SITE, **self.client_settings(), **shared, **settings})
