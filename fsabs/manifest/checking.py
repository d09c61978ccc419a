"""`check`: what of a data set is not as its manifest has it."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..core.fs import FS
from ..core.readahead import pieces
from .creating import listed
from .entries import ManifestEntry, ascending, digest_of
from .formats import Manifest


class Drift(NamedTuple):
    """A file of a data set that is not as its manifest has it."""

    name: str
    kind: str
    """`missing`, `added` or `changed`."""
    reason: str
    """The difference of a file that has changed, else an empty string."""


def check(
    fs: FS, manifest: Manifest, *, digests: bool = False, progress: Callable[[int], None] | None = None
) -> Iterator[Drift]:
    """Yield all that differs between a data set and its manifest, by the order of names.

    The data set is listed once. Sizes and versions are compared; with `digests`, every file of which the manifest has a
    digest is read, too. `progress(files)` is called with the number of files that were compared.
    """
    there = ascending(listed(fs, [""], manifest.url), ValueError)
    if not manifest.has_directories:
        there = (entry for entry in there if not entry.directory)
    for compared, (expected, found) in enumerate(_side_by_side(iter(manifest), there), 1):
        if progress is not None:
            progress(compared)
        if found is None:
            assert expected is not None
            yield Drift(expected.name, "missing", "")
        elif expected is None:
            yield Drift(found.name, "added", "")
        elif reason := expected.difference(found.size, found.version) or (_content(fs, expected) if digests else ""):
            yield Drift(expected.name, "changed", reason)


def _content(fs: FS, expected: ManifestEntry) -> str:
    """Return how the content of a file differs from its entry."""
    if expected.digest is None or expected.directory:
        return ""
    with fs.open_blob(expected.name) as blob:
        found = digest_of(expected.digest.partition(":")[0], pieces(blob))
    return "" if found == expected.digest else f"{found}, {expected.digest} in the manifest"


def _side_by_side(
    expected: Iterator[ManifestEntry], there: Iterator[ManifestEntry]
) -> Iterator[tuple[ManifestEntry | None, ManifestEntry | None]]:
    """Yield the entries of both by name; None in place of one that only the other has."""
    merged = heapq.merge(((entry, 0) for entry in expected), ((entry, 1) for entry in there), key=_name)
    for _, same in itertools.groupby(merged, key=_name):
        both = {at: entry for entry, at in same}
        yield both.get(0), both.get(1)


def _name(item: tuple[ManifestEntry, int]) -> str:
    return item[0].name
