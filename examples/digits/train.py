"""The demo: a classifier of handwritten digits, trained from zips inside a zip, on local disk and then on S3.

    python examples/digits/train.py [--epochs 5] [--workers 4] [--reader torch|pool] [--report FILE]

Ends with status 0 if both trainings reach the accuracy that the data gives, and have read the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from local_s3 import local_s3
from make_data import make_data
from numpy.typing import NDArray
from reader import Digits, Loader, Pixels, Sample, make_loader
from tqdm import tqdm
from traced import parts, print_parts, print_summary

import fsabs
from fsabs import trace

# Five epochs of softmax regression get 0.96 of the test images right: between 0.939 and 0.978 over 200 random orders.
# Wrong or mixed-up bytes fall far below.
EXPECTED_ACCURACY = 0.93
BATCH_SIZE = 32
LEARNING_RATE = 1.0

# Below `build`, which git ignores and `make clean` removes.
REPORT = Path(__file__).parents[2] / "build/digits.html"

# How the second training finds its data. Code names the scheme; where that is and who may read it stands here.
PFIO_INI = """\
[digits]
scheme = s3
endpoint = $DEMO_S3_ENDPOINT
aws_access_key_id = demo
aws_secret_access_key = $DEMO_S3_SECRET
region = us-east-1
cache = dir=$DEMO_CACHE, max_bytes=100MB, min_free=1MB
"""


class Report(NamedTuple):
    """What one training comes to."""

    url: str
    accuracy: float
    seconds: float
    files: int
    """Files read: each image once an epoch, and the test images once."""
    size: int
    """Bytes of these files."""
    sha256: str
    """Of the digests of all images, in order."""


class Statistics:
    """What was read, from what the workers tell."""

    def __init__(self) -> None:
        self.files = 0
        self.size = 0
        self.digests: dict[tuple[str, int], bytes] = {}

    def add(self, part: str, batch: Sequence[Sample]) -> None:
        """Take in one batch; an image that is not what it was an epoch ago is an error."""
        for sample in batch:
            self.files += 1
            self.size += sample.size
            if self.digests.setdefault((part, sample.number), sample.sha256) != sample.sha256:
                raise RuntimeError(f"image {sample.number} of {part} has changed between two readings")

    def sha256(self) -> str:
        """One digest of all the images."""
        return hashlib.sha256(b"".join(digest for _, digest in sorted(self.digests.items()))).hexdigest()


class Softmax:
    """Softmax regression: one weight for each pixel and digit."""

    def __init__(self) -> None:
        self.weights = np.zeros((64, 10), np.float32)
        self.bias = np.zeros(10, np.float32)

    def predict(self, pixels: Pixels) -> Pixels:
        """The probability of each digit."""
        scores = pixels @ self.weights + self.bias
        shares: Pixels = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def learn(self, pixels: Pixels, labels: NDArray[np.int64]) -> None:
        """One step down the gradient of the cross-entropy."""
        error = (self.predict(pixels) - np.eye(10, dtype=np.float32)[labels]) / len(labels)
        self.weights -= LEARNING_RATE * pixels.T @ error
        self.bias -= LEARNING_RATE * error.sum(axis=0)


def arrays(batch: Sequence[Sample]) -> tuple[Pixels, NDArray[np.int64]]:
    """Pixels and labels of a batch."""
    return np.stack([sample.pixels for sample in batch]), np.array([sample.label for sample in batch])


def train(url: str, options: argparse.Namespace) -> Report:
    """Train on `url`/train.zip and test on `url`/test.zip."""
    model, seen = Softmax(), Statistics()
    with fsabs.from_url(f"{url}/train.zip") as train_fs, fsabs.from_url(f"{url}/test.zip") as test_fs:
        loader = make_loader(Digits(train_fs), BATCH_SIZE, options.workers, options.seed, options.reader == "torch")
        tester = make_loader(Digits(test_fs), BATCH_SIZE, options.workers, options.seed, options.reader == "torch")
        start = time.perf_counter()
        steps = options.epochs * len(loader) + len(tester)
        with tqdm(total=steps, desc=url.split(":")[0], unit="batch", disable=None) as bar:
            for epoch in range(1, options.epochs + 1):
                with trace.span(f"epoch {epoch}"):
                    for batch in trace.steps(loader):
                        model.learn(*arrays(batch))
                        seen.add("train.zip", batch)
                        bar.update()
            with trace.span("test"):
                accuracy = test(model, tester, seen, bar)
        return Report(url, accuracy, time.perf_counter() - start, seen.files, seen.size, seen.sha256())


def test(model: Softmax, loader: Loader, seen: Statistics, bar: tqdm) -> float:
    """The share of images that `model` tells right."""
    right = total = 0
    for batch in loader:
        pixels, labels = arrays(batch)
        right += int((model.predict(pixels).argmax(axis=1) == labels).sum())
        total += len(labels)
        seen.add("test.zip", batch)
        bar.update()
    return right / total


def on_local_disk(folder: Path, options: argparse.Namespace) -> Report:
    """Make the data on local disk, and train from it."""
    url = folder.as_uri()
    with fsabs.from_url(url) as fs:
        make_data(fs)
    return train(f"{url}/digits.zip", options)


def on_s3(folder: Path, options: argparse.Namespace) -> Report:
    """The same on an S3 server, cached and traced; no line that reads or writes data is another."""
    (folder / "pfio.ini").write_text(PFIO_INI)
    with local_s3(folder / "s3.log") as endpoint:
        os.environ.update(
            PFIO_CONFIG_PATH=str(folder / "pfio.ini"),
            DEMO_S3_ENDPOINT=endpoint,
            DEMO_S3_SECRET="demo",
            DEMO_CACHE=str(folder / "cache"),
        )
        url = "digits://bucket/data"
        with fsabs.from_url(url, create_bucket=True) as fs:
            make_data(fs)
        with trace.record(folder / "trace"):
            return train(f"{url}/digits.zip", options)


def problems(reports: Sequence[Report]) -> list[str]:
    """What is wrong with the trainings; nothing, if all is well."""
    found = [
        f"{report.url}: accuracy {report.accuracy:.3f} where the data gives at least {EXPECTED_ACCURACY}"
        for report in reports
        if report.accuracy < EXPECTED_ACCURACY
    ]
    if len({(report.sha256, report.files, report.size) for report in reports}) > 1:
        found.append("the trainings did not read the same bytes")
    elif len({report.accuracy for report in reports}) > 1:
        found.append("the trainings read the same bytes in the same order, and came to different models")
    return found


def print_table(reports: Sequence[Report]) -> None:
    """One line for each training."""
    line = "{:<31} {:>8} {:>9} {:>6} {:>7}  {}"
    print(line.format("data", "accuracy", "samples/s", "files", "bytes", "sha256"))
    for report in reports:
        url = report.url if len(report.url) <= 31 else f"{report.url[:13]}...{report.url[-15:]}"
        speed = f"{report.files / report.seconds:.0f}"
        print(line.format(url, f"{report.accuracy:.3f}", speed, report.files, report.size, report.sha256[:12]))


def print_trace(folder: Path, report: Path) -> None:
    """What the trace in `folder` tells, in short here and at length in the file `report`."""
    print()
    print_parts(parts(folder))
    print()
    print_summary(trace.analyze(folder))
    report.parent.mkdir(parents=True, exist_ok=True)
    trace.report(folder, report)
    print(f"\nThe report, one page for a browser: {report}")


def main() -> int:
    """Returns the exit status."""
    has_torch = importlib.util.find_spec("torch") is not None
    parser = argparse.ArgumentParser(description="Train on handwritten digits, from local disk and from S3.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", choices=("torch", "pool"), default="torch" if has_torch else "pool")
    parser.add_argument("--report", type=Path, metavar="FILE", default=REPORT, help=f"by default {REPORT}")
    options = parser.parse_args()
    how = "torch's DataLoader" if options.reader == "torch" else "a pool of processes"
    print(f"1797 digits, {options.epochs} epochs, read by {how} with {options.workers} forked workers", flush=True)
    with tempfile.TemporaryDirectory(prefix="fsabs-digits-") as name:
        reports = [on_local_disk(Path(name), options), on_s3(Path(name), options)]
        print_table(reports)
        print_trace(Path(name) / "trace", options.report)
    for problem in problems(reports):
        print(f"FAILED: {problem}")
    return 1 if problems(reports) else 0


if __name__ == "__main__":
    sys.exit(main())
