"""Comparison of a file at the source with one at the target: by size, and by checksum, time or content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.readahead import pieces

if TYPE_CHECKING:
    from ..core.blobs import Blob
    from ..core.fs import FS
    from ..core.stats import FileStat

_MILLISECOND = 1e-3
_MICROSECOND = 1e-6  # what a float of seconds since 1970 can hold today


class Comparison:
    """Compares files of a source with those of a target.

    Files of unequal size differ. Of equal size they are taken for equal

    - if both have plain checksums of their content in their versions: if these are equal;
    - if the target keeps times: if their times of modification are equal, as a copy makes them;
    - if the target's version has a checksum, and the source is near: if the source's content has that checksum;
    - else if the target was written after the source, by the clocks of their stores.

    With `content`, only contents count: by checksums where one of the stores has them, else by reading both.
    """

    def __init__(self, source: FS, target: FS, content: bool = False) -> None:
        self._source = source
        self._target = target
        self._content = content

    def are_equal(self, src: str, stat: FileStat, dst: str, there: FileStat) -> bool:
        """Return whether the file `dst` need not be copied."""
        if there.directory or stat.size != there.size:
            return False
        if self._content:
            return self._by_content(src, stat, dst, there)
        written, time = there.last_modified, stat.last_modified
        if self._target.capabilities.settable_times and written is not None and time is not None:
            whole = any(abs(when * 1000 - round(when * 1000)) < _MILLISECOND for when in (written, time))
            return abs(written - time) < (_MILLISECOND if whole else _MICROSECOND)
        if self._source.default_concurrency == 1:  # it is read as fast as anything
            with self._source._open_blob(src) as blob:
                verdict = self._target._has_content(there, blob)
            if verdict is not None:
                return verdict
        elif (same := self._by_versions(stat, there)) is not None:
            return same
        if written is not None and time is not None:
            return written > time
        return self._by_content(src, stat, dst, there)

    def _by_versions(self, stat: FileStat, there: FileStat) -> bool | None:
        """Return whether two versions of stores of one kind are of equal contents; None if they don't tell."""
        if stat.version is None or there.version is None or self._source.scheme != self._target.scheme:
            return None
        return self._source._same_content(stat.version, there.version)

    def _by_content(self, src: str, stat: FileStat, dst: str, there: FileStat) -> bool:
        with self._source._open_blob(src) as one, self._target._open_blob(dst) as other:
            verdict = self._target._has_content(there, one)
            if verdict is None:
                verdict = self._source._has_content(stat, other)
            return _equal(one, other) if verdict is None else verdict


def _equal(one: Blob, other: Blob) -> bool:
    if one.size != other.size:
        return False
    return all(left == right for left, right in zip(pieces(one), pieces(other), strict=True))
