"""SpooledWriter: a member is handed over whole at its commit, or forgotten."""

from __future__ import annotations

import errno
import gc
from typing import IO

import pytest

from fsabs.backends.memory import Memory
from fsabs.containers import base
from fsabs.containers.base import SpooledWriter
from tests import scarce

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("limit", [10, 1000])
def test_a_commit_hands_the_whole_member_over(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_IN_MEMORY", limit)
    taken: list[tuple[bytes, int]] = []
    given_up: list[int] = []

    def take(file: IO[bytes], size: int) -> None:
        assert file.tell() == 0
        taken.append((file.read(), size))

    writer = SpooledWriter(take, lambda: given_up.append(1))
    for _ in range(10):
        writer.write(b"12345")
    assert taken == []
    writer.commit()
    writer.abort()  # may follow anything
    assert taken == [(b"12345" * 10, 50)]
    assert given_up == []
    for call in (writer.commit, lambda: writer.write(b"")):
        with pytest.raises(ValueError, match="committed or aborted"):
            call()


def test_an_abort_hands_nothing_over_and_is_told_once() -> None:
    taken: list[int] = []
    given_up: list[int] = []
    writer = SpooledWriter(lambda file, size: taken.append(size), lambda: given_up.append(1))
    writer.write(b"1")
    writer.abort()
    writer.abort()
    assert (taken, given_up) == ([], [1])


def test_a_commit_that_fails_can_be_aborted() -> None:
    given_up: list[int] = []

    def fail(file: IO[bytes], size: int) -> None:
        raise TimeoutError

    writer = SpooledWriter(fail, lambda: given_up.append(1))
    with pytest.raises(TimeoutError):
        writer.commit()
    writer.abort()
    assert given_up == [1]


def test_a_full_disk_is_an_error_of_the_write_and_none_of_the_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_IN_MEMORY", 10)
    given_up: list[int] = []
    writer = SpooledWriter(lambda file, size: None, lambda: given_up.append(1))
    with scarce.file_size(100):
        writer.write(b"x" * 90)
        with pytest.raises(OSError, match="too large"):
            writer.write(b"x" * 20)
        writer.abort()
    assert given_up == [1]


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.h5"])
def test_a_container_with_a_member_that_was_dropped_unclosed_is_not_stored(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = Memory()
    archive = parent.open_container(name, "w")
    archive.write_bytes("whole", b"1")
    print("x", file=archive.open("dropped", "w"))
    gc.collect()
    with pytest.raises(OSError, match="dropped unclosed: dropped") as caught:
        archive.close()
    assert (caught.value.errno, caught.value.filename) == (errno.EBUSY, f"memory:///{name}")
    assert f"never closed, so not written: memory:///{name}/dropped" in capsys.readouterr().err
    assert not parent.exists(name)


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.h5"])
def test_a_member_that_its_writer_threw_away_is_no_error(name: str) -> None:
    parent = Memory()
    with parent.open_container(name, "w") as archive:
        with pytest.raises(ZeroDivisionError), archive.open("failed", "w") as file:
            file.write("x")
            raise ZeroDivisionError
        archive.write_bytes("whole", b"1")
    assert list(parent.open_container(name).list()) == ["whole"]
