"""Checks of processes and threads. One FS, one open file and one iterator are used from many threads at once; what is
open continues where it stood, in a forked child and its parent at once, and in a process that gets its pickle.
"""

from __future__ import annotations

import functools
import pickle
import random
import threading
import time
from collections.abc import Iterator
from typing import IO, Any, cast

from ..core.files import ReadFile
from ..core.fs import FS
from .asserts import assert_raises, assert_same, assert_tree, listed
from .children import Child, forked, results, start_threads, started, threaded
from .kit import check
from .subjects import Subject
from .trees import TREE, listing, noise, walked

_THREADS = 8
_DATA = noise(1_000_003)


def _positioned(file: ReadFile, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        size, offset = chance.randrange(1, 60_000), chance.randrange(len(_DATA))
        assert_same(file.raw.blob.pread(size, offset), _DATA[offset : offset + size])
    ranges = [(chance.randrange(1, 5000), chance.randrange(len(_DATA))) for _ in range(10)]
    expected = [_DATA[offset : offset + size] for size, offset in ranges]
    assert_same(file.raw.blob.pread_many(ranges), expected)


@check("threads")
def many_threads_read_one_file(subject: Subject) -> None:
    with subject.make({"data.bin": _DATA}) as fs, fs.open("data.bin", "rb") as file:
        threaded(
            "reading by position", [functools.partial(_positioned, file, n) for n in range(_THREADS)], subject.timeout
        )
        assert file.tell() == 0

        def read_in_turn() -> list[bytes]:
            return list(iter(lambda: file.read(10_007), b""))

        found = threaded("reading one file in turn", [read_in_turn] * _THREADS, subject.timeout)
        pieces = sorted(piece for part in found for piece in part)
        expected = sorted(_DATA[at : at + 10_007] for at in range(0, len(_DATA), 10_007))
        assert_same(pieces, expected)


@check("threads")
def many_threads_use_one_fs(subject: Subject) -> None:
    with subject.make({**TREE, "data.bin": _DATA}) as fs:

        def use(seed: int) -> None:
            for name in random.Random(seed).sample(list(TREE), 8):
                assert fs.read_bytes(name) == TREE[name]
                assert fs.stat(name).size == len(TREE[name])
            offset = seed * 1000
            with fs.open("data.bin", "rb") as file:
                file.seek(offset)
                assert_same(file.read(5000), _DATA[offset : offset + 5000])
            assert list(fs.read_many(TREE)) == list(TREE.values())
            assert listed(fs, recursive=True) == names

        names = listed(fs, recursive=True)
        threaded("using one FS", [functools.partial(use, n) for n in range(_THREADS)], subject.timeout)


@check("threads")
def many_threads_share_an_iterator(subject: Subject) -> None:
    files = {f"{n:02}.bin": b"%d" % n for n in range(80)}
    with subject.make(files) as fs:
        shared: list[tuple[Iterator[Any], list[Any]]] = [
            (fs.list(), list(files)),
            (fs.read_many(files), list(files.values())),
            (fs.glob("*"), list(files)),
        ]
        for iterator, expected in shared:
            takers = [functools.partial(_take_all, iterator)] * 4
            found = threaded("sharing an iterator", takers, subject.timeout)
            together = sorted(item for part in found for item in part)
            assert together == sorted(expected)


def _take_all(iterator: Iterator[Any]) -> list[Any]:
    return list(iterator)


@check("threads", needs=("live", "write"))
def many_threads_write_one_fs(subject: Subject) -> None:
    files = {f"{n}.bin": noise(100_000 * n) for n in range(_THREADS)}
    barrier = threading.Barrier(_THREADS)
    with subject.make({}) as fs:

        def write(name: str, data: bytes) -> None:
            barrier.wait(subject.timeout)
            _write_in_pieces(fs, name, data)

        functions = [functools.partial(write, name, data) for name, data in files.items()]
        threaded("writing to one FS", functions, subject.timeout)
        assert_tree(fs, files)
    assert_same(subject.contents(fs), files)


def _write_in_pieces(fs: FS, name: str, data: bytes) -> None:
    with fs.open(name, "wb", 4096) as file:
        for offset in range(0, len(data), 30_000):
            file.write(data[offset : offset + 30_000])


DATA = noise(1_000_003)
LINES = [f"line {n} of a text, ünïcödé\n" for n in range(5000)]
FILES = {**TREE, "data.bin": DATA, "lines.txt": "".join(LINES).encode()}


class HalfUsed:
    """Everything that can be open on an FS of `FILES`, each used halfway."""

    def __init__(self, fs: FS) -> None:
        self.fs = fs
        self.reader: IO[bytes] = fs.open("data.bin", "rb", 5000)
        self.text: IO[str] = fs.open("lines.txt", encoding="utf-8")
        self.iterators: dict[str, Iterator[Any]] = {
            "list": fs.list("", recursive=True),
            "detailed list": fs.list("", detail=True),
            "read_many": fs.read_many(FILES, concurrency=3),
            "glob": fs.glob("*/*"),
            "walk": fs.walk(),
        }
        self.reader.read(1234)
        next(self.text), self.text.readline()
        self.taken = {name: [next(iterator), next(iterator)] for name, iterator in self.iterators.items()}

    def rest(self) -> dict[str, Any]:
        """Return all that is left, and what the FS and the blob say when asked anew."""
        found: dict[str, Any] = {name: list(iterator) for name, iterator in self.iterators.items()}
        if not self.fs.capabilities.ordered:  # the rest is what makes it whole, whatever was taken first
            for name in ("list", "detailed list"):
                found[name] = sorted(self.taken[name] + found[name])[2:]
        found["detailed list"] = [stat.filename for stat in found["detailed list"]]
        found["reader"] = self.reader.read(10_000) + self.reader.read()
        found["text"] = list(self.text)
        found["pread"] = cast("ReadFile", self.reader).raw.blob.pread(100, 500_000)
        found["read_bytes"] = self.fs.read_bytes("foo/inside.txt")
        found["new reader"] = _first_line(self.fs)
        return found

    def close(self) -> None:
        """Close the files."""
        self.reader.close()
        self.text.close()


def _first_line(fs: FS) -> str:
    with fs.open("a.txt") as file:
        return file.readline()


def expected_rest() -> dict[str, Any]:
    """Return what `HalfUsed.rest` returns on an FS of `FILES`."""
    return {
        "list": listing(FILES)[2:],
        "detailed list": [name for name in listing(FILES) if "/" not in name[:-1]][2:],
        "read_many": list(FILES.values())[2:],
        "glob": ["foo/inside.txt", "numbers/10.txt", "numbers/9.txt"],
        "walk": walked(FILES)[2:],
        "reader": DATA[1234:],
        "text": LINES[2:],
        "pread": DATA[500_000:500_100],
        "read_bytes": TREE["foo/inside.txt"],
        "new reader": "first line\n",
    }


def same_rest(found: dict[str, Any], where: str) -> None:
    """Assert that what was left is `expected_rest()`."""
    for name, rest in expected_rest().items():
        what = f"the rest of a half-used {name}, in {where}"
        assert_same({what: found[name]}, {what: rest})


@check("fork", start_methods=("fork",))
def parent_and_children_go_on_at_once(subject: Subject) -> None:
    """Two rounds, with two children each."""
    with subject.make(FILES) as fs, fs.open("data.bin", "rb") as long:
        for number in (1, 2):
            half = HalfUsed(fs)
            place = long.tell()
            go_on = functools.partial(_go_on, half, long)
            children = [Child(f"child {at} of round {number}", go_on, subject.timeout) for at in (1, 2)]
            try:
                [mine] = threaded("the parent", [half.rest], subject.timeout)
                found = [child.result() for child in children]
            finally:
                for child in children:
                    child.kill()
            same_rest(mine, f"the parent, round {number}")
            for rest, further in found:
                same_rest(rest, f"a child of round {number}")
                assert_same(further, DATA[place:])
            assert_same(long.read(100_000), DATA[place : place + 100_000])
            half.close()
        assert_tree(fs, FILES)


def _go_on(half: HalfUsed, long: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    return half.rest(), long.read()


@check("fork", start_methods=("fork",))
def children_use_an_fs_that_is_unused(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        moved = fs.subfs("foo")
        moved.cwd = "deep"

        def child() -> list[bytes]:
            assert_tree(fs, TREE)
            return [moved.read_bytes("second.txt"), moved.read_bytes("../inside.txt")]

        expected = [TREE["foo/deep/second.txt"], TREE["foo/inside.txt"]]
        found = forked("a child that is the first to use an FS", [child] * 2, subject.timeout)
        assert found == [expected] * 2
        assert_tree(fs, TREE)


@check("fork", start_methods=("fork",))
def a_child_may_close_everything(subject: Subject) -> None:
    with subject.make(FILES) as fs:
        half = HalfUsed(fs)

        def close() -> None:
            half.close()
            half.iterators.clear()
            fs.close()

        forked("a child that closes what it inherited", [close] * 2, subject.timeout)
        same_rest(half.rest(), "the parent, whose child closed everything")
        half.close()


@check("fork", start_methods=("fork",))
def grandchildren_go_on(subject: Subject) -> None:
    with subject.make(FILES) as fs:
        half = HalfUsed(fs)

        def child() -> list[dict[str, Any]]:
            half.fs.read_bytes("a.txt")
            return forked("a grandchild", [half.rest], 0.7 * subject.timeout)

        for rests in forked("a child that forks", [child], subject.timeout):
            same_rest(rests[0], "a grandchild")
        half.close()


@check("fork-threads", start_methods=("fork",))
def forking_while_threads_read(subject: Subject) -> None:
    """Locks that a thread of the parent holds at the moment of the fork are the child's to find open."""
    with subject.make(FILES) as fs:
        half = HalfUsed(fs)
        reading, stop, rounds = threading.Event(), threading.Event(), threading.Semaphore(0)
        names = list(TREE)

        def read_on(number: int) -> None:
            blob = cast("ReadFile", half.reader).raw.blob
            while reading.wait(subject.timeout) and not stop.is_set():
                number = (number * 7919 + 13) % len(DATA)
                assert_same(blob.pread(100, number), DATA[number : number + 100])
                assert fs.read_bytes("foo.txt") == TREE["foo.txt"]
                list(fs.read_many(names[:4], concurrency=2))
                listed(fs, "foo")
                rounds.release()

        threads = start_threads("reading while others fork", [functools.partial(read_on, n) for n in range(4)])
        what = "a child forked while threads read"
        try:
            for number in range(4):
                reading.set()
                while rounds.acquire(blocking=False):
                    pass
                for _ in range(8):  # all are in the middle of it
                    assert rounds.acquire(timeout=subject.timeout), "threads that read have stopped"
                child = Child(f"{what}, round {number + 1}", half.rest, subject.timeout)
                reading.clear()  # only the moment of the fork counts
                try:
                    same_rest(child.result(), what)
                finally:
                    child.kill()
        finally:
            stop.set()
            reading.set()
            results("reading while others fork", threads, subject.timeout)
        same_rest(half.rest(), "the parent, after forking while threads read")
        half.close()


@check("fork-threads", start_methods=("fork",))
def forking_in_the_middle_of_a_walk(subject: Subject) -> None:
    """A directory that a thread of the parent was about to list is listed in the child, too, with all that is below."""
    with subject.make({"d/" * 40 + "x": b"x"}) as fs:
        everything = [path for path, _, _ in fs.walk()]
        for _ in range(5):
            walk, taken = fs.walk(), list[str]()
            thread = threading.Thread(target=_take, args=(walk, taken), daemon=True)
            thread.start()
            while len(taken) < 5 and thread.is_alive():
                time.sleep(0)
            what = "a child forked in the middle of a walk"
            [theirs] = forked(what, [functools.partial(_take, walk, taken)], subject.timeout)
            thread.join(subject.timeout)
            assert taken == everything
            # What the thread had just been given, and had not noted yet, can't be known to the child.
            missing = sorted(set(everything) - set(theirs))
            assert len(missing) <= 1, f"{what} never comes to {missing}"


def _take(walk: Iterator[tuple[str, list[str], list[str]]], taken: list[str]) -> list[str]:
    for path, _, _ in walk:
        taken.append(path)
    return taken


@check("fork", needs=("live", "write"), start_methods=("fork",))
def children_write(subject: Subject) -> None:
    """A store in the process's own memory keeps what a child writes from its parent; all others show it."""
    with subject.make({"a.txt": b"x"}) as fs:

        def write(name: str) -> list[str]:
            fs.write_bytes(name, DATA)
            assert_same(fs.read_bytes(name), DATA)
            return [path for path in listed(fs) if path in (name, "a.txt")]

        found = forked("a child that writes", [functools.partial(write, f"child {n}") for n in (1, 2)], subject.timeout)
        assert found == [["a.txt", "child 1"], ["a.txt", "child 2"]]
        fs.write_bytes("parent", DATA)
        stored = subject.files(fs)
    assert_same(stored.get("parent"), DATA)
    theirs = {key: data for key, data in stored.items() if key.startswith("child")}
    assert theirs in ({}, {"child 1": DATA, "child 2": DATA})


# ---- pickles


def _again(thing: Any, protocol: int = pickle.DEFAULT_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(thing, protocol))


@check("pickle-fs")
def an_fs_pickles(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            again: FS = _again(fs, protocol)
            with again:
                assert type(again) is type(fs)
                assert (again.url(), again.cwd) == (fs.url(), fs.cwd)
                assert again.capabilities == fs.capabilities
                assert again.read_bytes("foo/inside.txt") == TREE["foo/inside.txt"]
        used: FS = _again(fs)
        with used:
            assert_tree(used, TREE)
        assert_tree(fs, TREE)


@check("pickle-fs", "path-jail")
def a_pickle_keeps_root_and_cwd(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        sub = fs.subfs("foo")
        sub.cwd = "deep"
        again: FS = _again(sub)
        assert again.cwd == sub.cwd
        assert again.read_bytes("second.txt") == b"2"
        assert again.read_bytes("../inside.txt") == TREE["foo/inside.txt"]
        assert_raises(PermissionError, again.read_bytes, "../../a.txt")
        fs.cwd = "foo"
        with _again(fs) as moved:
            found = moved.read_bytes("inside.txt")
            assert found == TREE["foo/inside.txt"]
            assert moved.read_bytes("../a.txt") == TREE["a.txt"]


@check("pickle-fs", needs=("live", "write"))
def an_unpickled_fs_writes(subject: Subject) -> None:
    with subject.make({}) as fs, _again(fs) as again:
        again.write_bytes("a.txt", b"through the copy")
        reader = again if fs.capabilities.commits else fs
        assert reader.read_bytes("a.txt") == b"through the copy"
    assert_same(subject.files(fs), {"a.txt": b"through the copy"})


@check("pickle-reader")
def open_readers_pickle_with_their_position(subject: Subject) -> None:
    with subject.make(FILES) as fs:
        with fs.open("data.bin", "rb", 5000) as file:
            file.read(1234)
            again: IO[bytes] = _again(file)
            with again:
                assert again.tell() == 1234
                assert again.name == file.name
                assert_same(again.read(), DATA[1234:])
            assert_same(file.read(), DATA[1234:])
        for start in (_read_line, next):
            with fs.open("lines.txt", encoding="utf-8") as text:
                assert [start(text), start(text)] == LINES[:2]
                copy: IO[str] = _again(text)
                with copy:
                    begun = f"the rest of a text, begun by {start.__name__}"
                    assert_same({f"{begun}, of the copy": list(copy)}, {f"{begun}, of the copy": LINES[2:]})
                assert_same({begun: list(text)}, {begun: LINES[2:]})
        assert_raises(ValueError, pickle.dumps, file)


def _read_line(text: IO[str]) -> str:
    return text.readline()


@check("pickle-iterator")
def half_used_iterators_pickle(subject: Subject) -> None:
    with subject.make(FILES) as fs:
        half = HalfUsed(fs)
        again: HalfUsed = _again(half)
        same_rest(again.rest(), "a pickle's copy")
        same_rest(half.rest(), "what was pickled")
        again.close()
        half.close()
        for name, iterator in _again(half.iterators).items():
            assert list(iterator) == [], f"what is left of a used-up {name}, unpickled"


def _elsewhere(half: HalfUsed) -> dict[str, Any]:
    assert_tree(half.fs, FILES)
    rest = half.rest()
    half.close()
    return rest


@check("pickle-process", needs=("read", "shared"), slow=True, start_methods=("spawn",))
def spawned_processes_go_on(subject: Subject) -> None:
    _go_on_in("spawn", subject)


@check("pickle-process", needs=("read", "shared"), slow=True, start_methods=("forkserver",))
def processes_of_a_forkserver_go_on(subject: Subject) -> None:
    _go_on_in("forkserver", subject)


def _go_on_in(method: str, subject: Subject) -> None:
    with subject.make(FILES) as fs:
        half = HalfUsed(fs)
        rest = started(method, f"a process started by {method}", _elsewhere, (half,), subject.timeout + 20)
        same_rest(rest, f"a process started by {method}")
        same_rest(half.rest(), f"the parent of a process started by {method}")
        half.close()
