"""S3 clients and what stores do to many requests at once: redirects to another region, storms of refusals, connections
over which something comes that answers nothing.
"""

from __future__ import annotations

import functools
import os
import re
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.backends.objects.connections import ConnectionPool
from fsabs.backends.objects.failures import Throttle
from fsabs.backends.objects.messages import Request, Response
from fsabs.backends.objects.pipeline import send_many
from fsabs.testing.children import Child
from tests import namespaces
from tests.backends.s3_clients import contents, opened
from tests.servers.fixtures import require
from tests.servers.scripted import Asked, ScriptedStore, message

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_settings")]
ROOT = Path(__file__).parents[2]
OTHER = message(
    200, {"Content-Length": "5", "ETag": '"other"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}, b"OTHER"
)
OPERATIONS: dict[str, Any] = {
    "read_bytes": lambda fs, name: fs.read_bytes(name),
    "read_many": lambda fs, name: next(iter(fs.read_many([name, name]))),
    "stat": lambda fs, name: fs.stat(name).size,
    "write": lambda fs, name: fs.write_bytes(name, b"written"),
}


# ---- new connections


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_request_is_sent_over_a_new_connection_that_is_not_silent(operation: str, monkeypatch: Any) -> None:
    secured = ConnectionPool.secured

    def late(self: ConnectionPool, connected: socket.socket) -> socket.socket:
        select.select([connected], [], [], 10)  # what the store sends unasked has come
        return secured(self, connected)

    monkeypatch.setattr(ConnectionPool, "secured", late)
    with ScriptedStore({"k": b"content"}, greet=OTHER) as store:
        with pytest.raises(fsabs.CorruptFileError, match="before a request"):
            OPERATIONS[operation](opened(store.endpoint, max_attempts=2), "k")
        assert not store.requests


def test_what_comes_over_an_idle_connection_of_a_pipeline_is_no_response() -> None:
    objects = contents(4)
    first, second, *_ = objects
    answered = threading.Event()

    def second_before_first(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.key == first:
            assert answered.wait(60)
        connection.sendall(store.respond(asked))
        if asked.key == second:
            answered.set()

    with ScriptedStore(objects, second_before_first) as store:
        found = []
        for outcome in send_many(opened(store.endpoint).http, (Request("GET", name) for name in objects), 2, ahead=2):
            assert isinstance(outcome, Response)
            found.append(outcome.body)
            if len(found) == 2:  # both were complete when the first one was taken: no request is under way
                for connection in store.connected:
                    connection.sendall(OTHER)
        assert found == list(objects.values())


# ---- another region


@pytest.mark.parametrize("operation", ["read_bytes", "read_many", "stat"])
def test_a_bucket_in_another_region_costs_its_first_object_extra(operation: str) -> None:
    objects = contents(300, 100)
    wrong: list[Asked] = []

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        scope = re.search(r"Credential=[^/]+/\d+/([^/]+)/", asked.headers.get("authorization", ""))
        if scope is not None and scope[1] == "eu-central-1":
            connection.sendall(store.respond(asked))
            return
        wrong.append(asked)
        text = b"<Error><Code>PermanentRedirect</Code><Message>elsewhere</Message></Error>"
        body = text if asked.method == "GET" else b""
        headers = {"Content-Length": str(len(body)), "x-amz-bucket-region": "eu-central-1"}
        connection.sendall(message(301, headers, body))

    with ScriptedStore(objects, script) as store:
        fs = opened(store.endpoint)
        if operation == "read_many":
            assert list(fs.read_many(objects, concurrency=8)) == list(objects.values())
        else:
            for name, data in objects.items():
                assert OPERATIONS[operation](fs, name) == (data if operation == "read_bytes" else len(data))
        in_flight = 8 if operation == "read_many" else 1
        assert len(wrong) <= in_flight + 8 + 1  # those under way, those sent meanwhile, and boto3's
        assert len(store.requests) <= 300 + len(wrong) + 2
        assert sum("user-agent" in asked.headers for asked in store.requests) <= 2  # boto3: the first one only


# ---- storms


def test_the_rate_of_a_throttled_endpoint_is_shared_by_processes() -> None:
    endpoint = f"throttled-{os.getpid()}.invalid:1"
    here = Throttle(endpoint)
    assert not here.delay()
    Child("a child", functools.partial(_slow_down, endpoint), 30).result()
    assert sum(here.delay() for _ in range(20)) > 0
    assert Throttle("another" + endpoint).delay() == 0


def _slow_down(endpoint: str) -> None:
    throttle = Throttle(endpoint)
    for _ in range(10):
        throttle.delay()
        throttle.slow_down(0.0)


ON_A_FULL_DISK = 'mount -t tmpfs -o size=4k disk "$1" && export TMPDIR="$1" && cd "$1" && shift && exec "$@"'
THROTTLED = """
import tempfile
from fsabs.backends.objects.failures import Throttle
tempfile.gettempdir()
open("ballast", "wb").write(bytes(4096))
throttle = Throttle("full.invalid:1")
assert not throttle.delay()
throttle.slow_down(1.0)
assert throttle.delay() > 0
print("well")
"""


@pytest.mark.quick
def test_a_full_temporary_directory_shares_no_rate_and_ends_no_process(tmp_path: Path) -> None:
    require(namespaces.missing)
    command = [*namespaces.IN_ONE, "sh", "-c", ON_A_FULL_DISK, "sh", str(tmp_path), sys.executable, "-c", THROTTLED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr
