"""Requests that are answered elsewhere, and stores that say when they accept further ones."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

import pytest

from fsabs.backends.objects.client import absolute
from fsabs.backends.objects.failures import OutOfQuota, Redirected, refused
from fsabs.backends.objects.messages import Request, ResponseHead
from tests.backends.tiny import TinyDialect, TinyFS, TinyStore
from tests.servers import hostile_store
from tests.servers.hostile_store import Answer, HostileStore, content

pytestmark = pytest.mark.quick

KEYS = [f"{2_000 + n}-k{n}" for n in range(60)]


class Elsewhere(HostileStore):
    """Where objects lie: it refuses requests with credentials."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[hostile_store.Request] = []

    def answer(self, request: hostile_store.Request) -> Answer:
        """The object, at `/cdn/KEY`."""
        self.seen.append(request)
        if "authorization" in request.headers or request.query.get("sig") != "1":
            return Answer(403, {}, b"", 0)
        return super().answer(request)


class Redirecting(TinyStore):
    """A store that sends readers of objects to `there`."""

    def __init__(self, there: str) -> None:
        super().__init__()
        self.there = there
        self.redirects = 0

    def answer(self, request: hostile_store.Request) -> Answer:
        """A redirect of GETs."""
        answer = super().answer(request)
        if request.method == "GET" and request.key and answer.status < 300 and self.there:
            self.redirects += 1
            return Answer(302, {"Location": self.there.format(key=request.key)}, b"moved", 5)
        return answer


class FollowingDialect(TinyDialect):
    """Follows redirects."""

    def failure(self, request: Request, head: ResponseHead, body: bytes) -> Exception:
        error = super().failure(request, head, body)
        location = head.header(b"location")
        if head.status == 302 and isinstance(error, OSError) and location is not None:
            return Redirected(error, location)
        if head.status == 429:
            return OutOfQuota(refused(head, "", "").error, 0.1)  # type: ignore[attr-defined]
        return error


class FollowingFS(TinyFS):
    """The FS of that."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.dialect = FollowingDialect(url)
        self.__setstate__(self.__getstate__())


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere() as store:
        yield store


@contextlib.contextmanager
def opened(there: str) -> Iterator[tuple[FollowingFS, Redirecting]]:
    with Redirecting(there) as store:
        fs = FollowingFS(store.endpoint)
        yield fs, store
        fs.close()


def test_every_way_of_reading_follows(elsewhere: Elsewhere) -> None:
    with opened(elsewhere.endpoint + "/cdn/{key}?sig=1") as (fs, store):
        assert fs.read_bytes(KEYS[0]) == content(KEYS[0])
        for _ in range(3):
            assert list(fs.read_many(KEYS, concurrency=6)) == [content(key) for key in KEYS]
        assert store.connections + elsewhere.connections <= 2 * 6, "those to both hosts are used again"
        key = "3000000-big"
        with fs.open_blob(key) as blob:
            assert blob.pread(100, 5_000) == content(key)[5_000:5_100]
            ranges = [(50, n * 100_000) for n in range(9)]
            assert blob.pread_many(ranges) == [content(key)[at : at + size] for size, at in ranges]
        with fs.open(key, "rb") as file:
            assert file.read() == content(key)
        assert fs.stat(key).size == 3_000_000  # by a HEAD, which is not redirected
        assert store.redirects == len([request for request in elsewhere.seen if request.method == "GET"])
    assert all("authorization" not in request.headers for request in elsewhere.seen)
    assert {request.headers["host"] for request in elsewhere.seen} == {elsewhere.endpoint.partition("//")[2]}


def test_empty_ranges_take_no_request() -> None:
    with opened("") as (fs, store):
        with fs.open_blob("0-empty") as blob:
            before = store.requests
            assert blob.pread_many([(10, 0), (0, 5), (3, 100)]) == [b"", b"", b""]
        assert store.requests == before


def test_a_redirect_on_the_same_host_carries_credentials() -> None:
    with opened("") as (fs, store):
        store.there = "/bucket/100-other?" + "via=redirect"
        answer = store.answer
        store.answer = lambda request: (  # type: ignore[method-assign]
            TinyStore.answer(store, request) if request.query.get("via") else answer(request)
        )
        assert fs.read_bytes("100-first") == content("100-other")


NOWHERE = (
    "/bucket/{key}",  # in a circle
    "ftp://127.0.0.1/{key}",
    "http://user:password@127.0.0.1:1/{key}",
    "http://[::1/{key}",
    "http://127.0.0.1:99999/{key}",
    "http://127.0.0.1:port/{key}",
    "http://127.0.0.1 x/{key}",
)


def test_what_leads_nowhere_is_the_error_of_the_redirect() -> None:
    with opened("nowhere") as (fs, store):
        for store.there in NOWHERE:
            for read in (fs.read_bytes, lambda key: list(fs.read_many([key, key]))):
                with pytest.raises(OSError, match="302"):
                    read(KEYS[0])
            assert store.redirects < 40, store.there
            store.redirects = 0


def test_locations_are_resolved_and_quoted() -> None:
    here = "https://a.example/d/x?q=1"
    assert absolute(here, "y") == "https://a.example/d/y"
    assert absolute(here, "../y") == "https://a.example/y"
    assert absolute(here, "https://A.example:443/z?a=b%26c") == "https://a.example/z?a=b%26c"
    plain = here.replace("https:", "http:")
    assert absolute(plain, "http://b.example") == "http://b.example/"
    assert absolute(plain, "http://[::1]:80/é") == "http://[::1]/%C3%A9"
    assert absolute(here, "https://[::1]:443/é") == "https://[::1]/%C3%A9"
    assert absolute(here, "mailto:someone") is None
    for there in ("http://b.example/x", "http://b.example", "HTTP://b.example/x"):
        assert absolute(here, there) is None
        assert absolute(here.replace("https:", "HTTPS:"), there) is None


def test_a_store_that_is_out_of_quota_is_waited_for(elsewhere: Elsewhere) -> None:
    with opened(elsewhere.endpoint + "/cdn/{key}?sig=1") as (fs, store):
        answer, refused = store.answer, Counter[str]()

        def refusing(request: hostile_store.Request) -> Answer:
            refused[request.key] += 1
            return Answer(429, {}, b"", 0) if refused[request.key] <= 2 else answer(request)

        store.answer = refusing  # type: ignore[method-assign]
        assert list(fs.read_many(KEYS)) == [content(key) for key in KEYS]
