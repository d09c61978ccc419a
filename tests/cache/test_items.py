"""The item caches: PFIO's interface and what goes beyond it, the same for all of them; and what becomes of values."""

from __future__ import annotations

import io
import math
import os
import pickle
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from fsabs.cache import Cache, FileCache, MultiprocessFileCache, NaiveCache, ReadOnlyFileCache, single_flight
from fsabs.cache.items.codecs import Array
from fsabs.cache.items.files import default_directory
from fsabs.core import hooks
from fsabs.disk.folders import cache_directory
from fsabs.testing.children import threaded

pytestmark = pytest.mark.quick
Make = Callable[..., Any]


@pytest.fixture(params=[NaiveCache, FileCache])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    made: list[Any] = []

    def maker(length: int, **options: Any) -> Any:
        if request.param is not NaiveCache:
            options.setdefault("dir", tmp_path)
        made.append(request.param(length, **options))
        return made[-1]

    yield maker
    for cache in made:
        cache.close()


def test_pfio_s_interface(make: Make) -> None:
    with make(10) as cache:
        assert issubclass(type(cache), Cache)
        assert len(cache) == cache.length == 10
        assert cache.get(3) is None
        assert cache.put(3, b"three")
        assert not cache.put(3, b"other"), "nothing is overwritten"
        assert cache.get(3) == b"three"
        assert cache.get_and_cache(4, lambda i: b"%d" % i) == b"4"
        assert cache.get_and_cache(4, lambda i: b"other") == b"4"
        assert cache.multithread_safe
        assert cache.multiprocess_safe == (not isinstance(cache, NaiveCache))
        assert not cache.frozen
        for wrong in (-1, 10, 10**30):
            for call in (cache.get, lambda i: cache.put(i, b""), lambda i: cache.get_and_cache(i, bytes)):
                with pytest.raises(IndexError):
                    call(wrong)
    cache.close()


def test_a_cache_of_pfio_s_arguments_for_several_processes(tmp_path: Path) -> None:
    with MultiprocessFileCache(5, True, tmp_path, 1000) as cache:
        assert (cache.do_pickle, cache.dir, cache.cache_size_limit) == (True, str(tmp_path), 1000)
        assert (cache.multithread_safe, cache.multiprocess_safe) == (True, True)
        assert cache.put(0, ["item"])
        assert cache.get(0) == ["item"]


def test_lengths_and_limits_that_cant_be() -> None:
    for kind in (NaiveCache, FileCache, ReadOnlyFileCache):
        for length in (0, -1):
            with pytest.raises(ValueError, match="length"):
                kind(length)
    with pytest.raises(ValueError, match="cache_size_limit"):
        NaiveCache(1, cache_size_limit=-1)


@pytest.mark.parametrize("limit", [None, 0, math.inf])
def test_what_is_no_limit(make: Make, limit: Any) -> None:
    cache = make(1, cache_size_limit=limit)
    assert cache.cache_size_limit is None
    assert cache.put(0, b"x" * 1000)


def test_numbers_may_be_numpy_s_and_nothing_else(make: Make) -> None:
    cache = make(10)
    assert 3 not in cache
    assert cache.put(np.int64(3), b"number")
    assert cache.get(3) == cache.get(np.int32(3)) == b"number"
    assert cache.put(np.int8(9), b"nine")
    assert cache.get(np.int8(9)) == cache.get(9) == b"nine"
    for wrong in ("3", 1.5):
        for call in (cache.get, lambda i: cache.put(i, b""), lambda i: cache.get_and_cache(i, bytes)):
            with pytest.raises(TypeError, match="items have numbers"):
                call(wrong)


def test_none_and_empty_values_are_cached(make: Make) -> None:
    cache = make(10)
    calls: list[Any] = []
    for key, value in ((0, None), (1, b"")):

        def backend(i: Any, value: Any = value) -> Any:
            calls.append(i)
            return value

        assert cache.get(key, "default") == "default"
        assert [cache.get_and_cache(key, backend) for _ in range(3)] == [value] * 3
        assert cache.get(key, "default") == value
        assert key in cache
    assert calls == [0, 1]


def test_preserve_and_preload(tmp_path: Path) -> None:
    with FileCache(5, dir=tmp_path, do_pickle=True, fingerprint="s3://b/a.zip v1") as cache:
        cache.put(1, [1])
        assert cache.preserve("kept")
        assert cache.frozen
        assert not cache.put(2, 2)
        assert not cache.preserve("kept")
        assert cache.preserve("kept", overwrite=True)
        assert cache.get(1) == [1]
        assert not cache.preload("kept"), "it is frozen"
    assert os.listdir(tmp_path) == ["kept"]
    for kind in (FileCache, MultiprocessFileCache, ReadOnlyFileCache):
        with kind(5, dir=tmp_path, do_pickle=True) as again:
            assert again.preload("kept")
            assert again.frozen
            assert (again.get(1), again.get(2)) == ([1], None)
            assert again.get_and_cache(3, lambda i: i) == 3
            assert again.get(3) is None
    assert os.listdir(tmp_path) == ["kept"]
    with FileCache(5, dir=tmp_path, do_pickle=True) as other:
        assert not other.preload("nothing")
        assert other.put(1, 1)
    for wrong, message in (
        ({"length": 6, "do_pickle": True}, "length 5"),
        ({"length": 5}, "codec 'pickle'"),
        ({"length": 5, "do_pickle": True, "fingerprint": "s3://b/a.zip v2"}, "another source"),
    ):
        with FileCache(dir=tmp_path, **wrong) as other, pytest.raises(ValueError, match=message):
            other.preload("kept")
    with FileCache(5, dir=tmp_path, do_pickle=True, fingerprint="s3://b/a.zip v1") as same:
        assert same.preload("kept")


def test_read_only_caches_are_read_only(tmp_path: Path) -> None:
    with ReadOnlyFileCache(5, dir=tmp_path) as cache:
        assert cache.get(0) is None
        with pytest.raises(io.UnsupportedOperation):
            cache.put(0, b"")
        with pytest.raises(io.UnsupportedOperation):
            cache.preserve("kept")
        with pytest.raises(FileNotFoundError):
            cache.preload("kept")


def test_a_closed_cache_is_empty(tmp_path: Path) -> None:
    cache = FileCache(5, dir=tmp_path)
    cache.put(0, b"x")
    cache.close()
    cache.close()
    assert cache.get(0) is None
    assert not cache.put(1, b"")
    assert not cache.preserve("kept")
    assert not cache.preload("kept")
    assert cache.get_and_cache(0, lambda i: i) == 0
    assert pickle.loads(pickle.dumps(cache)).get(0) is None
    assert "closed" in repr(cache)


def test_limits_count_bytes(make: Make) -> None:
    cache = make(10, cache_size_limit=100)
    assert cache.put(0, np.zeros(10, "f4").data)
    for _ in range(10):
        assert not cache.put(0, b"x" * 60), "what is there takes nothing of the limit"
    assert not cache.frozen
    assert cache.put(1, b"x" * 60)
    assert cache.stats()["bytes"] == 100
    assert not cache.put(2, b"x")
    assert cache.frozen == (not isinstance(cache, NaiveCache))
    assert cache.get(1) == b"x" * 60
    assert cache.get_and_cache(3, lambda i: b"y") == b"y"


def test_stats_and_instruments(make: Make) -> None:
    class Instrument(hooks.Instrument):
        def record_event(self, kind: str, name: str, size: int = 1, where: str = "") -> None:
            told.append((kind, name, size))

    told: list[Any] = []
    cache = make(10)
    before = hooks.install(Instrument())
    try:
        cache.get(0)
        cache.put(0, b"four")
        cache.get(0)
        cache.get_and_cache(7, lambda i: b"sixsix")
        cache.get(7)
    finally:
        hooks.install(before)
    name = "cache.items"
    assert told == [("miss", name, 1), ("hit", name, 4), ("miss", name, 1), ("hit", name, 6)]
    stats = cache.stats()
    assert [stats[key] for key in ("hits", "misses", "puts", "entries")] == [2, 2, 2, 2]


# ---- one call for all


@pytest.mark.parametrize("limit", [None, 1])
def test_eight_threads_make_one_call_also_where_it_cannot_be_stored(make: Make, limit: int | None) -> None:
    cache = make(5, cache_size_limit=limit)
    calls: list[int] = []
    ready = threading.Barrier(8)

    def slow(i: int) -> bytes:
        calls.append(i)
        time.sleep(0.05)
        return b"slow"

    def ask() -> Any:
        ready.wait()
        return cache.get_and_cache(2, slow)

    assert threaded("asking", [ask] * 8, 20) == [b"slow"] * 8
    assert calls == [2]


def test_an_error_of_the_backend_is_raised_and_the_next_one_tries(make: Make) -> None:
    cache = make(5)

    def broken(i: int) -> bytes:
        time.sleep(0.01)
        raise ConnectionError("no store")

    def ask() -> str:
        with pytest.raises(ConnectionError):
            cache.get_and_cache(2, broken)
        return "raised"

    assert threaded("asking", [ask] * 4, 20) == ["raised"] * 4
    assert cache.get_and_cache(2, lambda i: b"now") == b"now"


def test_a_backend_may_ask_the_cache(make: Make) -> None:
    cache = make(5)
    assert cache.get_and_cache(2, lambda i: cache.get_and_cache(i, lambda j: b"inner") + b"!") == b"inner!"
    assert cache.get_and_cache(3, lambda i: cache.get_and_cache(4, lambda j: b"four")) == b"four"


def test_a_slow_filler_is_not_waited_for_longer_than_the_timeout(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_flight, "TIMEOUT", 0.05)
    cache = make(5)
    started, go_on = threading.Event(), threading.Event()

    def stuck(i: int) -> bytes:
        started.set()
        go_on.wait()
        return b"late"

    thread = threading.Thread(target=cache.get_and_cache, args=(1, stuck))
    thread.start()
    started.wait()
    assert cache.get_and_cache(1, lambda i: b"mine") == b"mine"
    go_on.set()
    thread.join()
    assert cache.get(1) == b"mine"


def test_where_caches_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_directory() == f"{cache_directory()}/items"
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "mine"))
    with FileCache(1) as cache:
        assert cache.dir == f"{tmp_path}/mine/items"
        assert len(os.listdir(cache.dir)) == 1
    assert os.listdir(cache.dir) == []


def test_a_cache_of_one_s_own_needs_get_and_put_alone() -> None:
    class Mine(Cache):
        multiprocess_safe = multithread_safe = False

        def __init__(self) -> None:
            self.items: dict[int, bytes] = {}

        def __len__(self) -> int:
            return 5

        def put(self, i: int, data: bytes) -> bool:
            self.items[i] = data
            return True

        def get(self, i: int) -> bytes | None:
            return self.items.get(i)

    with Mine() as mine:
        assert mine.get_and_cache(1, lambda i: b"1") == mine.get(1) == b"1"


# ---- values


def test_bytes_of_any_kind_are_stored_as_bytes(tmp_path: Path) -> None:
    floats = np.arange(6, dtype="f4").reshape(2, 3)
    with FileCache(10, dir=tmp_path) as cache:
        for number, value in enumerate([bytearray(b"ab"), floats.data, floats.T.data, floats[:, 1]]):
            assert cache.put(number, value)
        assert cache.get(0) == b"ab"
        assert [len(cache.get(n)) for n in (1, 2, 3)] == [24, 24, 8]
        assert cache.get(2) == floats.T.tobytes()
        assert cache.stats()["bytes"] == 2 + 24 + 24 + 8
        for wrong in ("text", 5, ["x"]):
            with pytest.raises(TypeError, match="codec"):
                cache.put(4, wrong)


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
def test_arrays_come_back_as_they_were_and_read_only(tmp_path: Path, frozen: bool) -> None:
    with FileCache(len(ARRAYS) + 1, dir=tmp_path, codec="numpy") as cache:
        for number, array in enumerate([*ARRAYS, None]):
            cache.put(number, array)
        if frozen:
            cache.preserve("kept")
        for number, array in enumerate(ARRAYS):
            back = cache.get(number)
            assert (back.dtype, back.shape) == (array.dtype, array.shape)
            assert np.array_equal(back, array)
            assert (back.flags.writeable, back.flags.owndata) == (False, False)
            assert back.flags.f_contiguous == array.flags.f_contiguous or not array.flags.contiguous
        assert cache.get(len(ARRAYS), 1) is None


def test_what_needs_pickle_is_no_array(tmp_path: Path) -> None:
    values = (b"x", 3, np.array([object()]), np.ma.masked_array([1, 2], [False, True]), [1, 2])
    with FileCache(2, dir=tmp_path, codec="numpy") as cache:
        for value in values:
            with pytest.raises(TypeError, match="numpy"):
                cache.put(0, value)


@pytest.mark.parametrize("descr", ["'|O'", "[('a', '<i4'), ('b', '|O')]", "('|O', (1,))"])
def test_an_array_of_objects_that_others_have_made_is_refused(descr: str) -> None:
    """Their bytes would be taken for addresses: to read a shared cache would run what its writer wants."""
    text = descr.encode()
    head = struct.pack("<2sBBHHQ", b"NA", ord("C"), 1, len(text), 64, 1) + text
    with pytest.raises(ValueError, match="objects"):
        Array().decode(head.ljust(64, b"\0") + bytes(64))


def test_pickle_only_when_asked(make: Make) -> None:
    value = {"a": [1, 2], "b": None}
    for options in ({"do_pickle": True}, {"codec": "pickle"}):
        cache = make(3, **options)
        assert cache.do_pickle
        assert cache.put(0, value)
        assert cache.get(0) == value
        assert cache.get(0) is not cache.get(0), "each has its own"
        assert cache.put(1, None)
        assert cache.get(1, 5) is None
    with pytest.raises(ValueError, match="contradict"):
        make(3, do_pickle=True, codec="numpy")
    with pytest.raises(ValueError, match="no codec"):
        make(3, codec="zip")


class Text:
    """A codec of one's own."""

    name = "text"

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, data: bytes | memoryview) -> str:
        return str(data, "utf-8")


class Bad(Text):
    name = "pickle"


def test_a_codec_of_one_s_own(make: Make) -> None:
    cache = make(3, codec=Text())
    assert cache.put(0, "ü")
    assert cache.get(0) == "ü"
    with pickle.loads(pickle.dumps(cache)) as copy:
        assert copy.get(0) == "ü"
    with pytest.raises(ValueError, match="name"):
        make(3, codec=Bad())


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


# ---- against a dict


class Items(RuleBasedStateMachine):
    """Random use of a cache, a pickled copy of it and a preserved one, against a dict."""

    folder: Path
    keys = st.integers(0, 7)
    values = st.none() | st.binary(max_size=30) | st.binary(min_size=1, max_size=3).map(lambda part: part * 20_000)

    @initialize(codec=st.sampled_from(["bytes", "memoryview", "pickle"]))
    def begin(self, codec: str) -> None:
        self.cache = FileCache(8, dir=self.folder, codec=codec)
        self.copy = pickle.loads(pickle.dumps(self.cache))
        self.model: dict[Any, Any] = {}
        self.frozen = False

    @rule(key=keys, value=values, mine=st.booleans())
    def put(self, key: Any, value: Any, mine: bool) -> None:
        stored = (self.cache if mine else self.copy).put(key, value)
        assert stored == (key not in self.model and not self.frozen)
        if stored:
            self.model[key] = value

    @rule(key=keys, value=values, mine=st.booleans())
    def fill(self, key: Any, value: Any, mine: bool) -> None:
        found = (self.cache if mine else self.copy).get_and_cache(key, lambda _: value)
        assert found == self.model.get(key, value)
        if not self.frozen:
            self.model.setdefault(key, value)

    @rule(overwrite=st.booleans())
    def preserve(self, overwrite: bool) -> None:
        there = (self.folder / "kept").exists()
        done = self.cache.preserve("kept", overwrite)
        assert done == (overwrite or not there)
        self.frozen = self.frozen or done

    @rule()
    def another_copy(self) -> None:
        self.copy.close()
        self.copy = pickle.loads(pickle.dumps(self.cache))

    @invariant()
    def agrees(self) -> None:
        for key in range(8):
            for cache in (self.cache, self.copy):
                assert cache.get(key, "no") == self.model.get(key, "no")
        assert self.cache.frozen == self.frozen

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            self.cache.close()
            self.copy.close()
        (self.folder / "kept").unlink(missing_ok=True)
        assert os.listdir(self.folder) == []


def test_it_agrees_with_a_dict(tmp_path: Path) -> None:
    Items.folder = tmp_path
    tried = settings(max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Items, settings=tried)
