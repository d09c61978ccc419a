"""The files that readers of a directory read: a URL, path or FS, and the names that shards of its files have."""

from __future__ import annotations

import builtins
import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence

from ...core import errors, keys
from ...core.files import ReadFile
from ...core.fs import FS, FileStat
from ...urls import opening
from ..locate import check_published, is_pattern, locate
from ..prefetch import hand_over, is_immediate

Location = str | os.PathLike[str] | FS
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Files:
    """The files in a directory (its own and those further down), or the one file, at a URL, a path or in an FS.

    A URL or path with `*`, `?` or `[` is a pattern, and means the files that it matches.

    A file is called by its path under the URL or path that was given, or by its URL where an FS was given; so is the
    shard that it holds.
    """

    def __init__(self, location: Location, *, suffixes: Sequence[str] = ()) -> None:
        """A file whose name ends in one of `suffixes` is the one file, though it could be entered as a container."""
        self._only: str | None = None
        self._pattern: str | None = None
        if isinstance(location, FS):
            self.fs: FS = location
            url = location.url()
            self._prefix, self._is_url = url if url.endswith("/") else url + "/", True
            return
        text = os.fspath(location)
        if not text:
            raise ValueError("no directory or URL is given")
        self._is_url = _HAS_SCHEME.match(text) is not None
        if is_pattern(text) and (self._is_url or not os.path.lexists(text)):
            self.fs, self._pattern = locate(text)
            self._prefix = text[: text.rfind("/", 0, min(map(text.find, filter(text.__contains__, "*?[")))) + 1]
            return
        try:
            self.fs = _directory(text, tuple(suffixes))
            self._prefix = text.rstrip("/") + "/"
        except (FileNotFoundError, NotADirectoryError):
            parent, name = _parent(text)
            self.fs = opening.from_url(parent or ".")
            self._only = keys.from_url_path(name) if self._is_url else name
            self._prefix = parent and parent + "/"
            if not self.fs.isfile(self._only):
                self.fs.close()
                raise

    def list(self) -> list[FileStat]:
        """The files, sorted by path; left out are those that start with a dot, or are below such a directory."""
        if self._only is not None:
            return [self.fs.stat(self._only)]
        if self._pattern is not None:
            return self._matches(self._pattern)
        found = [stat for stat in self.fs.list("", recursive=True, detail=True) if not stat.directory]
        check_published([stat.filename for stat in found], self.fs.url())
        return sorted((stat for stat in found if visible(stat.filename)), key=lambda stat: stat.filename)

    def _matches(self, pattern: str) -> builtins.list[FileStat]:
        wanted = set(self.fs.glob(pattern))
        found = self.fs.list("", recursive="/" in pattern or "**" in pattern, detail=True)
        return sorted(stat for stat in found if stat.filename in wanted and not stat.directory)

    @property
    def is_chosen(self) -> bool:
        """True if the location is a file or a pattern, so that a file's name need not end as others of its format."""
        return self._only is not None or self._pattern is not None

    def name(self, path: str) -> str:
        """Return the name of the file at `path`."""
        return self._prefix + (keys.to_url_path(path) if self._is_url else path)

    def path(self, name: str) -> str:
        """The path in the FS of the file called `name`; `ValueError` if it is none of these files."""
        if not name.startswith(self._prefix):
            raise ValueError(f"no file of {self._prefix or 'the current directory'}: {name!r}")
        rest = name[len(self._prefix) :]
        return keys.from_url_path(rest) if self._is_url else rest

    def one(self) -> str:
        """The path of the file, where just one was named; a directory is an `IsADirectoryError`."""
        if self._only is None:
            raise errors.error(errno.EISDIR, "open", self.fs.url())
        return self._only

    def set_order(self, paths: Iterable[str]) -> None:
        """Hand the order in which the files are read next to a cache, if one is below."""
        hand_over(self.fs, paths)

    @property
    def reads_ahead(self) -> bool:
        """True if reading them ahead of their use gains time."""
        return not is_immediate(self.fs)

    def open(self, path: str) -> ReadFile:
        """The file at `path`; its `blob` is for positioned reads, and is closed with it."""
        return self.fs.open(path, "rb")

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes]:
        """The contents of files, in order."""
        return self.fs.read_many(paths)

    def close(self) -> None:
        """Free what the FS holds in this process."""
        self.fs.close()


def _directory(text: str, files: tuple[str, ...]) -> FS:
    fs = opening.from_url(text, force_type=opening.parse(text).scheme if text.lower().endswith(files) else None)
    try:
        if not fs.stat("").directory:
            raise errors.error(errno.ENOTDIR, "list", fs.url())
    except BaseException:
        fs.close()
        raise
    return fs


def visible(path: str) -> bool:
    """Return whether no segment of the path starts with a dot."""
    return not path.startswith(".") and "/." not in path


def _parent(text: str) -> tuple[str, str]:
    parent, _, name = text.rstrip("/").rpartition("/")
    return parent or ("/" if text.startswith("/") else ""), name
