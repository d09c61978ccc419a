"""`fsabs prepare`: raw files become sharded RecordIO, or files of tokens, by the function of a model file."""

from __future__ import annotations

from typing import Literal

import click

from .program import Invocation, common
from .progress import ProgressDisplay, ProgressMode, progress_option


@click.command()
@click.argument("model_file")
@click.argument("raw_data_directory")
@click.argument("output_directory")
@click.argument("mode", type=click.Choice(["local", "cluster"]))
@click.argument("workers", type=click.IntRange(min=1), required=False)
@click.argument("spark_master", required=False)
@click.option("--manifest", help="URL of a manifest of the raw data: its files are read, and compared with it.")
@click.option("--num-workers", "--num_workers", type=click.IntRange(min=1), help="Processes; with Spark, cores.")
@click.option(
    "--records-per-file",
    "--records_per_file",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    help="The most records of an output file.",
)
@click.option(
    "--compressor",
    type=click.Choice(["none", "snappy", "gzip"]),
    default="snappy",
    show_default=True,
    help="Of chunks.",
)
@click.option(
    "--max-chunk-bytes",
    "--max_chunk_bytes",
    type=click.IntRange(min=1),
    default=1 << 20,
    show_default=True,
    help="The size of chunks: what is read for one record.",
)
@click.option(
    "--tokens",
    type=click.Choice(["uint8", "uint16", "int8", "int16", "int32", "int64"]),
    help="Write documents of token ids of this type, as Megatron's .bin and .idx.",
)
@click.option("--master", help="URL of Spark's master: local[4], spark://host:7077, k8s://...")
@click.option("--prefix", default="data", show_default=True, help="Output files are PREFIX-00000-of-00099.")
@click.option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="End with the first file that fails, or leave such files out and report them.",
)
@click.option("--validate", is_flag=True, help="Read the output before it replaces an old one.")
@progress_option
@common
def command(
    invocation: Invocation,
    model_file: str,
    raw_data_directory: str,
    output_directory: str,
    mode: Literal["local", "cluster"],
    workers: int | None,
    spark_master: str | None,
    manifest: str | None,
    num_workers: int | None,
    records_per_file: int,
    compressor: str,
    max_chunk_bytes: int,
    tokens: str | None,
    master: str | None,
    prefix: str,
    on_error: Literal["fail", "skip"],
    validate: bool,
    progress: ProgressMode,
) -> None:
    """Make sharded RecordIO files of raw files, or files of tokens, on this machine or on a Spark cluster.

    MODEL_FILE is a Python file with prepare_data_for_a_single_file(filename), or (file_object, filename), and with
    feature_columns where records are to be checked. RAW_DATA_DIRECTORY is a directory, an archive or a glob pattern;
    it and OUTPUT_DIRECTORY are paths or URLs. WORKERS is --num-workers, SPARK_MASTER is --master. The output is whole
    or as it was before; a run after a crash goes on.

    With --tokens, the function makes documents: lists or arrays of token ids, of which any number make a file.

    \b
    Example: fsabs prepare model.py s3://bucket/raw.zip s3://bucket/train local --num-workers 8
    """
    from .. import prepare

    if (workers and num_workers) or (spark_master and master):
        raise click.UsageError("WORKERS or --num-workers, SPARK_MASTER or --master: not both")
    invocation.how_to_go_on = "run the same command again to go on"
    with ProgressDisplay(progress) as shown:

        def show(state: prepare.PrepareProgress) -> None:
            shown.update(
                state.files, state.bytes, state.total_files, state.total_bytes, f"{state.files_per_second:.0f} files/s"
            )

        report = prepare.run(
            model_file,
            raw_data_directory,
            output_directory,
            mode,
            manifest=manifest,
            num_workers=num_workers or workers,
            records_per_file=records_per_file,
            compressor=compressor,
            max_chunk_bytes=max_chunk_bytes,
            tokens=tokens,
            master=master or spark_master,
            prefix=prefix,
            on_error=on_error,
            validate=validate,
            progress=show,
        )
    invocation.output.record(report.to_json(), str(report))
