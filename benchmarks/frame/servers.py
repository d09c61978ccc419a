"""The servers of the benchmarks, all on loopback: nginx as a store of objects, plain or with TLS, near or far; wrk."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from . import data, delay

INSTALL = "apt-get install nginx-light wrk"

_CONF = """
daemon off; worker_processes 1; pid {root}/pid; error_log {root}/error.log crit;
events {{ worker_connections 4096; }}
http {{
  log_format counted '$request_method $status $body_bytes_sent $request_uri';
  access_log {log}; sendfile on; tcp_nodelay on; keepalive_requests 100000000; keepalive_timeout 600; etag on;
  map $uri $crc32c {{ {checksums} }}
  client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
  uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
  open_file_cache max=20000 inactive=600s; open_file_cache_valid 600s;
  server {{ listen 127.0.0.1:{port}{tls} backlog=4096; root {files}; {certificate}
    location /storage/v1/b/bucket/o/ {{ alias {files}/bucket/; {fields} }}
    location /download/storage/v1/b/bucket/o/ {{ alias {files}/bucket/; {fields} }}
    location /bucket/ {{ {fields} }}
    location /account/ {{ proxy_pass http://127.0.0.1:{port}/; proxy_set_header Range $http_x_ms_range; }}
    location ~ ^/[^/]+/?$ {{ default_type application/xml; try_files $uri{listing}$arg_prefix $uri{listing} @empty; }}
    location @empty {{ return 200; }} }}
}}
"""


_OF_CLOUDS = (
    "add_header x-goog-generation 1767225600000000; add_header x-goog-hash crc32c=$crc32c; "
    "add_header x-goog-metageneration 1; add_header x-goog-storage-class STANDARD; add_header x-ms-version 2021-12-02;"
)
"""Header fields of objects on Google Cloud Storage and on Azure: no client minds those of the other."""


class Store(NamedTuple):
    """A server of a folder, whose folders are buckets."""

    endpoint: str
    """`http://127.0.0.1:PORT`"""
    how: str = ""
    """What is between it and its clients, for a note."""
    log: Path | None = None
    """Where each request is a line `METHOD STATUS BYTES PATH`, if asked for."""


def program(name: str) -> str | None:
    """Where a program is, looking where administrators' programs are, too."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")


@contextlib.contextmanager
def store(
    files: Path,
    *,
    certificate: Certificate | None = None,
    logged: bool = False,
    checksums: Mapping[str, str] | None = None,
) -> Iterator[Store]:
    """nginx, serving `files`, over TLS where there is a certificate.

    With `checksums`, the CRC32C of each object of `bucket`, it is one of the clouds, too: the paths of Google's two
    APIs and of Azure's lead to the bucket, whose objects have the header fields of those.
    """
    with _nginx(files, certificate, logged, checksums) as (port, log):
        yield Store(f"{'https' if certificate else 'http'}://127.0.0.1:{port}", "", log)


@contextlib.contextmanager
def far_store(files: Path, milliseconds: float, *, logged: bool = False) -> Iterator[Store]:
    """nginx with half of `milliseconds` on each way between it and its clients."""
    with _nginx(files, None, logged) as (port, log), delay.proxy(port, milliseconds) as near:
        how = (
            f"{milliseconds:g} ms by a proxy in a process of its own, which holds the bytes of each way back for "
            f"{milliseconds / 2:g} ms: it shares the CPUs with client and server"
        )
        yield Store(f"http://127.0.0.1:{near}", how, log)


@contextlib.contextmanager
def _nginx(
    files: Path,
    certificate: Certificate | None,
    logged: bool,
    checksums: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, Path | None]]:
    nginx = program("nginx")
    if nginx is None:
        raise SystemExit(f"this benchmark needs nginx: {INSTALL}")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="fsabs-nginx-") as root:
        os.chmod(root, 0o755)
        log = Path(root, "requests") if logged else None
        settings = f"ssl_certificate {certificate.chain}; ssl_certificate_key {certificate.key};" if certificate else ""
        of_clouds = checksums.items() if checksums is not None else ()
        paths = ("/bucket/{}", "/storage/v1/b/bucket/o/{}", "/download/storage/v1/b/bucket/o/{}")
        text = _CONF.format(
            checksums=" ".join(f"{path.format(name)} {value};" for name, value in of_clouds for path in paths),
            fields=_OF_CLOUDS if checksums is not None else "",
            root=root,
            listing=data.LISTING,
            port=port,
            files=files,
            tls=" ssl" if certificate else "",
            certificate=settings,
            log=f"{log} counted" if log else "off",
        )
        conf = Path(root, "nginx.conf")
        conf.write_text(text)
        command = [nginx, "-c", str(conf), "-p", root, "-e", f"{root}/error.log"]
        server = subprocess.Popen(command)
        try:
            _wait(port, server)
            yield port, log
        finally:
            server.terminate()
            server.wait()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if server.poll() is not None:
            break
        time.sleep(0.05)
    raise SystemExit(f"nginx doesn't answer at 127.0.0.1:{port}")


# ---- what was asked of it


class Requests(NamedTuple):
    """What a server was asked between two moments."""

    number: int
    size: int
    """Bytes of the bodies that it sent."""


def requests(log: Path, start: int) -> tuple[Requests, int]:
    """What the log tells from `start` on, and where it ends now."""
    time.sleep(0.05)  # a line is written after its answer is sent
    with log.open("rb") as file:
        file.seek(start)
        text = file.read()
    lines = [line.split(b" ", 3) for line in text.splitlines()]
    return Requests(len(lines), sum(int(line[2]) for line in lines)), start + len(text)


# ---- TLS


class Certificate(NamedTuple):
    """A certificate that signs itself, for 127.0.0.1: clients get it as their only authority."""

    chain: Path
    key: Path

    def environment(self) -> dict[str, str]:
        """By which the clients know it."""
        path = str(self.chain)
        return {"AWS_CA_BUNDLE": path, "SSL_CERT_FILE": path, "REQUESTS_CA_BUNDLE": path}


def certificate(folder: Path) -> Certificate:
    """A new one, in `folder`."""
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(made.key), "-out", str(made.chain)]
    subprocess.run(command, check=True, capture_output=True)
    return made


# ---- the limit

_PATHS = """
local paths, at = {{{paths}}}, 0
request = function() at = at % #paths + 1; return wrk.format("GET", paths[at]) end
"""


def wrk(folder: Path, endpoint: str, paths: Sequence[str], connections: int) -> Callable[[], dict[str, float]] | None:
    """A round of `wrk -t1 -cN` for a second: the seconds and CPU seconds for `len(paths)` answers; None without it."""
    binary = program("wrk")
    if binary is None:
        return None
    script = folder / f"wrk-{connections}.lua"
    script.write_text(_PATHS.format(paths=", ".join(f'"{path}"' for path in paths)))
    command = [binary, "-t1", f"-c{connections}", "-d1s", "-s", str(script), endpoint]

    def run() -> dict[str, float]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        rate = re.search(r"Requests/sec:\s*([\d.]+)", text)
        done = re.search(r"(\d+) requests in", text)
        if rate is None or done is None or "Non-2xx" in text:
            raise RuntimeError(f"wrk says: {text}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"seconds": len(paths) / float(rate[1]), "cpu": cpu * len(paths) / int(done[1])}

    return run
