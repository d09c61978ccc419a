"""The plan of a job: its units of files, and what every process of it needs to know; its progress, and its report.

Data definitions only.

The plan depends on the listing and the options, never on the number of workers. The same holds for the names, order and
content of the output.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..core.limits import parse_json
from .inputs import InputFile, InputListing, InputRoot
from .model import ModelSource

UNIT_BYTES = 256 << 20
"""Bytes of raw files that a unit has at most, unless it is one file."""


class Unit(NamedTuple):
    """Consecutive files that one process works on, in order; their records are in output files of their own."""

    number: int
    files: list[InputFile]

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(file.size for file in self.files)


class OutputFormat(NamedTuple):
    """The form of the output files."""

    prefix: str
    records_per_file: int
    compressor: str
    max_chunk_bytes: int
    tokens: str | None = None
    """The type of a token, where documents are written as Megatron's files and not as RecordIO."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The ends of the names of the files that are one output file."""
        return ("",) if self.tokens is None else (".bin", ".idx")


class PrepareJob(NamedTuple):
    """The description of a job that every process of it has."""

    model: ModelSource
    roots: tuple[InputRoot, ...]
    output: str
    """The URL of the output directory."""
    work: str
    """The folder in it that attempts write to; of this job alone."""
    format: OutputFormat
    skip_errors: bool


class OutputFile(NamedTuple):
    """A file of records that an attempt wrote."""

    path: str
    """In the output directory."""
    records: int
    bytes: int


class FileFailure(NamedTuple):
    """A raw file that could not be converted, and the reason."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


class UnitResult(NamedTuple):
    """The output of one attempt at a unit, or the reasons of its failure."""

    number: int
    files: list[OutputFile]
    inputs: int
    input_bytes: int
    failures: list[FileFailure]
    """The files that were skipped or, where `error`, the one that failed."""
    error: bool = False

    @property
    def records(self) -> int:
        """The number of records written."""
        return sum(file.records for file in self.files)

    def to_json(self) -> bytes:
        """Serialize the result, as the content of the file that marks the unit as done."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def from_json(cls, data: bytes) -> UnitResult:
        """Return the result that `to_json` has serialized."""
        fields: dict[str, Any] = parse_json(data)
        fields["files"] = [OutputFile(*file) for file in fields["files"]]
        fields["failures"] = [FileFailure(*failure) for failure in fields["failures"]]
        return cls(**fields)


def units_of(listing: InputListing, files_per_unit: int) -> Iterator[Unit]:
    """Yield the units of a job: up to `files_per_unit` files and `UNIT_BYTES` bytes each."""
    files: list[InputFile] = []
    size = number = 0
    for file in listing.files:
        if files and (len(files) >= files_per_unit or size + file.size > UNIT_BYTES):
            yield Unit(number, files)
            files, size, number = [], 0, number + 1
        files.append(file)
        size += file.size
    if files:
        yield Unit(number, files)


def fingerprint(job: PrepareJob, listing: InputListing, version: str) -> str:
    """Return a digest of all that the output depends on: only units of an equal job can be used again."""
    modules = sorted(job.model.modules().items())
    parts = [version, job.model.text, modules, job.format, job.skip_errors, job.roots]
    digest = hashlib.sha256(json.dumps(parts).encode())
    for file, state in zip(listing.files, listing.versions, strict=True):
        digest.update(f"{file.root} {file.size} {state} {file.path}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


# ---- progress and report


class OutputShard(NamedTuple):
    """A file of the output."""

    name: str
    records: int
    bytes: int


class PrepareReport(NamedTuple):
    """The output of a job. The report is in the output directory as `.fsabs-prepare.json`, too."""

    output: str
    """The full URL of the directory."""
    files: int
    """Raw files that were read."""
    records: int
    input_bytes: int
    output_bytes: int
    failures: tuple[FileFailure, ...]
    """Raw files that were skipped, with the reasons."""
    shards: tuple[OutputShard, ...]
    """The files of the output, in order."""
    resumed_files: int
    """Raw files whose records an earlier run had made."""
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data; failures and shards are objects."""
        fields = self._asdict()
        fields["failures"] = [failure._asdict() for failure in self.failures]
        fields["shards"] = [shard._asdict() for shard in self.shards]
        return fields

    @classmethod
    def from_json(cls, text: str | bytes) -> PrepareReport:
        """Return the report that `.fsabs-prepare.json` holds."""
        return cls.of(parse_json(text))

    @classmethod
    def of(cls, fields: dict[str, Any]) -> PrepareReport:
        """Return the report whose fields `to_json` gave."""
        failures = tuple(FileFailure(**failure) for failure in fields["failures"])
        return cls(
            **{**fields, "failures": failures, "shards": tuple(OutputShard(**shard) for shard in fields["shards"])}
        )

    def __str__(self) -> str:
        lines = [f"skipped {failure}" for failure in self.failures]
        resumed = f", {self.resumed_files} of them by an earlier run" if self.resumed_files else ""
        rate = self.files / self.seconds if self.seconds else 0.0
        lines.append(
            f"{self.output}: {self.records} records ({self.output_bytes} bytes) in {len(self.shards)} files, of "
            f"{self.files} raw files ({self.input_bytes} bytes){resumed}; {len(self.failures)} skipped; "
            f"{self.seconds:.1f} s, {rate:.0f} files/s"
        )
        return "\n".join(lines)


class PrepareProgress(NamedTuple):
    """The progress of a job."""

    files: int
    """Raw files that are done, those of earlier runs included."""
    total_files: int
    bytes: int
    total_bytes: int
    records: int
    failures: int
    resumed_files: int
    seconds: float
    """Since the work began."""

    @property
    def files_per_second(self) -> float:
        """The rate of this run."""
        return (self.files - self.resumed_files) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the rate of this run, or None while there is none."""
        rate = self.files_per_second
        return (self.total_files - self.files) / rate if rate > 0 else None

    def __str__(self) -> str:
        left = self.seconds_left
        return (
            f"{self.files} of {self.total_files} files, {self.records} records, {self.failures} skipped, "
            f"{self.files_per_second:.0f} files/s, {'unknown' if left is None else f'{left:.0f} s'} left"
        )
