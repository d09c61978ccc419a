"""DLIO's training loop over its own readers, those of `examples/recipes/dlio.py`, and those over s3torchconnector."""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import Run, library

OVERRIDES = {
    "unet3d": ("workload=unet3d_h100", "++workload.workflow.checkpoint=False"),
    "records": ("++workload.framework=pytorch", "++workload.dataset.format=indexed_binary"),
}
"""What is run of DLIO's: resnet50's workload needs TensorFlow, and its records are read by DLIO's torch loader here."""
READERS = {"unet3d": "NPZReader", "records": "IndexedBinaryReader"}


def own(kind: str, root: str, settings: dict[str, Any]) -> Run:
    """DLIO's own storage and reader, of local files."""
    return _run(kind, {**settings, "storage.storage_root": root})


def fsabs(kind: str, root: str, settings: dict[str, Any]) -> Run:
    """The storage and the reader of the example."""
    return _run(
        kind,
        {**settings, "storage.storage_root": root, "reader.reader_classname": f"examples.recipes.dlio.{READERS[kind]}"},
    )


def s3torchconnector(kind: str, root: str, settings: dict[str, Any]) -> Run:
    """AWS's client for torch in the reader; names are listed by the example's storage."""
    reader = f"benchmarks.contestants.dlio_s3torchconnector.{READERS[kind]}"
    return _run(kind, {**settings, "storage.storage_root": root, "reader.reader_classname": reader})


def nothing(kind: str, root: str, settings: dict[str, Any]) -> Run:
    """DLIO's loop over samples that are not read: what the loop itself costs."""
    reader = "dlio_benchmark.reader.synthetic_reader.SyntheticReader"
    return _run(kind, {**settings, "storage.storage_root": root, "reader.reader_classname": reader})


def _run(kind: str, settings: dict[str, Any]) -> Run:
    """Return a round: DLIO in a forked process, so that nothing of a round is left for the next."""
    for name in (
        "examples.recipes.dlio",
        settings.get("reader.reader_classname", "hydra.").rpartition(".")[0],
        "torch",
    ):
        library(name)
    overrides = [*OVERRIDES[kind], *(f"++workload.{name}={value}" for name, value in settings.items())]

    def run() -> dict[str, float]:
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=functools.partial(_train, overrides, sender))
        process.start()
        sender.close()
        try:
            figures: dict[str, float] = receiver.recv()
        finally:
            process.join()
        return figures

    return run


class Unprinted(dict[Any, Any]):
    """A dictionary without a long text."""

    __repr__ = object.__repr__


def _train(overrides: list[str], sender: Any) -> None:
    """Run DLIO; send its figures, and the CPU time of its loop: that of the process, and of its loader's workers."""
    dlio, hydra, psutil = library("dlio_benchmark.main"), library("hydra"), library("psutil")
    with tempfile.TemporaryDirectory(prefix="fsabs-dlio-") as folder:
        os.chdir(folder)
        dlio.DLIOMPI.get_instance().initialize()
        config = library("dlio_benchmark.utils.config").ConfigArguments
        made = config.get_global_map_index  # for a line of its log, which is off, DLIO prints all of it at each sample
        config.get_global_map_index = lambda *arguments: Unprinted(made(*arguments))
        configs = Path(dlio.__file__).with_name("configs")
        with hydra.initialize_config_dir(str(configs), version_base=None):
            workload = hydra.compose("config", [*overrides, f"++workload.output.folder={folder}"])["workload"]
        benchmark = dlio.DLIOBenchmark(workload)
        benchmark.initialize()
        cpu, start = time.process_time(), time.perf_counter()
        benchmark.run()
        seconds = time.perf_counter() - start
        workers = [worker.cpu_times() for worker in psutil.Process().children()]
        cpu = time.process_time() - cpu + sum(one.user + one.system for one in workers)
        for worker in psutil.Process().children():
            worker.kill()  # they are persistent, and MPI's own end waits for them
        metric = benchmark.stats.summary["metric"]
        sender.send({"seconds": seconds, "cpu": cpu, "utilisation": float(metric["train_au_mean_percentage"])})
    sys.stderr.flush()
    os._exit(0)
