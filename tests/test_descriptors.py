"""Descriptors are closed with their owners, whatever a signal handler raises in that moment."""

from __future__ import annotations

import errno
import functools
import gc
import operator
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import fsabs
from fsabs import descriptors
from fsabs.descriptors import Descriptor, HeldDescriptors, PythonDescriptor

pytestmark = pytest.mark.quick


class Interrupted(Exception):
    pass


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def freed_with_a_pending_signal(owner: list[object]) -> None:
    """Free what is in the list while the handler of a signal waits for the next instruction of Python's."""

    def handler(*_: object) -> None:
        raise Interrupted

    steps: list[Callable[[], object]] = [
        functools.partial(signal.setitimer, signal.ITIMER_REAL, 1e-6),
        functools.partial(sum, range(3_000_000)),  # one call of C, for longer than the timer runs
        owner.clear,
    ]
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(Interrupted):
            list(map(operator.call, steps))
    finally:
        signal.signal(signal.SIGALRM, before)
    gc.collect()


def a_list(path: Path) -> tuple[object, int]:
    held = HeldDescriptors()
    return held, descriptors.open_into(held, str(path), os.O_RDONLY)


def a_blob(path: Path) -> tuple[object, int]:
    blob = fsabs.Local(path.parent)._open_blob(path.as_posix()[1:])
    numbers = [int(name) for name in os.listdir("/proc/self/fd") if is_open(int(name))]
    return blob, next(number for number in numbers if os.path.samestat(os.fstat(number), path.stat()))


def a_descriptor_of_a_blob(path: Path) -> tuple[object, int]:
    blob = fsabs.Local(path.parent)._open_blob(path.as_posix()[1:])
    return blob, blob.fileno()


@pytest.mark.parametrize("make", [a_list, a_blob, a_descriptor_of_a_blob])
def test_a_signal_in_the_moment_of_freeing_keeps_nothing_open(
    make: Callable[[Path], tuple[object, int]], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(5000))
    owner, number = make(path)
    owners = [owner]
    del owner
    assert is_open(number)
    freed_with_a_pending_signal(owners)
    assert not is_open(number)


@pytest.mark.parametrize("own", [descriptors.own, PythonDescriptor])
def test_what_is_held_is_closed_once(
    own: Callable[[int], Descriptor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "own", own)
    held = HeldDescriptors()
    first = descriptors.open_into(held, str(tmp_path / "new"), os.O_CREAT | os.O_RDWR, 0o600)
    second = descriptors.duplicate_into(held, first)
    assert os.write(second, b"12") == 2
    assert os.pread(first, 5, 0) == b"12"
    assert not os.get_inheritable(first)
    assert not os.get_inheritable(second)
    kept = list(held)
    descriptors.close(held)
    assert (held, is_open(first), is_open(second)) == ([], False, False)
    reused = [os.open(tmp_path, os.O_RDONLY) for _ in range(2)]  # they have the numbers of those
    for descriptor in kept:
        descriptor.close()
    del kept[:], descriptor
    assert all(is_open(number) for number in reused)
    for number in reused:
        os.close(number)


@pytest.mark.parametrize("own", [descriptors.own, PythonDescriptor])
def test_a_list_that_is_dropped_closes_what_it_holds(
    own: Callable[[int], Descriptor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "own", own)
    held = HeldDescriptors()
    number = descriptors.open_into(held, str(tmp_path), os.O_RDONLY)
    del held
    assert not is_open(number)


def test_what_closing_a_written_file_reports_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldDescriptors()
    number = descriptors.open_into(held, str(tmp_path), os.O_RDONLY)
    close = os.close

    def full(other: int) -> None:
        close(other)
        assert other != number
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError) as caught:
        patch.setattr(os, "close", full)
        descriptors.close_written(held)
    assert caught.value.errno == errno.ENOSPC
    assert is_open(number)
    descriptors.close_written(held)
    assert (held, is_open(number)) == ([], False)


def test_a_written_file_is_closed_where_no_descriptor_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What closing would report is asked for by fsync then."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    held = HeldDescriptors()
    number = descriptors.open_into(held, str(tmp_path / "new"), os.O_CREAT | os.O_WRONLY, 0o600)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        descriptors.close_written(held)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (synced, is_open(number)) == ([number], False)
