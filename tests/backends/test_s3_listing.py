"""Listings: pages of any form, and ranges that are listed side by side, against a model of a bucket."""

from __future__ import annotations

import bisect
import pickle
import random
import socket
import string
import threading
import time
from html import escape

import pytest

import fsabs
from fsabs.backends.objects.listing import _Split, stats_of
from fsabs.backends.objects.messages import ObjectPage
from fsabs.backends.s3 import S3
from fsabs.backends.s3.dialect import S3Dialect, parse_page
from fsabs.transfer.walks import ordered_walk
from tests import soak
from tests.backends.s3_clients import KEYS, SESSION, opened
from tests.servers.scripted import Asked, ScriptedStore, message

pytestmark = pytest.mark.quick

ALPHABETS = ("01", string.digits, "abcdef" + string.digits, string.printable, "aé中\U0010ffff/", "a/b")
ELEMENTS = {
    "Key": "<Key>{key}</Key>",
    "LastModified": "<LastModified>2026-01-01T00:00:00.123Z</LastModified>",
    "ETag": "<ETag>&quot;{etag}&quot;</ETag>",
    "Size": "<Size>{size}</Size>",
    "StorageClass": "<StorageClass>STANDARD</StorageClass>",
    "Owner": "<Owner><ID>x</ID><DisplayName>Key</DisplayName></Owner>",
}


class Pages:
    """Lists `keys` in pages of `size`, and counts the requests and how many of them were under way at once."""

    def __init__(self, keys: list[str], size: int, seconds: float = 0) -> None:
        self.keys, self.size, self.seconds = keys, size, seconds
        self.requests = self.most = self._under_way = 0
        self._lock = threading.Lock()

    def __call__(self, after: str) -> ObjectPage:
        with self._lock:
            self.requests += 1
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        time.sleep(self.seconds)
        with self._lock:
            self._under_way -= 1
        at = bisect.bisect_right(self.keys, after)
        found = [(key, "", "", "0") for key in self.keys[at : at + self.size]]
        return ObjectPage(found, [], "more" if at + self.size < len(self.keys) else None, str)

    def listed(self, prefix: str) -> list[str]:
        """Return the keys that ranges give after the first page."""
        found = self.keys[: self.size]
        for some, _ in _Split(self, prefix, found[:]).run():
            found += some
        return found


@pytest.mark.soak
def test_ranges_give_every_key_once_and_in_order() -> None:
    seed = soak.seed(1)
    for number in range(soak.rounds(60)):
        chance = random.Random(f"{seed} {number}")
        alphabet, prefix = chance.choice(ALPHABETS), chance.choice(["", "p/", "a"])
        longest = chance.choice([3, 8, 30])
        count = chance.randrange(11, 600)
        names = ("".join(chance.choices(alphabet, k=chance.randrange(1, longest))) for _ in range(count))
        keys = sorted({prefix + name for name in names})
        if len(keys) > 10:
            assert Pages(keys, 10).listed(prefix) == keys, (seed, number)


@pytest.mark.parametrize("form", ["data/{:07}.jpg", "{:x}", "train/n{:06}/n{:06}_{}.JPEG"])
def test_ranges_are_listed_side_by_side_by_few_more_requests_than_pages(form: str) -> None:
    chance, count = random.Random(4), 100_000
    if "train" in form:
        keys = sorted(form.format(n // 800 * 37, n // 800 * 37, n % 800 * 13) for n in range(count))
    else:
        numbers = range(count) if "data" in form else (chance.getrandbits(60) for _ in range(count))
        keys = sorted(form.format(number) for number in numbers)
    pages = Pages(keys, 1000, seconds=0.02)
    assert pages.listed(keys[0][: keys[0].find("/") + 1]) == keys
    assert pages.requests <= 4 * count / 1000
    assert pages.most >= 4


def test_a_store_that_ignores_where_a_page_begins_is_an_error_and_no_endless_listing() -> None:
    keys = [f"{n:03}" for n in range(100)]
    page = ObjectPage([(key, "", "", "0") for key in keys[:10]], [], "more", str)
    with pytest.raises(fsabs.CorruptFileError, match="begins at"):
        list(_Split(lambda after: page, "", keys[:10]).run())


ORDER = ["Key", "LastModified", "ETag", "Size"]


def page_of(
    orders: list[list[str]], keys: list[str], token: str = "", spaces: str = "", folders: tuple[str, ...] = ("d/",)
) -> str:
    entries = []
    for number, (order, key) in enumerate(zip(orders, keys, strict=True)):
        inner = spaces.join(ELEMENTS[name].format(key=escape(key), etag=f"e{number}", size=number) for name in order)
        entries.append(f"<Contents>{spaces}{inner}{spaces}</Contents>")
    prefixes = "".join(f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in folders)
    more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
    return (
        f'<?xml version="1.0"?><ListBucketResult xmlns="x"><IsTruncated>{str(bool(token)).lower()}</IsTruncated>{more}'
        f"{spaces.join(entries)}{prefixes}</ListBucketResult>\n"
    )


@pytest.mark.soak
def test_pages_of_any_order_of_elements() -> None:
    seed, to_stat = soak.seed(3), stats_of(S3Dialect("bucket", {}))
    for number in range(soak.rounds(100)):
        chance = random.Random(f"{seed} {number}")
        names = [*ORDER, *chance.sample(["StorageClass", "Owner"], chance.randrange(3))]
        keys = ["".join(chance.choices("ab<>&'\"é /", k=5)) for _ in range(chance.randrange(1, 20))]
        same = chance.random() < 0.5
        order = chance.sample(names, len(names))
        orders = [order if same else chance.sample(names, len(names)) for _ in keys]
        page = parse_page(page_of(orders, keys, token=chance.choice(["", "a&b"]), spaces=chance.choice(["", "\n  "])))
        assert page.keys() == keys, (seed, number)
        assert [to_stat("n", entry).size for entry in page.objects] == list(range(len(keys)))
        assert [to_stat("n", entry).version for entry in page.objects] == [f"e{n}" for n in range(len(keys))]
        assert page.prefixes == ["d/"]
        assert page.token in (None, "a&b")


def test_an_entry_without_an_etag_takes_none_from_its_neighbour() -> None:
    page = parse_page(page_of([ORDER, ["Key", "Size"], ORDER], ["a", "b", "c"]))
    assert [(key, etag) for key, _, etag, _ in page.objects] == [
        ("a", "&quot;e0&quot;"),
        ("b", ""),
        ("c", "&quot;e2&quot;"),
    ]


def test_a_page_that_is_cut_short_is_an_error() -> None:
    whole = page_of([ORDER] * 3, ["a", "b", "c"])
    for end in (10, 200, -20, -25):
        with pytest.raises(fsabs.CorruptFileError, match="not a page"):
            parse_page(whole[:end])
    with pytest.raises(fsabs.CorruptFileError, match="without a token"):
        parse_page(page_of([], [], token="1").replace("NextContinuationToken", "Other"))


# ---- pages of a store


DIRECTORY_BUCKET = "mine--use1-az5--x-s3"


class Listing:
    """A script that lists keys in the order that they are given; so many `empty` pages come before the first key."""

    def __init__(self, keys: list[str], empty: int = 0) -> None:
        self.keys, self.empty = keys, empty
        self.prefixes: list[str] = []

    def __call__(self, store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.method == "HEAD":
            connection.sendall(store.respond(asked))
            return
        body = SESSION if "session" in asked.query else self._page(asked.query).encode()
        connection.sendall(message(200, {"Content-Length": str(len(body))}, body))

    def _page(self, query: dict[str, str]) -> str:
        prefix, number = query["prefix"], int(query.get("continuation-token", 0))
        self.prefixes.append(prefix)
        keys = [key for key in self.keys if key.startswith(prefix)]
        folders: dict[str, None] = {}
        if query.get("delimiter"):
            folders = {key[: key.index("/", len(prefix)) + 1]: None for key in keys if "/" in key[len(prefix) :]}
            keys = [key for key in keys if "/" not in key[len(prefix) :]]
        token = str(number + 1) if number < self.empty else ""
        keys = [] if token else keys
        return page_of([ORDER] * len(keys), keys, token=token, folders=() if token else tuple(folders))


@pytest.mark.usefixtures("no_settings")
def test_a_directory_bucket_lists_in_an_order_of_its_own() -> None:
    with ScriptedStore({"": b"1"}, Listing(["c", "a", "b"])) as store:
        bucket = S3(DIRECTORY_BUCKET, endpoint=store.endpoint, **KEYS)
        for fs in (bucket, pickle.loads(pickle.dumps(bucket))):
            assert not fs.capabilities.ordered
            assert [stat.filename for stat in ordered_walk(fs, "")] == ["a", "b", "c"]
    assert opened("http://127.0.0.1:9").capabilities.ordered


@pytest.mark.usefixtures("no_settings")
def test_a_directory_bucket_that_comes_back_to_a_directory_shows_it_once() -> None:
    with ScriptedStore({}, Listing(["b/c/1", "a/1", "b/2", "b/c/3", "a/4"])) as store:
        fs = S3(DIRECTORY_BUCKET, endpoint=store.endpoint, **KEYS)
        assert list(fs.list(recursive=True)) == ["b/", "b/c/", "b/c/1", "a/", "a/1", "b/2", "b/c/3", "a/4"]


@pytest.mark.usefixtures("no_settings")
@pytest.mark.parametrize(("bucket", "prefix"), [(DIRECTORY_BUCKET, "d/"), ("bucket", "d/na")])
def test_a_glob_asks_a_directory_bucket_for_whole_directories(bucket: str, prefix: str) -> None:
    listing = Listing(["d/name", "d/other"])
    with ScriptedStore({}, listing) as store:
        assert list(S3(bucket, endpoint=store.endpoint, **KEYS).glob("d/na*")) == ["d/name"]
    assert listing.prefixes == [prefix]


@pytest.mark.usefixtures("no_settings")
def test_a_page_with_nothing_on_it_is_no_end() -> None:
    """As Azure sends them, and some stores with the interface of S3."""
    with ScriptedStore({}, Listing(["d/a", "d/b", "d/c"], empty=2)) as store:
        fs = opened(store.endpoint)
        assert fs.isdir("d")
        assert not fs.exists("e")
        assert list(fs.list("d")) == list(fs.list("d", recursive=True)) == ["a", "b", "c"]
        with pytest.raises(OSError, match="not empty"):
            fs.rmdir("d")
