"""A real caching proxy before a store: Debian's nginx with `proxy_cache`, as sites put one before a far store."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.dav import missing as missing
from tests.servers.dav import program
from tests.servers.process import Service, check_alive, free_port, spawn, stop, wait_until

_CONF = """
daemon off; master_process off; worker_processes 1; pid {root}/pid; error_log {root}/error.log warn; {user}
events {{ worker_connections 512; }}
http {{
  log_format status '$request_method $upstream_cache_status'; access_log {root}/access.log status;
  client_body_temp_path {root}/body; fastcgi_temp_path {root}/fastcgi; uwsgi_temp_path {root}/uwsgi;
  scgi_temp_path {root}/scgi; proxy_temp_path {root}/proxy;
  proxy_cache_path {root}/cache keys_zone=store:1m;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass {store}; proxy_set_header Host $http_host; proxy_cache store; proxy_cache_valid 200 206 10m;
      proxy_cache_key $request_method$request_uri$http_range;
    }}
  }}
}}
"""


class CachingProxy(Service):
    """One nginx before the store at an endpoint."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._port = 0
        self._root: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The URL to give to a client."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns once it answers."""
        if (reason := missing()) is not None:
            raise RuntimeError(reason)
        self._port = free_port()
        self._root = Path(tempfile.mkdtemp(prefix="fsabs-proxy-"))
        user = "user root;" if self._root.owner() == "root" else ""
        conf = _CONF.format(root=self._root, port=self._port, store=self._store, user=user)
        (self._root / "nginx.conf").write_text(conf)
        try:
            argv = [str(program()), "-c", f"{self._root}/nginx.conf", "-p", str(self._root)]
            self._process = spawn(argv, self._root / "nginx.out")
            wait_until(self._works, 20, "nginx to answer")
        except BaseException:
            self.stop()
            raise

    def _works(self) -> bool:
        assert self._process is not None
        assert self._root is not None
        check_alive(self._process, self._root / "nginx.out")
        return (self._root / "pid").exists()

    def stop(self) -> None:
        """Ends the server and removes its folder; harmless when not started."""
        if self._process is not None:
            stop(self._process)
            self._process = None
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    def answers(self, method: str, count: int) -> list[str]:
        """Method and cache status of each request with this method: `GET MISS`, `GET HIT`; there are `count` at least.

        nginx logs a request after its response is there.
        """
        assert self._root is not None
        log, found = self._root / "access.log", list[str]()

        def logged() -> bool:
            found[:] = [line for line in log.read_text().splitlines() if line.startswith(method)]
            return len(found) >= count

        wait_until(logged, 20, f"nginx to log {count} requests")
        return found
