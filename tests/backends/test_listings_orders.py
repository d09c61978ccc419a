"""Listings of stores that are not in the order of keys, or never end: each name is there once, or there is an error."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.backends.objects import listing
from fsabs.cli.program import run
from tests.servers.scripted import Asked, ScriptedStore, message

pytestmark = pytest.mark.timeout(120)
SIZE = 10
"""Keys of a page."""
Order = Callable[[str], tuple[str, ...]]


def by_bytes(key: str) -> tuple[str, ...]:
    return (key,)


def by_case(key: str) -> tuple[str, ...]:
    """As databases do that tell no capitals from others."""
    return (key.casefold(), key)


def by_words(key: str) -> tuple[str, ...]:
    """As a locale does: punctuation comes last."""
    return ("".join(filter(str.isalnum, key)).casefold(), key)


ORDERS: dict[str, Order] = {"bytes": by_bytes, "case": by_case, "words": by_words}
ENDLESS = ("empty pages", "one key", "circle", "one page")
TIME = "2026-01-01T00:00:00.000Z"


@dataclass
class Bucket:
    """A bucket of a store that speaks S3's language, and how it lists its keys."""

    keys: set[str]
    pages: Order
    after: Order | None
    """By which it finds where a listing is to begin; None if it ignores that."""
    endless: str = ""

    def __call__(self, store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.method == "POST":
            text = asked.body.decode()
            self.keys.difference_update(part.partition("</Key>")[0] for part in text.split("<Key>")[1:])
            body = b"<DeleteResult></DeleteResult>"
        elif asked.method == "HEAD" or asked.key:
            connection.sendall(store.respond(asked))
            return
        else:
            body = self._page(asked.query).encode()
        connection.sendall(message(200, {"Content-Length": str(len(body))}, body))

    def _page(self, query: dict[str, str]) -> str:
        prefix, token = query.get("prefix", ""), query.get("continuation-token", "")
        after, place, last = token.split("|") if token else (query.get("start-after", ""), "0", "")
        names = [key for key in self.keys if key.startswith(prefix)]
        if after and self.after is not None:
            names = [key for key in names if self.after(key) > self.after(after)]
        shown: dict[str, str] = {}
        for key in sorted(names, key=self.pages):
            end = key.find("/", len(prefix)) + 1 if query.get("delimiter") else 0
            shown.setdefault(key[:end] if end else key, "Prefix" if end else "Key")
        items, at, size = [*shown.items()], int(place), int(query.get("max-keys", SIZE))
        if last and not self.endless and not query.get("delimiter"):  # what was before it is removed, perhaps
            at = sum(self.pages(key) <= self.pages(last) for key in shown)
        found, following = items[at : at + size], at + size if at + size < len(items) else 0
        if self.endless and items and not following:
            following = at + size
        if self.endless and items and at >= len(items):
            turn = {"empty pages": [], "one key": items[-1:], "one page": items[-size:]}
            start = at % (-(-len(items) // size) * size)
            found = turn.get(self.endless, items[start : start + size])
        token = f"{after}|{following}|{found[-1][0] if found else last}"
        more = f"<NextContinuationToken>{token}</NextContinuationToken>" if following else ""
        listed = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{TIME}</LastModified><Size>1</Size></Contents>"
            if kind == "Key"
            else f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            for name, kind in found
        )
        truncated = f"<IsTruncated>{str(bool(following)).lower()}</IsTruncated>"
        return f"<ListBucketResult>{truncated}{more}{listed}</ListBucketResult>"


def opened(store: ScriptedStore) -> fsabs.FS:
    keys: dict[str, Any] = {"aws_access_key_id": "me", "aws_secret_access_key": "secret", "region": "us-east-1"}
    fs: fsabs.FS = fsabs.from_url("s3://bucket", endpoint=store.endpoint, **keys)
    return fs


@pytest.fixture(autouse=True)
def budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_EMPTY", 20)


@pytest.fixture(params=[False, True], ids=["quick pages", "slow pages"])
def slow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether pages are so slow that ranges are listed side by side."""
    monkeypatch.setattr(listing, "SLOW", -1.0 if request.param else 60.0)
    return bool(request.param)


def keys_of(chance: random.Random, count: int) -> set[str]:
    """Keys whose order differs by collation from their first page on."""
    names = ("".join(chance.choices("abABz09_-.", k=chance.randrange(1, 7))) for _ in itertools.count())
    plain = (name.strip(".") for name in names)
    folders = ("", "a/", "B/", "a/b/", "a_/")
    found: set[str] = set()
    while len(found) < count:
        found.add("d/" + chance.choice(folders) + next(filter(None, plain)) + "x")
    return found


def folders_of(keys: set[str]) -> set[str]:
    return {key[: at + 1] for key in keys for at, character in enumerate(key) if character == "/"}


def check(bucket: Bucket) -> int:
    """List the directory `d`, flat and level by level; return how many requests that took."""
    keys = set(bucket.keys)
    wanted = sorted(name.removeprefix("d/") for name in keys | folders_of(keys) if name != "d/")
    with ScriptedStore({}, bucket) as store:
        for ways in ((), ("again",)):  # a store that is known to be out of order, perhaps
            fs = opened(store)
            for list_all in (functools.partial(fs.list, "d", recursive=True), functools.partial(_walked, fs)):
                begin = len(store.requests)
                try:
                    found = sorted(list_all())
                except fsabs.CorruptFileError:
                    assert bucket.endless or bucket.after is not bucket.pages, "a store that does no wrong"
                else:
                    assert found == wanted, ways
                requests = len(store.requests) - begin
                if bucket.endless:
                    pages = -(-len(wanted) // SIZE)
                    assert requests <= 2 * pages + listing.MAX_EMPTY + 5 * len(folders_of(keys)) + 40
        return len(store.requests)


def _walked(fs: fsabs.FS) -> Iterator[str]:
    for folder, folders, files in fs.walk("d"):
        base = folder.partition("d")[2].lstrip("/")
        base = base and base.rstrip("/") + "/"
        yield from (f"{base}{name}" for name in files)
        yield from (f"{base}{name}/" for name in folders)


@pytest.mark.quick
@pytest.mark.parametrize("after", ["bytes", "pages", "ignored"])
@pytest.mark.parametrize("order", ORDERS)
def test_each_name_once_in_whatever_order(order: str, after: str, slow: bool) -> None:
    pages = ORDERS[order]
    begins = {"bytes": by_bytes, "pages": pages, "ignored": None}[after]
    check(Bucket(keys_of(random.Random(f"{order} {after}"), 300), pages, begins))


@pytest.mark.quick
@pytest.mark.parametrize("order", ["case", "words"])
def test_names_out_of_order_behind_many_that_are(order: str, slow: bool) -> None:
    keys = {f"d/abc{number:03}" for number in range(100)} | {f"d/B{number:03}" for number in range(100)}
    check(Bucket(keys | {f"d/zz{number}" for number in range(50)}, ORDERS[order], ORDERS[order]))


@pytest.mark.quick
@pytest.mark.parametrize("endless", ENDLESS)
def test_a_listing_without_an_end_is_an_error(endless: str, slow: bool) -> None:
    """Ranges that begin behind the last key may show where the end is, and a bucket that was emptied has one."""
    bucket = Bucket(keys_of(random.Random(endless), 60), by_bytes, by_bytes, endless)
    names = {name.removeprefix("d/") for name in bucket.keys | folders_of(bucket.keys)} - {""}
    with ScriptedStore({}, bucket) as store:
        fs = opened(store)

        def remove() -> bool:
            fs.remove("d", recursive=True)
            return not bucket.keys

        reads: list[Callable[[], object]] = [
            lambda: set(fs.list("d", recursive=True)) == names and slow,
            lambda: set(fs.list("d")) and None,
            remove,
        ]
        for read in reads:
            begin = len(store.requests)
            with contextlib.suppress(fsabs.CorruptFileError):
                assert read()
            assert len(store.requests) - begin < 100


@pytest.mark.quick
@pytest.mark.parametrize("order", ["case", "words"])
@pytest.mark.parametrize("after", ["bytes", "pages"])
def test_a_recursive_remove_leaves_nothing(order: str, after: str, slow: bool) -> None:
    pages = ORDERS[order]
    bucket = Bucket(keys_of(random.Random(after), 300), pages, by_bytes if after == "bytes" else pages)
    with ScriptedStore({}, bucket) as store:
        opened(store).remove("d", recursive=True)
    assert not bucket.keys


@pytest.mark.quick
def test_a_sync_from_a_store_out_of_order_fails_or_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = keys_of(random.Random(1), 60)
    with ScriptedStore(dict.fromkeys(keys, b"1"), Bucket(keys, by_case, by_case)) as store:
        for name, value in {
            "ACCESS_KEY_ID": "me",
            "SECRET_ACCESS_KEY": "secret",
            "DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("S3_ENDPOINT", store.endpoint)
        code = run(["sync", "s3://bucket/d", str(tmp_path / "d")])
    copied = {f"d/{path.relative_to(tmp_path / 'd')}" for path in tmp_path.rglob("*x")}
    assert code != 0 or copied == keys


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(20))
def test_two_thousand_listings(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(part * 100, part * 100 + 100):
        chance = random.Random(number)
        monkeypatch.setattr(listing, "SLOW", chance.choice([-1.0, 60.0]))
        pages = chance.choice([*ORDERS.values()])
        after = chance.choice([by_bytes, pages, None])
        endless = chance.choice(["", "", *ENDLESS])
        try:
            check(Bucket(keys_of(chance, chance.randrange(1, 300)), pages, after, endless))
        except BaseException as exc:
            exc.add_note(f"listing {number}")
            raise


def test_many_small_directories_come_with_one_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.backends.test_listings_orders.SIZE", 1000)
    keys = {f"data/d{number:05d}/a.jpg" for number in range(10_000)}
    with ScriptedStore(dict.fromkeys(keys, b"a"), Bucket(keys, by_bytes, by_bytes)) as store:
        fs = opened(store).subfs("data")

        def counted(found: Iterator[Any]) -> tuple[int, int]:
            begin = len(store.requests)
            return sum(1 for _ in found), len(store.requests) - begin

        for found, expected in ((fs.walk(), 10_001), (fs.glob("*/a.jpg"), 10_000), (fs.glob("*/*.jpg"), 10_000)):
            count, requests = counted(found)
            assert count == expected
            assert requests <= 40
        assert counted(fs.walk("d00500")) == counted(fs.glob("d00500/*.jpg")) == (1, 1)


def test_walks_of_large_directories_read_little_in_vain() -> None:
    keys = {f"d/{number:02d}/e/{name:03d}" for number in range(20) for name in range(300)}
    with ScriptedStore({}, Bucket(keys, by_bytes, by_bytes)) as store:
        fs = opened(store).subfs("d")
        assert [len(files) for _, _, files in fs.walk()] == [0, *([0, 300] * 20)]
        listed = len(store.requests)
        walk = fs.walk()
        for _, directories, _ in walk:
            del directories[10:]
        assert len(store.requests) - listed <= listed
