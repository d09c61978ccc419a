"""Points inside of long frames: found wherever a block begins, kept for other processes, and right or not there."""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import pickle
import random
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fsabs
from fsabs import CorruptFileError, Local
from fsabs.backends import local
from fsabs.containers.tar import Tar, loading, points, streams
from fsabs.containers.tar.gz import GzDecoder, ResumedGz
from fsabs.core import identity
from fsabs.core.blobs import Blob
from fsabs.core.layers import LayerFS
from fsabs.disk import indexes

from .blocks import FOUND, MEMBERS, NOT_FOUND, PLAIN, blocks_of_xz, deflated, seeded, text
from .forks import all_end_well, forked
from .tarballs import contents, tarball

SPACING = 150_000


class Counting(LayerFS):
    """Counts the bytes that are read."""

    def __init__(self, inner: fsabs.FS) -> None:
        super().__init__(inner)
        self.read = 0

    def _open_blob(self, key: str) -> Blob:
        return _CountingBlob(self, key, self._inner._open_blob(key))


class _CountingBlob(Blob):
    def __init__(self, fs: Counting, key: str, blob: Blob) -> None:
        super().__init__(fs, key, blob.size, blob.version)
        self._fs = fs
        self._blob = blob

    def _pread(self, size: int, offset: int) -> bytes:
        self._fs.read += size
        return self._blob.pread(size, offset)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(identity, "TICK", -1)  # archives are opened as soon as they are written
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def _small_spacing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points.Points.__init__, "__defaults__", ((points.Point(0, 0),), SPACING))
    monkeypatch.setattr(loading, "SPACING", SPACING)
    monkeypatch.setattr(streams, "_PIECE", 64 * 1024)
    monkeypatch.setattr(streams, "_NEAR", 32 * 1024)
    monkeypatch.setattr(streams, "_FIRST_FETCH", 8 * 1024)


@functools.cache
def _compressed(kind: str) -> bytes:
    return {**FOUND, **NOT_FOUND}[kind](PLAIN)


def made(path: Path, kind: str) -> Path:
    """An archive written a while ago."""
    path.write_bytes(_compressed(kind))
    os.utime(path, (time.time() - 60,) * 2)
    return path


def opened(path: Path) -> tuple[Tar, Counting]:
    """The archive, and what counts the bytes."""
    fs = Counting(Local(path.parent))
    return Tar(fs, path.name), fs


def places(tar: Tar) -> list[points.Point]:
    """The points inside of frames that every process can start from."""
    assert tar._stream is not None
    return [point for point in tar._stream._points._points if point.how is not None]


def kept_points(cache: Path) -> list[Path]:
    return list((cache / "indexes").glob("tar-points-*"))


# ---- the right bytes


@pytest.mark.parametrize("kind", [*FOUND, *NOT_FOUND])
def test_members_in_any_order_are_what_tarfile_reads(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path / "a.tar.gz", kind)
    with tarfile.open(path) as peer:
        expected = {name: cast(io.BufferedReader, peer.extractfile(name)).read() for name in peer.getnames()}
    first, second = opened(path)[0], opened(path)[0]
    order = random.Random(kind)
    for tar in (first, second):
        assert bool(places(tar)) == (kind in FOUND)
        for name in order.sample(sorted(expected), len(expected)):
            assert tar.read_bytes(name) == expected[name]
            with tar._open_blob(name) as blob:
                offset, size = order.randrange(blob.size), order.randrange(50_000)
                assert blob.pread(size, offset) == expected[name][offset : offset + size]


@pytest.mark.parametrize("kind", FOUND)
def test_each_place_goes_on_to_the_end(tmp_path: Path, kind: str) -> None:
    """From each, through the rest of its frame and the frames behind."""
    tar = opened(made(tmp_path / "a.tar.gz", kind))[0]
    assert tar._stream is not None
    found = places(tar)
    assert len(found) >= 3
    for point in found[:: len(found) // 3] + found[-1:]:
        cursor = streams.Cursor(tar._reader(), tar._stream._codec, tar._stream._points, 0, point.out)
        assert cursor.position == point.out
        assert cursor.read(len(PLAIN)) == PLAIN[point.out :]


def test_blocks_begin_at_every_bit() -> None:
    data = text(2_000_000)
    member = deflated(6, memory=1)(data)
    decoder, out = GzDecoder(), 0
    bits: set[int] = set()
    feed = member
    while bits != set(range(8)):
        out += len(decoder.decode(feed, 10_000))
        feed = b""
        assert out < len(data)
        if (place := decoder.place_ahead(b"")) is not None:
            bits.add(place.how[0])
            found = ResumedGz.at(place.how).decode(member[len(member) + place.src :], 40_000)
            assert found == data[out + place.out :][: len(found)] != b""


PIECES = st.tuples(
    st.sampled_from([text, seeded.randbytes, bytes, lambda size: gzip.compress(text(size), 1)]),
    st.integers(1, 60_000),
    st.sampled_from([zlib.Z_NO_FLUSH, zlib.Z_PARTIAL_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH]),
)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    pieces=st.lists(PIECES, min_size=4, max_size=12),
    level=st.integers(0, 9),
    strategy=st.sampled_from([zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_RLE, zlib.Z_HUFFMAN_ONLY, zlib.Z_FIXED]),
    memory=st.integers(1, 9),
    fed=st.integers(1000, 100_000),
)
def test_a_place_is_right_or_is_not_found(
    pieces: list[tuple[Callable[[int], bytes], int, int]], level: int, strategy: int, memory: int, fed: int
) -> None:
    encoder, data, member = zlib.compressobj(level, zlib.DEFLATED, 31, memory, strategy), b"", b""
    for make, size, flush in pieces:
        data += (piece := make(size))
        member += encoder.compress(piece) + encoder.flush(flush)
    member += encoder.flush()
    decoder, at, out, tried = GzDecoder(), 0, 0, 0
    while not decoder.eof:
        piece = b""
        if decoder.needs_input:
            piece = member[at : at + fed]
            at += len(piece)
        out += len(decoder.decode(piece, 50_000))
        if out < tried:
            continue
        tried = out + 60_000
        if (place := decoder.place_ahead(member[at:])) is not None:
            resumed = ResumedGz.at(place.how)
            rest = member[at + place.src :] + b"more"
            found = resumed.decode(rest, 1 << 20)
            while not resumed.needs_input:
                found += resumed.decode(b"", 1 << 20)
            assert found == data[out + place.out :]
            assert resumed.eof
            assert resumed.unused == b"more"


@pytest.mark.quick
def test_a_block_may_refer_back_as_far_as_the_format_allows() -> None:
    window = seeded.randbytes(32 * 1024)
    # The last block, with fixed codes: 3 bytes from 32,768 bytes before, and the end.
    bits = "110" + "0000001" + "11101" + 13 * "1" + "0000000"
    block = int(bits[::-1], 2).to_bytes(5, "little")
    assert ResumedGz(0, window).decode(block, 100) == window[:3]


@pytest.mark.quick
def test_the_last_block_is_no_place() -> None:
    """Behind it comes the trailer, and a decoder that starts there doesn't know it for the last."""
    data = seeded.randbytes(140_000)
    decoder = GzDecoder()
    member = gzip.compress(data, 0)
    assert decoder.decode(member[:70_000], 60_000)
    assert decoder.place_ahead(member[70_000:]) is None


# ---- other processes

READ_ONE = """
import json, sys
from fsabs import Local
from tests.containers.test_tar_points import Counting
from fsabs.containers.tar import Tar
fs = Counting(Local(sys.argv[1]))
data = Tar(fs, "a.tar.gz").read_bytes(sys.argv[2])
print(json.dumps([fs.read, data[:1000].hex(), len(data)]))
"""


@pytest.mark.parametrize("kind", ["gz", "xz"])
def test_a_new_process_reads_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """With the distances and sizes that are usual: a member in the middle, and not the half before it."""
    monkeypatch.undo()
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(identity, "TICK", -1)
    members = {f"{at:02}": seeded.randbytes(300_000) + bytes(1_700_000) for at in range(14)}
    plain, path = tarball(members), tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(plain, 1) if kind == "gz" else blocks_of_xz(plain))
    os.utime(path, (time.time() - 60,) * 2)
    _, fs = opened(path)
    assert fs.read >= path.stat().st_size
    done = subprocess.run(
        [sys.executable, "-c", READ_ONE, str(tmp_path), "07"], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    read, start, size = json.loads(done.stdout)
    assert (start, size) == (members["07"][:1000].hex(), 2_000_000)
    assert 300_000 < read < path.stat().st_size / 3


@pytest.mark.quick
def test_a_pickle_finds_the_points_again(tmp_path: Path) -> None:
    """A worker that is spawned gets one."""
    tar = opened(made(tmp_path / "a.tar.gz", "usual"))[0]
    pickled = pickle.dumps(tar)
    assert len(pickled) < 10_000
    twin = pickle.loads(pickled)
    assert [point[:2] for point in places(twin)] == [point[:2] for point in places(tar)] != []
    twin._parent.read = 0
    assert twin.read_bytes("folder0/member12") == MEMBERS["folder0/member12"]
    assert twin._parent.read < tar._reader().size / 4


@pytest.mark.quick
def test_parent_and_forked_children_read_from_the_same_points(tmp_path: Path) -> None:
    made(tmp_path / "a.tar.gz", "usual")
    opened(tmp_path / "a.tar.gz")
    tar, fs = opened(tmp_path / "a.tar.gz")
    size = tar._reader().size

    def right(seed: int) -> bool:
        fs.read = 0
        names = random.Random(seed).sample(sorted(MEMBERS), 2)
        return [tar.read_bytes(name) for name in names] == [MEMBERS[name] for name in names] and fs.read < 0.6 * size

    assert right(0)
    with tar.open("folder0/member09", "rb") as file:
        assert file.read(100_000) == MEMBERS["folder0/member09"][:100_000]
        children = [forked(lambda: right(1)), forked(lambda: file.read() == MEMBERS["folder0/member09"][100_000:])]
        assert right(2)
        assert file.read() == MEMBERS["folder0/member09"][100_000:]
        assert all_end_well(*children)


# ---- what is kept


@pytest.mark.quick
def test_few_members_are_kept_too_where_much_is_decoded(tmp_path: Path, cache: Path) -> None:
    opened(made(tmp_path / "a.tar.gz", "usual"))
    assert kept_points(cache)
    _, fs = opened(tmp_path / "a.tar.gz")
    assert fs.read == 0


@pytest.mark.quick
def test_nothing_is_kept_where_the_user_wants_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSABS_CACHE_DIR", "")
    tar = opened(made(tmp_path / "a.tar.gz", "usual"))[0]
    assert all(isinstance(point.how, bytes) for point in places(tar))
    assert len(pickle.dumps(tar)) < 10_000
    for name in reversed(MEMBERS):
        assert tar.read_bytes(name) == MEMBERS[name]


@pytest.mark.quick
def test_points_that_are_gone_are_made_again(tmp_path: Path, cache: Path) -> None:
    opened(made(tmp_path / "a.tar.gz", "usual"))
    for path in kept_points(cache):
        path.unlink()
    tar = opened(tmp_path / "a.tar.gz")[0]
    assert places(tar) == []
    for name in reversed(MEMBERS):
        assert tar.read_bytes(name) == MEMBERS[name]
    assert len(places(tar)) > 3


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("part", ["head", "rows", "windows", "end"])
def test_damaged_points_are_as_good_as_none(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool, part: str
) -> None:
    monkeypatch.setattr(indexes, "SMALL", 0 if mapped else 1 << 30)
    tar = opened(made(tmp_path / "a.tar.gz", "usual"))[0]
    (kept,) = kept_points(cache)
    data = bytearray(kept.read_bytes())
    start = indexes._start(indexes._HEAD.unpack_from(data)[2])
    rows, behind = start + 16, start + 16 + 24 * len(places(tar))
    for at in {
        "head": range(8, start, 10),
        "rows": range(rows + 8, behind, 24),
        "windows": range(start + indexes.BLOCK, len(data) - 200, 300),
        "end": (),
    }[part]:
        data[at] ^= 0x10
    kept.unlink()  # it is mapped
    kept.write_bytes(data if part != "end" else data[:-100])
    kept.chmod(0o600)
    tar = opened(tmp_path / "a.tar.gz")[0]
    assert bool(places(tar)) == (mapped and part == "windows")  # which are looked at when they are needed
    for name in reversed(MEMBERS):
        assert tar.read_bytes(name) == MEMBERS[name]


def test_windows_take_little(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the usual spacing: what is kept grows with what the file is compressed to."""
    monkeypatch.undo()
    monkeypatch.setenv("FSABS_CACHE_DIR", str(cache))
    monkeypatch.setattr(identity, "TICK", -1)
    for name, data in (("a", seeded.randbytes(9_000_000)), ("b", text(3_000_000) * 3)):
        path = tmp_path / f"{name}.tar.gz"
        path.write_bytes(gzip.compress(tarball({"x": data}), 1))
        os.utime(path, (time.time() - 60,) * 2)
        assert places(opened(path)[0])
        assert max(kept_points(cache), key=os.path.getmtime).stat().st_size < path.stat().st_size * 0.02


def test_the_spacing_is_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opens a file with many points does not fill up what was left out."""
    monkeypatch.setattr(points, "MAX_POINTS", 8)
    tar = opened(made(tmp_path / "a.tar.gz", "usual"))[0]
    count = len(places(tar))
    assert 2 <= count <= 8
    tar = opened(tmp_path / "a.tar.gz")[0]
    assert contents(tar) == MEMBERS
    assert len(places(tar)) == count


def test_where_no_blocks_are_found_no_more_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, searches, search = made(tmp_path / "a.tar.gz", "one block"), [], GzDecoder.place_ahead

    def counted(self: GzDecoder, following: bytes) -> object:
        searches.append(following)
        return search(self, following)

    monkeypatch.setattr(GzDecoder, "place_ahead", counted)
    tar = opened(path)[0]
    assert tar._stream is not None
    assert len(searches) == 3 < len(tar._stream._points)


# ---- damage


@pytest.mark.parametrize("kind", ["stored", "usual", "members"])
def test_damage_is_found_by_the_pass_that_looks_ahead(tmp_path: Path, kind: str) -> None:
    data = _compressed(kind).rstrip(b"\0")
    order = random.Random(kind)
    for _ in range(12):
        at = order.randrange(len(data))
        for bad in (data[:at], data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]):
            (tmp_path / "a.tar.gz").write_bytes(bad)
            if 3 < at % len(data) < 10:  # a header's time and system
                continue
            with pytest.raises(CorruptFileError):
                opened(tmp_path / "a.tar.gz")


@pytest.mark.quick
def test_damage_behind_a_point_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_version", lambda status: "the same")  # as a disk would do it: nothing tells of it
    monkeypatch.setattr(Local, "_is_settled", lambda fs, version: True)
    path = made(tmp_path / "a.tar.gz", "usual")
    opened(path)
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(before.st_size // 2)
        file.write(b"\xff" * (before.st_size // 4))
    tar = opened(path)[0]
    assert len(places(tar)) > 3
    with pytest.raises(CorruptFileError) as caught:
        tar.read_bytes("folder1/member10")
    assert "a.tar.gz" in caught.value.filename
    assert tar.read_bytes("folder0/member00") == MEMBERS["folder0/member00"]


# ---- bounds


def test_no_more_is_decoded_ahead_than_is_sensible() -> None:
    """A block of zeros may stand for the thousandfold."""
    import tracemalloc

    data = gzip.compress(bytes(60_000_000), 9)
    decoder = GzDecoder()
    decoder.decode(data[:2000], 100_000)
    tracemalloc.start()
    assert decoder.place_ahead(data[2000:]) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000


@pytest.mark.quick
def test_a_copied_state_holds_on_to_little() -> None:
    decoder = GzDecoder()
    decoder.decode(gzip.compress(seeded.randbytes(4_000_000)), 100_000)
    copied = decoder.copy()
    assert copied is not None
    assert len(cast(GzDecoder, copied[0])._state.unconsumed_tail) <= 64 * 1024
