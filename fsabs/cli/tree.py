"""`fsabs tree`: directories drawn as a tree."""

from __future__ import annotations

import errno
import os

import click

from ..core import registry
from .paths import Paths, ResolvedPath, path_argument
from .program import Invocation, common


@click.command()
@path_argument("path", required=False)
@click.option("-L", "--depth", type=click.IntRange(min=1), help="Levels to show.")
@common
def command(invocation: Invocation, path: str | None, depth: int | None) -> None:
    """Show a directory or a container as a tree.

    \b
    Example: fsabs tree -L 2 s3://bucket/train.zip/
    """
    with Paths() as resolver:
        for found in resolver.expand(path or "."):
            try:
                _Tree(invocation, found, depth).show()
            except NotADirectoryError as exc:
                if found.contents or registry.container_of(os.path.basename(found.path)) is None:
                    raise
                reason = "a container is a directory with a / at its end, else a file"
                raise NotADirectoryError(errno.ENOTDIR, reason, found.shown) from exc


class _Tree:
    """Writes one tree: a directory's files first, then its directories, each with what is in it."""

    def __init__(self, invocation: Invocation, top: ResolvedPath, depth: int | None) -> None:
        self._output = invocation.output
        self._top = top
        self._depth = depth
        self._files = self._directories = 0
        self._open: list[tuple[str, list[str]]] = []
        """The directories that lead to the current one, with their directories that were not shown yet."""

    def show(self) -> None:
        """Write the tree, and how many directories and files are in it."""
        if not self._output.json:
            self._output.line(self._output.name(self._top.shown, directory=True))
        for path, directories, files in self._top.fs.walk(self._top.path):
            self._enter(path)
            deep = self._depth is not None and len(self._open) + 1 >= self._depth
            self._open.append((path, list(directories)))
            for at, name in enumerate(files, 1):
                self._write(name, False, last=at == len(files) and not directories)
            if deep:
                self._leave_one()
                directories.clear()
        while self._open:
            self._leave_one()
        counts = {"directories": self._directories, "files": self._files}
        self._output.record(counts, f"\n{self._directories:,} directories, {self._files:,} files")

    def _enter(self, path: str) -> None:
        """Write the directory that is entered, and those before it that were not: links that lead back."""
        while self._open and os.path.dirname(path) != self._open[-1][0]:
            self._leave_one()
        if self._open:
            name, waiting = os.path.basename(path), self._open[-1][1]
            while waiting and (first := waiting.pop(0)) != name:
                self._write(first, True, last=False)
            self._write(name, True, last=not waiting)

    def _leave_one(self) -> None:
        waiting = self._open[-1][1]
        while waiting:
            name = waiting.pop(0)
            self._write(name, True, last=not waiting)
        self._open.pop()

    def _write(self, name: str, directory: bool, last: bool) -> None:
        self._directories += directory
        self._files += not directory
        above = self._open[-1][0]
        path = f"{above}/{name}" if above else name
        if self._output.json:
            kind = "directory" if directory else "file"
            self._output.record({"url": self._top.fs.url(path), "type": kind, "depth": len(self._open)}, "")
            return
        lines = "".join("│   " if waiting else "    " for _, waiting in self._open[:-1])
        branch = "└── " if last else "├── "
        self._output.line(lines + branch + self._output.name(name + "/" * directory, directory))
