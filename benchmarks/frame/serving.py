"""Servers of our own, each in a process of its own: one thread, and a little work for each request."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def started(function: Callable[..., object], *arguments: object) -> Iterator[str]:
    """Call a function in a process of its own, which is killed in the end; yield the first line that it writes."""
    code = f"from {function.__module__} import {function.__name__}; {function.__name__}{arguments!r}"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def announce(line: object) -> None:
    """Write the line that `started` yields."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def serve(
    protocol: Callable[[], asyncio.BaseProtocol],
    begun: Callable[[int], object] = announce,
    context: ssl.SSLContext | None = None,
) -> None:
    """Serve for ever at a free port of this machine; `begun` is called with its number."""
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, backlog=1024, ssl=context)
    begun(server.sockets[0].getsockname()[1])
    await server.serve_forever()
