"""`fsabs manifest`, `prepare` and `samples`: what pins a data set, what makes one, what a training step has read."""

from __future__ import annotations

import contextlib
import json
import os
from argparse import BooleanOptionalAction, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..urls import opening
from .output import size_text
from .paths import path_argument
from .program import FAILED, Group, Invocation, UsageError, argument, at_least, command, flag
from .progress import PROGRESS, ProgressDisplay, Summary

if TYPE_CHECKING:
    from ..prepare import PrepareProgress

manifest = Group(
    """Write, check and merge manifests: lists of a data set's files, which pin it.

    A URL is that of a data set, as from_url takes it: a container at its end is opened.

    Example: fsabs manifest create s3://bucket/flowers flowers.jsonl"""
)
_URL, _MANIFEST = path_argument("url"), path_argument("manifest")


@manifest.command(
    "create",
    _URL,
    _MANIFEST,
    argument("--only", action="append", metavar="DIRECTORY", help="List this directory of it; may be repeated."),
    argument(
        "--digest",
        choices=["sha256", "md5", "none"],
        default="sha256",
        help="The digest of every file, which is read for it (default: %(default)s).",
    ),
    argument("--versions", action=BooleanOptionalAction, default=True, help="None are for copies elsewhere."),
    argument("--jobs", type=at_least(1), help="Small files that are read at once."),
    PROGRESS,
)
def _create(invocation: Invocation, given: Namespace) -> None:
    """Write the manifest of the data set at URL; the suffix of MANIFEST is its format.

    .jsonl is JSON lines, .parquet is Parquet.

    Example: fsabs manifest create s3://bucket/flowers flowers.parquet
    """
    from .. import manifest as manifests

    invocation.how_to_go_on = "nothing was written; run the same command again"
    with opening.from_url(given.url) as fs, ProgressDisplay(given.progress) as shown:
        done = manifests.create(
            fs,
            given.manifest,
            only=given.only or ("",),
            digest=None if given.digest == "none" else given.digest,
            versions=given.versions,
            progress=shown.update,
            concurrency=given.jobs,
        )
    _written(invocation, given.manifest, done)


@manifest.command(
    "check", _URL, _MANIFEST, flag("--digests", help="Read every file, and compare its digest."), PROGRESS
)
def _check(invocation: Invocation, given: Namespace) -> int:
    """Show all that differs between the data set at URL and its manifest.

    The exit code is 1 if anything differs.

    Example: fsabs manifest check s3://bucket/flowers flowers.parquet --digests
    """
    from .. import manifest as manifests

    summary = Summary("checked", "missing", "added", "changed")
    output = invocation.output

    def count(files: int) -> None:
        summary.counts["checked"] = files
        shown.update(files, 0, len(pinned))

    with (
        opening.from_url(given.url) as fs,
        manifests.Manifest(given.manifest) as pinned,
        ProgressDisplay(given.progress) as shown,
    ):
        for drift in manifests.check(fs, pinned, digests=given.digests, progress=count):
            shown.clear()
            summary.add(drift.kind)
            reason = f"  ({drift.reason})" if drift.reason else ""
            output.record(drift._asdict(), f"{drift.kind:<7}  {drift.name}{reason}")
    summary.write(output)
    return FAILED if any(summary.counts[kind] for kind in ("missing", "added", "changed")) else 0


@manifest.command("merge", path_argument("manifests", "+"), path_argument("target"))
def _merge(invocation: Invocation, given: Namespace) -> None:
    """Write the entries of several manifests as one, TARGET; one manifest is converted to TARGET's format.

    Example: fsabs manifest merge train.jsonl test.jsonl flowers.parquet
    """
    from .. import manifest as library

    _written(invocation, given.target, library.merge(given.manifests, given.target))


def _written(invocation: Invocation, manifest: str, done: tuple[int, int]) -> None:
    entries, size = done
    values = {"manifest": manifest, "entries": entries, "bytes": size}
    invocation.output.record(values, f"{manifest}: {entries:,} entries, {size_text(size)}")


@command(
    path_argument("model_file"),
    path_argument("raw_data_directory"),
    path_argument("output_directory"),
    argument("mode", choices=["local", "cluster"], metavar="MODE", help="local or cluster."),
    argument("workers", nargs="?", type=at_least(1), metavar="WORKERS"),
    argument("spark_master", nargs="?", metavar="SPARK_MASTER"),
    argument("--manifest", help="URL of a manifest of the raw data: its files are read, and compared with it."),
    argument("--num-workers", "--num_workers", type=at_least(1), help="Processes; with Spark, cores."),
    argument(
        "--records-per-file",
        "--records_per_file",
        type=at_least(1),
        default=1024,
        help="The most records of an output file (default: %(default)s).",
    ),
    argument(
        "--compressor",
        choices=["none", "snappy", "gzip"],
        default="snappy",
        help="Of chunks (default: %(default)s).",
    ),
    argument(
        "--max-chunk-bytes",
        "--max_chunk_bytes",
        type=at_least(1),
        default=1 << 20,
        help="The size of chunks: what is read for one record (default: %(default)s).",
    ),
    argument(
        "--tokens",
        choices=["uint8", "uint16", "int8", "int16", "int32", "int64"],
        help="Write documents of token ids of this type, as Megatron's .bin and .idx.",
    ),
    argument("--master", help="URL of Spark's master: local[4], spark://host:7077, k8s://..."),
    argument("--prefix", default="data", help="Output files are PREFIX-00000-of-00099 (default: %(default)s)."),
    argument(
        "--on-error",
        choices=["fail", "skip"],
        default="fail",
        help="End with the first file that fails, or leave such files out and report them (default: %(default)s).",
    ),
    flag("--validate", help="Read the output before it replaces an old one."),
    PROGRESS,
)
def prepare(invocation: Invocation, given: Namespace) -> None:
    """Make sharded RecordIO files of raw files, or files of tokens, on this machine or on a Spark cluster.

    MODEL_FILE is a Python file with prepare_data_for_a_single_file(filename), or (file_object, filename), and with
    feature_columns where records are to be checked. RAW_DATA_DIRECTORY is a directory, an archive or a glob pattern;
    it and OUTPUT_DIRECTORY are paths or URLs. WORKERS is --num-workers, SPARK_MASTER is --master. The output is whole
    or as it was before; a run after a crash goes on.

    With --tokens, the function makes documents: lists or arrays of token ids, of which any number make a file.

    Example: fsabs prepare model.py s3://bucket/raw.zip s3://bucket/train local --num-workers 8
    """
    from .. import prepare as library

    if (given.workers and given.num_workers) or (given.spark_master and given.master):
        raise UsageError("WORKERS or --num-workers, SPARK_MASTER or --master: not both")
    invocation.how_to_go_on = "run the same command again to go on"
    with ProgressDisplay(given.progress) as shown:

        def show(state: PrepareProgress) -> None:
            rate = f"{state.files_per_second:.0f} files/s"
            shown.update(state.files, state.bytes, state.total_files, state.total_bytes, rate)

        report = library.run(
            given.model_file,
            given.raw_data_directory,
            given.output_directory,
            given.mode,
            manifest=given.manifest,
            num_workers=given.num_workers or given.workers,
            records_per_file=given.records_per_file,
            compressor=given.compressor,
            max_chunk_bytes=given.max_chunk_bytes,
            tokens=given.tokens,
            master=given.master or given.spark_master,
            prefix=given.prefix,
            on_error=given.on_error,
            validate=given.validate,
            progress=show,
        )
    invocation.output.record(report.to_json(), str(report))


@command(
    path_argument("states", "*", metavar="STATE"),
    argument("step", type=at_least(0), metavar="STEP"),
    argument(
        "--loader", required=True, metavar="FILE.py:FUNCTION", help="The function that returns the Loader of the job."
    ),
    argument("--ranks", type=at_least(1), help="Ranks of the job; by default, those of the states."),
    argument("--key", help="The name of the loader's state in a checkpoint."),
)
def samples(invocation: Invocation, given: Namespace) -> None:
    """Show what each rank reads in a step: source, shard and record, from seed and counts alone.

    A STATE is a file that holds a loader's state_dict(), of any rank: JSON, or what torch.save writes. The step is the
    number of any batch of the state's epoch; without a STATE, of the first one. FUNCTION takes no arguments and makes
    the data set and the Loader as the job does; its rank is that of the environment.

    Example: fsabs samples step-300.json 340 --loader train.py:make_loader
    """
    from ..readers.data.factory import module_from

    path, colon, name = given.loader.rpartition(":")
    if not colon or not name.isidentifier():
        raise UsageError(f"--loader is FILE.py:FUNCTION, not {given.loader!r}")
    make = getattr(module_from(_read(path).decode(), path), name, None)
    if not callable(make):
        raise UsageError(f"{path} has no function {name}")
    states = [_state(path, given.key) for path in given.states]
    count = given.ranks or _ranks_of(states)
    with _rank(0, count):
        loader = make()
        try:
            if states:
                loader.load_state_dict(states)
            places = loader.samples(given.step)
        except LookupError as exc:
            raise UsageError(str(exc)) from None
        finally:
            loader.dataset.close()
    rows = [(rank, *place) for rank, own in places.items() for place in own]
    invocation.output.table(("rank", "source", "shard", "record"), rows)


def _read(path: str) -> bytes:
    with opening.open_url(path, "rb") as file:
        data: bytes = file.read()
        return data


def _state(path: str, key: str | None) -> Any:
    """Return the state in a file."""
    data = _read(path)
    try:
        value = json.loads(data)
    except ValueError:
        from ..adapters.torch import load_checkpoint

        value = load_checkpoint(path)
    for name in key.split(".") if key else ():
        if not isinstance(value, dict) or name not in value:
            raise UsageError(f"{path} has no {key!r}")
        value = value[name]
    return value


def _ranks_of(states: list[Any]) -> int:
    if not states:
        return 1
    first = states[0]
    if not isinstance(first, dict) or "ranks" not in first:
        raise UsageError("no state of a loader: give the name of it in the checkpoint by --key")
    return int(first["ranks"])


@contextlib.contextmanager
def _rank(rank: int, ranks: int) -> Iterator[None]:
    """Be a rank, for the loader that is made."""
    names = {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
