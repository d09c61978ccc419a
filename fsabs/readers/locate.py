"""From URLs of files, directories and patterns to an FS and paths in it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..core import errors, keys
from ..core.fs import FS, StrPath
from ..urls.opening import from_url

if TYPE_CHECKING:
    from typing import Self

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*/?")
_MAGIC = re.compile(r"[*?\[]")
_SHARD = re.compile(r"(.*)-\d{5,}-of-(\d{5,})", re.DOTALL)
PUBLISHING = ".fsabs-publishing"
"""A file that marks a directory whose files are being replaced: they are no data set now."""


def base_of(url: str) -> str:
    """Return the beginning of a URL or path that is the directory of the file, or of the first `*`, `?` or `[`."""
    match = _SCHEME.match(url)
    start = match.end() if match else 0
    magic = _MAGIC.search(url, start)
    return url[: max(url.rfind("/", 0, magic.start() if magic else len(url)) + 1, start)]


def locate(url: StrPath, **options: Any) -> tuple[FS, str]:
    """An FS, opened with the options of `from_url`, and the path of the file, or glob pattern, in it.

    The FS begins at the last directory before the first `*`, `?` or `[`, which no directory's name can thus have here.
    In a URL with a scheme, the path is percent-encoded but for these.
    """
    text = os.fspath(url)
    base = base_of(text)
    if base == text:
        raise errors.error(errno.EISDIR, "open", text)
    name = text[len(base) :]
    return from_url(base or ".", **options), keys.from_url_path(name) if is_url(text) else name


def is_url(text: str) -> bool:
    """Return whether a text begins with a scheme and `://`."""
    return _SCHEME.match(text) is not None


def is_pattern(url: StrPath) -> bool:
    """Return whether a URL or path has `*`, `?` or `[` after its scheme and authority."""
    text = os.fspath(url)
    match = _SCHEME.match(text)
    return _MAGIC.search(text, match.end() if match else 0) is not None


class LocatedFiles:
    """Files of one FS, which is closed at the end of a `with` block if it was opened here."""

    def __init__(self, fs: FS, paths: list[str], owned: bool, named: str = "") -> None:
        self.fs = fs
        self.paths = paths
        self.listed: bool = paths != [named]
        """True if they are what is in a directory, or matches a pattern, and not one file that was named."""
        self._owned = owned

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._owned:
            self.fs.close()


def find(paths: StrPath | Sequence[StrPath] | FS, fs: FS | None = None) -> Iterator[LocatedFiles]:
    """The files that URLs, paths and patterns name, each pattern's ordered; a directory means the files in it.

    With `fs`, they are paths in it, and not URLs. `FileNotFoundError` for what names nothing.
    """
    if isinstance(paths, FS):
        yield LocatedFiles(paths, _files(paths), owned=False)
        return
    for one in [paths] if isinstance(paths, str | os.PathLike) else paths:
        if fs is not None:
            yield LocatedFiles(fs, _matches(fs, os.fspath(one)), owned=False, named=os.fspath(one))
        else:
            yield _opened(os.fspath(one))


def _opened(url: str) -> LocatedFiles:
    """Open the FS of a URL, and return it with what the URL names."""
    fs, path = (from_url(url), "") if url.endswith("/") or _is_root(url) else locate(url)
    try:
        return LocatedFiles(fs, _matches(fs, path), owned=True, named=path)
    except BaseException:
        fs.close()
        raise


def _matches(fs: FS, path: str) -> list[str]:
    """The files that a path or pattern names."""
    if _MAGIC.search(path):
        matches = [name for name in fs.glob(path) if fs.isfile(name)]
        if not matches:
            raise errors.error(errno.ENOENT, "glob", fs.url(path), "no file matches")
        check_published([mark for mark in sorted(publishing_marks(matches)) if fs.exists(mark)], fs.url())
        return matches
    if not fs.stat(path).directory:
        return [path]
    return [f"{path}/{name}" if path else name for name in _files(fs.subfs(path))]


def _is_root(url: str) -> bool:
    match = _SCHEME.match(url)
    return url in (".", "..") or bool(match and match.end() == len(url))


def _files(fs: FS) -> list[str]:
    names = sorted(fs.list())
    check_published(names, fs.url())
    return [name for name in names if not name.endswith("/") and not name.startswith(".")]


def shard_name(prefix: str, number: int, last: int) -> str:
    """Return the name of a shard of a set whose last one has the number `last`: the names sort by their numbers."""
    width = max(5, len(str(last)))
    return f"{prefix}-{number:0{width}}-of-{last:0{width}}"


def publishing_mark(prefix: str) -> str:
    """Return the path of the file that marks the shards with a prefix as being replaced."""
    folder, slash, name = prefix.rpartition("/")
    return f"{folder}{slash}{PUBLISHING}-{name}"


def publishing_marks(paths: Iterable[str]) -> set[str]:
    """Return the paths of the files by which the data sets that shards are of may be marked as being replaced."""
    prefixes = {match[1] for match in map(_SHARD.fullmatch, paths) if match}
    return {publishing_mark(prefix) for prefix in prefixes} | {
        f"{folder}{slash}{PUBLISHING}" for folder, slash, _ in (prefix.rpartition("/") for prefix in prefixes)
    }


def check_published(names: Iterable[str], url: str) -> None:
    """Raise an `OSError` (EBUSY) if the files in a directory, of these names, are being replaced."""
    if any(name.rpartition("/")[2].startswith(PUBLISHING) for name in names):
        reason = "fsabs prepare or convert is replacing this data set, or was interrupted while it did: run it again"
        raise errors.error(errno.EBUSY, "list", url, reason)


def check_one_run(paths: Iterable[str], url: str) -> None:
    """Raise an `OSError` (EINVAL) if files are the shards of two runs of one data set: their numbers differ."""
    runs: dict[str, str] = {}
    for path in paths:
        if match := _SHARD.fullmatch(path):
            prefix, last = match[1], match[2]
            if runs.setdefault(prefix, last) != last:
                both = f"{prefix}-*-of-{runs[prefix]} and {prefix}-*-of-{last}"
                reason = f"there are shards of two runs, {both}: remove one, or name one by its pattern"
                raise errors.error(errno.EINVAL, "list", url, reason)
