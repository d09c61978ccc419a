"""A Hugging Face hub in a process of its own, that of the tests; the contents of its large files come from nginx."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from tests.servers.hostile_store import Answer, Request
from tests.servers.hub import File, HubServer

from . import serving

COUNTS = "/counts"
"""Here it tells how many requests of which kind it has answered."""
REPOSITORY = "bench/data"
CONTENTS = "repos/ab/cd"
"""The folder below nginx's with the contents, each under its SHA-256."""


class CountingHub(HubServer):
    """A hub that tells how often it was asked for what."""

    def answer(self, request: Request) -> Answer:
        """The hub's response, or the counts."""
        if request.path != COUNTS:
            return super().answer(request)
        body = json.dumps(self.counts).encode()
        return Answer(200, {"Content-Type": "application/json"}, body, len(body))


@contextlib.contextmanager
def start(files: Path, contents: str) -> Iterator[str]:
    """Yield the endpoint of a hub that has the data set `bench/data`: the files of a folder.

    `contents` is the endpoint of an nginx with the files that are large for the hub.
    """
    with serving.started(serve, str(files), contents) as endpoint:
        yield endpoint


def serve(files: str, contents: str) -> None:
    """Print the endpoint, and serve."""
    with CountingHub() as hub:
        hub.elsewhere.origin = contents
        tree = {path.name: File.of(path.read_bytes(), True) for path in Path(files).iterdir()}
        hub.make(REPOSITORY).commit(tree, "the files")

        def begun(port: int) -> None:
            hub.endpoint = f"http://127.0.0.1:{port}"
            serving.announce(hub.endpoint)

        asyncio.run(serving.serve(lambda: _Connection(hub), begun))


class _Connection(asyncio.Protocol):
    """A connection of the only thread, which a hub of many threads would lose its time for."""

    def __init__(self, hub: HubServer) -> None:
        self._hub = hub
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer the requests that have arrived; none of them has a body."""
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            method, target, _ = first.split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            request = Request(method, "", {}, headers, b"", target)
            self._transport.write(self._hub.answer(request).raw)
