"""The runner on Spark: `local[N]` or a cluster. A unit is a task of a job with one stage and no shuffle.

This package and the model file travel to the executors; pyspark, NumPy and the clients of the stores must be installed
there. Credentials don't travel: executors have them by their environment or configuration. Which attempt at a unit
counts is decided by the files in staging alone (see `work`), so that retries and speculative tasks add no record.
"""

from __future__ import annotations

import contextlib
import marshal
import math
import os
import re
import sys
import tempfile
import threading
import uuid
import zipfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..core import errors
from ..core.threads import Flag
from .output import OutputDirectory
from .plan import PrepareJob, Unit, UnitResult
from .work import ATTEMPTS, run_unit

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.5
_LOCAL = re.compile(r"local(?:\[(\d+|\*)\])?")
_REASON = re.compile(r"^(?:Caused by: |: )?([\w.]*(?:Error|Exception|Interrupt)\b.*)$", re.MULTILINE)


class SparkRunner:
    """Works on units as tasks of Spark."""

    def __init__(self, output: OutputDirectory, master: str | None, num_workers: int | None) -> None:
        errors.required("pyspark", "pyspark", "spark", "preparing data on Spark")
        self._output = output
        self._master = _with_retries(master)
        self._num_workers = num_workers
        self._error: Exception | None = None

    def run(self, job: PrepareJob, units: Sequence[Unit]) -> Generator[UnitResult | None, None, None]:
        """Yield the result of each unit when it is done, in any order; None now and then while there is none."""
        for url in (job.output, *(part for root in job.roots for part in root)):
            if url is not None and errors.without_secrets(url) != url:
                raise ValueError(
                    "credentials in a URL would be seen in Spark's plan: give them by the environment or pfio.ini"
                )
        wanted = {unit.number for unit in units}
        group = f"fsabs-prepare-{uuid.uuid4().hex}"
        with self._context() as context:
            ship_package(context)
            ended = Flag()  # Python before 3.13 takes a thread for ended whose `join` was interrupted
            arguments = context, group, job, units, ended
            threading.Thread(target=self._collect, args=arguments, name="fsabs-prepare-spark", daemon=True).start()
            try:
                has_ended = False
                while not has_ended:
                    has_ended = ended.wait(POLL_SECONDS)
                    done = self._output.done_units() & wanted
                    wanted -= done
                    for number in sorted(done):
                        yield self._output.result(number)
                    if (failed := self._output.failed()) is not None:
                        yield failed
                    yield None
            finally:
                if not ended.is_set():
                    context.cancelJobGroup(group)
                    ended.wait(math.inf)
            if self._error is not None:
                raise RuntimeError(f"the Spark job failed: {reason_of(self._error)}") from self._error

    def _collect(self, context: SparkContext, group: str, job: PrepareJob, units: Sequence[Unit], ended: Flag) -> None:
        """Run the job; its results are read from staging, and its error is kept."""
        try:
            context.setJobGroup(group, f"fsabs prepare {self._output.url}", interruptOnCancel=True)
            context.parallelize(units, len(units)).foreachPartition(partial(run_units, job))
        except Exception as exc:  # of py4j, or of what runs on the executors; raised by `run`
            self._error = exc
        finally:
            ended.set()

    @contextlib.contextmanager
    def _context(self) -> Iterator[SparkContext]:
        """Give the context of the active session, or of one that ends with the block."""
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None:
            if self._master not in (None, _with_retries(active.sparkContext.master)):
                raise ValueError(f"there is a Spark session on {active.sparkContext.master}, not on {self._master}")
            yield active.sparkContext
            return
        session = self._new_session()
        try:
            session.sparkContext.setLogLevel("ERROR")
            yield session.sparkContext
        finally:
            session.stop()

    def _new_session(self) -> SparkSession:
        from pyspark import SparkConf
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName("fsabs prepare")
        builder = builder.config("spark.executorEnv.PYTHONSAFEPATH", "1")  # no import from the working directory
        master = self._master
        if master is not None:
            builder = builder.master(master)
        elif not SparkConf().contains("spark.master"):
            raise ValueError("mode 'cluster' needs the URL of Spark's master: --master spark://host:7077")
        if master is not None and master.startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if self._num_workers is not None:
            builder = builder.config("spark.cores.max", self._num_workers)
            builder = builder.config("spark.executor.instances", self._num_workers)
        try:
            return builder.getOrCreate()
        except Exception as exc:  # of py4j: a stack of Java
            raise RuntimeError(f"Spark can't start: {reason_of(exc)}") from exc


def _with_retries(master: str | None) -> str | None:
    """Return a master whose tasks are tried again: Spark itself gives those of `local[N]` one attempt."""
    match = _LOCAL.fullmatch(master or "")
    return f"local[{match[1] or 1},{ATTEMPTS}]" if match else master


# ---- on the executors


def run_units(job: PrepareJob, units: Iterable[Unit]) -> None:
    """Work on the units of a partition."""
    for unit in units:
        run_unit(job, unit)


# ---- shared with the readers for Spark


_package: tempfile.TemporaryDirectory[str] | None = None
"""The folder of a zip of this package: executors that start late fetch it, too, so that it stays until the end."""
_shipped: set[str] = set()
"""The applications of Spark that have the package."""
_UNCHECKED = MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
"""The header of a compiled module that is not compared with its source (PEP 552)."""


def ship_package(context: SparkContext) -> None:
    """Send this package to the executors of an application, the first time that it is called for it."""
    global _package
    if context.applicationId in _shipped:
        return
    if _package is None:
        _package = tempfile.TemporaryDirectory(prefix="fsabs-spark-")
    path = os.path.join(_package.name, f"fsabs-{__version__}.zip")
    if not os.path.exists(path):
        write_package(f"{path}.new")
        os.replace(f"{path}.new", path)  # it is there whole
    context.addPyFile(path)
    _shipped.add(context.applicationId)


def write_package(path: str) -> None:
    """Write this package to a zip that Python imports from.

    The modules that are loaded here are in it compiled, too, so that executors of this version of Python do not compile
    them once for each process; others do.
    """
    package = Path(__file__).parents[1]
    loaded = {module.__file__: name for name, module in list(sys.modules.items()) if getattr(module, "__file__", None)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for source in sorted(package.rglob("*.py")):
            name = source.relative_to(package.parent)
            archive.write(source, name)
            if str(source) in loaded:
                code = SourceFileLoader(loaded[str(source)], str(source)).get_code(loaded[str(source)])
                archive.writestr(str(name.with_suffix(".pyc")), _UNCHECKED + marshal.dumps(code))


def reason_of(exc: Exception) -> str:
    """Return the cause of an error of Spark in one line: its own text is a stack of two languages."""
    found = _REASON.findall(str(exc))
    own = [line for line in found if not line.startswith(("org.apache.spark.", "py4j.", "java."))]
    return errors.without_secrets((own or found or [str(exc).partition("\n")[0]])[0])
