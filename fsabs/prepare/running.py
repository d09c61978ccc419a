"""`run`: from raw files to sharded RecordIO or to files of tokens, on this machine or on a Spark cluster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from .. import __version__
from ..core import process
from ..core.errors import CorruptFileError, corrupt, without_secrets
from ..core.fs import FS
from ..readers.data.tokens import document_ends, layout_of
from ..readers.locate import shard_name
from ..readers.recordio import RecordReader
from ..readers.recordio.format import COMPRESSORS
from .inputs import InputListing, InputRoots, list_files
from .local import LocalRunner
from .model import Model, ModelSource
from .output import Commit, OutputDirectory
from .plan import (
    OutputFormat,
    OutputShard,
    PrepareJob,
    PrepareProgress,
    PrepareReport,
    Unit,
    UnitResult,
    fingerprint,
    units_of,
)

if TYPE_CHECKING:
    from _typeshed import StrPath

Mode = Literal["local", "cluster"]
OnError = Literal["fail", "skip"]
_TOKENS = ("uint8", "uint16", "int8", "int16", "int32", "int64")


class PrepareError(ValueError):
    """A raw file that no records can be made of; the message names the file, and the column where there is one."""


class Runner(Protocol):
    """An object that works on the units of a job."""

    def run(self, job: PrepareJob, units: Sequence[Unit]) -> Generator[UnitResult | None, None, None]:
        """Yield the result of each unit when it is done, in any order; None now and then while there is none."""


def run(
    model_file: StrPath,
    raw_data_directory: StrPath,
    output_directory: StrPath,
    mode: Mode = "local",
    *,
    manifest: StrPath | None = None,
    num_workers: int | None = None,
    records_per_file: int = 1024,
    compressor: str = "snappy",
    max_chunk_bytes: int = 1 << 20,
    tokens: str | None = None,
    master: str | None = None,
    prefix: str = "data",
    on_error: OnError = "fail",
    validate: bool = False,
    progress: Callable[[PrepareProgress], object] | None = None,
) -> PrepareReport:
    """Make RecordIO files of raw files by the function of a model file; return the report.

    Args:
        model_file: the URL or path of a Python file with `prepare_data_for_a_single_file(filename)` or
            `(file_object, filename)`, which returns one record or an iterator of records, and with `feature_columns`
            where each record is to be checked.
        raw_data_directory: the URL or path of a directory, of an archive, whose members are the raw files, or of one
            file; or a glob pattern of them. Names that begin with a dot are left out.
        output_directory: the URL or path of a directory that is missing, empty, or made by an earlier run, whose files
            are replaced when the new output is complete.
        mode: `local`, in processes on this machine (by Spark if `master` is `local[N]`), or `cluster`, on Spark. Its
            processes are started by `spawn`: a program calls this function below `if __name__ == "__main__":`.
        manifest: the URL or path of a manifest (`fsabs.manifest`) of the raw data: it says which files there are, and a
            file that differs from it is an error.
        num_workers: processes, by default as many as there are CPUs; with Spark, the most cores that the job takes.
        records_per_file: the most records of an output file.
        compressor: `none`, `snappy` or `gzip`.
        max_chunk_bytes: of an output file, as of `fsabs.readers.RecordWriter`.
        tokens: the type of a token ("uint16", "int32" ...): the function makes documents, lists or arrays of token ids,
            and the output files are Megatron's, `PREFIX-00000-of-00099.bin` and `.idx`, with up to `records_per_file`
            documents each. None writes RecordIO.
        master: the URL of Spark's master; by default, what Spark's configuration says.
        prefix: the output files are called `PREFIX-00000-of-00099`.
        on_error: `fail`: the first raw file that fails ends the job, and the old output stays. `skip`: such files are
            left out, and the report lists them.
        validate: read all output files before they replace the old ones.
        progress: called now and then with the `PrepareProgress`, in this thread.

    Records are in the order of the sorted files, whatever the number of workers. A run after a crash continues from the
    units that are done; one after a crash in the commit completes that, and returns its report. Raises `ModelError`,
    `PrepareError`, `OSError`, `ValueError`, and `RuntimeError` for what Spark can't do; the old output is then as it
    was.
    """
    started = time.monotonic()
    _check_arguments(mode, num_workers, records_per_file, master, prefix, on_error)
    if compressor not in COMPRESSORS:
        raise ValueError(f"compressor is one of {', '.join(COMPRESSORS)}, not {compressor!r}")
    if tokens is not None and tokens not in _TOKENS:
        raise ValueError(f"tokens is one of {', '.join(_TOKENS)}, not {tokens!r}")
    source = ModelSource.read(model_file)
    Model(source)
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(contextlib.closing(OutputDirectory(output_directory)))
        runner: Runner
        if mode == "cluster" or master is not None:
            from .spark import SparkRunner

            runner = SparkRunner(output, master, num_workers)
        else:
            runner = stack.enter_context(contextlib.closing(LocalRunner(num_workers or process.cpu_count())))
        listing = list_files(raw_data_directory, manifest, output.check_input)
        output.check()
        form = OutputFormat(prefix, records_per_file, compressor, max_chunk_bytes, tokens)
        job = PrepareJob(source, listing.roots, output.given, "", form, on_error == "skip")
        job_id = fingerprint(job, listing, __version__)
        job = job._replace(work=output.work(job_id))
        if (finished := output.finished(job_id)) is not None:
            return PrepareReport.of(finished)
        if on_error == "fail":
            _check_empty(listing)
        units = list(units_of(listing, records_per_file))
        resumed_files = _work(job, job_id, listing, units, runner, output, progress or (lambda _: None))
        report, moves = _report(output, len(units), form, resumed_files, started)
        if validate:
            _validate(output, zip(moves, report.shards, strict=True), tokens is not None)
        output.commit(Commit(moves, report.to_json()))
        return report


def _check_arguments(
    mode: str, num_workers: int | None, records_per_file: int, master: str | None, prefix: str, on_error: str
) -> None:
    if mode not in ("local", "cluster"):
        raise ValueError(f"the running mode is 'local' or 'cluster', not {mode!r}")
    if on_error not in ("fail", "skip"):
        raise ValueError(f"on_error is 'fail' or 'skip', not {on_error!r}")
    if num_workers is not None and num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, not {num_workers}")
    if records_per_file < 1:
        raise ValueError(f"records_per_file must be at least 1, not {records_per_file}")
    if not prefix or "/" in prefix or prefix.startswith("."):
        raise ValueError(f"a prefix is the beginning of a file's name, not {prefix!r}")
    if mode == "local" and master is not None and not master.startswith("local"):
        raise ValueError(f"in local mode the master is local[N], not {master!r}")


def _check_empty(listing: InputListing) -> None:
    """Raise `PrepareError` for empty files, which are known before any work begins."""
    empty = [file for file in listing.files if not file.size]
    if empty:
        with contextlib.closing(InputRoots(listing.roots)) as roots:
            names = ", ".join(roots.name(file) for file in empty[:3])
        more = f" and {len(empty) - 3} more" if len(empty) > 3 else ""
        raise PrepareError(f"{len(empty)} of {len(listing.files)} files are empty: {names}{more}")


def _work(
    job: PrepareJob,
    job_id: str,
    listing: InputListing,
    units: Sequence[Unit],
    runner: Runner,
    output: OutputDirectory,
    progress: Callable[[PrepareProgress], object],
) -> int:
    """Do what is left of the job; return the number of files that were done before."""
    started = time.monotonic()
    earlier = output.begin(job_id)
    state = PrepareProgress(0, len(listing.files), 0, sum(file.size for file in listing.files), 0, 0, 0, 0.0)
    for result in earlier:
        state = _added(state, result)
    state = state._replace(resumed_files=state.files)
    done = {result.number for result in earlier}
    left = [unit for unit in units if unit.number not in done]
    progress(state)
    try:
        with contextlib.closing(runner.run(job, left)) as results:
            for new in results if left else ():
                if new is not None and new.error:
                    raise PrepareError(str(new.failures[0]))
                state = (state if new is None else _added(state, new))._replace(seconds=time.monotonic() - started)
                progress(state)
    except OSError:
        output.check_owned()  # the files of a run whose output another one has taken are gone
        raise
    output.check_owned()
    return state.resumed_files


def _added(state: PrepareProgress, result: UnitResult) -> PrepareProgress:
    """Return the progress with one unit more."""
    return state._replace(
        files=state.files + result.inputs,
        bytes=state.bytes + result.input_bytes,
        records=state.records + result.records,
        failures=state.failures + len(result.failures),
    )


def _report(
    output: OutputDirectory, units: int, form: OutputFormat, resumed_files: int, started: float
) -> tuple[PrepareReport, dict[str, str]]:
    """Return the report of a job that is done, and the names of its files by their staged paths."""
    results = sorted(output.done())
    if [result.number for result in results] != list(range(units)):
        raise RuntimeError(f"{len(results)} of {units} units are done: please report this as a bug")
    files = [file for result in results for file in result.files]
    failures = tuple(failure for result in results for failure in result.failures)
    if not files:
        raise PrepareError("there are no records" + (f"; the first reason: {failures[0]}" if failures else ""))
    count = len(files) // len(form.suffixes)
    stems = [shard_name(form.prefix, number, count - 1) for number in range(count)]
    names = [stem + suffix for stem in stems for suffix in form.suffixes]
    report = PrepareReport(
        output=without_secrets(output.url),
        files=sum(result.inputs for result in results),
        records=sum(file.records for file in files),
        input_bytes=sum(result.input_bytes for result in results),
        output_bytes=sum(file.bytes for file in files),
        failures=failures,
        shards=tuple(OutputShard(name, file.records, file.bytes) for name, file in zip(names, files, strict=True)),
        resumed_files=resumed_files,
        seconds=round(time.monotonic() - started, 3),
    )
    return report, {file.path: name for name, file in zip(names, files, strict=True)}


def _validate(output: OutputDirectory, files: Iterable[tuple[str, OutputShard]], tokens: bool) -> None:
    """Read files of records; raise `CorruptFileError` for damage or another number of records."""
    for path, shard in files:
        if tokens and path.endswith(".idx"):
            continue
        try:
            found = _count(output.fs, path, tokens)
            if found != shard.records:
                raise corrupt(output.fs.url(path), f"{found} records, and {shard.records} were written", "validate")
        except (CorruptFileError, FileNotFoundError):
            output.forget(path)  # else each later run would find it done, and damaged
            raise


def _count(fs: FS, path: str, tokens: bool) -> int:
    """Read a file of records, or of documents of tokens, and return how many it has."""
    if tokens:
        layout = layout_of(fs, fs.stat(path)._replace(filename=path), set(), "megatron", None)
        return len(document_ends(fs, layout))
    with RecordReader(fs, path) as reader:
        return sum(1 for _ in reader)
