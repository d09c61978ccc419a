"""A real PgBouncer for the tests, Debian's, before a PostgreSQL of theirs: it pools by transactions or by sessions."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal

from tests.servers import debian
from tests.servers.postgresql import USER, PostgreSQL, as_user
from tests.servers.process import Server

_PACKAGE = "pgbouncer"
_PROGRAM = "/usr/sbin/pgbouncer"

_SETTINGS = """
[databases]
* = host=127.0.0.1 port={server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
default_pool_size = {places}
"""


def missing() -> str | None:
    """Returns None when PgBouncer can be started here, else a sentence that names the command to run."""
    if shutil.which(_PROGRAM) is None:
        return f"The tests of poolers need PgBouncer: run `{debian.command(_PACKAGE)}` as root."
    return None


def install() -> None:
    """Installs Debian's package when it is missing; needs root or a `sudo` that asks no password."""
    debian.install(missing, _PACKAGE)


class PgBouncer(Server):
    """A pooler with so many places for a database of a server."""

    missing = staticmethod(missing)
    name = "pgbouncer"
    end_signal = signal.SIGINT

    def __init__(self, server: PostgreSQL, mode: str, places: int) -> None:
        super().__init__()
        self._server, self._mode, self._places = server, mode, places

    def prepare(self) -> None:
        """Write its settings."""
        super().prepare()
        settings = _SETTINGS.format(
            server=self._server.address()["port"],
            port=self._port,
            folder=self.folder,
            mode=self._mode,
            places=self._places,
        )
        (self.folder / "pgbouncer.ini").write_text(settings)
        (self.folder / "users").write_text('"fsabs" ""\n')
        if os.geteuid() == 0:
            found = pwd.getpwnam(USER)
            os.chown(self.folder, found.pw_uid, found.pw_gid)

    def launch(self) -> None:
        """Start it."""
        self.spawn("pgbouncer", as_user(_PROGRAM, str(self.folder / "pgbouncer.ini")))

    def probe(self) -> bool:
        """Return True if it answers."""
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(f"postgresql://fsabs@127.0.0.1:{self._port}/postgres", connect_timeout=2).close()
            return True
        return False

    def database_url(self) -> str:
        """Make an empty database, and return a URL that leads there through the pooler."""
        return f"postgresql+psycopg://fsabs@127.0.0.1:{self._port}/{self._server.new_database()}"
