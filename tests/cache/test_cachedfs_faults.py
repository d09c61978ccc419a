"""CachedFS when things go wrong: processes killed while they fill it, a disk that is full, damage, removal; and many
processes at once. Never a wrong byte, never an error, one warning.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import multiprocessing
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsabs.backends.local import Local
from fsabs.cache import CachedFS, disk
from fsabs.core.blobs import Blob
from fsabs.core.layers import LayerFS
from fsabs.testing import children

FILES = 24
SIZE = 30_000


@functools.cache
def content(name: str) -> bytes:
    return random.Random(name).randbytes(SIZE)


NAMES = [f"{number:02}.bin" for number in range(FILES)]


@pytest.fixture
def store(tmp_path: Path) -> Local:
    local = Local(tmp_path / "store", create=True)
    for name in NAMES:
        local.write_bytes(name, content(name))
        os.utime(tmp_path / "store" / name, (1e9, 1e9))
    return local


def cached(store: Any, folder: object, **options: Any) -> CachedFS:
    known = {"memory_bytes": 0, "max_bytes": 10**8, "min_free": 0}
    return CachedFS(store, str(folder), **{**known, **options})


def blocks(store: Any, folder: object) -> CachedFS:
    return cached(store, folder, whole_file_size=0, block_size=8192)


def all_right(fs: CachedFS) -> None:
    """Every way to every file gives what is in it."""
    for name, data in zip(NAMES, fs.read_many(NAMES), strict=True):
        assert data == content(name), name
        assert fs.read_bytes(name) == content(name), name
        with fs.open(name, "rb") as file:
            assert file.read() == content(name), name


@contextlib.contextmanager
def at_most_one_warning() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    ours = [one for one in caught if one.category is not ResourceWarning]
    assert len(ours) <= 1, [str(one.message) for one in ours]


def entry_files(folder: Path) -> list[Path]:
    """The files of all entries."""
    return sorted(path for path in folder.glob("entries-1/??/*") if path.is_file())


# ---- killed


def _read_for_ever(fs: CachedFS, seed: int) -> None:
    chance = random.Random(seed)
    while True:
        name = chance.choice(NAMES)
        if fs.read_bytes(name) != content(name):
            os._exit(3)


@pytest.mark.parametrize("kind", [cached, blocks])
def test_killed_while_filling(store: Local, tmp_path: Path, kind: Callable[..., CachedFS]) -> None:
    """In a process that is small, since it forks often."""
    children.started("spawn", "filling and killing", _fill_and_kill, (store, tmp_path / "cache", kind), 55.0)


def _fill_and_kill(store: Local, folder: Path, kind: Callable[..., CachedFS]) -> None:
    """25 rounds of 3 processes in a small cache, each killed at a moment of chance."""
    make = functools.partial(kind, store, folder)
    chance = random.Random(1)
    for _ in range(25):
        fs = make()
        fs._files.contents()  # opened by all
        pids = []
        for seed in range(3):
            pid = os.fork()
            if not pid:
                with contextlib.suppress(BaseException):
                    _read_for_ever(fs, chance.randrange(1 << 30) + seed)
                os._exit(3)
            pids.append(pid)
        time.sleep(chance.random() * 0.02)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        if chance.random() < 0.2:
            fs.clear()
    begin = time.monotonic()
    all_right(make())
    assert time.monotonic() - begin < 30
    assert make().verify() == []


class Stuck(LayerFS):
    """Opening a file tells so, and takes for ever."""

    def __init__(self, inner: Local, told: int) -> None:
        super().__init__(inner)
        self._told = told

    def _open_blob(self, key: str) -> Blob:
        os.write(self._told, b"!")
        time.sleep(100)
        raise AssertionError("killed by now")

    def _open_from_start(self, key: str) -> Blob:
        return self._open_blob(key)

    def _read_bytes(self, key: str) -> bytes:
        return self._open_blob(key).read_all()

    def _read_many(self, wanted: Any, concurrency: int | None) -> Iterator[bytes]:
        return map(self._read_bytes, wanted)


def test_a_claim_ends_with_its_process(store: Local, tmp_path: Path) -> None:
    told, telling = os.pipe()
    fs = cached(Stuck(store, telling), tmp_path / "cache")
    pid = os.fork()
    if not pid:
        fs.read_bytes("00.bin")
        os._exit(0)
    os.read(told, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    begin = time.monotonic()
    assert cached(store, tmp_path / "cache").read_bytes("00.bin") == content("00.bin")
    assert time.monotonic() - begin < 25
    os.close(told)
    os.close(telling)


def test_a_claim_of_a_process_that_hangs_is_waited_for_so_long(store: Local, tmp_path: Path) -> None:
    told, telling = os.pipe()
    fs = cached(Stuck(store, telling), tmp_path / "cache")
    pid = os.fork()
    if not pid:
        fs.read_bytes("00.bin")
        os._exit(0)
    try:
        os.read(told, 1)
        begin = time.monotonic()
        assert cached(store, tmp_path / "cache").read_bytes("00.bin") == content("00.bin")
        assert 1.0 <= time.monotonic() - begin < 10.0
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(told)
    os.close(telling)


# ---- many processes


def _read_all(store: Local, folder: str, seed: int) -> tuple[int, int]:
    fs = cached(store, folder)
    names = NAMES * 3
    random.Random(seed).shuffle(names)
    right = sum(fs.read_bytes(name) == content(name) for name in names)
    return right, fs.status()["misses"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_eight_processes_share_what_is_here(store: Local, tmp_path: Path, method: Any) -> None:
    folder = str(tmp_path / "cache")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: one forks with threads
        with multiprocessing.get_context(method).Pool(8 if method == "fork" else 2) as pool:
            found = pool.starmap(_read_all, [(store, folder, seed) for seed in range(8)], 1)
    assert [right for right, _ in found] == [3 * FILES] * 8
    fs = cached(store, folder)
    assert fs.status()["disk"]["entries"] == FILES
    all_right(fs)
    assert fs.status()["misses"] == 0


def test_processes_that_miss_one_file_fetch_it_once(store: Local, tmp_path: Path) -> None:
    counted = tmp_path / "opened"

    class Slow(LayerFS):
        def _open_blob(self, key: str) -> Blob:
            with open(counted, "ab") as file:
                file.write(b".")
            time.sleep(0.2)
            return self.inner._open_blob(key)

        def _open_from_start(self, key: str) -> Blob:
            return self._open_blob(key)

        def _read_bytes(self, key: str) -> bytes:
            return self._open_blob(key).read_all()

        def _read_many(self, wanted: Any, concurrency: int | None) -> Iterator[bytes]:
            return map(self._read_bytes, wanted)

    fs = cached(Slow(store), tmp_path / "cache")
    read = functools.partial(fs.read_bytes, "00.bin")
    found = [child.result() for child in [children.Child(f"child {n}", read, 30) for n in range(6)]]
    assert found == [content("00.bin")] * 6
    assert counted.read_bytes() == b"."


# ---- the disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 400 KB; where none may be mounted, files that may have no more."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if mounted.returncode:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, limits[1]))
    try:
        yield folder
    finally:
        if mounted.returncode:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        else:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk(store: Local, small_disk: Path) -> None:
    fs = cached(store, small_disk / "cache", max_bytes=10**7)
    with at_most_one_warning():
        for _ in range(3):
            all_right(fs)
    with at_most_one_warning():
        all_right(blocks(store, small_disk / "cache"))
    assert fs.verify() == []


def test_a_disk_that_others_fill(store: Local, small_disk: Path) -> None:
    fs = cached(store, small_disk / "cache", max_bytes=10**7)
    all_right(fs)
    with contextlib.suppress(OSError), open(small_disk / "filler", "wb") as filler:
        filler.write(bytes(10**6))
    with at_most_one_warning():
        fs.clear()
        all_right(fs)


def _removed(folder: Path) -> None:
    shutil.rmtree(folder)


def _garbage(folder: Path) -> None:
    for path in entry_files(folder):
        path.write_bytes(random.Random(3).randbytes(path.stat().st_size))


def _bits(folder: Path) -> None:
    """500 bits, of any file in the folder."""
    chance = random.Random(4)
    everything = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    for _ in range(500):
        path = chance.choice(everything)
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)


def _halved(folder: Path) -> None:
    for path in entry_files(folder):
        os.truncate(path, path.stat().st_size // 2)


def _emptied(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)


def _unlinked(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()


def _swapped(folder: Path) -> None:
    """Each entry in another one's place."""
    found = entry_files(folder)
    contents = [path.read_bytes() for path in found]
    for path, data in zip(found, contents[1:] + contents[:1], strict=True):
        path.write_bytes(data)


def _moved(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def _read_only(folder: Path) -> None:
    """As a disk that is mounted again read-only, for a user who isn't root: nothing can be made or removed."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o500)


def _foreign(folder: Path) -> None:
    """Files that are no entries, in the place of those that are, and directories."""
    for number, path in enumerate(entry_files(folder)):
        path.unlink()
        if number % 2:
            path.mkdir()
        else:
            path.symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    "harm", [_removed, _garbage, _bits, _halved, _emptied, _unlinked, _swapped, _moved, _read_only, _foreign]
)
@pytest.mark.parametrize("kind", [cached, blocks])
def test_harm_under_a_running_process(
    store: Local, tmp_path: Path, harm: Callable[[Path], None], kind: Callable[..., CachedFS]
) -> None:
    folder = tmp_path / "cache"
    fs = kind(store, folder)
    all_right(fs)
    harm(folder)
    with at_most_one_warning():
        for _ in range(2):
            all_right(fs)
    child = children.Child("a child", lambda: all_right(kind(store, folder)), 30)
    child.result()
    fs.close()
    with at_most_one_warning():
        for _ in range(2):
            all_right(kind(store, folder))


@pytest.mark.parametrize("kind", [cached, blocks])
def test_a_backup_of_last_week(store: Local, tmp_path: Path, kind: Callable[..., CachedFS]) -> None:
    """A folder that is restored as it was before the files were written again: no old byte, and the space is right."""
    folder = tmp_path / "cache"
    all_right(kind(store, folder))
    shutil.copytree(folder, tmp_path / "backup")
    for name in NAMES:
        with open(tmp_path / "store" / name, "r+b") as file:
            file.write(b"another")
    fs = kind(store, folder)
    for name in NAMES:
        assert fs.read_bytes(name) == b"another" + content(name)[7:]
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "backup", folder)
    (folder / "entries-1/count").unlink(missing_ok=True)
    for again in (fs, kind(store, folder)):
        for name in NAMES:
            assert again.read_bytes(name) == b"another" + content(name)[7:]
    assert fs.status()["disk"]["bytes"] == sum(path.stat().st_blocks * 512 for path in entry_files(folder))


def test_a_folder_that_cant_be_written(store: Local, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "file/cache", "/proc/nonesuch/cache"):
        with at_most_one_warning() as caught:
            fs = cached(store, folder)
            all_right(fs)
            all_right(fs)
            assert fs.status()["disk"]["usable"] is False
        assert len(caught) == 1


class _Failing:
    """The module `os`, of which one function fails."""

    def __init__(self, method: str) -> None:
        self._method = method

    def __getattr__(self, name: str) -> Any:
        return self._fail if name == self._method else getattr(os, name)

    def _fail(self, *arguments: object, **options: object) -> Any:
        raise OSError(errno.EIO, "the disk fails")


def test_a_disk_that_fails(store: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("open", "pread", "fstat", "writev", "rename", "utime", "statvfs", "unlink"):
        fs = cached(store, tmp_path / method)
        all_right(fs)
        with monkeypatch.context() as patch:
            patch.setattr(disk, "os", _Failing(method))
            with at_most_one_warning():
                all_right(fs)
                fs.write_bytes("new", b"x")
                assert fs.read_bytes("new") == b"x"


def test_a_read_only_cache_gives_what_it_has(store: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an image of a container: of a pass long ago, so that each hit would renew an entry's time."""
    all_right(cached(store, tmp_path / "cache"))
    for path in entry_files(tmp_path / "cache"):
        os.utime(path, (1e9, 1e9))
    monkeypatch.setattr(disk, "os", _Failing("utime"))
    fs = cached(store, tmp_path / "cache", memory_bytes=0)
    with at_most_one_warning() as caught:
        all_right(fs)
    status = fs.status()
    assert (status["hits"], status["misses"], len(caught)) == (3 * len(NAMES), 0, 0)


def test_nothing_is_left_open(store: Local, tmp_path: Path) -> None:
    all_right(cached(store, tmp_path / "cache"))
    import gc

    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        with cached(store, tmp_path / "cache") as fs:
            assert fs.read_bytes("00.bin") == content("00.bin")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "gpfs", "beegfs", "cifs", "ceph", "fuse.sshfs"])
def test_a_cache_on_a_network_mount_is_used_and_said_once(
    store: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("fsabs.disk.folders.filesystem_of", lambda *arguments: kind)
    with at_most_one_warning() as caught:
        for _ in range(2):
            all_right(cached(store, tmp_path / "cache"))
    assert ["network filesystem" in str(one.message) for one in caught] == [True]
    assert len(entry_files(tmp_path / "cache")) == FILES


def test_nothing_rests_on_locks(store: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lustre, GPFS and CIFS may grant every lock to everybody, as these do."""
    monkeypatch.setattr("fcntl.fcntl", lambda *arguments: 0)
    monkeypatch.setattr("fcntl.flock", lambda *arguments: None)
    fs = cached(store, tmp_path / "cache", max_bytes=30 * 4096)
    busy = [children.Child(f"child {n}", functools.partial(all_right, fs), 60) for n in range(4)]
    all_right(fs)
    for child in busy:
        child.result()
    assert fs.verify() == []


def test_a_stopped_process_costs_no_wait(store: Local, tmp_path: Path) -> None:
    """SIGSTOP at any moment: what others read comes within a second."""
    chance = random.Random(5)
    for turn in range(6):
        fs = cached(store, tmp_path / "cache", max_bytes=20 * 4096)
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                _read_for_ever(fs, turn)
            os._exit(3)
        try:
            time.sleep(chance.random() * 0.05)
            os.kill(pid, signal.SIGSTOP)
            slowest = 0.0
            for name in NAMES:
                begin = time.monotonic()
                assert fs.read_bytes(name) == content(name)
                slowest = max(slowest, time.monotonic() - begin)
            assert slowest < 2.5, "a second, on a machine that is busy with other things"
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_space_is_exact_after_a_sweep(store: Local, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    fs = cached(store, folder)
    all_right(fs)
    (folder / "entries-1/00").mkdir(exist_ok=True)
    (folder / "entries-1/00/.debris").write_bytes(bytes(100_000))
    os.utime(folder / "entries-1/00/.debris", (1e9, 1e9))
    with open(folder / "entries-1/usage", "ab") as log:
        log.write(struct.pack("=4q", 10**6, 17, 0, 0))  # a process that was killed before it did what it noted
    fs.verify()
    status = fs.status()["disk"]
    assert (status["bytes"], status["entries"]) == (
        sum(path.stat().st_blocks * 512 for path in entry_files(folder)),
        FILES,
    )


def test_no_credentials_are_in_the_folder(store: Local, tmp_path: Path) -> None:
    from fsabs.backends.s3 import S3

    endpoint = "http://user:PASSWORD@store.example"
    s3 = S3("bucket", endpoint=endpoint, aws_access_key_id="key", aws_secret_access_key="SECRET")
    fs = CachedFS(s3, tmp_path / "cache", min_free=0, check_interval=60)
    entry = fs._files.of_response("a", 1, "v", 0.0).entry
    assert entry is not None
    fs._files.contents().admit([(entry, b"x")])
    found = b"".join(bytes(path) + path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert b"store.example" in found
    assert b"PASSWORD" not in found
    assert b"SECRET" not in found


def test_a_folder_that_can_be_made_later_is_used_then(
    store: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "RETRY_AFTER", 0.0)
    (tmp_path / "folder").write_bytes(b"in its way")
    with cached(store, tmp_path / "folder" / "cache") as fs:
        with pytest.warns(RuntimeWarning, match="fails, and is a miss"):
            assert fs.read_bytes(NAMES[0]) == content(NAMES[0])
        (tmp_path / "folder").unlink()
        for _ in range(2):
            assert fs.read_bytes(NAMES[0]) == content(NAMES[0])
        assert fs.status()["hits"] == 1
