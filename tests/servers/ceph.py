"""A real S3 service for the tests: Ceph's gateway over one monitor and one object store that lives in memory.

All three daemons run in the foreground as children of this process, on loopback, with every file in one temporary
folder; they die with it. What speaks S3 here is a side channel of a few lines (`CephGateway.request`), so that tests
can set up and verify without the code under test. Run ``python -m tests.servers.ceph install`` to install the
packages and ``python -m tests.servers.ceph run`` to have a gateway to play with; nothing here imports pytest.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import uuid
from collections.abc import Mapping
from email.utils import formatdate
from pathlib import Path

from tests.servers import debian
from tests.servers.process import Service, check_alive, free_port, spawn, stop, wait_until

_PACKAGES = ("ceph-mon", "ceph-osd", "radosgw", "ceph-common")
_PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "monmaptool")

# Every path is inside {root}, so that nothing is shared with another gateway or left behind. `none` in place of
# cephx keeps the gateway from authenticating; without tcp_nodelay each GET takes 20 ms (Nagle's algorithm meets
# delayed acknowledgements); without the short garbage collection, deleted objects stay in memory for two hours;
# without the short paxos interval each of the gateway's pools takes a second to make.
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
memstore device bytes = {memory}
osd crush update on start = false
[client.rgw.a]
rgw data = {root}/rgw
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay={tcp_nodelay:d}
rgw thread pool size = 64
debug rgw = 0
debug rgw access = 0
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


class CephGateway(Service):
    """One gateway with one user, empty at `start` and gone with all its objects at `stop`.

    `endpoint` is "http://127.0.0.1:PORT" and answers to `access_key` and `secret_key`; any region will do to sign,
    `region` is the one to give. `memory` is the number of bytes the objects may take in all. With `tcp_nodelay` the
    gateway sends small pieces at once, which is not its default.
    """

    access_key = "fsabsaccess"
    secret_key = "fsabssecret"
    region = "us-east-1"

    def __init__(self, memory: int = 4 << 30, tcp_nodelay: bool = True) -> None:
        self._memory = memory
        self._tcp_nodelay = tcp_nodelay
        self._port = 0
        self._root: Path | None = None
        self._daemons: list[subprocess.Popen[bytes]] = []

    @property
    def endpoint(self) -> str:
        """The URL to give to a client."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns once an object was written and read back; raises RuntimeError with what a daemon said."""
        if (reason := missing()) is not None:
            raise RuntimeError(reason)
        self._root = Path(tempfile.mkdtemp(prefix="fsabs-ceph-"))
        try:
            self._configure()
            self._start_monitor()
            self._start_store()
            self._start_gateway()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the daemons, the last started first, and removes their folder; harmless when not started."""
        for process in reversed(self._daemons):
            process.kill()  # nothing to save, and a store without a monitor is slow to end politely
            stop(process)
        self._daemons.clear()
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    def create_bucket(self, name: str) -> None:
        """Makes the bucket; one of this user's that exists is left as it is."""
        status, body = self.request("PUT", f"/{name}")
        if status not in (200, 409):
            raise RuntimeError(f"bucket {name}: {status} {body[:300]!r}")

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Sends one signed request and returns its status and body.

        `path` is "/bucket" or "/bucket/key", unquoted and without a query. Signed by S3's version 2, which is four
        lines long and which the gateway still accepts.
        """
        target = urllib.parse.quote(path)
        date = formatdate(usegmt=True)
        text = f"{method}\n\n\n{date}\n{target}"
        digest = hmac.new(self.secret_key.encode(), text.encode(), hashlib.sha1).digest()
        signature = base64.b64encode(digest).decode()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            headers = {"Date": date, "Authorization": f"AWS {self.access_key}:{signature}"}
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    # The steps of `start`, in order.

    def _configure(self) -> None:
        self._port = free_port()
        for name in ("mon", "osd", "rgw"):
            (self._dir / name).mkdir()
        values = {"root": self._dir, "fsid": uuid.uuid4(), "mon_port": free_port(), "port": self._port}
        (self._dir / "ceph.conf").write_text(_CONF.format(**values, memory=self._memory, tcp_nodelay=self._tcp_nodelay))
        self._make_keyring()

    def _make_keyring(self) -> None:
        # Written by hand: `ceph-authtool` is one call, and one more process, a key.
        lines = []
        for name, caps in _KEYS.items():
            lines += [f"[{name}]", f"\tkey = {_new_key()}"]
            lines += [f'\tcaps {kind} = "{cap}"' for kind, cap in zip(caps[::2], caps[1::2], strict=True)]
        keyring = self._dir / "keyring"
        keyring.touch(mode=0o600)
        keyring.write_text("\n".join(lines) + "\n")

    def _start_monitor(self) -> None:
        conf = (self._dir / "ceph.conf").read_text()
        fsid = conf.split("fsid = ")[1].split("\n")[0]
        address = conf.split("mon host = ")[1].split("\n")[0]
        monmap = str(self._dir / "monmap")
        self._run("monmaptool", "--create", "--addv", "a", address, "--fsid", fsid, monmap, conf=False)
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        self._spawn("ceph-mon", "-i", "a", "-f")

    def _start_store(self) -> None:
        self._run("ceph", "osd", "create")  # waits for the monitor
        self._run("ceph", "auth", "import", "-i", str(self._dir / "keyring"))
        self._run("ceph", "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=a")
        self._run("ceph-osd", "-i", "0", "--mkfs")
        self._spawn("ceph-osd", "-i", "0", "-f")

    def _start_gateway(self) -> None:
        keys = ("--access-key", self.access_key, "--secret-key", self.secret_key)
        self._run(
            "radosgw-admin", "-n", "client.rgw.a", "user", "create", "--uid", "fsabs", "--display-name", "fsabs", *keys
        )
        self._spawn("radosgw", "-n", "client.rgw.a", "-f")
        wait_until(self._works, 60, "an object to come back from the Ceph gateway")

    def _works(self) -> bool:
        for process in self._daemons:
            check_alive(process, self._log(process))
        try:
            self.create_bucket("fsabs-ready")
            put, _ = self.request("PUT", "/fsabs-ready/probe", b"ready")
            return put == 200 and self.request("GET", "/fsabs-ready/probe") == (200, b"ready")
        except (OSError, http.client.HTTPException, RuntimeError):
            return False

    # How the programs are run.

    @property
    def _dir(self) -> Path:
        if self._root is None:
            raise RuntimeError("the gateway is not started")
        return self._root

    def _log(self, process: subprocess.Popen[bytes]) -> Path:
        args = process.args
        name = args[0] if isinstance(args, list) else str(args)
        return self._dir / f"{name}.out"

    def _spawn(self, name: str, *args: str) -> None:
        argv = [name, "-c", str(self._dir / "ceph.conf"), *args]
        self._daemons.append(spawn(argv, self._dir / f"{name}.out"))

    def _run(self, name: str, *args: str, conf: bool = True) -> None:
        where = ["-c", str(self._dir / "ceph.conf")] if conf else []
        done = subprocess.run([name, *where, *args], capture_output=True, timeout=60, check=False)
        if done.returncode:
            said = (done.stderr + done.stdout).decode(errors="replace")[-2000:]
            raise RuntimeError(f"{name} {' '.join(args)} ended with {done.returncode}:\n{said}")


def _new_key() -> str:
    # A cephx key: type 1 (AES), seconds and nanoseconds of its making, length, 16 random bytes; little-endian.
    head = (1).to_bytes(2, "little") + int(time.time()).to_bytes(4, "little") + bytes(4)
    return base64.b64encode(head + (16).to_bytes(2, "little") + os.urandom(16)).decode()


def _run_until_interrupted() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), CephGateway() as gateway:
        print(f"endpoint={gateway.endpoint}", f"access_key={gateway.access_key}", f"secret_key={gateway.secret_key}")
        sys.stdout.flush()
        while True:
            time.sleep(3600)


def main(argv: list[str]) -> int:
    """Runs ``install`` or ``run``; returns the exit status."""
    if argv == ["install"]:
        install()
    elif argv == ["run"]:
        _run_until_interrupted()
    else:
        print("usage: python -m tests.servers.ceph install|run", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
