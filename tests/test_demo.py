"""The demo does its job on this machine, by torch and by a plain pool, shows how, and says when something is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(180)

TRAIN = Path(__file__).parent.parent / "examples/digits/train.py"
ROW = re.compile(r"^(\w+)://\S+ +(\d\.\d{3}) +(\d+) +(\d+) +(\d+)  ([0-9a-f]{12})$", re.MULTILINE)
PART = re.compile(r"^(epoch \d|test) +(\d+\.\d\d)" + r" +(\d+)" * 5 + "$", re.MULTILINE)
IMAGES = 1437
TEST_IMAGES = 360


def demo(report: Path, *args: str, program: Path = TRAIN) -> subprocess.CompletedProcess[str]:
    """Run the demo as `make demo` does, with nothing to read from and no terminal."""
    return subprocess.run(
        [sys.executable, program, "--report", report, *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
    )


@pytest.mark.parametrize("reader", ["torch", "pool"])
def test_the_demo_learns_the_digits_from_local_disk_and_from_s3(reader: str, tmp_path: Path) -> None:
    report = tmp_path / "folder/report.html"
    done = demo(report, "--reader", reader)
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
    check_what_the_trace_tells(done.stdout, report)


def check_what_the_trace_tells(shown: str, report: Path) -> None:
    """The archive came from S3, whole and once; the first epoch has its images from there, the others from the cache.

    And the report is of the reads of all workers.
    """
    parts = {name: [int(count) for count in counts] for name, _, *counts in PART.findall(shown)}
    files, hits, misses, requests, fetched = parts["epoch 1"]
    assert files == hits + misses == IMAGES
    assert misses > 0
    assert requests < 20  # not one for each image, nor for each batch
    assert fetched < 2_000_000  # nothing is fetched again and again
    assert {name: counts for name, counts in parts.items() if name not in ("epoch 1", "test")} == {
        f"epoch {number}": [IMAGES, IMAGES, 0, 0, 0] for number in range(2, 6)
    }
    assert parts["test"][0] == sum(parts["test"][1:3]) == TEST_IMAGES
    assert parts["test"][2] > 0
    asked = re.search(r"^  S3 +\d+\.\d\d s in (\d+) requests; \d+ retries$", shown, re.MULTILINE)
    assert asked is not None
    assert max(1, requests + parts["test"][3]) <= int(asked[1]) < 20
    assert re.search(r"^  training +\d+\.\d\d s waiting for batches, \d+\.\d\d s computing$", shown, re.MULTILINE)
    assert shown.endswith(f"for a browser: {report}\n")
    assert max(map(len, shown.splitlines()[:-1])) <= 80  # the last one has a path
    text = report.read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert f"{5 * IMAGES + TEST_IMAGES:,} reads" in text
    assert "did not end in an orderly way" not in text


def test_a_model_that_learned_nothing_fails_the_demo(tmp_path: Path) -> None:
    done = demo(tmp_path / "report.html", "--reader", "pool", "--epochs", "0")
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
    done = demo(tmp_path / "report.html", "--reader", "pool", "--epochs", "0", program=program)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the trainings did not read the same bytes" in done.stdout
