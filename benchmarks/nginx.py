"""A fast byte server for benchmarks: Debian's nginx, serving a folder as buckets of an S3 store, on loopback."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_CONF = """
daemon off; worker_processes 1; pid {root}/pid; error_log {root}/error.log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000; etag on;
  client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
  uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
  server {{ listen 127.0.0.1:{port} backlog=512; root {files}; }}
}}
"""


@contextlib.contextmanager
def serving(files: Path) -> Iterator[str]:
    """The endpoint of a server of `files`, whose folders are buckets."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise SystemExit("this benchmark needs nginx: apt-get install nginx-light")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="fsabs-nginx-") as root:
        conf = Path(root) / "nginx.conf"
        conf.write_text(_CONF.format(root=root, port=port, files=files))
        server = subprocess.Popen([program, "-c", str(conf), "-p", root, "-e", f"{root}/error.log"])
        try:
            _wait(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def _wait(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise SystemExit("nginx doesn't answer")
