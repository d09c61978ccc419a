"""A real web server that keeps what is PUT: Debian's nginx with its DAV module, as shared HTTP caches are run.

`DavServer` offers the URL of an open folder, and of one that asks for a bearer token. It can be stopped and started
again at the same port, as a cache that dies under its clients. Nothing here imports pytest.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

from tests.servers import debian
from tests.servers.process import Server

_PACKAGE = "nginx-light"
_SBIN = "/usr/sbin:/usr/local/sbin"  # where Debian puts it, and a user's PATH doesn't lead

# Bodies above `client_max_body_size` are refused with 413; its default of 1 MB is what users meet first.
_CONF = """
daemon off; master_process off; worker_processes 1; pid {root}/pid; error_log {root}/error.log warn; {user}
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000; tcp_nodelay on; default_type application/octet-stream;
  client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
  uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi; client_max_body_size {max_body};
  map $http_authorization $known {{ default 0; "Bearer {token}" 1; }}
  server {{
    listen 127.0.0.1:{port} backlog=512;
    root {root}/files;
    dav_methods PUT DELETE;
    create_full_put_path on;
    location / {{ }}
    location /token/ {{ if ($known = 0) {{ return 401; }} }}
  }}
}}
"""


def missing() -> str | None:
    """Returns None when nginx can be started here, else a sentence that names the command to run."""
    found = program()
    if found is None:
        return f"The HTTP cache needs nginx: run `{debian.command(_PACKAGE)}` as root."
    built = subprocess.run([found, "-V"], capture_output=True, text=True, check=False).stderr
    if "http_dav_module" not in built:
        return f"{found} is built without its DAV module: run `{debian.command(_PACKAGE)}` as root."
    return None


def install() -> None:
    """Installs Debian's package when it is missing; needs root or a `sudo` that asks no password."""
    debian.install(missing, _PACKAGE)


class Nginx(Server):
    """One nginx in the foreground, with the configuration that a subclass writes."""

    missing = staticmethod(missing)
    configuration: str
    """With the fields `root`, `port`, `user` and those of `values`."""

    def values(self) -> dict[str, object]:
        """Return the further fields of the configuration."""
        return {}

    def prepare(self) -> None:
        """Write the configuration."""
        super().prepare()
        user = "user root;" if os.geteuid() == 0 else ""  # it would drop to one that can't enter the folder
        conf = self.configuration.format(root=self.folder, port=self._port, user=user, **self.values())
        (self.folder / "nginx.conf").write_text(conf)

    def launch(self) -> None:
        """Start it."""
        path = self.folder
        self.spawn("nginx", [str(program()), "-c", f"{path}/nginx.conf", "-p", f"{path}", "-e", f"{path}/error.log"])

    def probe(self) -> bool:
        """Return True if it listens."""
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


class DavServer(Nginx):
    """One nginx, empty at `start`; what it keeps lies in `files`, for tests to look at and to spoil."""

    name = "dav"
    configuration = _CONF
    token = "a-bearer-token"
    """What `token_url` asks for."""

    def __init__(self, max_body: str = "64m") -> None:
        super().__init__()
        self._max_body = max_body

    def values(self) -> dict[str, object]:
        """Return what a test may choose."""
        return {"token": self.token, "max_body": self._max_body}

    def prepare(self) -> None:
        """Make the folder of its files, too."""
        super().prepare()
        self.files.mkdir()

    @property
    def origin(self) -> str:
        """The scheme, the host and the port."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """A folder that is open to all."""
        return f"{self.origin}/cache"

    @property
    def token_url(self) -> str:
        """A folder that asks for `Authorization: Bearer` and `token`."""
        return f"{self.origin}/token"

    @property
    def files(self) -> Path:
        """The folder behind the server's root."""
        return self.folder / "files"


def program() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path=_SBIN)
