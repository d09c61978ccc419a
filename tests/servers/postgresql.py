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
from pathlib import Path

from tests.servers import debian
from tests.servers.process import Server

_PACKAGE = "postgresql"
USER = "postgres"  # Debian's package makes it

# Without `fsync` a server that is killed loses nothing, since the kernel has it; only a machine without power would.
_SETTINGS = """
fsync = {fsync}
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = '{root}'
max_connections = 500
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


class PostgreSQL(Server):
    """One PostgreSQL; each test asks for a schema of its own by `database_url`."""

    missing = staticmethod(missing)
    name = "postgresql"
    end_signal = signal.SIGINT  # "fast": at once, connections too; what is under way is rolled back

    def __init__(self, fsync: bool = False) -> None:
        super().__init__()
        self._fsync = "on" if fsync else "off"
        self._schemas = 0
        self._has_database = False

    def prepare(self) -> None:
        """Make the database."""
        super().prepare()
        if os.geteuid() == 0:
            found = pwd.getpwnam(USER)
            os.chown(self.folder, found.pw_uid, found.pw_gid)
        options = ("-A", "trust", "-U", "fsabs", "--no-sync", "-E", "UTF8")
        command = _command("initdb", "-D", f"{self.folder}/data", *options)
        subprocess.run(command, cwd="/", stdout=subprocess.DEVNULL, check=True, timeout=60)
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS.format(root=self.folder, port=self._port, fsync=self._fsync))

    def launch(self) -> None:
        """Start it, with what a crash has left."""
        for left in (self.folder / "data" / "postmaster.pid", *self.folder.glob(".s.PGSQL*")):
            left.unlink(missing_ok=True)
        self.spawn("postgres", _command("postgres", "-D", f"{self.folder}/data"))

    def crash(self) -> None:
        """Kill all processes of the server by SIGKILL, as a machine that loses its power does."""
        ((server, _),) = self._processes
        children = [int(child) for child in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()]
        for victim in (server.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        self.end()

    def database_url(self, *, by_socket: bool = False) -> str:
        """Make an empty schema, and return a URL that leads there and to no other; on request, by a file's socket.

        Each process has a database of its own on a server that is shared: what is counted is counted of a database.
        """
        database = f"test{os.getpid()}"
        if not self._has_database:
            self._execute("postgres", f"CREATE DATABASE {database}")
            self._has_database = True
        self._schemas += 1
        name = f"test{self._schemas}"
        self._execute(database, f"CREATE SCHEMA {name}")
        options = f"options=-csearch_path%3D{name}"
        if by_socket:
            return f"postgresql+psycopg://fsabs@/{database}?host={self.folder}&port={self._port}&{options}"
        return f"postgresql+psycopg://fsabs@127.0.0.1:{self._port}/{database}?{options}"

    def new_database(self) -> str:
        """Make an empty database, and return its name."""
        self._schemas += 1
        name = f"bare{os.getpid()}x{self._schemas}"
        self._execute("postgres", f"CREATE DATABASE {name}")
        return name

    def _execute(self, database: str, statement: str) -> None:
        import psycopg

        with psycopg.connect(f"postgresql://fsabs@127.0.0.1:{self._port}/{database}", autocommit=True) as connection:
            connection.execute(statement)

    def probe(self) -> bool:
        """Return True if it answers."""
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(f"postgresql://fsabs@127.0.0.1:{self._port}/postgres", connect_timeout=2).close()
            return True
        return False


def _command(program: str, *arguments: str) -> list[str]:
    """Returns the command that runs a program of PostgreSQL, as a user who is not root."""
    path = _program(program)
    assert path is not None
    return as_user(path, *arguments)


def as_user(*command: str) -> list[str]:
    """Returns a command that runs as a user who is not root."""
    prefix = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.geteuid() == 0 else []
    return [*prefix, *command]


def _program(name: str) -> str | None:
    """Returns the path of one of PostgreSQL's programs, which Debian keeps out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    return str(found[-1]) if found else shutil.which(name)
