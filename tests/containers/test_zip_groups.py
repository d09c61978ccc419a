"""`add_members` of a zip: many members in one call give the same bytes as one by one, and the same errors."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from fsabs import Memory
from fsabs.containers.zip import Zip, records

pytestmark = pytest.mark.quick

Members = list[tuple[str, bytes | None]]


def one_by_one(archive: Zip, members: Iterable[tuple[str, bytes | None]]) -> None:
    for path, content in members:
        if content is None:
            archive.makedirs(path, exist_ok=True)
        else:
            archive.write_bytes(path, content)


def written(members: Members, grouped: bool, **options: Any) -> bytes:
    memory = Memory()
    with memory.open_container("a.zip", "w", **options) as archive:
        assert isinstance(archive, Zip)
        if grouped:
            assert list(archive.add_members(members)) == [len(content or b"") for _, content in members]
        else:
            one_by_one(archive, members)
    return memory.read_bytes("a.zip")


def tree(seed: int) -> Members:
    """Files in old and new directories, named in all ways, and directories by themselves."""
    rng = random.Random(seed)
    folders = ["", "d/", "d/e/", "ü/", "d e/f,g/", "new/er/"]
    names = [f"{rng.choice(folders)}{rng.choice('aÄ .-_')}{number}" for number in range(rng.choice([3, 70, 200]))]
    members: Members = [(name, rng.randbytes(rng.choice([0, 1, 700, 20_000, 300_000]))) for name in names]
    for _ in range(rng.randrange(4)):
        members.insert(rng.randrange(len(members)), (rng.choice(folders)[:-1] or "dir", None))
    return members


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed in (3, 4, 8, 9) else pytest.mark.nightly) for seed in range(12)]
)
def test_the_bytes_are_those_of_single_writes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 3 == 0:  # members need zip64 records by size, or by where they begin
        monkeypatch.setattr(records, "LIMIT32", 600 if seed % 2 else 1_000_000)
    members = tree(seed)
    options = {"compression": "stored" if seed % 4 else "deflated", "compresslevel": None if seed % 4 else 1}
    assert written(members, True, **options) == written(members, False, **options)


BAD: dict[str, tuple[Members, type[Exception], str]] = {
    "again": ([("a", b"1"), ("b", b"2"), ("a", b"3")], FileExistsError, "a"),
    "below a file": ([("a", b"1"), ("b", b"2"), ("a/c", b"3")], NotADirectoryError, "a/c"),
    "a directory": ([("d/a", b"1"), ("b", b"2"), ("d", b"3")], IsADirectoryError, "d"),
    "a file as a directory": ([("a", b"1"), ("b", b"2"), ("a", None)], FileExistsError, "a"),
    "a name that zip has not": ([("a", b"1"), ("b", b"2"), ("c\\..\\d", b"3")], OSError, "d"),
    "a long name": ([("a", b"1"), ("b", b"2"), ("c" * 65_535, b"3")], OSError, "ccc"),
    "no Unicode": ([("a", b"1"), ("b", b"2"), ("\udcff", b"3")], OSError, ""),
}


@pytest.mark.parametrize("case", BAD)
def test_what_can_not_be_added_is_named_and_leaves_the_archive_whole(case: str) -> None:
    """The error is that of a single write, and what was added before it can be read."""
    members, kind, named = BAD[case]
    found: list[OSError] = []
    memory = Memory()
    for name in ("grouped.zip", "single.zip"):
        with memory.open_container(name, "w") as archive:
            assert isinstance(archive, Zip)
            with pytest.raises(kind) as caught:
                list(archive.add_members(members)) if name == "grouped.zip" else one_by_one(archive, members)
            assert isinstance(caught.value, OSError)
            found.append(caught.value)
    assert found[0].errno == found[1].errno
    assert named in str(found[0].filename)
    assert memory.read_bytes("grouped.zip") == memory.read_bytes("single.zip")
