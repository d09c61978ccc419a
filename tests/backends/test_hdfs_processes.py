"""HDFS in processes: a copy of the library for each forked child, with no directory to write to; exits; garbage."""

from __future__ import annotations

import gc
import os
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.backends.hdfs import Hdfs, library
from fsabs.testing.children import forked
from tests.backends.hdfs_paths import own_directory, path_of
from tests.servers.hdfs import HdfsCluster

COPY = "fsabs-hdfs-native"
"""The name of the library's copy, which is a file in memory."""


@pytest.fixture
def fs(hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch) -> Hdfs:
    found = own_directory(hdfs, monkeypatch)
    hdfs.put(path_of(found, "x"), b"content")
    return found


def in_child(check: Callable[[], Any]) -> Any:
    """Return what `check` returns or raises in a forked child, as text."""

    def answer() -> str:
        try:
            return repr(check())
        except Exception as exc:
            return f"{type(exc).__name__}: {exc}"

    return forked("a child", [answer], 30)[0]


def copies() -> list[int]:
    """Return the descriptors of the library's copies."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [int(link.name) for link in links if COPY in os.readlink(link)]


@pytest.mark.parametrize(
    "code",
    [
        """
        fs.write_bytes("x", bytes(100000))
        file = fs.open("x", "rb"); file.read(5); names = fs.list(); next(names)
        if os.fork() == 0:
            sys.exit(0)
        assert os.wait()[1] == 0
        assert file.read(5) == bytes(5)
        """,
        """
        fs.write_bytes("x", bytes(4 << 20))
        def read_on():
            while True: fs.read_bytes("x")
        threading.Thread(target=read_on, daemon=True).start()
        contents = fs.read_many(["x"] * 200); next(contents)
        child = os.fork()
        next(contents)
        if child:
            assert os.waitpid(child, 0)[1] == 0
        """,
    ],
    ids=["of a child that does nothing", "while threads read"],
)
def test_an_exit_neither_hangs_nor_crashes(fs: Hdfs, code: str) -> None:
    """A thread that comes back from the library into an interpreter that ends would have the process aborted."""
    program = f"import fsabs, os, sys, threading\nfs = fsabs.from_url({fs.url()!r})\n{textwrap.dedent(code)}"
    done = subprocess.run([sys.executable, "-c", program], timeout=50, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


_NO_PLACE = """
    import os, sys
    for name in ("HOME", "TMPDIR", "USER", "LOGNAME", "USERNAME", "LNAME"):
        os.environ.pop(name, None)
    import fsabs, getpass
    try:
        raise SystemExit(f"{getpass.getuser()} is known: the test proves nothing")
    except (OSError, KeyError):
        pass
    for path in ("/x", "/var/tmp/x", "./x"):
        try:
            open(path, "w")
            raise SystemExit(f"{path} can be written: the test proves nothing")
        except OSError:
            pass
    fs = fsabs.from_url(sys.argv[1])
    file = fs.open("x", "rb")
    assert file.read(1) == b"c"
    for generation in range(3):
        pid = os.fork()
        if pid:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        assert fs.exists("x") and fs.read_bytes("x") == b"content" and file.read(1) == b"onten"[generation:][:1]
"""


def test_children_read_without_a_directory_to_write_to_or_a_home(hdfs: HdfsCluster, fs: Hdfs) -> None:
    """The root is read-only, the temporary directory noexec, the user unknown to the system."""
    root = shlex.quote(str(Path(__file__).parents[2]))  # it may be below /tmp, and is to be seen
    keep, back = f"mount --bind {root} /mnt", f"mkdir -p {root} && mount --bind /mnt {root}"
    mounts = f"{keep} && mount -t tmpfs -o noexec,mode=1777 none /tmp && {back} && mount -o remount,ro,bind /"
    script = f'{mounts} && exec unshare --user --map-user=54321 "$@"'
    command = ["unshare", "-rm", "sh", "-c", script, "sh", sys.executable, "-c"]
    command += [textwrap.dedent(_NO_PLACE), fs.url()]
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, env=environment)
    assert done.returncode == 0, done.stderr


def test_children_of_a_process_that_has_closed_every_descriptor(hdfs: HdfsCluster, fs: Hdfs) -> None:
    """A daemon closes what it inherits; another file may have the number by then."""

    def check() -> bytes:
        [inherited] = copies()
        os.close(inherited)
        assert os.open("/dev/null", os.O_RDONLY) <= inherited
        return fs.read_bytes("x")

    assert fs.read_bytes("x") == b"content"
    assert in_child(check) == repr(b"content")


def test_a_library_that_cannot_be_copied_is_no_missing_file(fs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fs.exists("x")

    def full(*arguments: Any, **keywords: Any) -> Any:
        raise FileNotFoundError(2, "No usable temporary directory found")

    def check() -> bool:
        [inherited] = copies()
        os.close(inherited)
        monkeypatch.setattr(os, "memfd_create", full)
        monkeypatch.setattr(tempfile, "mkstemp", full)
        return fs.exists("x")

    answer = in_child(check)
    assert answer.startswith("OSError: [Errno 8]")
    assert "can't load its own copy of hdfs-native" in answer
    assert "No usable temporary directory" in answer


def test_children_and_grandchildren_map_one_copy_each_of_their_own(fs: Hdfs) -> None:
    """The parent's copy is made once for all its children, and none of them leaves a descriptor open."""
    assert fs.read_bytes("x") == b"content"

    def child() -> tuple[bytes, list[str], list[int]]:
        data = fs.read_bytes("x")
        lines = Path("/proc/self/maps").read_text().splitlines()
        return data, sorted({line.split()[4] for line in lines if COPY in line}), copies()

    first, second = in_child(child), in_child(child)
    assert first == second, "siblings map the same file"
    assert first.endswith(", [])")
    assert "content" in in_child(lambda: in_child(child) if fs.exists("x") else None)


@pytest.mark.timeout(60)
def test_a_child_does_not_free_what_its_parent_has_left_in_a_cycle(fs: Hdfs) -> None:
    """The end of a client waits for its threads, which a child hasn't got: it would hang in the garbage collector."""
    assert fs.read_bytes("x") == b"content"
    gc.disable()  # the cycle is to be there at the fork
    try:
        cycle = [library.library().RawClient("hdfs://127.0.0.1:9", {}, None, None, None, None)]
        cycle.append(cycle)
        del cycle
        was_on = forked("a child that collects", [lambda: (gc.isenabled(), gc.collect(), fs.read_bytes("x"))], 20)
        assert [(on, data) for on, _, data in was_on] == [(False, b"content")]
        gc.enable()
        assert forked("its sibling", [gc.isenabled], 20) == [True]
        assert gc.isenabled()
    finally:
        gc.enable()


def test_what_is_not_used_any_more_is_freed_without_the_garbage_collector(fs: Hdfs) -> None:
    """Training loops switch it off, and each client holds sockets and threads."""
    closed = []
    fs.read_bytes("x")
    gc.collect()
    gc.disable()
    try:
        before = len(os.listdir("/proc/self/fd"))
        for number in range(20):
            own = fsabs.from_url(fs.url())
            own.write_bytes(f"{number}", own.read_bytes("x"))
            assert len(list(own.list())) > number
            for missing in (own.read_bytes, own.stat, own.remove):
                with pytest.raises(FileNotFoundError):
                    missing("missing")
            if number % 2:
                own.close()
                closed.append(own)
            del own, missing
        assert len(os.listdir("/proc/self/fd")) < before + 20
    finally:
        gc.enable()
    assert closed[0].read_bytes("0") == b"content", "a closed one may be used again"
