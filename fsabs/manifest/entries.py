"""The entries of manifests: their text, their digests, and sorting more of them than fit into memory."""

from __future__ import annotations

import abc
import contextlib
import hashlib
import heapq
import itertools
import json
import operator
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, NamedTuple

from ..core import errors, keys
from ..core.blobs import Blob
from ..core.limits import parse_json

DIGESTS = {"sha256": 64, "md5": 32}
"""The algorithms of digests, with the number of their hexadecimal digits."""
_quoted = json.encoder.encode_basestring
_IN_MEMORY = 200_000  # entries that are sorted at once
NAME = operator.attrgetter("name")
"""The order of entries."""


class ManifestEntry(NamedTuple):
    """A file of a data set; or an empty directory, whose name ends in `/`."""

    name: str
    """The path below the root of the data set."""
    size: int
    """Bytes."""
    version: str | None = None
    """The version of the content, as the store has it; None if the manifest has no versions."""
    digest: str | None = None
    """The algorithm (sha256 or md5), a colon and the digest of the content in hexadecimal digits; or None."""

    @property
    def directory(self) -> bool:
        """True for an empty directory."""
        return self.name.endswith("/")

    def difference(self, size: int, version: str | None) -> str:
        """Return how a file of that size and version differs from the entry; an empty string if it does not."""
        if size != self.size:
            return f"{size} bytes, {self.size} in the manifest"
        if None not in (version, self.version) and version != self.version:
            return f"version {version}, {self.version} in the manifest"
        return ""

    def encode(self) -> bytes:
        """Return the entry as a line of JSON."""
        fields = [f'{{"name":{_quoted(self.name)},"size":{self.size}']  # json.dumps takes four times as long
        if self.version is not None:
            fields.append(f'"version":{_quoted(self.version)}')
        if self.digest is not None:
            fields.append(f'"digest":"{self.digest}"')
        text = ",".join(fields) + "}"
        if not keys.is_text(text):
            text = json.dumps(json.loads(text), separators=(",", ":"))
        return text.encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> ManifestEntry:
        """Return the entry of a line; `ValueError` if it has none."""
        values = parse_json(line)
        if not isinstance(values, dict) or not values.keys() <= set(cls._fields):
            raise ValueError(f"a line has no entry: {line[:100]!r}")
        try:
            return cls(**values).checked()
        except TypeError as exc:
            raise ValueError(f"an entry lacks fields: {exc}") from None

    def checked(self) -> ManifestEntry:
        """Return the entry; `ValueError` if a field has no value that it can have."""
        name = self.name.removesuffix("/") if isinstance(self.name, str) else ""
        if not keys.is_key(name) or "\0" in name:
            raise ValueError(f"{self.name!r} is no path in a data set")
        if type(self.size) is not int or self.size < 0 or (self.directory and self.size):
            raise ValueError(f"{self.name!r} has the size {self.size!r}")
        if not isinstance(self.version, str | None):
            raise ValueError(f"{self.name!r} has the version {self.version!r}")
        if self.digest is not None and not is_digest(self.digest):
            raise ValueError(f"{self.name!r} has the digest {self.digest!r}")
        return self


class ManifestTable(abc.ABC):
    """The entries of an open manifest, in one of the formats."""

    entries: int
    """How many there are."""
    bytes: int
    """The sizes of the files, added up."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob

    @abc.abstractmethod
    def scan(self, name: str = "") -> Iterator[ManifestEntry]:
        """Yield the entries from the first whose name is `name` or comes after it."""

    def find(self, name: str) -> ManifestEntry | None:
        """Return the entry of that name, or None."""
        entry = next(self.scan(name), None)
        return entry if entry is not None and entry.name == name else None

    def all(self) -> Iterator[ManifestEntry]:
        """Yield all entries, and raise `CorruptFileError` if they are not in order."""
        return ascending(self.scan(), lambda reason: errors.corrupt(self._blob.url, reason))


def is_digest(value: Any) -> bool:
    """Return whether a value is a digest as entries have it."""
    algorithm, _, digits = value.partition(":") if isinstance(value, str) else ("", "", "")
    return len(digits) == DIGESTS.get(algorithm) and re.fullmatch("[0-9a-f]*", digits) is not None


def digest_of(algorithm: str, pieces: Iterable[bytes]) -> str:
    """Return the digest of a content that comes in pieces."""
    found = hashlib.new(algorithm, usedforsecurity=False)
    for piece in pieces:
        found.update(piece)
    return f"{algorithm}:{found.hexdigest()}"


# ---- order


def in_order(entries: Iterable[ManifestEntry], in_memory: int = _IN_MEMORY) -> Iterator[ManifestEntry]:
    """Yield entries by the order of their names; more than `in_memory` of them are sorted in temporary files."""
    source = iter(entries)
    with contextlib.ExitStack() as stack:
        runs: list[Iterator[ManifestEntry]] = []
        while batch := sorted(itertools.islice(source, in_memory), key=NAME):
            if not runs and len(batch) < in_memory:
                yield from batch
                return
            runs.append(_spilled(stack.enter_context(tempfile.TemporaryFile()), batch))
        yield from heapq.merge(*runs, key=NAME)


def _spilled(file: IO[bytes], batch: list[ManifestEntry]) -> Iterator[ManifestEntry]:
    """Write a sorted batch to a file, and return the iterator that reads it back."""
    file.writelines(entry.encode() for entry in batch)
    file.seek(0)
    return (ManifestEntry(**json.loads(line)) for line in file)


def without_full_directories(entries: Iterable[ManifestEntry]) -> Iterator[ManifestEntry]:
    """Yield entries, in order, without the directories that have something in them."""
    for entry, after in itertools.pairwise(itertools.chain(entries, [None])):
        assert entry is not None  # only the last one has none after it
        if not entry.directory or after is None or not after.name.startswith(entry.name):
            yield entry


def distinct(entries: Iterable[ManifestEntry]) -> Iterator[ManifestEntry]:
    """Yield each of the entries, in order, once; `ValueError` for a name with two that differ."""
    for name, same in itertools.groupby(entries, key=NAME):
        first, *others = same
        for other in others:
            if other != first:
                raise ValueError(f"the entries of {name!r} differ: {first[1:]} and {other[1:]}")
        yield first


def ascending(entries: Iterable[ManifestEntry], problem: Callable[[str], Exception]) -> Iterator[ManifestEntry]:
    """Yield entries; raise `problem(reason)` for one that does not come after the one before it."""
    last = ""
    for entry in entries:
        if entry.name <= last:
            raise problem(f"{entry.name!r} stands after {last!r}")
        last = entry.name
        yield entry
