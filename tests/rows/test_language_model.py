"""The program of the page on language models: it learns, is killed, and resumes on another number of ranks."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded
from tests.servers.moto import MotoServer
from tests.servers.shared import unique

pytestmark = pytest.mark.timeout(300)

FOLDER = Path(__file__).parents[2] / "examples" / "language_model"
LOSS = re.compile(r"^step (\d+): loss (\d+\.\d+)$", re.MULTILINE)


@pytest.fixture
def url(moto: MotoServer) -> str:
    """The URL of the data set."""
    bucket = unique("language")
    moto.create_bucket(bucket)
    return f"s3://{bucket}/text"


@pytest.fixture
def variables(moto: MotoServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment in which the data set is at its URL."""
    found = {
        "S3_ENDPOINT": moto.endpoint,
        "AWS_ACCESS_KEY_ID": moto.access_key,
        "AWS_SECRET_ACCESS_KEY": moto.secret_key,
        "AWS_DEFAULT_REGION": moto.region,
        "FSABS_CACHE_DIR": str(tmp_path / "cache"),
    }
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    subprocess.run([sys.executable, FOLDER / "make_data.py", url], check=True, timeout=60)
    return {**os.environ, **found}


def trained(
    url: str, ranks: int, folder: Path, variables: dict[str, str], *arguments: str
) -> tuple[int, dict[int, float]]:
    """Run the program under torchrun; return its exit status, and the loss of each tenth step."""
    command: list[object] = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [FOLDER / "train.py", url, folder, *arguments]
    done = preloaded.run(preloaded.TORCHRUN, command, env=variables, timeout=200)
    if "--die-at" not in arguments:
        assert done.returncode == 0, done.stdout + done.stderr
    return done.returncode, {int(step): float(loss) for step, loss in LOSS.findall(done.stdout)}


@pytest.mark.nightly
def test_it_learns_is_killed_and_resumes_on_other_ranks(url: str, variables: dict[str, str], tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    status, first = trained(url, 2, checkpoints, variables, "--steps", "60", "--every", "15", "--die-at", "35")
    assert status != 0
    status, second = trained(url, 3, checkpoints, variables, "--steps", "60", "--every", "15")
    assert min(second) == 40  # from the checkpoint of step 30 on
    assert max(second) == 60
    assert first[10] > 2.5
    assert second[60] < 2
    assert second[60] < first[30]


def test_the_same_windows_come_through_the_kill(url: str, variables: dict[str, str]) -> None:
    sys.path.insert(0, str(FOLDER))
    try:
        train: Any = importlib.import_module("train")
    finally:
        sys.path.remove(str(FOLDER))

    whole = [window for batch in train.make_loader(url, 60) for window in batch["tokens"].tolist()]
    begun = train.make_loader(url, 60)
    batches = iter(begun)
    seen = [next(batches) for _ in range(30)]
    again = train.make_loader(url, 60)
    again.load_state_dict(begun.state_dict())
    assert [window for batch in [*seen, *again] for window in batch["tokens"].tolist()] == whole
    changed = train.make_loader(url, 60, weights={"web": 0.2, "code": 0.8})
    changed.load_state_dict(begun.state_dict())
    windows = [
        bytes(token for token in window if token < 256) for batch in changed for window in batch["tokens"].tolist()
    ]
    code = sum(b"return" in window or b"def " in window for window in windows)
    assert code / len(windows) > 0.6
