"""The demo does its job on this machine, by torch and by a plain pool, and says so when something is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(180)

TRAIN = Path(__file__).parent.parent / "examples/digits/train.py"
ROW = re.compile(r"^(\w+)://\S+ +(\d\.\d{3}) +(\d+) +(\d+) +(\d+)  ([0-9a-f]{12})$", re.MULTILINE)
IMAGES = 1437
TEST_IMAGES = 360


def demo(*args: str, env: dict[str, str] | None = None, program: Path = TRAIN) -> subprocess.CompletedProcess[str]:
    """Run the demo as `make demo` does, with nothing to read from and no terminal."""
    return subprocess.run(
        [sys.executable, program, *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
        env={**os.environ, **(env or {})},
    )


@pytest.mark.parametrize("reader", ["torch", "pool"])
def test_the_demo_learns_the_digits_from_local_disk_and_from_s3(reader: str) -> None:
    done = demo("--reader", reader)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    rows = ROW.findall(done.stdout)
    assert [row[0] for row in rows] == ["file", "digits"]
    for _, accuracy, speed, files, size, _ in rows:
        assert float(accuracy) >= 0.93
        assert int(speed) > 0
        assert int(files) == 5 * IMAGES + TEST_IMAGES
        assert int(size) > 100 * int(files)
    assert rows[0][1] == rows[1][1]
    assert rows[0][3:] == rows[1][3:]


def test_a_model_that_learned_nothing_fails_the_demo() -> None:
    done = demo("--reader", "pool", "--epochs", "0")
    assert done.returncode == 1
    assert done.stdout.count("where the data gives at least 0.93") == 2
    assert all(float(accuracy) < 0.3 for _, accuracy, *_ in ROW.findall(done.stdout))


def test_other_bytes_on_s3_fail_the_demo(tmp_path: Path) -> None:
    """One pixel of one image is enough."""
    program = tmp_path / "other.py"
    program.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(TRAIN.parent)!r})\n"
        "import make_data, train\n"
        "png, calls = make_data.png, []\n"
        "def other(image):\n"
        "    calls.append(1)\n"
        "    image = image.copy()\n"
        "    image[0, 0] += len(calls) == 1797 + 7  # one of the test images, in the second making\n"
        "    return png(image)\n"
        "make_data.png = other\n"
        "sys.exit(train.main())\n"
    )
    done = demo("--reader", "pool", "--epochs", "0", program=program)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the trainings did not read the same bytes" in done.stdout
