"""Networks with small packets, stores that read slowly, and forks at any moment: each dialect of the kit of faults."""

from __future__ import annotations

import contextlib
import functools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from fsabs.backends.objects import ObjectStore
from fsabs.testing.children import Child
from tests import namespaces, soak
from tests.backends.test_objects_faults import HASTY, KINDS, READS, Job, cells, opened
from tests.servers.fixtures import require
from tests.servers.hostile_store import HostileStore

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_settings", "no_kept_indexes")]


@cells("s3 tls")
def test_small_packets_and_a_store_that_reads_slowly(name: str, pem: str) -> None:
    """TLS 1.3 sends its session tickets when a connection is open: with packets of the usual size they come while a
    body is sent, and are no refusal of it."""
    require(namespaces.missing)
    code = f"from tests.backends import test_objects_network as t; t.write_over_small_packets({name!r}, {pem!r})"
    command = [*namespaces.WITH_A_NETWORK, sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr


def write_over_small_packets(name: str, pem: str) -> None:
    """Do all operations, in a network of this process's own."""
    namespaces.start_loopback(1500)
    with opened(name, pem, HASTY) as (store, fs, operations, _):
        store.reads_slowly = True
        if "write" in operations:
            chance = random.Random(1)
            data = {f"new/{size}-{n}": chance.randbytes(size) for size in (1000, 90_000, 200_000) for n in range(3)}
            fs.write_many(data, concurrency=3)
            for key, content in data.items():
                fs.write_bytes(key + "b", content)
                assert store.written[key] == store.written[key + "b"] == content, key
            assert store.requests <= 2 * len(data) + 1, "some were sent again"
        job = Job(fs, store, name)
        job.run(list(operations))
        assert (job.wrong, job.raised) == ([], 0)
    sys.stdout.write("well\n")


@pytest.mark.soak
@cells("s3 plain", ways=("plain",))
def test_forks_at_any_moment(name: str, pem: str) -> None:
    """Children and their parent use one FS at once, whatever its threads were doing at the fork."""
    with opened(name, pem, HASTY) as (store, fs, known, _):
        fork_at_any_moment(store, fs, [name for name in known if name not in ("stream", "multipart")], "write" in known)


@pytest.mark.soak
def test_forks_at_any_moment_of_tls(pem: str) -> None:
    """The store is another process: what its own threads do in OpenSSL at a fork would be inherited, too."""
    with store_of_tls(pem) as store:
        fs = KINDS["s3"].opened(endpoint=store.endpoint, verify=f"{pem}.crt")
        assert isinstance(fs, ObjectStore)
        fork_at_any_moment(store, fs, [name for name in READS if name != "stream"], True)


def fork_at_any_moment(store: HostileStore, fs: ObjectStore, operations: list[str], writable: bool) -> None:
    """Fork while three threads do operations; each child does all of them that don't look into the store."""
    chance = random.Random(soak.seed(7))
    jobs = [Job(fs, store, f"parent {number}") for number in range(3)]
    stop = threading.Event()

    def work(job: Job) -> None:
        while not stop.is_set():
            job.run([job.chance.choice(operations)])

    def child(number: int) -> tuple[list[str], int]:
        job = Job(fs, store, f"child {number}")
        job.run([name for name in operations if not name.startswith("write")])
        if writable:
            fs.write_bytes(f"new/child{number}", b"child")
            job.expect(fs.read_bytes(f"new/child{number}"), b"child", "what a child has written")
        return job.wrong, job.raised

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        for number in range(soak.rounds(5)):
            time.sleep(chance.random() * 0.1)
            assert Child("a child", functools.partial(child, number), 20).result() == ([], 0)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert [(job.wrong, job.raised) for job in jobs] == [([], 0)] * len(jobs)


@contextlib.contextmanager
def store_of_tls(pem: str) -> Iterator[HostileStore]:
    """Give what has the endpoint of a store in another process."""
    command = [sys.executable, "-c", f"from tests.backends import test_objects_network as t; t.serve({pem!r})"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        yield mock.Mock(HostileStore, endpoint=server.stdout.readline().strip())
        server.communicate()  # the end of its input is its own


def serve(pem: str) -> None:
    """Be a store, until the input ends."""
    with HostileStore(pem) as store:
        print(store.endpoint, flush=True)
        sys.stdin.read()
