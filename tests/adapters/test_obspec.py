"""obspec's methods over an FS: what they return, and that the ranges of an object are one batch."""

from __future__ import annotations

import asyncio
import errno
import io
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsabs
from tests.adapters import stores

DATA = bytes(range(200))


@pytest.fixture(params=["local", "memory", "s3"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[fsabs.FS]:
    """A small tree."""
    with stores.opened(request.param, request, tmp_path) as url:
        stores.fill(url, {"a.bin": DATA, "d/b.txt": b"b", "d/e/c.txt": b"c"})
        with fsabs.from_url(url) as fs:
            yield fs


def test_ranges_of_numpys_integers(fs: fsabs.FS) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        starts: list[Any] = [np.uint64(3), np.int32(50)]
        assert fs.obspec().get_ranges("a.bin", starts=starts, ends=[np.uint64(7), np.int32(60)]) == [
            DATA[3:7],
            DATA[50:60],
        ]


def test_reading(fs: fsabs.FS, monkeypatch: Any) -> None:
    store = fs.obspec()
    meta = store.head("a.bin")
    assert (meta["path"], meta["size"], meta["last_modified"].tzinfo is not None) == ("a.bin", 200, True)
    assert bytes(store.get("a.bin").buffer()) == b"".join(store.get("a.bin")) == DATA
    for chosen, expected in (((3, 9), (3, 9)), ({"offset": 190}, (190, 200)), ({"suffix": 5}, (195, 200))):
        found = store.get("a.bin", options={"range": chosen})
        assert (found.range, found.buffer()) == (expected, DATA[expected[0] : expected[1]])
    assert store.get_range("a.bin", start=3, length=4) == DATA[3:7]
    assert store.get_ranges("a.bin", starts=[0, 50], ends=[2, 60]) == [DATA[:2], DATA[50:60]]
    assert [meta["path"] for page in store.list() for meta in page] == ["a.bin", "d/b.txt", "d/e/c.txt"]
    assert [meta["path"] for page in store.list("d", offset="d/b.txt") for meta in page] == ["d/e/c.txt"]
    found = store.list_with_delimiter("d")
    assert (found["common_prefixes"], [meta["path"] for meta in found["objects"]]) == (["d/e"], ["d/b.txt"])
    assert list(store.list("none")) == []
    for call in (store.head, store.get):
        with pytest.raises(FileNotFoundError):
            call("none")
    with pytest.raises(OSError, match="if_match"):
        store.get("a.bin", options={"if_match": "x"})


def test_writing(fs: fsabs.FS, tmp_path: Path) -> None:
    store = fs.obspec()
    (tmp_path / "up").write_bytes(b"path")
    for name, file in (("1", b"x"), ("2", io.BytesIO(b"x")), ("3", iter([b"x"])), ("4", memoryview(b"x"))):
        store.put(f"new/{name}", file)
        assert fs.read_bytes(f"new/{name}") == b"x"
    store.put("new/5", tmp_path / "up")
    assert fs.read_bytes("new/5") == b"path"
    with pytest.raises(FileExistsError):
        store.put("new/5", b"y", mode="create")
    store.copy("new/5", "new/6")
    store.rename("new/6", "new/7")
    with pytest.raises(FileExistsError):
        store.rename("new/7", "new/5", overwrite=False)
    store.delete(["new/5", "new/7"])
    assert sorted(fs.list("new")) == ["1", "2", "3", "4"]


def test_ranges_that_the_object_has_not(fs: fsabs.FS) -> None:
    store = fs.obspec()
    beyond: list[Any] = [(201, 210), {"offset": 201}, (9, 3), (-1, 3)]
    for chosen in beyond:
        with pytest.raises(OSError, match=r"does not begin in the 200 bytes.*a\.bin") as caught:
            store.get("a.bin", options={"range": chosen})
        assert caught.value.errno == errno.EINVAL
    inside: list[tuple[Any, bytes]] = [
        ((200, 210), b""),
        ({"offset": np.uint8(199)}, DATA[199:]),
        ({"suffix": np.uint64(500)}, DATA),
        ((0, 0), b""),
    ]
    for chosen, expected in inside:
        assert store.get("a.bin", options={"range": chosen}).buffer() == expected


def test_with_asyncio(fs: fsabs.FS) -> None:
    async def use() -> None:
        store = fs.obspec()
        await store.put_async("n", b"123")
        assert (await store.head_async("n"))["size"] == 3
        assert await (await store.get_async("n")).buffer_async() == b"123"
        assert [piece async for piece in await store.get_async("n")] == [b"123"]
        assert await store.get_range_async("n", start=1, end=2) == b"2"
        assert await store.get_ranges_async("n", starts=[0], lengths=[1]) == [b"1"]
        await store.copy_async("n", "m")
        await store.rename_async("m", "o")
        await store.delete_async("o")
        assert "n" in [meta["path"] async for page in store.list_async() for meta in page]
        assert (await store.list_with_delimiter_async())["common_prefixes"] == ["d"]

    asyncio.run(use())


def test_a_time_that_no_calendar_has(tmp_path: Path) -> None:
    member = tarfile.TarInfo("late")
    member.mtime = 1_700_000_000_000  # of milliseconds
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(member)
    with fsabs.from_url(tmp_path / "a.tar") as fs:
        [[found]] = fs.obspec().list()
        assert (found["path"], found["last_modified"].year) == ("late", 1970)
        assert fs.obspec().head("late") == found
