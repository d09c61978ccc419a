"""A real S3 service for the tests: Ceph's gateway over one monitor and one object store that lives in memory.

All three daemons run in the foreground, on loopback, with every file in one temporary folder; they die with the process
that starts them. Nothing here imports pytest.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import signal
import subprocess
import time
import urllib.parse
import uuid
from collections.abc import Mapping
from email.utils import formatdate

from tests.servers import debian
from tests.servers.process import free_port
from tests.servers.s3_server import S3Server

_PACKAGES = ("ceph-mon", "ceph-osd", "radosgw", "ceph-common")
_PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "monmaptool")

# Every path is inside {root}, so that nothing is shared with another gateway or left behind. `none` in place of
# cephx keeps the gateway from authenticating; without tcp_nodelay each GET takes 20 ms (Nagle's algorithm meets
# delayed acknowledgements); without the short garbage collection, deleted objects stay in memory for two hours;
# without the short paxos interval each of the gateway's pools takes a second to make; without 0/0 the daemons keep
# what they would log of each request in memory, which is a fifth of their time.
_CONF = """\
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon_port}]
public network = 127.0.0.0/8
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = {root}/keyring
run dir = {root}
admin socket = {root}/$name.asok
log file = {root}/$name.log
log to file = false
log to stderr = true
err to stderr = true
mon cluster log to file = false
crash dir = {root}
debug ms = 0/0
debug objclass = 0/0
debug objecter = 0/0
debug osd = 0/0
ms bind ipv6 = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
[mon]
paxos propose interval = 0.05
paxos min wait = 0.01
mon data = {root}/mon
mon allow pool delete = true
auth allow insecure global id reclaim = false
[osd]
osd data = {root}/osd
osd objectstore = memstore
osd enable op tracker = false
memstore device bytes = {memory}
osd crush update on start = false
[client.rgw.a]
rgw data = {root}/rgw
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw thread pool size = 64
debug rgw = 0/0
debug rgw access = 0/0
rgw enable usage log = false
rgw crypt require ssl = false
rgw crypt s3 kms backend = testing
rgw crypt s3 kms encryption keys = key-1=YmluCmJvb3N0CmJvb3N0LWJ1aWxkCmNlcGguY29uZgo=
rgw gc obj min wait = 5
rgw gc processor period = 10
"""

_KEYS: Mapping[str, tuple[str, ...]] = {
    "mon.": ("mon", "allow *"),
    "client.admin": ("mon", "allow *", "osd", "allow *", "mgr", "allow *"),
    "client.rgw.a": ("mon", "allow *", "osd", "allow *"),
    "osd.0": ("mon", "allow profile osd", "osd", "allow *"),
}


def missing() -> str | None:
    """Returns None when a gateway can be started here, else a sentence that names the command to run."""
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    if not absent:
        return None
    return f"The Ceph gateway needs {', '.join(absent)}: run `{debian.command(*_PACKAGES)}` as root."


def install() -> None:
    """Installs the packages when a program is missing; needs root or a `sudo` that asks no password."""
    debian.install(missing, *_PACKAGES)


class CephGateway(S3Server):
    """One gateway, empty at `start` and gone with all its objects at `stop`.

    `memory` is the number of bytes the objects may take in all.
    """

    missing = staticmethod(missing)
    name = "ceph"
    end_signal = signal.SIGKILL  # nothing to save, and a store without a monitor is slow to end politely

    def __init__(self, memory: int = 4 << 30) -> None:
        super().__init__()
        self._memory = memory

    def request(self, method: str, path: str, body: bytes | None = None, query: str = "") -> tuple[int, bytes]:
        """Send one request, signed by S3's version 2, which is four lines long and which the gateway still accepts."""
        target = urllib.parse.quote(path)
        date = formatdate(usegmt=True)
        text = f"{method}\n\n\n{date}\n{target}"
        digest = hmac.new(self.secret_key.encode(), text.encode(), hashlib.sha1).digest()
        signature = base64.b64encode(digest).decode()
        headers = {"Date": date, "Authorization": f"AWS {self.access_key}:{signature}"}
        return self.send(method, f"{target}?{query}" if query else target, body, headers)

    def prepare(self) -> None:
        """Write the configuration and the keys."""
        super().prepare()
        for name in ("mon", "osd", "rgw"):
            (self.folder / name).mkdir()
        ports = {"mon_port": free_port(), "port": self._port}
        values = {"root": self.folder, "fsid": uuid.uuid4(), "memory": self._memory}
        (self.folder / "ceph.conf").write_text(_CONF.format(**values, **ports))
        # Written by hand: `ceph-authtool` is one call, and one more process, a key.
        lines = []
        for name, caps in _KEYS.items():
            lines += [f"[{name}]", f"\tkey = {_new_key()}"]
            lines += [f'\tcaps {kind} = "{cap}"' for kind, cap in zip(caps[::2], caps[1::2], strict=True)]
        keyring = self.folder / "keyring"
        keyring.touch(mode=0o600)
        keyring.write_text("\n".join(lines) + "\n")

    def launch(self) -> None:
        """Start the monitor, the store and the gateway."""
        self._start_monitor()
        self._start_store()
        keys = ("--access-key", self.access_key, "--secret-key", self.secret_key)
        user = ("user", "create", "--uid", "fsabs", "--display-name", "fsabs", *keys)
        self._run("radosgw-admin", "-n", "client.rgw.a", *user)
        self._daemon("radosgw", "-n", "client.rgw.a")

    def _start_monitor(self) -> None:
        conf = (self.folder / "ceph.conf").read_text()
        fsid = conf.split("fsid = ")[1].split("\n")[0]
        address = conf.split("mon host = ")[1].split("\n")[0]
        monmap = str(self.folder / "monmap")
        self._run("monmaptool", "--create", "--addv", "a", address, "--fsid", fsid, monmap, conf=False)
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        self._daemon("ceph-mon", "-i", "a")

    def _start_store(self) -> None:
        self._run("ceph", "osd", "create")  # waits for the monitor
        self._run("ceph", "auth", "import", "-i", str(self.folder / "keyring"))
        self._run("ceph", "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=a")
        self._run("ceph-osd", "-i", "0", "--mkfs")
        self._daemon("ceph-osd", "-i", "0")

    def _daemon(self, name: str, *args: str) -> None:
        self.spawn(name, [name, "-c", str(self.folder / "ceph.conf"), *args, "-f"])

    def _run(self, name: str, *args: str, conf: bool = True) -> None:
        where = ["-c", str(self.folder / "ceph.conf")] if conf else []
        done = subprocess.run([name, *where, *args], capture_output=True, timeout=60, check=False)
        if done.returncode:
            said = (done.stderr + done.stdout).decode(errors="replace")[-2000:]
            raise RuntimeError(f"{name} {' '.join(args)} ended with {done.returncode}:\n{said}")


def _new_key() -> str:
    # A cephx key: type 1 (AES), seconds and nanoseconds of its making, length, 16 random bytes; little-endian.
    head = (1).to_bytes(2, "little") + int(time.time()).to_bytes(4, "little") + bytes(4)
    return base64.b64encode(head + (16).to_bytes(2, "little") + os.urandom(16)).decode()
