"""`cp -r`, `sync`, `mv`, `pack` and `unpack` are killed at random moments: nothing is half-written, nothing is lost,
and a second run finishes.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import fsabs as library
from tests import soak
from tests.cli.commands import fsabs, make_tree
from tests.cli.stores import s3_bucket
from tests.servers.ceph import CephGateway
from tests.servers.hdfs import HdfsCluster
from tests.servers.shared import unique

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
OFTEN = [("sync", "s3"), ("mv", "local"), ("pack", "s3"), ("unpack", "local")]


def cells(*verbs: str) -> pytest.MarkDecorator:
    """Run a test for these commands on each store, in `make test` where `OFTEN` has the two."""
    pairs = [(verb, kind) for verb in verbs for kind in ("local", "s3", "hdfs")]
    marked = [pytest.param(*pair, marks=() if pair in OFTEN else pytest.mark.nightly) for pair in pairs]
    return pytest.mark.parametrize(("verb", "kind"), marked)


pytestmark = [pytest.mark.soak, pytest.mark.timeout(120 + 90 * soak.rounds(1))]


def files() -> dict[str, bytes]:
    content = random.Random(soak.seed(7))
    found = {f"{number % 7}/{number}.bin": content.randbytes(content.choice((0, 100, 20_000))) for number in range(600)}
    found["3/medium"] = content.randbytes(3 << 20)
    found["large"] = content.randbytes(1 << 20) * 20  # of three parts, on S3
    return found


def run_and_kill(arguments: list[str], when: random.Random, env: dict[str, str], seconds: float = 0.0) -> int:
    """Start the command and end it at a random moment, after some lines, or within `seconds`; return how it ended, 0 if
    it was done before. No process of it is left.
    """

    def heed() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    command = [sys.executable, "-m", "fsabs", *arguments, "--json", "--progress", "none"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **env},
        preexec_fn=heed,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = 0 if seconds else when.choice((0, 1, 100, 400, 595))
        for _ in range(lines):
            process.stdout.readline()
        time.sleep(when.random() * (seconds or 0.2))
        process.send_signal(when.choice(SIGNALS))
        process.stdout.read()  # until the last process of it has ended
        error = process.stderr.read().decode()
        code = process.wait(60)
    check_gone(process.pid)
    if lines == 0:  # the interpreter itself may not have started: Ctrl-C ends that with a traceback
        return code
    if "Exception ignored in" not in error:  # Python swallows an interrupt that falls into a finalizer
        assert "Traceback" not in error
    if code == 130:
        assert error.splitlines()[-1].endswith("run the same command again to go on") or "copied" not in error
    assert code in (0, 130, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT), error
    return code


def check_gone(group: int) -> None:
    """Check that all processes of a group end."""
    end = time.monotonic() + 20
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(0.02)


def check_whole(fs: library.FS, expected: dict[str, bytes], missing_from: set[str] | None = None) -> None:
    """Check that each listed file has its whole content, and that what is missing is in another place."""
    there = sorted(name for name in fs.list("", recursive=True) if not name.endswith("/"))
    for name, content in zip(there, fs.read_many(there), strict=True):
        assert content == expected[name], name
    if missing_from is not None:
        assert not set(expected) - set(there) - missing_from


@pytest.fixture
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[str, dict[str, str]]]:
    """Return the function that makes a directory on a store of a kind: its URL, and the environment."""

    def make(kind: str) -> tuple[str, dict[str, str]]:
        if kind == "s3":
            gateway: CephGateway = request.getfixturevalue("ceph")
            url, env = s3_bucket(gateway, monkeypatch)
            return url.rstrip("/"), env
        if kind == "hdfs":
            cluster: HdfsCluster = request.getfixturevalue("hdfs")
            return f"{cluster.url}/{unique('kills')}", {}
        return f"{tmp_path}/target", {}

    return make


@cells("cp", "sync", "mv")
def test_kills_of_copies(
    verb: str, kind: str, tmp_path: Path, place: Callable[[str], tuple[str, dict[str, str]]]
) -> None:
    expected, (url, env) = files(), place(kind)
    when, kills = random.Random(f"{soak.seed(7)} {verb} {kind}"), 0
    for number in range(soak.rounds(1)):
        source, target = make_tree(tmp_path / f"source{number}", expected), f"{url}/{number}"
        command = [verb, *(["-r"] if verb == "cp" else []), f"{source}/", target]
        for _ in range(3):
            if run_and_kill(command, when, env) == 0:
                break
            kills += 1
            with library.from_url(target, create=True) as fs:
                left = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
                check_whole(fs, expected, left if verb == "mv" else None)
            if not source.exists():  # it was moved whole before the signal came
                break
        if source.exists():
            fsabs(*command)
        with library.from_url(target) as fs:
            check_whole(fs, expected, set())
        assert verb != "mv" or not [path for path in source.rglob("*") if path.is_file()]
        shutil.rmtree(source, ignore_errors=True)
        with library.from_url(url) as fs:
            fs.remove(str(number), recursive=True)
    soak.count(f"kills of {verb}", kills)


@cells("pack", "unpack")
def test_kills_of_packing(
    verb: str, kind: str, tmp_path: Path, place: Callable[[str], tuple[str, dict[str, str]]]
) -> None:
    expected, (url, env) = files(), place(kind)
    source, archive = make_tree(tmp_path / "source", expected), tmp_path / "whole.zip"
    begin = time.monotonic()
    fsabs("pack", str(source), str(archive))
    seconds = 0.3 + time.monotonic() - begin
    when, kills = random.Random(f"{soak.seed(7)} {verb} {kind}"), 0
    for number in range(soak.rounds(1)):
        target = f"{url}/{number}.zip" if verb == "pack" else f"{url}/{number}"
        command = ["pack", str(source), target] if verb == "pack" else ["unpack", str(archive), target, "--jobs", "2"]
        for _ in range(3):
            if run_and_kill(command, when, env, seconds) == 0:
                break
            kills += 1
            with library.from_url(url, create=True) as fs:
                if verb == "unpack" and fs.isdir(str(number)):
                    check_whole(fs.subfs(str(number)), expected)
                elif verb == "pack" and fs.exists(f"{number}.zip"):
                    assert fs.read_bytes(f"{number}.zip") == archive.read_bytes()
        fsabs(*command)
        with library.from_url(f"{target}/") as fs:
            check_whole(fs, expected, set())
        with library.from_url(url) as fs:
            fs.remove(target.rpartition("/")[2], recursive=True)
    soak.count(f"kills of {verb}", kills)
