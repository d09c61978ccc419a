"""Raw files to RecordIO: `fsabs.prepare`, and the same function in a plain Python loop."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import Run, library, whole


def _files(raw: str) -> list[str]:
    return sorted(str(path) for path in Path(raw).rglob("*") if path.is_file())


def convert(model: str, files: list[str], target: str) -> None:
    """Write the records of files, one file after the other: the loop that everybody would write."""
    namespace: dict[str, Any] = {}
    exec(compile(Path(model).read_text(), model, "exec"), namespace)
    function, encode = namespace["prepare_data_for_a_single_file"], library("fsabs.readers").encode
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with library("fsabs.readers").RecordWriter(
        library("fsabs").from_url("/"), target, max_chunk_bytes=1 << 20
    ) as writer:
        for path in files:
            with open(path, "rb") as file:
                writer.write(encode(function(file, path)))


def loop(model: str, raw: str, output: str) -> Run:
    """One loop in this process."""
    return lambda: convert(model, _files(raw), f"{output}/all")


def loops(model: str, raw: str, output: str, processes: int) -> Run:
    """A loop in each of some processes, which are started in the round, as those of `prepare` are."""

    def run() -> None:
        code = "import sys; from benchmarks.contestants.preparing import part; part(*sys.argv[1:])"
        command = [sys.executable, "-c", code, model, raw, output, str(processes)]
        running = [subprocess.Popen([*command, str(number)]) for number in range(processes)]
        statuses = [process.wait() for process in running]
        if any(statuses):
            raise RuntimeError("a loop failed")

    return run


def part(model: str, raw: str, output: str, processes: str, number: str) -> None:
    """Convert the share of one process."""
    convert(model, _files(raw)[int(number) :: int(processes)], f"{output}/{number}")


def prepared(model: str, raw: str, output: str, workers: int) -> Run:
    """`prepare.run`, by processes."""
    prepared_by, count = library("fsabs.prepare").run, len(_files(raw))

    def run() -> None:
        shutil.rmtree(output, ignore_errors=True)
        report = prepared_by(model, raw, output, num_workers=workers, records_per_file=256)
        whole(range(report.records), count)

    return run
