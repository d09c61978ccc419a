"""Sizes that no file has: refused where the archive is opened."""

from __future__ import annotations

import tarfile

import pytest

from fsabs import CorruptFileError, Limits

from .tarballs import entry, opened, tarball

pytestmark = pytest.mark.quick

TOO_MUCH = 2**63


@pytest.mark.parametrize("size", [TOO_MUCH, 2**64, 10**20 - 1])
def test_a_sparse_file_of_a_size_that_none_has(size: int) -> None:
    told = {"GNU.sparse.map": "", "GNU.sparse.realsize": str(size)}
    # as many members as make it worthwhile to keep the index, which has 64 bits for a size
    members = [(f"{n:02}", b"") for n in range(40)] + [(entry("sparse", pax_headers=told), b"")]
    with pytest.raises(CorruptFileError, match=str(size)) as caught:
        opened(tarball(members))
    assert caught.value.filename == "memory:///a.tar"


def test_an_old_sparse_file_of_a_size_that_none_has() -> None:
    head = bytearray(entry("sparse", b"S").tobuf(tarfile.GNU_FORMAT))
    head[483:495] = b"\x80" + (2**64).to_bytes(11, "big")
    head[148:156] = b"        "
    head[148:156] = b"%06o\0 " % sum(head)
    with pytest.raises(CorruptFileError, match="one that no file has"):
        opened(bytes(head) + bytes(1024))


def test_the_largest_size() -> None:
    told = {"GNU.sparse.map": "0,1", "GNU.sparse.realsize": str(TOO_MUCH - 1)}
    tar = opened(tarball([(entry("sparse", pax_headers=told), b"x")]), limits=Limits(max_ratio=None))
    assert tar.stat("sparse").size == TOO_MUCH - 1
    with tar.open("sparse", "rb") as file:
        assert file.read(3) == b"x\0\0"
        file.seek(TOO_MUCH - 3)
        assert file.read(10) == b"\0\0"
