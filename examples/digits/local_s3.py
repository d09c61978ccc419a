"""An S3 server on this machine for as long as a `with` block lasts: moto, in a process of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

# Its standard input ends when this process does, however it does; then the server goes, too.
SERVER = """\
import os, sys, threading
from moto.server import main

def end_with_parent():
    sys.stdin.read()
    os._exit(0)

threading.Thread(target=end_with_parent, daemon=True).start()
main(sys.argv[1:])
"""


@contextlib.contextmanager
def local_s3(log: Path, timeout: float = 60) -> Iterator[str]:
    """The endpoint, "http://127.0.0.1:PORT", of an empty server; its talk goes to the file `log`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [sys.executable, "-c", SERVER, "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=output, stderr=output)
    try:
        endpoint = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + timeout
        while not answers(endpoint):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the S3 server did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)
        yield endpoint
    finally:
        server.kill()
        server.communicate()


def answers(endpoint: str) -> bool:
    """Whether a server is there; a proxy that the environment names is not asked."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        direct.open(endpoint, timeout=1).close()
    except OSError:
        return False
    return True
