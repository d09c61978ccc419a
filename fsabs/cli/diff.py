"""`fsabs diff`: what differs between two files or two trees, wherever they are."""

from __future__ import annotations

import functools

import click

from ..transfer.comparing import Comparison
from ..transfer.walks import ordered_walk, side_by_side
from .paths import Paths, ResolvedPath, path_argument
from .program import FAILED, Invocation, common


@click.command()
@path_argument("left")
@path_argument("right")
@click.option("--size-only", is_flag=True, help="Compare names and sizes, and no contents.")
@common
def command(invocation: Invocation, left: str, right: str, size_only: bool) -> int:
    """Compare two files, or all that is in two directories or containers: names, sizes and contents.

    Contents are compared by the checksums of the stores where these have them, else both are read. Lines: `-` is
    only in LEFT, `+` only in RIGHT, `!` differs. The exit code is 1 if anything differs.

    \b
    Example: fsabs diff /data/train/ s3://bucket/train.zip/
    """
    with Paths() as paths:
        one, other = paths.resolve(left), paths.resolve(right)
        differences = _Differences(invocation, one, other, size_only)
        if one.contents or one.is_directory():
            differences.of_trees()
        else:
            differences.of_files()
        return FAILED if differences.count else 0


class _Differences:
    """Writes what differs."""

    def __init__(self, invocation: Invocation, left: ResolvedPath, right: ResolvedPath, size_only: bool) -> None:
        self._invocation = invocation
        self._output = invocation.output
        self._left = left
        self._right = right
        self._size_only = size_only
        self._comparison = Comparison(left.fs, right.fs, content=True)
        self.count = 0

    def of_files(self) -> None:
        """Compare two files."""
        if not self._are_equal(self._left, self._right):
            self._write("!", self._right.shown)

    def of_trees(self) -> None:
        """Compare two trees."""
        left, right = (
            ordered_walk(side.fs, side.key, failed=functools.partial(self._failed, side))
            for side in (self._left, self._right)
        )
        for one, other in side_by_side(left, right):
            if other is None and one is not None:
                self._write("-", one.listed())
            elif one is None and other is not None:
                self._write("+", other.listed())
            elif one is not None and not one.directory:
                if not self._are_equal(self._left.member(one.filename), self._right.member(one.filename)):
                    self._write("!", one.filename)

    def _are_equal(self, left: ResolvedPath, right: ResolvedPath) -> bool:
        one, other = left.stat(), right.stat()
        if self._size_only or one.directory or other.directory:
            return (one.size, one.directory) == (other.size, other.directory)
        return self._comparison.are_equal(left.key, one, right.key, other)

    def _failed(self, side: ResolvedPath, name: str, exc: OSError) -> None:
        side.fs._named(exc, "diff", side.member(name).key)
        self.count += 1
        self._invocation.error(exc)

    def _write(self, sign: str, name: str) -> None:
        self.count += 1
        kind = {"-": "only left", "+": "only right", "!": "differs"}[sign]
        self._output.record({"name": name, "difference": kind}, f"{sign} {self._output.name(name)}")
