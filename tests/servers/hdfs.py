"""A real HDFS for tests: one NameNode and one DataNode (Hadoop 2.7.4) on loopback.

`HdfsCluster` runs Hadoop's jars, in one temporary folder and on ports that the kernel picks; its `put`,
`get`, `ls`... are a side channel through Hadoop's own Java client. Nothing of pytest or of `fsabs` belongs here.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.servers.hdfs_jvm import (
    HDFS_SITE,
    PRODUCTION,
    QUICK_START,
    START_TIMEOUT,
    Daemon,
    incomplete,
    install,
    missing,
    write_sources,
    write_xml,
)
from tests.servers.process import Server, wait_until

__all__ = ["PRODUCTION", "QUICK_START", "HdfsCluster", "SideChannel", "incomplete", "install", "missing"]


class SideChannel:
    """Hadoop's own client, in the JVM of a NameNode, so that a test can prepare and verify without the code under test.

    Calls take absolute HDFS paths, answer in milliseconds, may come from any thread or forked process, and raise
    `OSError` with Hadoop's own message.
    """

    replication = 1

    def _side_channel(self) -> tuple[str, int]:
        """The address of the NameNode that answers."""
        raise NotImplementedError

    def put(self, path: str, data: bytes, *, block_size: int = 1 << 27) -> None:
        """Write a file, over what is there, with its parents; blocks are multiples of 4096 bytes."""
        self._call("put", path, str(block_size), struct.pack(">hq", self.replication, len(data)), data)

    def await_replicas(self, path: str) -> None:
        """Wait until the NameNode knows of every replica below a directory, for 10 seconds at most."""
        self._call("replicas", path, str(self.replication))

    def get(self, path: str) -> bytes:
        """All the bytes of a file."""
        answer = self._call("get", path)
        (size,) = struct.unpack_from(">q", answer)
        if len(answer) != size + 8:
            raise OSError(f"got {len(answer) - 8} of {size} bytes of {path}")
        return answer[8:]

    def ls(self, path: str, recursive: bool = False) -> list[tuple[str, bool, int]]:
        """What is in a directory: sorted (absolute path, is a directory, size in bytes)."""
        answer = self._call("ls", path, "r" if recursive else "")
        entries, at = [], 0
        while at < len(answer):
            (length,) = struct.unpack_from(">i", answer, at)
            name = answer[at + 4 : at + 4 + length].decode()
            is_dir, size = struct.unpack_from(">?q", answer, at + 4 + length)
            entries.append((name, is_dir, size))
            at += 4 + length + 9
        return sorted(entries)

    def rm(self, path: str) -> None:
        """Delete a file, or a directory with everything in it."""
        self._call("rm", path)

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents."""
        self._call("mkdir", path)

    def chmod(self, path: str, mode: int) -> None:
        """Set permission bits, as in `0o700`."""
        self._call("chmod", path, f"{mode:o}")

    def chown(self, path: str, user: str) -> None:
        """Give a file or directory to a user, who need not exist on this machine."""
        self._call("chown", path, user)

    def snapshot(self, path: str, name: str) -> None:
        """Make a snapshot of a directory."""
        self.administer(f"snapshot {path} {name}")

    def encrypt(self, path: str) -> None:
        """Make an empty directory an encryption zone; wants `dfs.encryption.key.provider.uri` in the settings."""
        self.administer(f"encrypt {path}")

    def wait_until_writable(self) -> None:
        """Wait until the NameNode that answers can place a block on as many DataNodes as there are replicas."""

        def written() -> bool:
            with contextlib.suppress(OSError):
                self.put("/.fsabs-probe", b"ready")
                return True
            return False

        wait_until(written, START_TIMEOUT, "HDFS to take data")
        self.rm("/.fsabs-probe")

    def administer(self, what: str) -> None:
        """Make the NameNode `active` or `standby`, or have it enter (`safe`) or leave (`unsafe`) safe mode."""
        self._call("namenode", "/", what)

    def _call(self, op: str, path: str, argument: str = "", *body: bytes) -> bytes:
        """One request over one connection, so that threads and forks need no care."""
        words = [text.encode() for text in (op, path, argument)]
        request = [struct.pack(">i", len(word)) + word for word in words]
        with socket.create_connection(self._side_channel(), timeout=60) as connection:
            for part in (b"".join(request), *body):
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            answer = bytearray()
            while chunk := connection.recv(1 << 18):
                answer += chunk
        if answer[:1] != b"\0":
            raise OSError(f"{op} {path}: {answer[1:].decode(errors='replace') or 'no answer'}")
        return bytes(memoryview(answer)[1:])


class HdfsCluster(SideChannel, Server):
    """One NameNode and one DataNode on 127.0.0.1.

    The user that runs the tests is HDFS's superuser. Closing a file is quicker than in production: the NameNode waits
    for the block's report, where it would send the client away to ask again after half a second.

    `jvm` are the options of the two JVMs: `QUICK_START`, or `PRODUCTION` for what is measured. `settings` are those of
    hdfs-site.xml that differ.
    """

    missing = staticmethod(missing)
    name = "hdfs"
    host = "127.0.0.1"

    def __init__(self, jvm: Sequence[str] = QUICK_START, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._jvm = jvm
        self._settings = settings or {}
        self._side_port = 0
        self._daemons: dict[str, Daemon] = {}

    def __repr__(self) -> str:
        return f"HdfsCluster({self.url!r})"

    def address(self) -> dict[str, Any]:
        """Return the ports and the folder."""
        return {**super().address(), "side_port": self._side_port}

    @classmethod
    def at(cls, address: Mapping[str, Any]) -> Self:
        """Return the one at an address."""
        found = super().at(address)
        found._side_port = address["side_port"]
        return found

    def _side_channel(self) -> tuple[str, int]:
        return self.host, self._side_port

    @property
    def port(self) -> int:
        """The port of the NameNode's RPC server."""
        return self._port

    @property
    def url(self) -> str:
        """The file system's URL, `hdfs://127.0.0.1:PORT`."""
        return f"hdfs://{self.host}:{self.port}"

    @property
    def authority(self) -> str:
        """`127.0.0.1:PORT`."""
        return f"{self.host}:{self.port}"

    @property
    def conf_dir(self) -> Path:
        """A `HADOOP_CONF_DIR` for clients, with `fs.defaultFS` set to `url`."""
        return self.folder / "client-conf"

    def prepare(self) -> None:
        """Write what the daemons run, and the configuration of clients."""
        super().prepare()
        self._port = 0  # the kernel picks it
        write_sources(self.folder)
        write_xml(self.conf_dir, "hdfs-site", {"dfs.replication": "1"})

    def launch(self) -> None:
        """Format, and start both daemons."""
        self.start_namenode()
        self.start_datanode()

    def probe(self) -> bool:
        """Return True: a file could be written."""
        return True

    def end(self) -> None:
        """Kill both daemons."""
        for role in list(self._daemons):
            self._kill(role)

    def start_namenode(self) -> None:
        """Start the NameNode: at first on a free port, after `kill_namenode` on the same port.

        With a DataNode alive, it returns when a write works again (safe mode is over).
        """
        core = {"fs.defaultFS": self.url, "hadoop.tmp.dir": str(self.folder)}
        write_xml(self.folder / "etc", "core-site", core)
        write_xml(self.folder / "etc", "hdfs-site", {**HDFS_SITE, **self._settings})
        node = self._daemons["namenode"] = Daemon("namenode", self._jvm, self.folder)
        self._port, self._side_port = node.ports()
        write_xml(self.conf_dir, "core-site", {"fs.defaultFS": self.url})
        if "datanode" in self._daemons:
            self.wait_until_writable()

    def start_datanode(self) -> None:
        """Start the DataNode, again after `kill_datanode`, and wait until a write works."""
        node = self._daemons["datanode"] = Daemon("datanode", self._jvm, self.folder, self.url)
        node.ports()
        self.wait_until_writable()

    def kill_namenode(self) -> None:
        """SIGKILL the NameNode; the side channel is gone until `start_namenode`."""
        self._kill("namenode")

    def kill_datanode(self) -> None:
        """SIGKILL the DataNode: metadata calls go on, reads and writes of data fail."""
        self._kill("datanode")

    def pid(self, role: str) -> int:
        """The process id of `"namenode"` or `"datanode"`, to send SIGSTOP and SIGCONT to."""
        return self._daemons[role].process.pid

    def _kill(self, role: str) -> None:
        self._daemons.pop(role).kill()
