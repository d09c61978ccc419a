"""What programs do with a file object: lines, small reads and writes, jumps, pickles; ours and builtin `open`'s."""

from __future__ import annotations

import csv
import io
import pickle
import random
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import IO, Any

from . import Run, by_open, for_each, library, whole

READS = 200_000
JUMPS = 20_000
PICKLES = 20_000
WRITES = 200_000

Open = Callable[..., IO[Any]]


def _lines(file: IO[Any]) -> None:
    deque(file, maxlen=0)


def _readline(file: IO[Any]) -> None:
    while file.readline():
        pass


def _small_reads(file: IO[Any]) -> None:
    for _ in range(READS):
        file.read(10)


def _jumps(file: IO[Any]) -> None:
    size = file.seek(0, io.SEEK_END)
    drawn = random.Random(1)
    for _ in range(JUMPS):
        file.seek(drawn.randrange(size - 100))
        whole(file.read(100), 100)


def _pickles(file: IO[Any]) -> None:
    for _ in range(PICKLES):
        pickle.load(file)


def _small_writes(file: IO[Any]) -> None:
    for _ in range(WRITES):
        file.write(b"0123456789")


def _print(file: IO[Any]) -> None:
    for number in range(WRITES):
        print("line", number, file=file)


def _csv(file: IO[Any]) -> None:
    writer = csv.writer(file)
    for number in range(WRITES):
        writer.writerow((number, "a name", 0.5))


def _torch(file: IO[Any]) -> None:
    library("torch").load(file)


WORKS: Mapping[str, tuple[str, Callable[[IO[Any]], None]]] = {
    "lines": ("rb", _lines),
    "text lines": ("r", _lines),
    "readline": ("rb", _readline),
    "read(10)": ("rb", _small_reads),
    "seek, read(100)": ("rb", _jumps),
    "pickle.load": ("rb", _pickles),
    "torch.load": ("rb", _torch),
    "write(10)": ("wb", _small_writes),
    "print": ("w", _print),
    "csv.writer": ("w", _csv),
}
"""What is done with a file that is opened in a mode."""


def _run(opened: Open, path: str, work: str) -> Run:
    mode, function = WORKS[work]

    def run() -> None:
        with opened(path, mode) as file:
            function(file)

    return run


def fsabs(path: str, work: str) -> Run:
    """`fs.open` of a local directory."""
    folder = PurePath(path)
    return _run(library("fsabs").from_url(str(folder.parent)).open, folder.name, work)


def builtin(path: str, work: str) -> Run:
    """Python's own `open`."""
    return _run(open, path, work)


def fsabs_lines(url: str, name: str, options: dict[str, Any]) -> Run:
    """The lines of a file at any URL."""
    return _run(library("fsabs").from_url(url, **options).open, name, "lines")


def lines_in_memory(url: str, name: str, options: dict[str, Any]) -> Run:
    """The lines of its `read_bytes` in a BytesIO."""
    fs = library("fsabs").from_url(url, **options)

    def run() -> None:
        _lines(io.BytesIO(fs.read_bytes(name)))

    return run


def opened_by_url(path: str, times: int) -> Run:
    """`open_url` of one file, `times`."""
    return for_each(by_open(library("fsabs").open_url), [path] * times)


def opened_by_builtin(path: str, times: int) -> Run:
    """Builtin `open` of one file, `times`."""
    return for_each(by_open(open), [path] * times)


def fsabs_roots(path: str, times: int) -> Run:
    """`from_url` of one directory, `times`."""
    return for_each(library("fsabs").from_url, [path] * times)


def fsspec_roots(path: str, times: int) -> Run:
    """`url_to_fs` of one directory, `times`."""
    return for_each(library("fsspec.core").url_to_fs, [path] * times)
