"""The progress of a job, and the report at its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..core.limits import parse_json
from .plan import FileFailure, UnitResult


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
            f"{self.output}: {self.records} records ({self.output_bytes} bytes) in {len(self.shards)} shards, of "
            f"{self.files} files ({self.input_bytes} bytes){resumed}; {len(self.failures)} skipped; "
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


class PrepareTally:
    """Adds up results of units."""

    def __init__(self, total_files: int, total_bytes: int, earlier: Sequence[UnitResult]) -> None:
        self._total_files, self._total_bytes = total_files, total_bytes
        self._started = time.monotonic()
        self._files = self._bytes = self._records = self._failures = 0
        self.resumed_files = 0
        for result in earlier:
            self.add(result)
        self.resumed_files = self._files

    def add(self, result: UnitResult) -> PrepareProgress:
        """Count a unit; return the progress."""
        self._files += result.inputs
        self._bytes += result.input_bytes
        self._records += result.records
        self._failures += len(result.failures)
        return self.progress()

    def progress(self) -> PrepareProgress:
        """Return the progress."""
        seconds = time.monotonic() - self._started
        counted = self._files, self._total_files, self._bytes, self._total_bytes, self._records, self._failures
        return PrepareProgress(*counted, self.resumed_files, seconds)
