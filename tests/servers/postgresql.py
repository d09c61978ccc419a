"""A real PostgreSQL for the tests: Debian's server on a temporary folder, on loopback.

It runs as a user of its own where the tests run as root, as PostgreSQL wants it. It can be stopped and started again at
the same port, as a database that is restarted under its clients. Nothing here imports pytest.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.servers import debian
from tests.servers.process import Service, check_alive, free_port, spawn, stop, wait_until

_PACKAGE = "postgresql"
_USER = "postgres"  # Debian's package makes it

# Without `fsync` a server that is killed loses nothing, since the kernel has it; only a machine without power would.
_SETTINGS = """
fsync = {fsync}
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = '{root}'
max_connections = 200
shared_buffers = 64MB
log_min_messages = fatal
"""


def missing() -> str | None:
    """Returns None when PostgreSQL can be started here, else a sentence that names the command to run."""
    if _program("initdb") is None:
        return f"The tests of task dispatching need PostgreSQL: run `{debian.command(_PACKAGE)}` as root."
    return None


def install() -> None:
    """Installs Debian's package when it is missing; needs root or a `sudo` that asks no password."""
    debian.install(missing, _PACKAGE)


class PostgreSQL(Service):
    """One PostgreSQL; each test asks for a schema of its own by `database_url`."""

    def __init__(self, fsync: bool = False) -> None:
        self._fsync = "on" if fsync else "off"
        self._port = 0
        self._root: Path | None = None
        self._schemas = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once it answers; after `pause` or `crash`, with the same data at the same port."""
        if (reason := missing()) is not None:
            raise RuntimeError(reason)
        if self._root is None:
            self._port = free_port()
            self._root = Path(tempfile.mkdtemp(prefix="fsabs-postgresql-"))
            if os.geteuid() == 0:
                found = pwd.getpwnam(_USER)
                os.chown(self._root, found.pw_uid, found.pw_gid)
            data = f"{self._root}/data"
            command = _command("initdb", "-D", data, "-A", "trust", "-U", "fsabs", "--no-sync", "-E", "UTF8")
            subprocess.run(command, cwd="/", stdout=subprocess.DEVNULL, check=True, timeout=60)
            with (self._root / "data" / "postgresql.conf").open("a") as file:
                file.write(_SETTINGS.format(root=self._root, port=self._port, fsync=self._fsync))
        for left in (self._root / "data" / "postmaster.pid", *self._root.glob(".s.PGSQL*")):
            left.unlink(missing_ok=True)  # of a crash
        self._process = spawn(_command("postgres", "-D", f"{self._root}/data"), self._root / "log")
        wait_until(self._answers, 30, "PostgreSQL to answer")

    def pause(self) -> None:
        """Ends the server at once, its connections too, and keeps its data and its port."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)  # "fast": what is under way is rolled back
        self._process.wait(30)

    def crash(self) -> None:
        """Kills all processes of the server by SIGKILL, as a machine that loses its power does."""
        assert self._process is not None
        pid = self._process.pid
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        for victim in (pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        self._process.wait(30)

    def stop(self) -> None:
        """Ends the server and removes its folder; harmless when not started."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGQUIT)  # "immediate"
            stop(self._process)
            self._process = None
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    def database_url(self, *, by_socket: bool = False) -> str:
        """Makes an empty schema, and returns a URL that leads there and to no other; on request, by a file's socket."""
        import psycopg

        self._schemas += 1
        name = f"test{self._schemas}"
        with psycopg.connect(f"postgresql://fsabs@127.0.0.1:{self._port}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        options = f"options=-csearch_path%3D{name}"
        if by_socket:
            return f"postgresql+psycopg://fsabs@/postgres?host={self._root}&port={self._port}&{options}"
        return f"postgresql+psycopg://fsabs@127.0.0.1:{self._port}/postgres?{options}"

    def _answers(self) -> bool:
        import psycopg

        assert self._process is not None
        assert self._root is not None
        check_alive(self._process, self._root / "log")
        with contextlib.suppress(psycopg.OperationalError):
            url = f"postgresql://fsabs@127.0.0.1:{self._port}/postgres"
            psycopg.connect(url, connect_timeout=2).close()
            return True
        return False


def _command(program: str, *arguments: str) -> list[str]:
    """Returns the command that runs a program of PostgreSQL, as a user who is not root."""
    path = _program(program)
    assert path is not None
    prefix = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"] if os.geteuid() == 0 else []
    return [*prefix, path, *arguments]


def _program(name: str) -> str | None:
    """Returns the path of one of PostgreSQL's programs, which Debian keeps out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    return str(found[-1]) if found else shutil.which(name)
