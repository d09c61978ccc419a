"""Tar, damaged: cut at any byte, flipped, swapped. Never wrong bytes, never silence, always the URL."""

from __future__ import annotations

import errno
import io
import itertools
import pickle
import random
import tarfile

import pytest

from fsabs import CorruptFileError

from .tarballs import COMPRESS, contents, entry, opened, tarball

LONG = "long/" * 25 + "name"
WHOLE = {"a": b"alpha" * 30, "d/b": bytes(700), LONG: b"with an extended header", "z": b"end"}


def _small() -> bytes:
    data = tarball(WHOLE)
    return data[: len(data.rstrip(b"\0")) + 512 - len(data.rstrip(b"\0")) % 512 + 1024]


def _check_error(error: CorruptFileError) -> None:
    assert error.filename == "memory:///a.tar"
    assert error.errno == errno.EBADMSG
    assert "offset" in str(error) or "empty" in str(error)


def _boundaries(data: bytes) -> set[int]:
    """Where a plain tar may be cut with no member lost in part: behind each member, and behind the first end block."""
    ends = set(range(len(data) - 512, len(data)))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            ends.add(member.offset_data + member.size + -member.size % 512)
    return ends


def test_a_plain_tar_cut_at_any_byte() -> None:
    data = _small()
    boundaries = _boundaries(data)
    assert len(boundaries) == len(WHOLE) + 512
    for size in range(len(data)):
        if not any(data[max(size - 8, 0) : size + 8]) and 1 < size % 16 < 15:
            continue  # in the middle of zeros, a cut is as the one beside it
        if size in boundaries:
            tar = opened(data[:size])
            found = contents(tar)
            assert found.items() <= WHOLE.items()
            assert [p.kind for p in tar.verify()] == ["no end"]
            continue
        with pytest.raises(CorruptFileError) as caught:
            opened(data[:size])
        _check_error(caught.value)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_a_compressed_tar_cut_at_any_byte(kind: str) -> None:
    data = COMPRESS[kind](_small())
    assert contents(opened(data)) == WHOLE
    for size in range(len(data)):
        with pytest.raises(CorruptFileError) as caught:
            opened(data[:size])
        _check_error(caught.value)


@pytest.mark.parametrize("kind", ["bz2", "zst", pytest.param("gz", marks=pytest.mark.nightly)])
def test_a_tar_of_many_frames_cut_at_any_byte(kind: str) -> None:
    plain = _small()
    data = b"".join(COMPRESS[kind](plain[at : at + 1000]) for at in range(0, len(plain), 1000))
    assert contents(opened(data)) == WHOLE
    for size in range(len(data)):
        try:
            tar = opened(data[:size])
        except CorruptFileError as exc:
            _check_error(exc)
        else:  # cut between two frames, and there between two members or in the zeros at the end
            problems = {p.kind for p in tar.verify()}
            assert contents(tar).items() <= WHOLE.items()
            assert problems <= {"no end", "trailing data"}
            if "trailing data" in problems:
                assert contents(tar) == WHOLE


def test_every_flipped_byte_of_a_header_is_found_or_harmless() -> None:
    data = tarball({"a": b"1", "b": b"2"}, tarfile.USTAR_FORMAT)
    for at, flip in zip((*range(512), *range(1024, 1536)), itertools.cycle((0x01, 0x80, 0xFF)), strict=False):
        bad = bytearray(data)
        bad[at] ^= flip
        try:
            found = contents(opened(bytes(bad)))
        except CorruptFileError as exc:
            _check_error(exc)
        else:
            assert found == {"a": b"1", "b": b"2"}
            assert 148 <= at % 1024 < 156  # the checksum itself, which can be written in several ways


def test_a_wrong_checksum_names_the_offset() -> None:
    data = bytearray(tarball({"a": b"1", "b": b"2", "c": b"3"}))
    data[1024] ^= 1
    with pytest.raises(CorruptFileError, match="wrong checksum of a tar header: .* at offset 1024"):
        opened(bytes(data))


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_a_flipped_byte_of_a_compressed_tar_is_found_or_harmless(kind: str) -> None:
    data = COMPRESS[kind](_small())
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 0x55
        try:
            found = contents(opened(bytes(bad)))
        except CorruptFileError as exc:
            _check_error(exc)
        else:  # a time, a system or a name in the frame's header
            assert found == WHOLE


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_block_of_zeros_amid_the_members_is_no_end(kind: str) -> None:
    data = tarball({"a": b"1", "b": b"2", "c": b"3"})
    for following in (data[1536:], data[2048:], b"x" * 5120 + data[2048:]):
        with pytest.raises(CorruptFileError, match="zeros in place of a header, at offset 1024"):
            opened(COMPRESS[kind](data[:1024] + bytes(512) + following))


@pytest.mark.parametrize("kind", COMPRESS)
def test_one_block_of_zeros_and_padding_are_an_end(kind: str) -> None:
    for padding in (b"", bytes(100), bytes(511) + b"\n", b"x", b"padding" * 1000):
        data = _small()[:-1024] + bytes(512) + padding
        tar = opened(COMPRESS[kind](data))
        assert contents(tar) == WHOLE
        odd = ["no end", "trailing data"] if padding.strip(b"\0") else ["no end"]
        assert [p.kind for p in tar.verify()] == odd
        with tarfile.open(fileobj=io.BytesIO(data)) as theirs:
            assert theirs.getnames() == list(WHOLE)
        behind = opened(COMPRESS[kind](data) + b"rubbish")
        assert contents(behind) == WHOLE
        assert [p.kind for p in behind.verify()] == ["no end", "trailing data"]


@pytest.mark.parametrize("kind", COMPRESS)
def test_what_is_no_tar(kind: str) -> None:
    for data in (b"", b"x", b"PK\x03\x04" + bytes(600), random.Random(1).randbytes(5000), b"\n" * 1024, b"\x80" * 1024):
        with pytest.raises(CorruptFileError, match="not a tar|ends at offset 1"):
            opened(COMPRESS[kind](data))


def test_a_size_beyond_the_archive() -> None:
    data = tarball([(entry("x"), b"1")])
    with pytest.raises(CorruptFileError, match="'x' in it goes on to offset 2048"):
        opened(data[:1024] + data[:512])
    lie = bytearray(tarball([(entry("x"), b"1")], tarfile.USTAR_FORMAT))
    lie[124:136] = b"77777777777\0"
    lie[148:156] = b"%06o\0 " % (sum(lie[:148]) + 256 + sum(lie[156:512]))
    with pytest.raises(CorruptFileError, match="'x' in it goes on to offset 8589935"):
        opened(bytes(lie))


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_rubbish_behind_a_compressed_tar(kind: str) -> None:
    plain = _small()
    data = COMPRESS[kind](plain)
    assert opened(data + bytes(5000)).verify() == []
    for rest in (b"rubbish", bytes(100) + b"x", b"x" * 300_000):
        tar = opened(data + rest)
        assert contents(tar) == WHOLE
        assert [p.kind for p in tar.verify()] == ["trailing data"]
        assert contents(pickle.loads(pickle.dumps(tar))) == WHOLE
    with pytest.raises(CorruptFileError, match="ends in the middle|bad .* data"):
        opened(data + data[: len(data) // 2])
    for cut in (*sorted(_boundaries(plain))[: len(WHOLE)], 700):  # in place of the next frame: it may have been members
        for rest in (b"rubbish", bytes(100) + b"x"):
            with pytest.raises(CorruptFileError, match="bytes behind the .* data that are no frame") as caught:
                opened(COMPRESS[kind](plain[:cut]) + rest)
            _check_error(caught.value)
