"""Paths and keys: what is normalised, what is refused, and how keys stand in URLs."""

from __future__ import annotations

import os
import posixpath

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fsabs.core import keys

pytestmark = pytest.mark.quick

segments = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=8)
ordinary = segments.filter(lambda text: text not in (".", ".."))


@pytest.mark.parametrize(
    ("path", "base", "key"),
    [
        ("", "", ""),
        ("", "a", "a"),
        (".", "a", "a"),
        ("a/b", "", "a/b"),
        ("a//b/", "", "a/b"),
        ("./a/./b", "x", "x/a/b"),
        ("../b", "x/y", "x/b"),
        ("a/../b", "x", "x/b"),
        ("/b", "x", "b"),
        ("//b", "x", "b"),
        ("...", "", "..."),
        (".hidden", "x", "x/.hidden"),
        ("a\nb", "", "a\nb"),
        ("a/..b", "", "a/..b"),
        ("..a", "x", "x/..a"),
    ],
)
def test_a_path_has_one_key(path: str, base: str, key: str) -> None:
    assert keys.normalize(path, base) == key


@pytest.mark.parametrize(("path", "base"), [("..", ""), ("a/../..", ""), ("../../x", "a"), ("/..", "a")])
def test_climbing_above_the_root_is_refused(path: str, base: str) -> None:
    with pytest.raises(PermissionError, match="climbs"):
        keys.normalize(path, base)


def test_nul_and_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        keys.normalize("a\0b")
    with pytest.raises(TypeError, match="bytes"):
        keys.normalize(b"a")  # type: ignore[arg-type]


def test_a_url_is_refused() -> None:
    for url in ("s3://bucket/x.bin", "file:///tmp/x", "memory://"):
        with pytest.raises(ValueError, match="not a URL"):
            keys.normalize(url, "base")
    assert keys.normalize("a/s3://b") == "a/s3:/b"
    assert keys.normalize("c:/x") == "c:/x"


@given(st.lists(st.one_of(segments, st.sampled_from(["..", ".", ""])), max_size=6))
def test_normalize_agrees_with_posixpath(parts: list[str]) -> None:
    path = "/".join(parts)
    assume("://" not in path)  # which is refused
    expected = posixpath.normpath("/base/of/some/depth/more/than/enough/" + path.lstrip("/"))
    base = "base/of/some/depth/more/than/enough"
    assert keys.normalize(path.lstrip("/"), base) == expected[1:]


@given(st.lists(ordinary, min_size=1, max_size=4))
def test_a_key_is_its_own_key_and_survives_a_url(parts: list[str]) -> None:
    key = "/".join(parts)
    assert keys.is_key(key)
    assert keys.normalize(key) == key
    assert keys.from_url_path(keys.to_url_path(key)) == key


@given(st.text(max_size=12))
def test_what_is_called_a_key_is_normalised(text: str) -> None:
    if keys.is_key(text) and "\0" not in text:
        assert not {"", ".", ".."} & set(text.split("/"))


def test_names_that_are_no_unicode_survive() -> None:
    name = os.fsdecode(b"a\xff b")
    assert keys.from_url_path(keys.to_url_path(name)) == name


def test_url_paths_are_whatwg() -> None:
    assert keys.to_url_path("a b+c%d#e?fé/g") == "a%20b+c%25d%23e%3Ff%C3%A9/g"
    assert keys.from_url_path("a+b%20c%zz") == "a+b c%zz"


def test_inside() -> None:
    assert keys.inside("a/b", "a")
    assert keys.inside("a", "a")
    assert keys.inside("x", "")
    assert not keys.inside("ab", "a")
