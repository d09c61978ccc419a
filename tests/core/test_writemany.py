"""`write_many` where no store is needed: how much it takes at once, and what becomes of several failures."""

from __future__ import annotations

import threading

import pytest

from fsabs.core import writemany

pytestmark = pytest.mark.quick


def test_contents_under_way_are_bounded_in_bytes() -> None:
    size, lock, two = 20 * 1024 * 1024, threading.Lock(), threading.Barrier(2)
    under_way, most = 0, 0

    def write(key: str, data: bytes) -> None:
        nonlocal under_way, most
        with lock:
            under_way += len(data)
            most = max(most, under_way)
        two.wait(20)
        with lock:
            under_way -= len(data)

    data = bytes(size)
    assert writemany.in_threads(write, ((str(n), data) for n in range(12)), 8) == 12
    assert 2 * size <= most <= writemany.MAX_BYTES


def test_a_content_above_the_bound_goes_alone() -> None:
    data, names = bytes(writemany.MAX_BYTES + 1), list[str]()
    assert writemany.in_threads(lambda key, _: names.append(key), ((str(n), data) for n in range(3)), 8) == 3
    assert names == ["0", "1", "2"]


def test_a_failure_is_raised_when_all_have_ended_with_the_others_in_its_notes() -> None:
    together, both, ended = threading.Barrier(3), threading.Event(), list[str]()

    class Refused(PermissionError):
        def add_note(self, note: str) -> None:
            super().add_note(note)
            both.set()

    def write(key: str, data: bytes) -> None:
        together.wait(20)
        if key == "c":
            assert both.wait(20)
        ended.append(key)
        if key != "c":
            raise Refused(13, f"not {key}")

    with pytest.raises(PermissionError, match="not [ab]") as caught:
        writemany.in_threads(write, ((name, b"") for name in "abcdefgh"), 3)
    assert sorted(ended) == ["a", "b", "c"], "nothing is begun after a failure, and what was under way has ended"
    other = "b" if caught.value.strerror == "not a" else "a"
    assert caught.value.__notes__ == [f"also: Refused: [Errno 13] not {other}"]
