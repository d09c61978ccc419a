"""A third party's writer as it is first written: a plain buffered file, moved into its place."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from fsabs import Local
from fsabs.core.writing import Writer, partial_name


class NaiveWriter(Writer):
    """Collects what it is given in the buffer of a plain file, which a forked child inherits."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._partial = os.path.join(os.path.dirname(path), partial_name(os.path.basename(path)))
        self._file = open(self._partial, "xb")  # noqa: SIM115 - closed by commit or abort

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def commit(self) -> None:
        self._file.close()
        os.replace(self._partial, self._path)

    def abort(self) -> None:
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._partial)


class NaiveLocal(Local):
    """Local files that are written by a naive writer."""

    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        return super()._create(key, exclusive, append, update) if update else NaiveWriter("/" + key)


def write_over_a_fork(folder: Path) -> None:
    """Write 110 bytes; between the first 100 and the rest, a forked child ends as a program does."""
    fs = NaiveLocal(folder)
    file = fs.open("a.bin", "wb")
    file.write(b"x" * 100)
    file.flush()
    child = os.fork()
    if not child:
        sys.exit()
    os.waitpid(child, 0)
    file.write(b"y" * 10)
    file.close()


if __name__ == "__main__":
    write_over_a_fork(Path(sys.argv[1]))
