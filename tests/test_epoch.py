"""The example that reads anybody's data set: every file once an epoch, by forked workers, and a report of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fsabs
from tests.servers.moto import MotoServer

pytestmark = pytest.mark.timeout(120)

PROGRAM = Path(__file__).parent.parent / "examples/epoch.py"
EPOCH = re.compile(r"^epoch (\d) +\d+\.\d +(\d+) +\d+\.\d +(\d+\.\d\d) +(\d+\.\d\d) +(\d+\.\d\d)$", re.MULTILINE)
FILES = 60
SIZE = 1000

# As where torch is not installed.
WITHOUT_TORCH = f"""\
import importlib.util, runpy, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError(name)

find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *package: None if name == "torch" else find_spec(name, *package)
sys.meta_path.insert(0, Absent())
runpy.run_path({str(PROGRAM)!r}, run_name="__main__")
"""


def epoch(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it with no terminal."""
    return subprocess.run(
        [sys.executable, *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )


def fill(url: str) -> None:
    """A zip with two kinds of files in folders."""
    with fsabs.from_url(url, mode="w") as fs:
        for number in range(FILES):
            suffix = "txt" if number % 3 else "bin"
            fs.write_bytes(f"{number % 2}/{number:02}.{suffix}", bytes(SIZE))


def check(done: subprocess.CompletedProcess[str], report: Path, reads: int) -> None:
    """Both epochs have been read and told, for people and in the report."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    epochs = EPOCH.findall(done.stdout)
    assert [number for number, *_ in epochs] == ["1", "2"]
    for _, speed, *waits in epochs:
        assert int(speed) > 0
        assert sorted(waits, key=float) == waits
    assert max(map(len, done.stdout.splitlines()[1:-1])) <= 80  # the first and the last have URL and path
    assert done.stdout.endswith(f"for a browser: {report}\n")
    text = report.read_text("utf-8")
    assert f"{reads} reads" in text
    assert "did not end in an orderly way" not in text


def test_a_local_zip_by_torch(tmp_path: Path) -> None:
    fill(f"{tmp_path}/data.zip")
    report = tmp_path / "new/report.html"
    done = epoch(PROGRAM, tmp_path / "data.zip", "--report", report, "--step", "0.001", "--batch", "7")
    check(done, report, 2 * FILES)
    assert f"data.zip: {FILES} files\nread by 4 forked workers (torch)\n" in done.stdout
    assert "\n0 requests to the store, 0 retries; cache: 0 hits, " in done.stdout


def test_without_torch_and_of_some_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    fill(f"{tmp_path}/data.zip")
    done = epoch("-c", WITHOUT_TORCH, tmp_path / "data.zip", "--pattern", "**/*.bin", "--workers", "2")
    [report] = tmp_path.glob("fsabs-epoch-*/report.html")
    check(done, report, 2 * FILES // 3)
    assert f"data.zip: {FILES // 3} files\nread by 2 forked workers (pool)\n" in done.stdout
    assert not list(tmp_path.glob("fsabs-trace-*"))


def test_a_zip_on_s3_through_a_cache(tmp_path: Path, moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S3_ENDPOINT", moto.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", moto.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", moto.secret_key)
    monkeypatch.setenv("AWS_DEFAULT_REGION", moto.region)
    moto.create_bucket("epoch")
    fill("s3://epoch/data.zip")
    report = tmp_path / "report.html"
    done = epoch(PROGRAM, "s3://epoch/data.zip", "--cache", tmp_path / "cache", "--report", report)
    check(done, report, 2 * FILES)
    pattern = r"^(\d+) requests to the store, \d+ retries; cache: (\d+) hits, (\d+) misses$"
    told = re.search(pattern, done.stdout, re.MULTILINE)
    assert told is not None
    assert 0 < int(told[1]) < FILES
    hits, misses = int(told[2]), int(told[3])
    assert 2 * FILES <= hits + misses <= 2 * FILES + 20  # those of the archive, which is small, below its members
    assert 0 < misses <= FILES + 20  # a request for a member may bring its neighbours along, which are hits then

    missing = epoch(PROGRAM, "s3://epoch/other.zip", "--report", tmp_path / "none.html")
    assert missing.returncode == 1
    assert "s3://epoch/other.zip" in missing.stderr


@pytest.mark.quick
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nowhere"], "No such file or directory"),
        (["file.txt"], "Not a directory"),
        (["such://bucket/x"], "unknown scheme 'such' in 'such://bucket/x'"),
        (["empty"], "has no file"),
        ([".", "--pattern", "*.png"], "has no file like '*.png'"),
    ],
)
def test_what_can_not_be_read_is_one_line(
    args: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("a file")
    done = epoch(PROGRAM, *args, "--report", "report.html")
    assert done.returncode == 1
    assert done.stdout == ""
    assert said in done.stderr
    assert args[0].rpartition("/")[2].strip(".") in done.stderr
    assert done.stderr.startswith("epoch.py: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "report.html").exists()
