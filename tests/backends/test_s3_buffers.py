"""The buffers of large bodies: the bytes that were filled, without a copy, in huge pages where the system has them."""

from __future__ import annotations

import ctypes
import gc
import re
import weakref
from pathlib import Path

import numpy as np
import pytest

from fsabs.backends.s3.buffers import MIN_ADVISED, BodyBuffer

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("size", [0, 2, 5000, MIN_ADVISED - 1, MIN_ADVISED, MIN_ADVISED + 12_345])
def test_the_bytes_are_those_that_were_filled(size: int) -> None:
    buffer = BodyBuffer(size)
    assert len(buffer.view) == size
    for start in range(0, size, 1 << 20):
        part = buffer.view[start : start + (1 << 20)]
        part[:] = bytes([start >> 20 & 255]) * len(part)
        part.release()
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer.view)) if size else 0
    content = buffer.release()
    assert type(content) is bytes
    assert len(content) == size
    assert not size or np.frombuffer(content, np.uint8).ctypes.data == address, "it was copied"
    assert all(content[start] == start >> 20 & 255 for start in range(0, size, 1 << 20))


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="a kernel without huge pages")
def test_large_ones_ask_for_huge_pages() -> None:
    buffer = BodyBuffer(MIN_ADVISED)
    assert "hg" in _flags(ctypes.addressof(ctypes.c_char.from_buffer(buffer.view)) + MIN_ADVISED // 2)
    buffer.release()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_one_that_is_given_up_with_its_views_is_freed_silently() -> None:
    class Failure(Exception):
        """Refers to a buffer, to a view of it, and to itself."""

    failure = Failure()
    buffer = BodyBuffer(5000)
    failure.__dict__ |= {"itself": failure, "buffer": buffer, "part": buffer.view[10:20]}
    freed = weakref.ref(buffer)
    del buffer, failure
    gc.collect()
    assert freed() is None


def _flags(address: int) -> list[str]:
    """Return the flags of the mapping that an address lies in (proc(5), `VmFlags`)."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            found = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif found and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise AssertionError(f"no mapping has {address:x}")
