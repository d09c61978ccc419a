"""`cp -r`, `sync`, `mv`, `pack` and `unpack` are killed at random moments: nothing is half-written, nothing is lost,
and a second run finishes.

`FSABS_KILL_ROUNDS` sets how many rounds are run of each command on each store, and has all pairs of them run;
`FSABS_KILL_SEED` makes them others.
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
from fsabs.core.writing import is_partial
from tests.cli.commands import fsabs, make_tree
from tests.cli.stores import s3_bucket
from tests.servers.ceph import CephGateway
from tests.servers.hdfs import HdfsCluster
from tests.servers.shared import unique

ROUNDS = int(os.environ.get("FSABS_KILL_ROUNDS", "1"))
SEED = int(os.environ.get("FSABS_KILL_SEED", "7"))
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
LARGE = 70 << 20
ALL = [(verb, kind) for verb in ("cp", "sync", "mv", "pack", "unpack") for kind in ("local", "s3", "hdfs")]
SOME = [("cp", "hdfs"), ("sync", "s3"), ("mv", "local"), ("mv", "s3"), ("pack", "s3"), ("unpack", "hdfs")]

pytestmark = pytest.mark.timeout(120 + 90 * ROUNDS)


def files() -> dict[str, bytes]:
    content = random.Random(SEED)
    found = {f"{number % 7}/{number}.bin": content.randbytes(content.choice((0, 100, 20_000))) for number in range(600)}
    found["3/medium"] = content.randbytes(3 << 20)
    found["large"] = content.randbytes(1 << 20) * (LARGE >> 20)
    return found


def run_and_kill(arguments: list[str], when: random.Random, env: dict[str, str], seconds: float = 0.0) -> int:
    """Start the command and end it at a random moment, after some lines, or within `seconds`; return how it ended, 0 if
    it was done before.
    """

    def heed() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    command = [sys.executable, "-m", "fsabs", *arguments, "--json", "--progress", "none"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **env}, preexec_fn=heed
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = 0 if seconds else when.choice((0, 1, 100, 400, 595))
        for _ in range(lines):
            process.stdout.readline()
        time.sleep(when.random() * (seconds or 0.2))
        sent = when.choice(SIGNALS)
        process.send_signal(sent)
        process.stdout.read()
        error = process.stderr.read().decode()
        code = process.wait(60)
    if lines == 0:  # the interpreter itself may not have started: Ctrl-C ends that with a traceback
        return code
    if "Exception ignored in" not in error:  # Python swallows an interrupt that falls into a finalizer
        assert "Traceback" not in error
    if code == 130:
        assert error.splitlines()[-1].endswith("run the same command again to go on") or "copied" not in error
    assert code in (0, 130, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT), error
    return code


def check_whole(fs: library.FS, expected: dict[str, bytes], missing_from: dict[str, bytes] | None = None) -> None:
    """Check that each listed file has its whole content, and that what is missing is in another place."""
    there = {name for name in fs.list("", recursive=True) if not name.endswith("/")}
    for name, content in zip(sorted(there), fs.read_many(sorted(there)), strict=True):
        assert content == expected[name], name
    if missing_from is not None:
        assert not set(expected) - there - set(missing_from)


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


@pytest.mark.parametrize(("verb", "kind"), [pair for pair in (ALL if ROUNDS > 1 else SOME) if "pack" not in pair[0]])
def test_kills_of_copies(
    verb: str, kind: str, tmp_path: Path, place: Callable[[str], tuple[str, dict[str, str]]]
) -> None:
    expected, (url, env) = files(), place(kind)
    when, killed = random.Random(f"{SEED} {verb} {kind}"), 0
    for number in range(ROUNDS):
        source, target = make_tree(tmp_path / f"source{number}", expected), f"{url}/{number}"
        command = [verb, *(["-r"] if verb == "cp" else []), f"{source}/", target]
        for _ in range(3):
            if run_and_kill(command, when, env) == 0:
                break
            killed += 1
            with library.from_url(target, create=True) as fs:
                left = {str(path.relative_to(source)): b"" for path in source.rglob("*") if path.is_file()}
                check_whole(fs, expected, left if verb == "mv" else None)
            if not source.exists():  # it was moved whole before the signal came
                break
        if source.exists():
            fsabs(*command, env=env)
        with library.from_url(target) as fs:
            check_whole(fs, expected, {})
        assert verb != "mv" or not [path for path in source.rglob("*") if path.is_file()]
        if kind == "local":
            assert not [path for path in Path(target).rglob("*") if is_partial(path.name) and ".kept" in path.name]
        shutil.rmtree(source, ignore_errors=True)
        with library.from_url(url) as fs:
            fs.remove(str(number), recursive=True)
    print(f"{verb} {kind}: {killed} kills")


@pytest.mark.parametrize(("verb", "kind"), [pair for pair in (ALL if ROUNDS > 1 else SOME) if "pack" in pair[0]])
def test_kills_of_packing(
    verb: str, kind: str, tmp_path: Path, place: Callable[[str], tuple[str, dict[str, str]]]
) -> None:
    expected, (url, env) = files(), place(kind)
    source, archive = make_tree(tmp_path / "source", expected), tmp_path / "whole.zip"
    begin = time.monotonic()
    fsabs("pack", str(source), str(archive))
    seconds = time.monotonic() - begin
    when, killed = random.Random(f"{SEED} {verb} {kind}"), 0
    for number in range(ROUNDS):
        target = f"{url}/{number}.zip" if verb == "pack" else f"{url}/{number}"
        command = ["pack", str(source), target] if verb == "pack" else ["unpack", str(archive), target]
        for _ in range(3):
            if run_and_kill(command, when, env, 1.5 * seconds) == 0:
                break
            killed += 1
            with library.from_url(url, create=True) as fs:
                if verb == "unpack" and fs.isdir(str(number)):
                    check_whole(fs.subfs(str(number)), expected)
                elif verb == "pack" and fs.exists(f"{number}.zip"):
                    assert fs.read_bytes(f"{number}.zip") == archive.read_bytes()
        fsabs(*command, env=env)
        with library.from_url(f"{target}/") as fs:
            check_whole(fs, expected, {})
        with library.from_url(url) as fs:
            fs.remove(target.rpartition("/")[2], recursive=True)
    print(f"{verb} {kind}: {killed} kills")
