"""Keys of a bucket that no path names: in no listing, warned of once, and never touched."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from errno import ENOTEMPTY
from typing import Any

import pytest

from fsabs.backends.s3 import S3
from fsabs.core.errors import UnnamedKeysWarning
from tests.backends.s3_clients import new_bucket

NAMED = ["a/b/c", "a/d", "e"]
UNNAMED = ["/at the start", "a//empty", "a/./dot", "a/b/../up", "a/b/trailing//"]


@pytest.fixture
def fs(ceph: Any) -> S3:
    found = new_bucket(ceph)
    for key in [*NAMED, *UNNAMED]:
        found.client.put_object(Bucket=found.bucket, Key=key, Body=b"1")
    return found


def stored(fs: S3) -> set[str]:
    return {entry["Key"] for entry in fs.client.list_objects_v2(Bucket=fs.bucket).get("Contents", [])}


LISTINGS: list[tuple[Callable[[S3], list[str]], list[str], int]] = [
    (lambda fs: list(fs.list(recursive=True)), ["a/", "a/b/", "a/b/c", "a/d", "e"], 5),
    (lambda fs: [entry.filename for entry in fs.list("a", recursive=True, detail=True)], ["b/", "b/c", "d"], 4),
    (lambda fs: list(fs.list("a")), ["b/", "d"], 2),
    (lambda fs: list(fs.list()), ["a/", "e"], 1),
    (lambda fs: sorted(fs.glob("**/c")), ["a/b/c"], 5),
]


def test_listings_warn_once(fs: S3) -> None:
    for listing, expected, count in LISTINGS:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert listing(fs) == expected
        found = [str(warning.message) for warning in caught if warning.category is UnnamedKeysWarning]
        assert len(found) == 1
        assert f"{count} keys" in found[0] or (count == 1 and "a key" in found[0])
        assert "unnamed()" in found[0]
    fs.write_bytes("f/x", b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnnamedKeysWarning)
        assert list(fs.list("f", recursive=True)) == list(fs.list("f")) == ["x"]


def test_they_are_listed_as_the_store_has_them(fs: S3) -> None:
    assert sorted(fs.unnamed()) == sorted(UNNAMED)
    assert sorted(fs.unnamed("a")) == sorted(UNNAMED[1:])
    assert list(fs.subfs("a").unnamed("b")) == ["a/b/../up", "a/b/trailing//"]


@pytest.mark.filterwarnings("ignore::fsabs.core.errors.UnnamedKeysWarning")
def test_no_operation_touches_them(fs: S3) -> None:
    fs.copy_tree("a", "copied")
    assert stored(fs) == {*NAMED, *UNNAMED, "copied/b/c", "copied/d"}
    with pytest.raises(OSError, match=r"no path names"):
        fs.rename("a", "moved")
    assert {*UNNAMED, "a/b/c", "a/d"} <= stored(fs)
    with pytest.raises(OSError, match=r"4 keys that no path names") as raised:
        fs.remove("a", recursive=True)
    assert (raised.value.errno, raised.value.filename) == (ENOTEMPTY, fs.url("a"))
    assert not {"a/b/c", "a/d"} & stored(fs)
    assert fs.isdir("a")
    with pytest.raises(OSError, match=r"no path names"):
        fs.rmdir("a")
    with pytest.raises(OSError, match=r"no path names"):
        fs.remove(".", recursive=True)
    assert stored(fs) == set(UNNAMED)
