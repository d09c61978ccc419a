"""Names in the kept index of a tar are found by their hashes, and told apart by themselves."""

from __future__ import annotations

import zlib

import pytest

from fsabs.containers.base import NameTree
from fsabs.containers.tar import index
from fsabs.containers.tar.index import Member, TarIndex

pytestmark = pytest.mark.quick

SAME = ("plumless", "buckeroo")


def found(*names: str) -> NameTree[Member]:
    entries = {name: Member(512 * at, at, 0.0, 0o644) for at, name in enumerate(names)}
    parts = index.pack(TarIndex(NameTree(entries), False, {}, (), 0), None)
    tree = index.unpack(memoryview(b"".join(parts)))[0].tree
    assert dict(tree.entries) == entries
    return tree


def test_names_of_one_hash() -> None:
    assert len({zlib.crc32(name.encode()) for name in SAME}) == 1
    tree = found("a", *SAME, "z")
    assert [tree.file(name).size for name in ("a", *SAME, "z")] == [0, 1, 2, 3]
    for there, other in (SAME, SAME[::-1]):
        assert found("a", there, "z").entries.get(other) is None


def test_the_first_and_the_last_hash_and_none_between() -> None:
    names = sorted((f"{at}" for at in range(1000)), key=lambda name: zlib.crc32(name.encode()))
    tree = found(*names[1:-1])
    assert names[0] not in tree.entries
    assert names[-1] not in tree.entries
    assert all(name in tree.entries for name in names[1:-1])
    assert "" not in found().entries
