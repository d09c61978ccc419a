"""The script of the tutorial does what the page says: killed, resumed, on ranks, from a store, cached and traced."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.adapters.torch import CheckpointManager
from tests import preloaded
from tests.servers.fixtures import require
from tests.servers.moto import MotoServer, missing

pytestmark = pytest.mark.timeout(240)
ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/tutorial.md").read_text()
STEP = re.compile(r"epoch (\d+) step (\d+) loss (\d+\.\d+)")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script, and with what the page's first block makes."""
    folder = tmp_path_factory.mktemp("tutorial")
    (pictures,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    subprocess.run([sys.executable, "-c", pictures], cwd=folder, check=True, timeout=60)
    shutil.copy(ROOT / "examples/train.py", folder)
    return folder


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    require(missing)
    with MotoServer() as server:
        server.create_bucket("bucket")
        yield {
            "AWS_ENDPOINT_URL_S3": server.endpoint,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "AWS_DEFAULT_REGION": server.region,
        }


def start(work: Path, output: int, *arguments: str, ranks: int = 1, env: Mapping[str, str] = {}) -> preloaded.Program:
    """Start the script in a session of its own, on one thread, with nothing cached."""
    command = ["train.py", *arguments]
    if ranks > 1:
        port = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
        command = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", *port, *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FSABS_CACHE_DIR": str(work / "cache"), **env}
    with open(os.devnull, "r+b") as nothing:
        files = (nothing.fileno(), output, nothing.fileno())
        return preloaded.start(preloaded.TORCH, command, files, cwd=work, env=environment)


def finish(work: Path, *arguments: str, ranks: int = 1, env: Mapping[str, str] = {}) -> list[str]:
    """Run the script to its end, and return its lines."""
    with tempfile.TemporaryFile("w+") as output:
        program = start(work, output.fileno(), *arguments, ranks=ranks, env=env)
        assert program.wait(150) == 0
        output.seek(0)
        return output.read().splitlines()


def kill_at(step: int, work: Path, *arguments: str, ranks: int = 1) -> None:
    """Run the script, and kill all its processes when it has printed a step."""
    reading, writing = os.pipe()
    with open(reading) as output:
        program = start(work, writing, *arguments, ranks=ranks)
        os.close(writing)
        for line in output:
            if (found := STEP.match(line)) and int(found[2]) == step:
                break
        program.kill()
    assert program.returncode == -signal.SIGKILL


def newest(where: Path) -> dict[str, Any]:
    """Return the newest checkpoint of a run."""
    found: dict[str, Any] = CheckpointManager(where).load()
    return found


def test_a_job_that_is_killed_twice_ends_with_the_model_of_one_that_was_not(work: Path) -> None:
    once = finish(work, "pictures.zip", "run-0", "--epochs", "2")
    assert [int(step) for _, step, _ in STEP.findall("\n".join(once))] == list(range(1, 27))
    kill_at(6, work, "pictures.zip", "run-1", "--epochs", "2")
    kill_at(17, work, "pictures.zip", "run-1", "--epochs", "2")
    lines = finish(work, "pictures.zip", "run-1", "--epochs", "2")
    resumed = re.fullmatch(r"rank 0 resumes after step (\d+)", lines[0])
    assert resumed is not None
    assert 12 <= int(resumed[1]) < 26  # a kill may take the time of some steps
    assert lines[1:] == once[int(resumed[1]) :]
    assert newest(work / "run-0")["step"] == newest(work / "run-1")["step"] == 26
    (comparison,) = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)
    compared = preloaded.run(preloaded.TORCH, ["-c", comparison], cwd=work, timeout=60)
    assert compared.stdout == "True\n", compared.stderr


def test_ranks_that_are_killed_go_on_with_another_number_and_leave_no_picture_out(work: Path) -> None:
    kill_at(5, work, "pictures.zip", "run-2", "--epochs", "9", "--workers", "1", ranks=2)
    step = newest(work / "run-2")["step"]
    assert 4 <= step < 9 * 7  # of 2 ranks and 16 pictures, 7 steps an epoch: a kill may take the time of some of them
    epochs, steps = divmod(step, 7)
    lines = finish(work, "pictures.zip", "run-2", "--epochs", f"{epochs + 2}", "--workers", "0")
    assert lines[0] == f"rank 0 resumes after step {step}"
    assert len(lines) == 1 + -(-(200 - steps * 2 * 16) // 16) + 13


def test_the_script_reads_from_a_store_saves_there_and_is_traced(work: Path, s3: dict[str, str]) -> None:
    environment = {**os.environ, **s3}
    command = [sys.executable, "-m", "fsabs"]
    subprocess.run([*command, "cp", "pictures.zip", "s3://bucket/"], cwd=work, env=environment, check=True, timeout=60)
    traced = {**s3, "FSABS_TRACE": "trace-1", "FSABS_CACHE": "1"}
    finish(work, "s3://bucket/pictures.zip", "s3://bucket/run-5", "--epochs", "1", env=traced)
    report = [*command, "trace", "report", "trace-1", "report.html"]
    subprocess.run(report, cwd=work, env=environment, check=True, capture_output=True, timeout=60)
    assert (work / "report.html").stat().st_size > 10_000
    stall = fsabs.trace.analyze(work / "trace-1").stall
    assert stall is not None
    assert stall.steps == 13
    listed = subprocess.run(
        [*command, "ls", "s3://bucket/run-5/"], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert listed.stdout.splitlines() == ["checkpoint-000000000012.pt", "checkpoint-000000000013.pt"]
    shown = subprocess.run(  # as the page on installing has it
        'fsabs() { $PYTHON -m fsabs "$@"; }; fsabs cp README.md s3://bucket/ && fsabs ls -l s3://bucket/',
        shell=True,
        cwd=ROOT,
        env={**environment, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "README.md" in shown.stdout
