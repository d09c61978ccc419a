"""The plan of a job: its units of files, and what every process of it needs to know. Data definitions only.

The plan depends on the listing and the options, never on the number of workers. The same holds for the names, order and
content of the output.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..core.limits import parse_json
from .inputs import InputFile, InputListing, Root
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
    roots: tuple[Root, ...]
    base: str
    """URL of the directory that `work` is a path in."""
    work: str
    """The folder that attempts write to; of this job alone."""
    format: OutputFormat
    skip_errors: bool


class OutputFile(NamedTuple):
    """A file of records that an attempt wrote."""

    path: str
    """In the base directory."""
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
