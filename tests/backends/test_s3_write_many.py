"""Files written to S3: all contents arrive, the caller's iterable stays in its thread, and a failure ends the call."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from fsabs.backends.objects import writing
from fsabs.backends.s3 import S3
from tests.backends.s3_clients import opened
from tests.servers.hostile_store import Answer, HostileStore, Request, error

pytestmark = pytest.mark.timeout(60)
SIZE = 512 * 1024
COUNT = 100


class RefusingStore(HostileStore):
    """A store without faults that refuses to write some keys."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: tuple[str, ...] = ()

    def answer(self, request: Request) -> Answer:
        if request.method == "PUT" and request.key in self.refused:
            return error(403, "AccessDenied")
        return super().answer(request)


@pytest.fixture
def store() -> Iterator[RefusingStore]:
    with RefusingStore() as made:
        yield made


@pytest.fixture
def fs(store: RefusingStore, no_settings: None) -> S3:
    return opened(store.endpoint)


@pytest.mark.parametrize("size", [SIZE, writing.MAX_PIPELINED + 1])
def test_every_content_arrives(fs: S3, store: RefusingStore, size: int) -> None:
    contents = {f"{number}": os.urandom(size) for number in range(COUNT * SIZE // size)}
    threads = set()

    def pairs() -> Iterator[tuple[str, bytes]]:
        for pair in contents.items():
            threads.add(threading.get_ident())
            yield pair

    assert fs.write_many(pairs()) == len(contents)
    assert store.written == contents
    assert threads == {threading.get_ident()}


def test_no_content_is_taken_after_a_failure(fs: S3, store: RefusingStore) -> None:
    store.refused = tuple(f"{number}" for number in range(20, 25))
    taken = 0

    def pairs() -> Iterator[tuple[str, bytes]]:
        nonlocal taken
        for number in range(COUNT):
            taken += 1
            yield f"{number}", bytes([number % 251]) * SIZE

    with pytest.raises(PermissionError) as caught:
        fs.write_many(pairs(), concurrency=8)
    assert str(caught.value.filename).removeprefix("s3://bucket/") in store.refused
    assert taken < COUNT
    for key, data in store.written.items():
        assert data == bytes([int(key) % 251]) * SIZE


@pytest.mark.parametrize(("buffering", "seed"), [(-1, 0), (-1, 2), (-1, 5), (0, 3)])
def test_parts_are_what_was_written_in_any_pieces(buffering: int, seed: int, fs: S3, store: RefusingStore) -> None:
    """Of bytes, which may be sent as they are, and of memory that is used again, which may not; around all limits."""
    random, part = Random(seed), 5 << 20
    sizes = (0, 1, 1000, writing.SMALL_PIECE, writing.LARGE_PIECE, 1 << 20, part, 2 * part + 3)
    fs.part_size, expected = part, bytearray()
    with fs.open("key", "wb", buffering=buffering) as file:
        while len(expected) < seed * (4 << 20):
            data = random.randbytes(max(0, random.choice(sizes) + random.randrange(-1, 2)))
            expected += data
            memory = data if random.random() < 0.5 else bytearray(data)
            assert file.write(memory if random.random() < 0.7 else memoryview(memory)) == len(data)
            if isinstance(memory, bytearray):
                memory[:] = bytes(len(memory))
    assert fs.read_bytes("key") == expected


def test_threads_that_write_one_file_lose_nothing(fs: S3, store: RefusingStore) -> None:
    """Each call is one piece of the file, as of any buffered file; those of equal size are told from one another."""
    size, count = 300_000, 25
    with fs.open("key", "wb") as file, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: file.write(bytes([number]) * size), range(4 * count)))
    content = fs.read_bytes("key")
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    assert sorted(pieces) == [bytes([number]) * size for number in range(4 * count)]
