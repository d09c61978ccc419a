"""Every operation against a store that answers wrongly: right bytes or an `OSError`, in time, and never the response to
another request; a write that succeeds is in the store, and one that fails has left all of it or nothing.

The kit takes a dialect: `KINDS` has a store for each, and how its FS is made.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import fsabs
from fsabs.backends.hub import Hub
from fsabs.backends.hub.tree import Tree
from fsabs.backends.objects import ObjectStore
from fsabs.core.identity import Identity
from tests import soak
from tests.backends.test_s3_reads import certificate
from tests.backends.tiny import TinyFS, TinyStore
from tests.servers.azure_store import ACCOUNT, KEY, AzureStore
from tests.servers.gcs_store import GcsStore
from tests.servers.hostile_store import FAULTS, LISTED, HostileStore, content
from tests.servers.hub import HostileHub

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


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> str:
    return certificate(tmp_path_factory.mktemp("tls"))


def _opened_at(url: str, pem: str, read_timeout: float, **options: Any) -> ObjectStore:
    limits: dict[str, Any] = {"connect_timeout": 2.0, "read_timeout": read_timeout, "max_attempts": 3}
    fs = fsabs.from_url(url, verify=f"{pem}.crt", **limits, **options)
    assert isinstance(fs, ObjectStore)
    return fs


def _opened_s3(store: HostileStore, pem: str, read_timeout: float) -> ObjectStore:
    keys = {"aws_access_key_id": "me", "aws_secret_access_key": "secret", "region": "us-east-1"}
    return _opened_at("s3://bucket", pem, read_timeout, endpoint=store.endpoint, mpu_chunksize=PART, **keys)


def _opened_gcs(store: HostileStore, pem: str, read_timeout: float) -> ObjectStore:
    options = {"access_token": "token", "mpu_chunksize": PART}
    return _opened_at("gs://bucket", pem, read_timeout, endpoint=store.endpoint, **options)


def _opened_azure(store: HostileStore, pem: str, read_timeout: float) -> ObjectStore:
    options = {"account_name": ACCOUNT, "account_key": KEY, "mpu_chunksize": PART}
    return _opened_at("az://bucket", pem, read_timeout, endpoint=store.endpoint, **options)


def _opened_tiny(store: HostileStore, pem: str, read_timeout: float) -> ObjectStore:
    return TinyFS(store.endpoint, f"{pem}.crt")


def _opened_hub(store: HostileStore, pem: str, read_timeout: float) -> ObjectStore:
    return _opened_at("hf://datasets/o/n", pem, read_timeout, endpoint=store.endpoint, token=False)


def _opened_web(store: HostileStore, pem: str, read_timeout: float) -> ObjectStore:
    return _opened_at(f"{store.endpoint}/bucket", pem, read_timeout)


class Kind(NamedTuple):
    """A store, how its FS is made, and what is done with it."""

    store: type[HostileStore]
    opened: Callable[[HostileStore, str, float], ObjectStore]
    operations: tuple[str, ...] = OPERATIONS
    unprovable: frozenset[str] = frozenset()
    """Faults that nothing contradicts, for want of a checksum, or of what says which redirects are the store's."""


def unknown_tree(fs: Hub) -> Tree:
    """A tree of which nothing is known, so that listings of the hub are asked for each time."""
    return Tree(Identity("hub", "hf://datasets/o/n", fs.pinned, 0))


KINDS = {
    "s3": Kind(HostileStore, _opened_s3),
    "gcs": Kind(GcsStore, _opened_gcs),
    "azure": Kind(AzureStore, _opened_azure),
    "tiny": Kind(TinyStore, _opened_tiny),
    "hub": Kind(HostileHub, _opened_hub, READS),  # it is written to by another library
    "web": Kind(HostileStore, _opened_web, WEB_READS, WEB_UNPROVABLE),
}


class Opened(NamedTuple):
    """A store, and the FS on it."""

    store: HostileStore
    fs: ObjectStore
    operations: tuple[str, ...]
    faults: list[str]


HASTY, PATIENT = 0.6, 30.0
"""Seconds that a store may be silent: one that is expected to be, and one that a busy machine may stop."""
OPENED = [f"{kind} {how}" for kind in KINDS for how in ("plain", "tls")]


@pytest.fixture(params=OPENED)
def opened(request: pytest.FixtureRequest, pem: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("FSABS_CACHE_DIR", "")
    monkeypatch.setattr(Hub, "_tree", property(unknown_tree))
    name, how, *patient = request.param.split()
    kind = KINDS[name]
    with kind.store(pem if how == "tls" else None, seed=soak.seed(1)) as store:
        fs = kind.opened(store, pem, PATIENT if patient else HASTY)
        yield Opened(store, fs, kind.operations, sorted(FAULTS.keys() - kind.unprovable))


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


@pytest.mark.parametrize("opened", [f"{one} patient" for one in OPENED], indirect=True)
def test_without_faults_every_operation_succeeds(opened: Opened) -> None:
    (job,) = run(opened, "none", 1, lambda _: list(opened.operations))
    assert (job.wrong, job.raised) == ([], 0)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_each_fault_in_turn(opened: Opened) -> None:
    """Each fault at a third of the requests, from one thread: an operation that is chosen by chance."""
    store, seed, rounds = opened.store, soak.seed(1), soak.rounds(1)
    wrong: list[str] = []
    names = opened.faults
    if store.endpoint.startswith("https") and rounds == 1:  # in the suite, for the sake of its time
        names = random.Random(seed).sample(names, len(names) // 2)
    for name in names:
        store.faults, store.rate = (name,), 0.3
        for turn in range(rounds):
            (job,) = run(opened, f"{seed} {name} {turn}", 1, lambda chance: chance.sample(opened.operations, 1))
            wrong += job.wrong
    soak.count("requests to a store that answers wrongly", store.requests)
    assert not wrong, "\n".join(wrong)
    assert len(store.injected) > 0.3 * len(names)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_all_faults_at_once_and_many_threads(opened: Opened) -> None:
    store, seed, count = opened.store, soak.seed(2), soak.rounds(3)
    store.faults, store.rate = tuple(opened.faults), 0.05
    quick = [name for name in opened.operations if name not in ("stream", "multipart")]
    jobs = run(opened, f"{seed} all", 16, lambda chance: chance.choices(quick, k=count))
    wrong = [text for job in jobs for text in job.wrong]
    soak.count("requests to a store that answers wrongly", store.requests)
    assert not wrong, "\n".join(wrong)
    assert sum(job.raised for job in jobs) < sum(job.done for job in jobs)
