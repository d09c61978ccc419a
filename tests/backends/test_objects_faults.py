"""Every operation against a store that answers wrongly: right bytes or an `OSError`, in time, and never the response to
another request; a write that succeeds is in the store, and one that fails has left all of it or nothing.

The kit takes a dialect: `KINDS` has a store for each, and how its FS is made.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

import fsabs
from fsabs import FS
from fsabs.backends.hub import Hub
from fsabs.backends.hub.tree import Tree
from fsabs.backends.objects import ObjectStore
from fsabs.core.identity import Identity
from tests import soak
from tests.backends.tiny import TinyFS, TinyStore
from tests.servers.azure_store import ACCOUNT, KEY, AzureStore
from tests.servers.gcs_store import GcsStore
from tests.servers.hostile_store import FAULTS, LISTED, HostileStore, content
from tests.servers.hub import HostileHub

pytestmark = pytest.mark.usefixtures("no_settings", "no_kept_indexes")
SECONDS = 20.0
"""What an operation may take."""
SIZES = (0, 1, 700, 5_000, 60_000)
UPLOAD = 6 * 1024 * 1024
PART = 5 * 1024 * 1024


class Job:
    """One thread's work: operations on an FS whose store is at hand to compare with."""

    def __init__(self, fs: ObjectStore, store: HostileStore, seed: str) -> None:
        self.fs = fs
        self.store = store
        self.seed = seed
        self.chance = random.Random(seed)
        self.wrong: list[str] = []
        self.raised = 0
        self.done = 0

    def key(self) -> str:
        return f"{self.chance.choice(SIZES) + self.chance.randrange(3)}-k{self.chance.randrange(400)}"

    def expect(self, found: object, expected: object, what: str) -> None:
        if found != expected:
            self.wrong.append(f"{self.seed}: {what}: {str(found)[:120]} where {str(expected)[:120]} was expected")

    # ---- operations

    def read_bytes(self) -> None:
        key = self.key()
        self.expect(self.fs.read_bytes(key), content(key), key)

    def open(self) -> None:
        key = self.key()
        with self.fs.open(key, "rb") as file:
            self.expect(file.read(100), content(key)[:100], key)
            self.expect(file.read(), content(key)[100:], key)

    def pread(self) -> None:
        key = f"{self.chance.choice([20_000, 300_000])}-p{self.chance.randrange(50)}"
        offset = self.chance.randrange(19_000)
        with self.fs.open(key, "rb") as file:
            self.expect(file.raw.blob.pread(500, offset), content(key)[offset : offset + 500], key)

    def pread_many(self) -> None:
        key = f"400000-m{self.chance.randrange(50)}"
        ranges = [(self.chance.randrange(1, 3000), at * 40_000 + self.chance.randrange(30_000)) for at in range(8)]
        with self.fs.open(key, "rb") as file:
            found = file.raw.blob.pread_many(ranges)
        self.expect(found, [content(key)[at : at + size] for size, at in ranges], key)

    def read_many(self) -> None:
        keys = [self.key() for _ in range(20)]
        self.expect(list(self.fs.read_many(keys, concurrency=6)), [content(key) for key in keys], "read_many")

    def cancelled_batch(self) -> None:
        keys = [self.key() for _ in range(20)]
        found = self.fs.read_many(keys, concurrency=6)
        self.expect(next(found), content(keys[0]), keys[0])
        found.close()  # type: ignore[attr-defined]

    def stream(self) -> None:
        key = f"3000000-s{self.chance.randrange(5)}"
        with self.fs.open(key, "rb") as file:
            while piece := file.read(500_000):
                at = file.tell()
                self.expect(piece == content(key)[at - len(piece) : at], True, key)

    def stat(self) -> None:
        key = self.key()
        self.expect(self.fs.stat(key).size, len(content(key)), key)

    def list_(self) -> None:
        self.expect(list(self.fs.list("listed")), sorted(LISTED), "list")
        sizes = {entry.filename: entry.size for entry in self.fs.list("listed", recursive=True, detail=True)}
        self.expect(sizes, {name: len(content(name)) for name in LISTED}, "list in detail")

    def write(self) -> None:
        self._write(self.chance.randbytes(self.chance.choice(SIZES) + 1))

    def multipart(self) -> None:
        self._write(self.chance.randbytes(1000) * (UPLOAD // 1000))

    def _write(self, data: bytes) -> None:
        key = f"new/{self.seed}-{self.done}".replace(" ", "-")
        try:
            self.fs.write_bytes(key, data)
        except OSError:
            self.expect(self.store.written.get(key, data) == data, True, f"what a failure left of {key}")
            raise
        self.expect(self.store.written.get(key) == data, True, f"what was written to {key}")

    def write_many(self) -> None:
        prefix = f"new/{self.seed}-{self.done}".replace(" ", "-")
        pairs = {f"{prefix}/{n}": self.chance.randbytes(self.chance.choice(SIZES) + 1) for n in range(20)}
        try:
            self.fs.write_many(pairs, concurrency=6)
        except OSError:
            for key, data in pairs.items():
                self.expect(self.store.written.get(key, data) == data, True, f"what a failure left of {key}")
            raise
        for key, data in pairs.items():
            self.expect(self.store.written.get(key) == data, True, f"what was written to {key}")

    def run(self, operations: list[str]) -> None:
        """Do them; an `OSError` is an answer, too."""
        for name in operations:
            begin = time.monotonic()
            try:
                getattr(self, name)()
            except OSError:
                self.raised += 1
            except Exception as exc:
                self.wrong.append(f"{self.seed}: {name} raised {exc!r}")
            if time.monotonic() - begin > SECONDS:
                self.wrong.append(f"{self.seed}: {name} took {time.monotonic() - begin:.0f} s")
            self.done += 1


READS = ("read_bytes", "open", "pread", "pread_many", "read_many", "cancelled_batch", "stream", "stat", "list_")
OPERATIONS = (*READS, "write", "write_many", "multipart")
WEB_UNPROVABLE = frozenset({"length_short", "length_zero", "redirect_in_a_circle"})
WEB_READS = tuple(name for name in READS if name != "list_")


class ForgetfulHub(Hub):
    """A repository of which nothing is known, so that each listing is asked for."""

    @property
    def _tree(self) -> Tree:
        return Tree(Identity("hub", "hf://datasets/o/n", self.pinned, 0))


S3_OPTIONS = {
    "aws_access_key_id": "me",
    "aws_secret_access_key": "secret",
    "region": "us-east-1",
    "mpu_chunksize": PART,
}
AZURE_OPTIONS = {"account_name": ACCOUNT, "account_key": KEY, "mpu_chunksize": PART}


class Kind(NamedTuple):
    """A store, how its FS is made with an endpoint and limits, and what is done with it."""

    store: type[HostileStore]
    opened: Callable[..., FS]
    operations: tuple[str, ...] = OPERATIONS
    unprovable: frozenset[str] = frozenset()
    """Faults that nothing contradicts, for want of a checksum, or of what says which redirects are the store's."""


KINDS = {
    "s3": Kind(HostileStore, functools.partial(fsabs.from_url, "s3://bucket", **S3_OPTIONS)),
    "gcs": Kind(GcsStore, functools.partial(fsabs.from_url, "gs://bucket", access_token="token", mpu_chunksize=PART)),
    "azure": Kind(AzureStore, functools.partial(fsabs.from_url, "az://bucket", **AZURE_OPTIONS)),
    "tiny": Kind(TinyStore, lambda endpoint, verify, **limits: TinyFS(endpoint, verify)),
    "hub": Kind(HostileHub, functools.partial(ForgetfulHub, "datasets/o/n", token=False), READS),  # another one writes
    "web": Kind(
        HostileStore,
        lambda endpoint, **limits: fsabs.from_url(f"{endpoint}/bucket", **limits),
        WEB_READS,
        WEB_UNPROVABLE,
    ),
}
HASTY, PATIENT = 0.6, 30.0
"""Seconds that a store may be silent: one that is expected to be, and one that a busy machine may stop."""


class Opened(NamedTuple):
    """A store, and the FS on it."""

    store: HostileStore
    fs: ObjectStore
    operations: tuple[str, ...]
    faults: list[str]


@contextlib.contextmanager
def opened(name: str, pem: str, read_timeout: float, max_attempts: int = 3) -> Iterator[Opened]:
    """Give a store and its FS; the name is that of a kind, and "plain" or "tls"."""
    kind, how = name.split()
    chosen = KINDS[kind]
    with chosen.store(pem if how == "tls" else None, seed=soak.seed(1)) as store:
        limits = {"connect_timeout": 2.0, "read_timeout": read_timeout, "max_attempts": max_attempts}
        fs = chosen.opened(endpoint=store.endpoint, verify=f"{pem}.crt", **limits)
        assert isinstance(fs, ObjectStore)
        yield Opened(store, fs, chosen.operations, sorted(FAULTS.keys() - chosen.unprovable))


def run(opened: Opened, seed: str, threads: int, operations: Callable[[random.Random], list[str]]) -> list[Job]:
    store, fs, known, _ = opened
    faults, store.faults = store.faults, ()
    warmed = Job(fs, store, f"{seed} before")
    warmed.run([name for name in ("read_bytes", "pread", "write") if name in known])
    assert (warmed.wrong, warmed.raised) == ([], 0)
    store.faults = faults
    jobs = [Job(fs, store, f"{seed} {number}") for number in range(threads)]
    plans = [operations(job.chance) for job in jobs]
    running = [threading.Thread(target=job.run, args=(plan,)) for job, plan in zip(jobs, plans, strict=True)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(SECONDS * 10)
    assert not any(thread.is_alive() for thread in running), (seed, store.faults)
    return jobs


def cells(*chosen: str, ways: tuple[str, ...] = ("plain", "tls")) -> pytest.MarkDecorator:
    """Parametrize by each kind of store, in these ways; those that are not chosen are nightly."""
    names = [f"{kind} {way}" for kind in KINDS for way in ways]
    nightly = {name: () if name in chosen else (pytest.mark.nightly,) for name in names}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=nightly[name]) for name in names])


ONE_EACH = ("s3 tls", "gcs plain", "azure tls", "hub tls", "web plain")
THE_OTHERS = ("s3 plain", "gcs tls", "azure plain", "tiny tls", "hub plain", "web tls")


@pytest.mark.soak
@pytest.mark.timeout(900)
@cells(*ONE_EACH)
def test_each_fault_in_turn(name: str, pem: str) -> None:
    """Each fault at a third of the requests, from one thread: an operation that is chosen by chance."""
    seed, wrong = soak.seed(1), list[str]()
    with opened(name, pem, HASTY, max_attempts=2) as found:
        store = found.store
        for fault in found.faults:
            store.faults, store.rate = (fault,), 0.3
            for turn in range(soak.rounds(1)):
                (job,) = run(found, f"{seed} {fault} {turn}", 1, lambda chance: chance.sample(found.operations, 1))
                wrong += job.wrong
        soak.count("requests to a store that answers wrongly", store.requests)
        assert not wrong, "\n".join(wrong)
        assert len(store.injected) > 0.3 * len(found.faults)


@pytest.mark.soak
@pytest.mark.timeout(900)
@cells(*THE_OTHERS)
def test_all_faults_at_once_and_many_threads(name: str, pem: str) -> None:
    seed, count = soak.seed(2), soak.rounds(3)
    with opened(name, pem, HASTY) as found:
        found.store.faults, found.store.rate = tuple(found.faults), 0.05
        quick = [operation for operation in found.operations if operation not in ("stream", "multipart")]
        jobs = run(found, f"{seed} all", 16, lambda chance: chance.choices(quick, k=count))
        wrong = [text for job in jobs for text in job.wrong]
        soak.count("requests to a store that answers wrongly", found.store.requests)
        assert not wrong, "\n".join(wrong)
        assert sum(job.raised for job in jobs) < sum(job.done for job in jobs)


PASSING = ("status_500", "status_503", "reset_before", "reset_within_head", "reset_within_body", "body_short")
"""Faults after which a request is made again."""


@pytest.mark.parametrize("name", ["s3 plain", "gcs tls", "azure plain", "hub plain", "web plain"])
def test_a_store_of_which_one_response_in_five_fails_gives_all_in_the_end(name: str, pem: str) -> None:
    with opened(name, pem, PATIENT, max_attempts=12) as found:
        found.store.faults, found.store.rate = PASSING, 0.2
        before = len(os.listdir("/proc/self/fd"))
        # A store that knows no upload any more does not say that it has completed it.
        (job,) = run(found, "passing", 1, lambda _: 2 * [name for name in found.operations if name != "multipart"])
        assert (job.wrong, job.raised) == ([], 0)
        assert len(found.store.injected) > 2
        assert len(os.listdir("/proc/self/fd")) < before + 2 * 64  # what is kept alive, at both ends
