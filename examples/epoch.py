"""Your own data set, read by forked workers: how fast that is, and what it waits for.

    python examples/epoch.py URL [--workers 4] [--batch 32] [--epochs 2] [--step SECONDS] [--cache DIR]
                             [--pattern '**/*.jpg'] [--report FILE] [--reader torch|pool]

URL is what `fsabs.from_url` takes: a folder, s3://bucket/train.zip, hdfs://host/data, a scheme of your pfio.ini. Each
epoch reads every file in a new random order, a batch at a time, as a training does, and keeps nothing of it.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from tqdm import tqdm

import fsabs
from fsabs import FS, trace

HEAD = "           seconds   files/s      MB/s  batch's wait, ms: p50      p95      p99"
LINE = "epoch {:<4} {:>7.1f} {:>9.0f} {:>9.1f} {:>22.2f} {:>8.2f} {:>8.2f}"


class Files:
    """A map-style data set; a sample is a file's size, so that what is measured is reading."""

    def __init__(self, fs: FS, pattern: str | None) -> None:
        self.fs = fs
        self.names = [name for name in sorted(fs.list(recursive=True)) if not name.endswith("/")]
        if pattern is not None:
            matching = set(fs.glob(pattern))  # which may be directories, too
            self.names = [name for name in self.names if name in matching]

    def __len__(self) -> int:
        return len(self.names)

    def __getitems__(self, indices: Sequence[int]) -> list[int]:
        return [len(content) for content in self.fs.read_many(self.names[i] for i in indices)]


def by_torch(files: Files, batch_size: int, workers: int) -> Iterable[list[int]]:
    """The batches of one epoch."""
    from torch.utils.data import DataLoader

    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than processors are welcome
    options = {"num_workers": workers, "multiprocessing_context": "fork", "collate_fn": list}
    return DataLoader(files, batch_size, shuffle=True, **options)  # type: ignore[arg-type]  # it need not be a Dataset


def by_pool(files: Files, batch_size: int, workers: int) -> Iterator[list[int]]:
    """The same where torch is not installed."""
    order = np.random.default_rng().permutation(len(files)).tolist()
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    fork = multiprocessing.get_context("fork")  # what `initargs` holds is inherited then, not pickled
    with ProcessPoolExecutor(workers, fork, initializer=_inherit, initargs=(files,)) as pool:
        yield from pool.map(_read, batches)


_files: Files  # a worker's, from its parent


def _inherit(files: Files) -> None:
    global _files
    _files = files


def _read(indices: list[int]) -> list[int]:
    return _files.__getitems__(indices)


def timed(batches: Iterable[list[int]], waits: list[float]) -> Iterator[list[int]]:
    """The batches; `waits` gets the milliseconds that each was waited for."""
    items, begin = iter(batches), time.perf_counter()
    for batch in items:
        waits.append(1e3 * (time.perf_counter() - begin))
        yield batch
        begin = time.perf_counter()


def read(options: argparse.Namespace) -> None:
    """All epochs, with a line for each."""
    with fsabs.from_url(options.url, cache={"dir": options.cache} if options.cache else None) as fs:
        files = Files(fs, options.pattern)
        if not files:
            raise FileNotFoundError(
                f"{fs.url()} has no file" + (f" like {options.pattern!r}" if options.pattern else "")
            )
        print(f"{fs.url()}: {len(files)} files\nread by {options.workers} forked workers ({options.reader})\n\n{HEAD}")
        for epoch in range(1, options.epochs + 1):
            batches = (by_torch if options.reader == "torch" else by_pool)(files, options.batch, options.workers)
            waits: list[float] = []
            size, begin = 0, time.perf_counter()
            with tqdm(total=len(files), desc=f"epoch {epoch}", unit="file", disable=None, leave=False) as bar:
                for sizes in trace.steps(timed(batches, waits)):
                    time.sleep(options.step)
                    size += sum(sizes)
                    bar.update(len(sizes))
            seconds = time.perf_counter() - begin
            waited = np.percentile(waits, (50, 95, 99))
            print(LINE.format(epoch, seconds, len(files) / seconds, size / seconds / 1e6, *waited), flush=True)


def tell(folder: str, report: Path, computed: bool) -> None:
    """What the trace in `folder` knows, in short, and the report."""
    found = trace.analyze(folder)
    requests = sum(row.calls for row in found.operations if row.kind == "request")
    hits, misses = found.cache.hits, found.cache.misses
    print(f"\n{requests} requests to the store, {found.retries} retries; cache: {hits} hits, {misses} misses")
    for finding in found.findings:
        if computed or finding.code != "F008":  # without a training step, all time is waiting
            print(textwrap.fill(f"{finding.severity}: {finding.title}", 80, subsequent_indent="  "))
    report.parent.mkdir(parents=True, exist_ok=True)
    trace.report(folder, report)
    print(f"\nThe report, one page for a browser: {report}")


def main() -> int:
    """Returns the exit status."""
    has_torch = importlib.util.find_spec("torch") is not None
    parser = argparse.ArgumentParser(description="Read a data set by forked workers, in random order.")
    parser.add_argument("url", help="a folder, s3://bucket/train.zip, hdfs://host/data, ...")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32, help="files that are read together")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--step", type=float, default=0, help="seconds that your training computes on a batch")
    parser.add_argument("--cache", metavar="DIR", help="keep what is read in this folder")
    parser.add_argument("--pattern", help="only files that match, as '**/*.jpg'; otherwise all")
    parser.add_argument("--report", type=Path, metavar="FILE", help="otherwise in a new folder for temporary files")
    parser.add_argument("--reader", choices=("torch", "pool"), default="torch" if has_torch else "pool")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fsabs-trace-") as folder:
        try:
            with trace.record(folder):
                read(options)
        except (OSError, ValueError, ImportError) as exc:  # the URL, its store, what an extra brings, an option
            parser.exit(1, f"{parser.prog}: {exc}\n")
        tell(folder, options.report or Path(tempfile.mkdtemp(prefix="fsabs-epoch-"), "report.html"), options.step > 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
