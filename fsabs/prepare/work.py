"""One unit of a job: its files are read, the user's function makes records of them, and these are written.

An attempt writes to files that no other attempt has, and then a small file that names them (`done/UNIT`), whole or not
at all. Whichever attempt's is there when the job is committed counts, and no record of another one.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

from ..containers.base import Container
from ..core.errors import CorruptFileError, stale, without_secrets
from ..core.fs import FS
from ..core.layers import LayerFS
from ..core.writing import AbortsOnError
from ..readers.data import TokenWriter
from ..readers.prefetch import prefetch
from ..readers.recordio import RecordWriter
from ..urls import opening
from .inputs import InputFile, InputRoots
from .model import Model, RecordError
from .plan import FileFailure, OutputFile, PrepareJob, Unit, UnitResult

ATTEMPTS = 3
"""How often a unit is begun before the job fails."""
LARGE = 64 << 20
"""Bytes from which on a file is not read as a whole."""
_BATCH_FILES = 64
_BATCH_BYTES = 64 << 20
_OF_THE_FILE = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, CorruptFileError)
"""Errors that another attempt would meet again. Others are the store's, and end the attempt; so does a refusal that is
not of this file alone."""


_worker: tuple[PrepareJob, UnitWorker] | None = None
"""Of this process, which works on many units."""


def run_unit(job: PrepareJob, unit: Unit) -> UnitResult:
    """Work on a unit of a job, by this process's worker."""
    global _worker
    if _worker is None or _worker[0] != job:
        if _worker is not None:
            _worker[1].close()
        _worker = job, UnitWorker(job)
    return _worker[1].run(unit)


class UnitWorker:
    """Works on units of a job in this process."""

    def __init__(self, job: PrepareJob) -> None:
        self._job = job
        self._model = Model(job.model)
        self._roots = InputRoots(job.roots)
        self._output = opening.from_url(job.output)

    def run(self, unit: Unit) -> UnitResult:
        """Work on a unit; the result of a failing file is returned, errors of the stores are raised."""
        job = self._job
        failures: list[FileFailure] = []
        output = _RollingWriter(self._output, f"{job.work}/parts/{unit.number:06}-{uuid.uuid4().hex}", job)
        with output:
            for file, content in self._contents(unit.files):
                failure = self._process(file, content, output)
                if failure is not None:
                    failures.append(failure)
                    if not job.skip_errors:
                        output.abort()
                        result = UnitResult(unit.number, [], 0, 0, [failure], error=True)
                        self._output.write_bytes(f"{job.work}/failed/{unit.number:06}", result.to_json())
                        return result
        result = UnitResult(unit.number, output.files, len(unit.files), unit.size, failures)
        self._output.write_bytes(f"{job.work}/done/{unit.number:06}", result.to_json())
        return result

    def _process(self, file: InputFile, content: bytes | OSError | None, output: _RollingWriter) -> FileFailure | None:
        """Write the records of a file; return its failure, or None. With `skip_errors`, a file has all or none."""
        records = self._records(file, content)
        if self._job.skip_errors:
            try:
                records = iter(list(records))
            except (RecordError, *_OF_THE_FILE) as exc:
                return self._failure(file, exc)
        while True:
            try:
                record = next(records, None)
            except (RecordError, *_OF_THE_FILE) as exc:
                return self._failure(file, exc)
            if record is None:
                return None
            output.write(record)

    def _records(self, file: InputFile, content: bytes | OSError | None) -> Iterator[bytes]:
        if isinstance(content, OSError):
            raise content
        if not file.size:
            raise RecordError("the file is empty")
        dtype = self._job.format.tokens
        with self._arguments(file, content) as arguments:
            try:
                yield from (
                    self._model.records(*arguments) if dtype is None else self._model.documents(dtype, *arguments)
                )
            except RecordError as exc:
                if content is None and self._model.takes_file and _is_of_the_store(exc.__cause__):
                    raise exc.__cause__ from None
                raise

    def _failure(self, file: InputFile, exc: Exception) -> FileFailure:
        """Return the failure of a file; raise a refusal that is the store's, as when credentials have ended."""
        refusal = exc if isinstance(exc, PermissionError) else exc.__cause__
        if isinstance(refusal, PermissionError) and not self._is_seen(file):
            raise refusal
        return FileFailure(self._roots.name(file), without_secrets(str(exc)))

    def _is_seen(self, file: InputFile) -> bool:
        """Return True if the store shows a file that it refuses to give; what is in an archive has no permissions."""
        fs = self._roots.fs(file.root)
        path = "/" + fs._key(file.path, "prepare")  # absolute: a layer below may have another working directory
        while isinstance(fs, LayerFS):  # a manifest or a cache would answer in the place of the store
            fs = fs.inner
        if isinstance(fs, Container):
            return False
        try:
            fs.stat(path)
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def _arguments(self, file: InputFile, content: bytes | None) -> Iterator[tuple[Any, ...]]:
        """Give the arguments for the user's function."""
        fs, path = self._roots.fs(file.root), self._roots.local_path(file)
        if self._model.takes_file:
            with io.BytesIO(content) if content is not None else fs.open(file.path, "rb") as opened:
                yield opened, path or fs.url(file.path)
        elif path is not None:
            yield (path,)
        else:
            with tempfile.TemporaryDirectory(prefix="fsabs-prepare-") as folder:
                copy = os.path.join(folder, file.path)
                os.makedirs(os.path.dirname(copy), exist_ok=True)
                with open(copy, "wb") as target:
                    if content is not None:
                        target.write(content)
                    else:
                        with fs.open(file.path, "rb") as source:
                            while piece := source.read(8 << 20):
                                target.write(piece)
                yield (copy,)

    def _contents(self, files: Sequence[InputFile]) -> Iterator[tuple[InputFile, bytes | OSError | None]]:
        """Yield each file with its content; None for those that the function opens or that are large."""
        for (_, whole), group in itertools.groupby(files, lambda file: (file.root, self._is_read_whole(file))):
            some = list(group)
            yield from self._read(list(some)) if whole else ((file, None) for file in some)

    def _is_read_whole(self, file: InputFile) -> bool:
        by_path = not self._model.takes_file and self._roots.local_path(file) is not None
        return 0 < file.size < LARGE and not by_path

    def _read(self, files: list[InputFile]) -> Iterator[tuple[InputFile, bytes | OSError]]:
        """Yield files of one root with their contents, or with the error of reading them."""
        at = 0
        while at < len(files):
            fs = self._roots.fs(files[at].root)
            contents = _many(fs, files[at:])
            try:
                for data in contents:
                    file = files[at]
                    if len(data) != file.size:
                        url = fs.url(file.path)
                        raise stale(url, f"the file has {len(data)} bytes, and had {file.size} when it was listed")
                    at += 1
                    yield file, data
            except _OF_THE_FILE as exc:
                at += 1
                yield files[at - 1], exc

    def close(self) -> None:
        """Close what was opened."""
        self._roots.close()
        self._output.close()


def _is_of_the_store(exc: BaseException | None) -> TypeGuard[OSError]:
    """Return True if a function that reads a file of a store was ended by the store; decoders give no errno."""
    return isinstance(exc, OSError) and exc.errno is not None and not isinstance(exc, (*_OF_THE_FILE, ValueError))


def _many(fs: FS, files: list[InputFile]) -> Iterator[bytes]:
    """Read files: ahead of the consumer from a remote store, in batches from the local disk."""
    paths = [file.path for file in files]
    if fs.scheme != "file":
        with contextlib.closing(prefetch(fs, paths, max_bytes=_BATCH_BYTES)) as contents:
            yield from contents
        return
    start = 0
    while start < len(files):
        end, size = start, 0
        while end < len(files) and end - start < _BATCH_FILES and (end == start or size < _BATCH_BYTES):
            size += files[end].size
            end += 1
        yield from fs.read_many(paths[start:end])
        start = end


class _RollingWriter(AbortsOnError, contextlib.AbstractContextManager["_RollingWriter"]):
    """Writes records to numbered files, each with up to as many as the format says."""

    def __init__(self, fs: FS, stem: str, job: PrepareJob) -> None:
        self.files: list[OutputFile] = []
        self._fs, self._stem, self._format = fs, stem, job.format
        self._writer: RecordWriter | TokenWriter | None = None
        self._path = ""
        self._count = 0

    def write(self, record: bytes) -> None:
        """Write a record to the file that has room for it."""
        if self._writer is not None and self._writer.records >= self._format.records_per_file:
            self.close()
        if self._writer is None:
            self._path = f"{self._stem}-{self._count:06}"
            options = self._format
            if options.tokens is not None:
                self._writer = TokenWriter(self._fs, self._path, options.tokens)
            else:
                self._writer = RecordWriter(
                    self._fs, self._path, compressor=options.compressor, max_chunk_bytes=options.max_chunk_bytes
                )
        self._writer.write(record)

    def close(self) -> None:
        """Close the file that is being written."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            for number, suffix in enumerate(self._format.suffixes):
                path = self._path + suffix
                self.files.append(OutputFile(path, 0 if number else writer.records, self._fs.stat(path).size))
            self._count += 1

    def abort(self) -> None:
        """Remove all that was written: where the disk is full, the next attempt needs the room."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()
        files, self.files = self.files, []
        for file in files:
            with contextlib.suppress(OSError):  # it stays until the output is complete
                self._fs.remove(file.path)
