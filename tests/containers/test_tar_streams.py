"""Compressed tars: reading anywhere, from several places at once, in threads, forked children and after pickling."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import pickle
import random
import sys
import tarfile
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from fsabs import CorruptFileError, Limits, Local, Memory
from fsabs.containers import decoding
from fsabs.containers.decoding import Cursor, Decoder, SeekPoint, SeekPoints
from fsabs.containers.tar import Tar
from fsabs.containers.tar.compression import codec_of_name

from .conftest import decode_by_steps
from .forks import all_end_well, forked
from .stores import CountingFS
from .tarballs import COMPRESS, opened, tarball

KINDS = ["none", "gz", "bz2", "xz", "zst"]
_random = random.Random(7)
BIG = {f"m{i:02}": _random.randbytes(6_000) * 8 + bytes(27_000) for i in range(24)}
PLAIN = tarball(BIG)
FRAMES: dict[str, Callable[[bytes], bytes]] = {
    **COMPRESS,
    "gz": lambda data: gzip.compress(data, 1),
    "bz2": lambda data: bz2.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zst": zstandard.ZstdCompressor(level=1).compress,
}


@pytest.fixture(scope="module", params=KINDS)
def archive(request: pytest.FixtureRequest) -> bytes:
    return FRAMES[request.param](PLAIN)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    decode_by_steps(monkeypatch, 20)
    monkeypatch.setitem(sys.modules, "indexed_gzip.indexed_gzip", None)  # see test_tar_points.py


def test_members_and_their_parts_in_any_order(archive: bytes) -> None:
    tar = opened(archive)
    order = random.Random(1)
    for name in order.sample(sorted(BIG), len(BIG)):
        assert tar.read_bytes(name) == BIG[name]
    with tar.open_blob("m05") as first, tar.open_blob("m20") as second:
        for _ in range(30):
            name, blob = order.choice([("m05", first), ("m20", second)])
            size, offset = order.randrange(20_000), order.randrange(80_000)
            assert blob.pread(size, offset) == BIG[name][offset : offset + size]
    wanted = [*sorted(BIG, reverse=True), "m03", "m03"]
    assert list(tar.read_many(wanted)) == [BIG[name] for name in wanted]
    found = tar.read_many(["m02", "m01", "nothing", "m00"])
    assert [next(found), next(found)] == [BIG["m02"], BIG["m01"]]
    with pytest.raises(FileNotFoundError) as caught:
        next(found)
    assert caught.value.filename == "memory:///a.tar/nothing"


def test_a_read_that_fails_in_a_batch_is_raised_in_its_turn() -> None:
    class Failing(Tar):
        def _read_member(self, key: str) -> bytes:
            if key == "m01":
                raise TimeoutError("gone")
            return super()._read_member(key)

    tar = Failing(opened(FRAMES["gz"](PLAIN)).parent, "a.tar")
    found = tar.read_many(["m02", "m03", "m01", "m00"])
    assert [next(found), next(found)] == [BIG["m02"], BIG["m03"]]
    with pytest.raises(TimeoutError) as caught:
        next(found)
    assert caught.value.filename == "memory:///a.tar/m01"


def test_threads_read_members(archive: bytes) -> None:
    tar = opened(archive)
    failures: list[str] = []

    def read(seed: int) -> None:
        order = random.Random(seed)
        for name in order.sample(sorted(BIG), 4):
            with tar.open(name, "rb") as file:
                file.seek(offset := order.randrange(75_000))
                if file.read() != BIG[name][offset:]:
                    failures.append(name)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_half_read_members_go_on_in_parent_children_and_pickles(archive: bytes) -> None:
    tar = opened(archive)
    files = {name: tar.open(name, "rb") for name in ("m01", "m10", "m22")}
    for name, file in files.items():
        assert file.read(45_000) == BIG[name][:45_000]
    copies = pickle.loads(pickle.dumps((tar, files)))

    def go_on(tar: Tar = tar, files: dict[str, object] = files) -> bool:  # type: ignore[assignment]
        rest = {name: file.read() for name, file in reversed([*files.items()])}  # type: ignore[attr-defined]
        return all(data == BIG[name][45_000:] for name, data in rest.items()) and tar.read_bytes("m07") == BIG["m07"]

    children = [forked(go_on) for _ in range(2)]
    assert go_on()
    assert all_end_well(*children)
    assert go_on(*copies)


@pytest.mark.parametrize("kind", ["none", "xz", pytest.param("gz", marks=pytest.mark.nightly)])
def test_a_fork_while_threads_read(kind: str) -> None:
    tar = opened(FRAMES[kind](PLAIN))
    stop = threading.Event()

    def read(seed: int) -> None:
        order = random.Random(seed)
        while not stop.is_set():
            tar.read_bytes(order.choice(sorted(BIG)))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for i in range(4):
            names = [f"m{i:02}", f"m{23 - i:02}"]
            assert all_end_well(
                forked(lambda names=names: [tar.read_bytes(name) for name in names] == [BIG[name] for name in names])  # type: ignore[misc]
            )
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_many_frames(kind: str) -> None:
    data = b"".join(FRAMES[kind](PLAIN[at : at + 150_000]) for at in range(0, len(PLAIN), 150_000))
    if kind == "zst":  # as pzstd writes them
        data = b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + data
    tar = opened(data)
    assert tar.compression == kind
    for name in sorted(BIG, reverse=True):
        assert tar.read_bytes(name) == BIG[name]
    assert pickle.loads(pickle.dumps(tar)).read_bytes("m12") == BIG["m12"]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_short_frames_cost_what_they_are(kind: str) -> None:
    """A decoder is not given all that lies behind its frame, to give it back: that took the square of the frames."""
    frame, fed = FRAMES[kind](b"x" * 100), 0
    codec = codec_of_name(kind).codec

    def counted() -> Decoder:
        decoder = codec.decoder()
        decode = decoder.decode

        def count(data: bytes, limit: int) -> bytes:
            nonlocal fed
            fed += len(data)
            return decode(data, limit)

        decoder.decode = count  # type: ignore[method-assign]
        return decoder

    fs = Memory()
    fs.write_bytes("x", frame * 3000 + bytes(5000))
    with fs.open_blob("x") as blob:
        cursor = Cursor(blob, codec._replace(decoder=counted), SeekPoints())
        assert cursor.read(400_000) == b"x" * 300_000
        assert cursor.trailing == ""
    assert fed < 3000 * (8000 + len(frame))


def counted(kind: str) -> tuple[Tar, CountingFS, int]:
    """An archive that was opened, what counts the bytes that are read from now on, and its size."""
    store = CountingFS(opened(FRAMES[kind](PLAIN)).parent)
    tar = Tar(store, "a.tar")
    store.taken()
    return tar, store, store.stat("a.tar").size


def test_gz_starts_again_at_a_point_and_not_at_the_beginning() -> None:
    tar, store, size = counted("gz")
    for name in ("m23", "m12", "m22", "m02"):
        assert tar.read_bytes(name) == BIG[name]
    assert store.fetched < size
    store.taken()  # a child inherits the points
    assert all_end_well(forked(lambda: tar.read_bytes("m20") == BIG["m20"] and store.fetched < size / 4))


def test_two_readers_side_by_side_do_not_send_a_decoder_back_and_forth() -> None:
    tar, store, size = counted("xz")
    with tar.open_blob("m03") as first, tar.open_blob("m15") as second:
        for at in range(0, 75_000, 2_500):
            assert first.pread(2_500, at) == BIG["m03"][at : at + 2_500]
            assert second.pread(2_500, at) == BIG["m15"][at : at + 2_500]
    assert store.fetched < 2.5 * size


def test_points_are_bounded_and_spread() -> None:
    found = SeekPoints(spacing=10)
    for at in range(10, 100_000, 10):
        found.add(SeekPoint(at, at))
    assert len(found) <= decoding.MAX_POINTS
    assert max(at - found.before(at).out for at in range(0, 100_000, 7)) <= 320
    assert found.before(5).out == 0


def test_a_state_that_is_copied_at_the_fork_is_not_used_by_the_child() -> None:
    """The child would wait for a lock of the state that a thread of its parent has."""

    class Slow(decoding.Inflate):
        def copy(self) -> None:
            copying.set()
            assert forking.wait(40)

    copying, forking = threading.Event(), threading.Event()
    codec = decoding.Codec("slow", "slow", lambda: Slow(31))
    points = SeekPoints([SeekPoint(0, 0), SeekPoint(100, 50, state=Slow(31))])

    def copy() -> None:
        with contextlib.suppress(AssertionError):
            points.start(200, codec)

    thread = threading.Thread(target=copy)
    thread.start()
    assert copying.wait(40)
    child = forked(lambda: points.start(200, codec)[0] == SeekPoint(0, 0))
    forking.set()
    thread.join()
    assert all_end_well(child)
    assert len(points) == 2


def test_a_changed_file_is_not_read_on(tmp_path: Path) -> None:
    fs = Local(tmp_path)
    fs.write_bytes("a.tar", FRAMES["gz"](PLAIN))
    pickled = pickle.dumps(Tar(fs, "a.tar"))
    fs.write_bytes("a.tar", FRAMES["gz"](PLAIN))
    with pytest.raises(OSError, match="changed"):
        pickle.loads(pickled)


def test_a_bomb_takes_time_and_no_memory() -> None:
    info = tarfile.TarInfo("zeros")
    info.size = 40_000_000
    encoder = bz2.BZ2Compressor(9)
    data = encoder.compress(info.tobuf()) + b"".join(encoder.compress(bytes(1 << 20)) for _ in range(39))
    data += encoder.flush()
    assert len(data) < 1000
    tracemalloc.start()
    try:
        tar = opened(data, limits=Limits(max_ratio=None))
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 15_000_000
    with tar.open("zeros", "rb") as file:
        file.seek(30_000_000)
        assert file.read(5) == bytes(5)


def test_a_wrong_frame_in_the_middle_names_the_offset() -> None:
    first = FRAMES["gz"](PLAIN[:150_000])
    bad = bytearray(FRAMES["gz"](PLAIN[150_000:]))
    bad[len(bad) // 2] ^= 0x10
    with pytest.raises(CorruptFileError, match=r"offset \d+") as caught:
        opened(first + bytes(bad))
    assert caught.value.filename == "memory:///a.tar"
