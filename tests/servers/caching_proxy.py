"""A real caching proxy before a store: Debian's nginx with `proxy_cache`, as sites put one before a far store."""

from __future__ import annotations

from tests.servers.dav import Nginx
from tests.servers.dav import missing as missing
from tests.servers.process import wait_until

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


class CachingProxy(Nginx):
    """One nginx before the store at an endpoint."""

    name = "proxy"
    configuration = _CONF

    def __init__(self, store: str) -> None:
        super().__init__()
        self._store = store

    def values(self) -> dict[str, object]:
        """Return the store."""
        return {"store": self._store}

    @property
    def endpoint(self) -> str:
        """The URL to give to a client."""
        return f"http://127.0.0.1:{self._port}"

    def answers(self, method: str, count: int) -> list[str]:
        """Method and cache status of each request with this method: `GET MISS`, `GET HIT`; there are `count` at least.

        nginx logs a request after its response is there.
        """
        log, found = self.folder / "access.log", list[str]()

        def logged() -> bool:
            found[:] = [line for line in log.read_text().splitlines() if line.startswith(method)]
            return len(found) >= count

        wait_until(logged, 20, f"nginx to log {count} requests")
        return found
