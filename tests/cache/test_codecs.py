"""What becomes of values in the item caches: arrays, pickles, views, and codecs of one's own."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsabs.cache import FileCache, NaiveCache, ReadOnlyFileCache
from fsabs.cache.items.codecs import Array

pytestmark = pytest.mark.quick


ARRAYS = [
    np.arange(12, dtype="f4").reshape(3, 4),
    np.arange(12, dtype=">i2").reshape(3, 4).T,
    np.array(5.5),
    np.zeros((0, 3), "u1"),
    np.array(["ab", "ü"]),
    np.array([1, 2], "M8[D]"),
    np.array([(1, 2.5)], [("a", "i4"), ("b", "f8", (2,))]),
    np.arange(24).reshape(2, 3, 4)[:, ::2],
    np.array([True, False]),
    np.array([1j]),
]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("number", range(len(ARRAYS)))
def test_arrays_come_back_as_they_were_and_read_only(tmp_path: Path, number: int, frozen: bool) -> None:
    array = ARRAYS[number]
    with FileCache(2, dir=tmp_path, codec="numpy") as cache:
        cache.put(1, array)
        cache.put(0, None)
        if frozen:
            cache.preserve("kept")
        back = cache.get(1)
        assert back.dtype == array.dtype
        assert back.shape == array.shape
        assert np.array_equal(back, array)
        assert not back.flags.writeable
        assert not back.flags.owndata
        assert back.flags.f_contiguous == array.flags.f_contiguous or not array.flags.contiguous
        assert cache.get(0, 1) is None


@pytest.mark.parametrize("value", [b"x", 3, np.array([object()]), np.ma.masked_array([1, 2], [False, True]), [1, 2]])
def test_what_needs_pickle_is_no_array(tmp_path: Path, value: Any) -> None:
    with FileCache(2, dir=tmp_path, codec="numpy") as cache, pytest.raises(TypeError, match="numpy"):
        cache.put(0, value)


@pytest.mark.parametrize("descr", ["'|O'", "[('a', '<i4'), ('b', '|O')]", "('|O', (1,))"])
def test_an_array_of_objects_that_others_have_made_is_refused(descr: str) -> None:
    """Their bytes would be taken for addresses: to read a shared cache would run what its writer wants."""
    text = descr.encode()
    head = struct.pack("<2sBBHHQ", b"NA", ord("C"), 1, len(text), 64, 1) + text
    with pytest.raises(ValueError, match="objects"):
        Array().decode(head.ljust(64, b"\0") + bytes(64))


@pytest.mark.parametrize("kind", [NaiveCache, FileCache])
def test_pickle_only_when_asked(kind: type[Any]) -> None:
    value = {"a": [1, 2], "b": None}
    for options in ({"do_pickle": True}, {"codec": "pickle"}):
        cache = kind(3, **options)
        assert cache.do_pickle
        assert cache.put(0, value)
        assert cache.get(0) == value
        assert cache.get(0) is not cache.get(0), "each has its own"
        assert cache.put(1, None)
        assert cache.get(1, 5) is None
        cache.close()
    with pytest.raises(ValueError, match="contradict"):
        kind(3, do_pickle=True, codec="numpy")
    with pytest.raises(ValueError, match="no codec"):
        kind(3, codec="zip")


class Text:
    """A codec of one's own."""

    name = "text"

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, data: bytes | memoryview) -> str:
        return str(data, "utf-8")


class Bad(Text):
    name = "pickle"


@pytest.mark.parametrize("kind", [NaiveCache, FileCache])
def test_a_codec_of_one_s_own(kind: type[Any]) -> None:
    cache = kind(3, codec=Text())
    assert cache.put(0, "ü")
    assert cache.get(0) == "ü"
    copy = pickle.loads(pickle.dumps(cache))
    assert copy.get(0) == "ü"
    copy.close()
    cache.close()
    with pytest.raises(ValueError, match="name"):
        kind(3, codec=Bad())


def test_views(tmp_path: Path) -> None:
    with FileCache(5, dir=tmp_path, codec="memoryview") as cache:
        cache.put(0, b"zero")
        cache.put(1, b"value")
        cache.put(3, None)
        assert isinstance(cache.get(0), memoryview)
        cache.preserve("kept")
        for _ in range(2):
            view = cache.get(0)
            assert isinstance(view, memoryview)
            assert view.readonly
            assert bytes(view) == b"zero"
            assert cache.get(1) == b"value"
            assert cache.get(3, 5) is None
            assert cache.get(2, 5) == 5
    assert bytes(view) == b"zero", "a view outlives its cache"
    with ReadOnlyFileCache(5, dir=tmp_path) as bytes_again:
        bytes_again.preload("kept")
        assert type(bytes_again.get(0)) is bytes
        assert bytes_again.get(0) == b"zero"
