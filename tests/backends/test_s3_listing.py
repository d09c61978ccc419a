"""Listings: pages of any form, and ranges that are listed side by side, against a model of a bucket."""

from __future__ import annotations

import bisect
import pickle
import random
import string
import time
from html import escape

import pytest

import fsabs
from fsabs.backends.objects.listing import _Split, stats_of
from fsabs.backends.objects.messages import ObjectPage, PageQuery
from fsabs.backends.s3 import S3
from fsabs.backends.s3.dialect import S3Dialect, parse_page
from fsabs.transfer.walks import ordered_walk
from tests import soak

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


def split(keys: list[str], prefix: str, size: int, seconds: float = 0) -> tuple[list[str], int]:
    """The keys that ranges of pages of `size` keys give after the first page, and the number of requests.

    Each request takes so many `seconds`.
    """
    requests = 0

    def fetch(after: str) -> ObjectPage:
        nonlocal requests
        requests += 1
        time.sleep(seconds)
        at = bisect.bisect_right(keys, after)
        found = [(key, "", "", "0") for key in keys[at : at + size]]
        return ObjectPage(found, [], "more" if at + size < len(keys) else None, str)

    found = keys[:size]
    for some, _ in _Split(fetch, prefix, keys[:size]).run():
        found += some
    return found, requests


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
            found, _ = split(keys, prefix, 10)
            assert found == keys, (seed, number)


@pytest.mark.parametrize("form", ["data/{:07}.jpg", "{:x}", "n{:02}"])
def test_ranges_take_few_more_requests_than_pages(form: str) -> None:
    chance = random.Random(2)
    numbers = range(50_000) if "jpg" in form else (chance.getrandbits(60) for _ in range(50_000))
    keys = sorted(form.format(number) for number in numbers)
    found, requests = split(keys, "data/" if "jpg" in form else "", 1000)
    assert found == keys
    assert requests <= 6 * len(keys) / 1000


@pytest.mark.parametrize("form", ["data/{:07}.jpg", "{:x}", "train/n{:06}/n{:06}_{}.JPEG"])
def test_ranges_are_listed_side_by_side(form: str) -> None:
    chance, seconds = random.Random(4), 0.1
    numbers = range(100_000) if "data" in form else (chance.getrandbits(60) for _ in range(100_000))
    if "train" in form:
        keys = sorted(form.format(n // 800 * 37, n // 800 * 37, n % 800 * 13) for n in range(100_000))
    else:
        keys = sorted(form.format(number) for number in numbers)
    prefix = keys[0][: keys[0].find("/") + 1]
    begin = time.monotonic()
    found, requests = split(keys, prefix, 1000, seconds)
    assert found == keys
    assert requests <= 4 * len(keys) / 1000
    assert time.monotonic() - begin < len(keys) / 1000 * seconds / 2, "as long as half of one page after the other"


def test_a_store_that_ignores_where_a_page_begins_is_an_error_and_no_endless_listing() -> None:
    keys = [f"{n:03}" for n in range(100)]
    page = ObjectPage([(key, "", "", "0") for key in keys[:10]], [], "more", str)
    with pytest.raises(fsabs.CorruptFileError, match="begins at"):
        list(_Split(lambda after: page, "", keys[:10]).run())


def page_of(orders: list[list[str]], keys: list[str], *, truncated: bool = False, spaces: str = "") -> str:
    entries = []
    for number, (order, key) in enumerate(zip(orders, keys, strict=True)):
        inner = spaces.join(ELEMENTS[name].format(key=escape(key), etag=f"e{number}", size=number) for name in order)
        entries.append(f"<Contents>{spaces}{inner}{spaces}</Contents>")
    token = "<NextContinuationToken>a&amp;b</NextContinuationToken>" if truncated else ""
    return (
        f'<?xml version="1.0"?><ListBucketResult xmlns="x"><IsTruncated>{str(truncated).lower()}</IsTruncated>{token}'
        f"{spaces.join(entries)}<CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes></ListBucketResult>\n"
    )


@pytest.mark.soak
def test_pages_of_any_order_of_elements() -> None:
    seed, to_stat = soak.seed(3), stats_of(S3Dialect("bucket", {}))
    for number in range(soak.rounds(100)):
        chance = random.Random(f"{seed} {number}")
        names = ["Key", "LastModified", "ETag", "Size", *chance.sample(["StorageClass", "Owner"], chance.randrange(3))]
        keys = ["".join(chance.choices("ab<>&'\"é /", k=5)) for _ in range(chance.randrange(1, 20))]
        same = chance.random() < 0.5
        order = chance.sample(names, len(names))
        orders = [order if same else chance.sample(names, len(names)) for _ in keys]
        page = parse_page(page_of(orders, keys, truncated=chance.random() < 0.5, spaces=chance.choice(["", "\n  "])))
        assert page.keys() == keys, (seed, number)
        assert [to_stat("n", entry).size for entry in page.objects] == list(range(len(keys)))
        assert [to_stat("n", entry).version for entry in page.objects] == [f"e{n}" for n in range(len(keys))]
        assert page.prefixes == ["d/"]
        assert page.token in (None, "a&b")


def test_an_entry_without_an_etag_takes_none_from_its_neighbour() -> None:
    order = ["Key", "LastModified", "ETag", "Size"]
    page = parse_page(page_of([order, ["Key", "Size"], order], ["a", "b", "c"]))
    assert [(key, etag) for key, _, etag, _ in page.objects] == [
        ("a", "&quot;e0&quot;"),
        ("b", ""),
        ("c", "&quot;e2&quot;"),
    ]


@pytest.mark.parametrize("end", [10, 200, -20, -25])
def test_a_page_that_is_cut_short_is_an_error(end: int) -> None:
    with pytest.raises(fsabs.CorruptFileError, match="not a page"):
        parse_page(page_of([["Key", "LastModified", "ETag", "Size"]] * 3, ["a", "b", "c"])[:end])
    with pytest.raises(fsabs.CorruptFileError, match="without a token"):
        parse_page(page_of([], [], truncated=True).replace("NextContinuationToken", "Other"))


def test_a_directory_bucket_lists_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["c", "a", "b"]
    monkeypatch.setattr(S3, "_list", lambda fs, key: iter([fsabs.FileStat(name, 1, False, 0.0) for name in names]))
    monkeypatch.setattr(S3, "_list_names", lambda fs, key: iter(names))
    monkeypatch.setattr(S3, "_stat", lambda fs, key: fsabs.FileStat(key, 1, False, 0.0))
    bucket = S3("mine--use1-az5--x-s3", region="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    for fs in (bucket, pickle.loads(pickle.dumps(bucket))):
        assert not fs.capabilities.ordered
        assert [stat.filename for stat in ordered_walk(fs, "")] == sorted(names)
    assert S3("mine", region="us-east-1", aws_access_key_id="a", aws_secret_access_key="b").capabilities.ordered


@pytest.mark.parametrize(("bucket", "prefix"), [("mine--use1-az5--x-s3", "d/"), ("mine", "d/na")])
def test_a_glob_asks_a_directory_bucket_for_whole_directories(
    bucket: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefixes = []

    def page(fs: S3, query: PageQuery) -> ObjectPage:
        prefixes.append(query.prefix)
        keys = [key for key in ("d/name", "d/other") if key.startswith(query.prefix)]
        objects = [(key, "2026-01-01T00:00:00.123Z", "&quot;e&quot;", "0") for key in keys]
        return ObjectPage(objects, [], None, str)

    monkeypatch.setattr(S3, "_page", page)
    fs = S3(bucket, region="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    assert list(fs.glob("d/na*")) == ["d/name"]
    assert prefixes == [prefix]


def test_a_directory_bucket_that_comes_back_to_a_directory_shows_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ["b/c/1", "a/1", "b/2", "b/c/3", "a/4"]
    objects = [(key, "2026-01-01T00:00:00.123Z", "&quot;e&quot;", "0") for key in keys]
    monkeypatch.setattr(S3, "_page", lambda fs, query: ObjectPage(objects, [], None, str))
    fs = S3("mine--use1-az5--x-s3", region="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    assert list(fs.list(recursive=True)) == ["b/", "b/c/", "b/c/1", "a/", "a/1", "b/2", "b/c/3", "a/4"]


@pytest.mark.quick
def test_a_page_with_nothing_on_it_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Azure sends them, and some stores with the interface of S3."""
    objects = [(f"d/{name}", "2026-01-01T00:00:00.123Z", "&quot;e&quot;", "1") for name in "abc"]

    def page(fs: S3, query: PageQuery) -> ObjectPage:
        at = int(query.token or 0)
        found = [entry for entry in objects if entry[0].startswith(query.prefix) and entry[0] > (query.after or "")]
        if at < 2:
            return ObjectPage([], [], str(at + 1), str)
        return ObjectPage(found[at - 2 : at - 1], [], str(at + 1) if at < len(found) + 1 else None, str)

    def missing(fs: S3, key: str) -> None:
        return None

    monkeypatch.setattr(S3, "_page", page)
    monkeypatch.setattr(S3, "_head", missing)
    fs = S3("mine", region="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    assert fs.isdir("d")
    assert not fs.exists("e")
    assert list(fs.list("d")) == list(fs.list("d", recursive=True)) == ["a", "b", "c"]
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir("d")
    listed = fs._list_page("d", "")
    assert listed is not None
    assert [stat.filename for stat in listed.files] == ["a"]
