"""`fsabs bench`: what it measures on a store, and what it concludes from measurements."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fsabs import Local
from fsabs.cli import explain
from fsabs.cli.explain import Sample, ThroughputStep
from tests.cli.commands import FILES, fsabs, make_tree
from tests.cli.stores import Store
from tests.cli.stores import store as store

SIZE = sum(map(len, FILES.values()))
OPTIONS = ["--seconds", "0.05", "--workers", "2"]


def test_on_every_store(store: Store) -> None:
    lines = fsabs("bench", store.url, *OPTIONS, "--json", env=store.env).out.splitlines()
    *steps, advice = map(json.loads, lines)
    assert [step["workers"] for step in steps] == [1] * (len(steps) - 1) + [2]
    assert [step["concurrency"] for step in steps[:3]] == [1, 2, 4]
    assert all(step["files_per_second"] > 0 and step["cpu_milliseconds"] > 0 for step in steps)
    assert all((step["requests_per_second"] > 0) == store.is_cloud for step in steps)
    assert advice["sample"] == f"4 of 4 files of {SIZE:,} bytes"
    assert (advice["workers"], advice["concurrency"]) in {(step["workers"], step["concurrency"]) for step in steps}
    assert advice["cache"].startswith(
        "cache=True" if store.is_cloud or store.kind == "hdfs" else "none: the files are local"
    )


@pytest.mark.quick
def test_the_output(tmp_path: Path) -> None:
    make_tree(tmp_path / "data")
    out = fsabs("bench", "data", *OPTIONS, cwd=tmp_path).out.splitlines()
    columns = ["workers", "concurrency", "files/s", "requests/s", "MB/s", "p50", "ms", "p99", "ms", "CPU", "ms/file"]
    assert out[0].split() == [*columns, "CPU", "refused", "transfer"]
    assert [line.split()[:2] for line in out[1:3]] == [["1", "1"], ["1", "2"]]
    at = out.index("")
    assert [line[:11].strip() for line in out[at + 1 :]] == ["sample", "bottleneck", "concurrency", "workers", "cache"]
    (tmp_path / "empty").mkdir()
    assert "there are no files" in fsabs("bench", "empty", cwd=tmp_path, code=1).err


def step(
    workers: int, concurrency: int, files: float, busy: float, refused: float = 0.0, transfer: float = 0.0
) -> ThroughputStep:
    return ThroughputStep(workers, concurrency, files, 0, 0, 0, 0, 0, busy, refused, transfer)


@pytest.mark.quick
def test_conclusions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    latency = [step(1, 1, 10, 0.01), step(1, 16, 159, 0.1), step(1, 32, 315, 0.2), step(2, 32, 629, 0.2)]
    assert explain.bottleneck(latency).startswith("latency: more in flight is still faster")
    assert explain.best(latency) == latency[3]
    store = [step(1, 1, 10, 0.01), step(1, 16, 100, 0.1), step(1, 32, 102, 0.1), step(2, 16, 101, 0.1)]
    assert explain.bottleneck(store).startswith("latency: of the store")
    assert explain.best(store) == store[1]
    wire = [one._replace(transfer=0.9) for one in store]
    assert explain.bottleneck(wire).startswith("bandwidth")
    assert explain.bottleneck([*store, step(2, 32, 90, 0.1, 0.3)]).startswith("throttling: the store refuses 30%")
    assert explain.bottleneck([step(1, 8, 100, 0.95), step(4, 8, 300, 0.9)]).startswith("CPU")
    sample = explain.sample_of(Local(make_tree(tmp_path / "data")), 1000, 2)
    assert (len(sample.names), sample[1:]) == (2, (4, SIZE, True))
    assert sample == explain.sample_of(Local(tmp_path / "data"), 1000, 2)
    assert explain.cache_advice(Local(tmp_path), Sample([], 0, 0, True)) == "none: the files are local"


@pytest.mark.quick
@pytest.mark.parametrize(("most", "bound"), [(8, 3554.0), (3, 1e9), (1, 500.0)])
def test_it_goes_on_until_more_does_not_help(monkeypatch: pytest.MonkeyPatch, most: int, bound: float) -> None:
    """A best at the edge of what was tried proves nothing."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)

    def run(workers: int, concurrency: int) -> ThroughputStep:
        return step(workers, concurrency, min(bound, 500.0 * min(workers, most) * min(concurrency, 4) / 4), 0.1)

    steps = list(explain.explore(run, None))
    assert [one.concurrency for one in steps if one.workers == 1] == [1, 2, 4, 8, 16]
    assert explain.best(steps).files_per_second >= 0.93 * min(bound, 500.0 * most)
    assert max(one.workers for one in steps) == {8: 16, 3: 16, 1: 4}[most]
    assert max(one.workers for one in explain.explore(run, 2)) == 2


@pytest.mark.quick
def test_a_file_that_can_not_be_read_is_the_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        explain.measure(Local(tmp_path), ["none"], 2, 1, 0.05)
    assert caught.value.filename == f"file://{tmp_path}/none"


@pytest.mark.quick
def test_planted_secrets_are_never_printed(tmp_path: Path) -> None:
    """In the file, the environment, a URL and its query: by no command that looks at configuration or stores."""
    (tmp_path / "pfio.ini").write_text(
        "[corp]\nscheme = s3\nendpoint = http://user:planted-url@127.0.0.1:9\naws_access_key_id = $PLANTED_KEY\n"
        "aws_secret_access_key = planted-file\nmax_attempts = 1\n"
    )
    env = {"PFIO_CONFIG_PATH": str(tmp_path / "pfio.ini"), "PLANTED_KEY": "planted-variable"}
    env |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "planted-environment", "AWS_MAX_ATTEMPTS": "1"}
    env |= {"S3_ENDPOINT": "http://127.0.0.1:9"}
    urls = ["corp://bucket/x", "http://user:planted-url@127.0.0.1:9/x?token=planted-query", "s3://bucket/x"]
    for command in (["explain"], ["explain", "--measure"], ["doctor"], ["bench", "--seconds", "0.05"]):
        for url in urls:
            done = _any(command[0], url, *command[1:], "--debug", "--json", env=env)
            assert "planted-" not in done, (command, url, done)
    assert "planted-" not in _any("manifest", "create", urls[1], f"{tmp_path}/m.jsonl", "--debug", env=env)
    assert "planted-" not in _any("cache", "warm", urls[0], "--dir", f"{tmp_path}/cache", "--debug", env=env)


def _any(*arguments: str, env: dict[str, str]) -> str:
    """Return all that a command writes, whatever its exit code."""
    command = [sys.executable, "-m", "fsabs", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **env}, check=False)
    return done.stdout + done.stderr


@pytest.mark.quick
@pytest.mark.parametrize(
    ("to_child", "sent", "code", "error"),
    [
        (True, signal.SIGKILL, 1, "fsabs: a process that measures was killed\n"),
        (False, signal.SIGTERM, 130, "fsabs: interrupted\n"),
    ],
)
def test_a_process_that_is_killed_ends_it(
    to_child: bool, sent: signal.Signals, code: int, error: str, tmp_path: Path
) -> None:
    make_tree(tmp_path / "data")
    command = [sys.executable, "-m", "fsabs", "bench", str(tmp_path / "data"), "--seconds", "60"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + 60
        while not (found := children.read_text().split()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(int(found[0]) if to_child else process.pid, sent)
        assert (process.communicate(timeout=50)[1], process.returncode) == (error, code)
    assert not os.path.exists(f"/proc/{found[0]}")


@pytest.mark.quick
def test_no_process_that_measures_outlives_a_killed_command(tmp_path: Path) -> None:
    make_tree(tmp_path / "data")
    command = [sys.executable, "-m", "fsabs", "bench", str(tmp_path / "data"), "--seconds", "5"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text().split():
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        assert process.communicate(timeout=30)[1] == ""  # which a child that is left would keep open
