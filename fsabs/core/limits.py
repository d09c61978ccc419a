"""Limits: what an input may cost before it is refused.

An archive of a few kilobytes can claim terabytes, a chain of links can lead to a directory along a billion paths, and a
line need not end. Work and memory are linear in what is read, up to these limits; what is beyond one raises an
`OSError` that names it. They belong to an FS: files, globs and containers that are opened through it have the same.
"""

from __future__ import annotations

import errno
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from . import errors
from .errors import ConfigError

UNSUSPICIOUS_BYTES = 8 * 1024 * 1024
"""What expands to no more than this is no bomb, whatever its ratio."""
_DECLARED_BYTES = 1024 * 1024
"""Stored bytes that what tells its size in advance counts as, if it has fewer: little data of one value is no bomb."""


class Limits(NamedTuple):
    """Limits of what an input may cost; None in place of a number means no limit.

    `from_url(url, limits=fsabs.Limits(max_ratio=None))` sets them for an FS and for the containers on the URL's path;
    `open_container(path, limits=...)` for one container. In `pfio.ini`: `limits = max_ratio=none, max_links=10`.
    """

    max_ratio: float | None = 1100.0
    """How many times its stored size something may expand to. What tells its size in advance (a member of a zip or a
    compressed tar, a sparse file, an HDF5 dataset, a row group of Parquet) counts as stored in 1 MiB at least, so that
    1.1 GB of zeros are read; what does not (headers and trailing data of a compressed tar, compressed JSON lines,
    HDF5's strings) may always expand to 8 MiB. Deflate's own limit is 1032."""
    max_index_bytes: int | None = 2 * 1024**3
    """Bytes that an archive's index may be made from: a zip's directory; a tar's headers, or as many as its file has if
    that is more. 2 GiB are some 20 million entries of a zip, and 4 million members of a compressed tar."""
    max_header_bytes: int | None = 16 * 1024**2
    """Bytes of the extended headers and the sparse map of one member of a tar."""
    max_window_bytes: int | None = 2 * 1024**3
    """Bytes of content that a decoder keeps, because compressed data refers back to them: the window of zstd (which has
    2 GiB at most), the dictionary of xz with what the decoder takes besides."""
    max_depth: int | None = 2048
    """Directories above a member of an archive; a path on Linux can't have more."""
    max_links: int | None = 40
    """Links that are followed on the way to one file of a tar or HDF5 file."""
    max_linked_entries: int | None = 100_000
    """Entries of one recursive listing or glob that are there once more because links lead to their directory along
    several paths; or as many as are there without that, if those are more."""
    max_line_length: int | None = None
    """Bytes (of a text file, characters) of a line that `readline` and iteration give. A limit makes lines slower."""
    max_pattern_parts: int | None = 100
    """Segments of a glob pattern."""

    def checked(self) -> Limits:
        """Return these limits; `ValueError` if one is no number."""
        for name, value in self._asdict().items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
                raise ValueError(f"{name} must be a number of at least 0 or None, not {value!r}")
        return self

    @classmethod
    def of_texts(cls, texts: Mapping[str, str], where: str) -> Limits:
        """Return the limits whose values stand in a configuration file as text; `none` for no limit."""
        values: dict[str, Any] = {}
        for name, value in texts.items():
            if name not in cls._fields:
                raise ConfigError(f"{where}: there is no limit {name!r}; there are {', '.join(cls._fields)}")
            try:
                values[name] = None if value.lower() == "none" else float(value) if "." in value else int(value)
            except ValueError:
                raise ConfigError(f"{where}: {name} must be a number or none, not {value!r}") from None
        try:
            return cls()._replace(**values).checked()
        except ValueError as exc:
            raise ConfigError(f"{where}: {exc}") from None

    def beyond(self, option: str, amount: float, least: float = 0) -> bool:
        """Return whether `amount` is more than the limit `option`, and more than `least`."""
        limit = getattr(self, option)
        return limit is not None and amount > max(limit, least)

    def expands_too_far(self, size: float, stored: float) -> bool:
        """Return whether `size` bytes are too many to come out of `stored` bytes that didn't tell how many they are."""
        return self.max_ratio is not None and size > max(UNSUSPICIOUS_BYTES, self.max_ratio * stored)

    def declares_too_much(self, size: float, stored: float) -> bool:
        """Return whether `size` bytes are too many for something that tells its size, and takes `stored` bytes."""
        return self.expands_too_far(size, max(_DECLARED_BYTES, stored))

    def error(self, option: str, what: str, operation: str, url: str) -> OSError:
        """Return the error (EFBIG) for `what`, which is over the limit `option`: no file is corrupt by that alone."""
        return errors.error(errno.EFBIG, operation, url, self.reason(option, what))

    def reason(self, option: str, what: str) -> str:
        """Return the text of an error: `what` is over the limit `option`."""
        return f"{what}, over the limit {option}={getattr(self, option)}: limits=fsabs.Limits({option}=...) sets it"


DEFAULT = Limits()


def parse_json(text: str | bytes) -> Any:
    """Return the value of JSON that others may have written; `json.JSONDecodeError` also if it is nested too deep."""
    import json

    try:
        return json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("nested too deep", "", 0) from None


class LinkedEntries:
    """The entries of one recursive listing or glob, counted against `max_linked_entries`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen: set[Hashable] = set()
        self._distinct = 0
        self._repeated = 0

    def enter(self, directory: Hashable) -> bool:
        """Return whether `directory` was entered before; `directory` tells it from all others."""
        before = directory in self._seen
        self._seen.add(directory)
        return before

    def count(self, repeated: bool, entries: int = 1) -> None:
        """Count entries of a directory; `OSError` (ELOOP) if there are too many in directories entered before."""
        if not repeated:
            self._distinct += entries
            return
        self._repeated += entries
        if self._limits.beyond("max_linked_entries", self._repeated, self._distinct):
            what = f"links show {self._repeated} entries more than once"
            raise OSError(errno.ELOOP, self._limits.reason("max_linked_entries", what))
