"""Members that hold nothing: opening one looks at what no read of it would."""

from __future__ import annotations

import zlib

import pytest

from fsabs import CorruptFileError

from .zips import Made, by_hand, opened, packed

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (Made(b"x", crc=7), "CRC-32"),
        (packed("x", b"", crc=7), "CRC-32"),
        (Made(b"x", local={"name": b"other"}), "not the name in the directory"),
        (Made(b"x", local={"signature": b"PK\0\0"}), "no local header"),
        (Made(b"x", b"data", size=0, compressed=0, crc=zlib.crc32(b"data")), "CRC-32"),
    ],
)
def test_an_empty_member_that_is_not_right(member: Made, reason: str) -> None:
    archive = opened(by_hand([Made(b"fine", b"data"), member, Made(b"empty")]))
    with pytest.raises(CorruptFileError, match=reason) as caught, archive.open("x", "rb") as file:
        file.read()
    assert caught.value.filename == archive.url("x")
    assert [(problem.path, problem.kind) for problem in archive.verify()] == [("x", "damaged")]
    with archive.open("empty", "rb") as file:
        assert file.read() == b""
