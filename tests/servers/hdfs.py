"""A real HDFS for tests: one NameNode and one DataNode (Hadoop 2.7.4) on loopback.

`HdfsCluster` runs Hadoop's jars, in one temporary folder and on ports that the kernel picks; its `put`,
`get`, `ls`... are a side channel through Hadoop's own Java client. Nothing of pytest or of `fsabs` belongs here.
`python -m tests.servers.hdfs install|run` does by hand what the fixtures do.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

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


class HdfsCluster(SideChannel):
    """One NameNode and one DataNode on 127.0.0.1, from `start` (or `with`) to `stop`.

    The user that runs the tests is HDFS's superuser. The daemons end with the process that started them, however that
    ends. Closing a file is quicker than in production: the NameNode waits for the block's report, where it would send
    the client away to ask again after half a second.

    `jvm` are the options of the two JVMs: `QUICK_START`, or `PRODUCTION` for what is measured. `settings` are those of
    hdfs-site.xml that differ.
    """

    host = "127.0.0.1"

    def __init__(self, jvm: Sequence[str] = QUICK_START, settings: Mapping[str, str] | None = None) -> None:
        self._jvm = jvm
        self._settings = settings or {}
        #: Port of the NameNode's RPC server; 0 before `start`.
        self.port = 0
        self._root: Path | None = None
        self._side_port = 0
        self._owner = 0
        self._daemons: dict[str, Daemon] = {}

    def __repr__(self) -> str:
        return f"HdfsCluster({self.url!r})"

    def _side_channel(self) -> tuple[str, int]:
        return self.host, self._side_port

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
        return self._folder() / "client-conf"

    # ------------------------------------------------------------------ life

    def start(self) -> HdfsCluster:
        """Format, start both daemons, and return when a file can be written (about 4 s)."""
        if sentence := missing():
            raise RuntimeError(sentence)
        self._owner = os.getpid()
        self._root = Path(tempfile.mkdtemp(prefix="fsabs-hdfs-"))
        try:
            self._write_configuration()
            self.start_namenode()
            self.start_datanode()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill both daemons and delete everything; does nothing twice, or in a forked child."""
        if self._root is None or self._owner != os.getpid():
            return
        for role in list(self._daemons):
            self._kill(role)
        shutil.rmtree(self._root, ignore_errors=True)
        self._root = None

    def __enter__(self) -> HdfsCluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start_namenode(self) -> None:
        """Start the NameNode: at first on a free port, after `kill_namenode` on the same port.

        With a DataNode alive, it returns when a write works again (safe mode is over).
        """
        deadline = time.monotonic() + START_TIMEOUT
        self._write_etc()
        node = self._daemons["namenode"] = Daemon("namenode", self._jvm, self._folder())
        self.port, self._side_port = node.ports(deadline)
        write_xml(self._folder() / "client-conf", "core-site", {"fs.defaultFS": self.url})
        if "datanode" in self._daemons:
            self._wait_for_write(deadline)

    def start_datanode(self) -> None:
        """Start the DataNode, again after `kill_datanode`, and wait until a write works."""
        deadline = time.monotonic() + START_TIMEOUT
        node = self._daemons["datanode"] = Daemon("datanode", self._jvm, self._folder(), self.url)
        node.ports(deadline)
        self._wait_for_write(deadline)

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

    def _folder(self) -> Path:
        if self._root is None:
            raise RuntimeError("the HDFS cluster is not running")
        return self._root

    def _write_configuration(self) -> None:
        write_sources(self._folder())
        write_xml(self._folder() / "client-conf", "hdfs-site", {"dfs.replication": "1"})

    def _write_etc(self) -> None:
        core = {"fs.defaultFS": self.url, "hadoop.tmp.dir": str(self._folder())}
        write_xml(self._folder() / "etc", "core-site", core)
        write_xml(self._folder() / "etc", "hdfs-site", {**HDFS_SITE, **self._settings})

    def _wait_for_write(self, deadline: float) -> None:
        """Until the DataNode has told the NameNode of itself, no block can be placed."""
        probe = "/.fsabs-probe"
        while True:
            try:
                self.put(probe, b"ready")
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the HDFS cluster takes no data: {error}") from error
                time.sleep(0.05)
        self.rm(probe)


def _run() -> None:
    """Start a cluster, say where it is, and keep it until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), HdfsCluster() as cluster:
        print(cluster.url, flush=True)
        print(f"HADOOP_CONF_DIR={cluster.conf_dir}", flush=True)
        signal.pause()


def main() -> None:
    """The command line: `install` or `run`."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers.hdfs", description="HDFS for tests.")
    parser.add_argument("command", choices=["install", "run"])
    if parser.parse_args().command == "install":
        print(install())
    elif sentence := missing():
        sys.exit(sentence)
    else:
        _run()


if __name__ == "__main__":
    main()
