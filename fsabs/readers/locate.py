"""From URLs of files, directories and patterns to an FS and paths in it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import errors, keys
from ..fs import FS, Path
from ..urls import from_url

if TYPE_CHECKING:
    from typing import Self

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*/?")
_MAGIC = re.compile(r"[*?\[]")
PUBLISHING = ".fsabs-publishing"
"""A file that marks a directory whose files are being replaced: they are no data set now."""


def locate(url: Path, **options: Any) -> tuple[FS, str]:
    """An FS, opened with the options of `from_url`, and the path of the file, or glob pattern, in it.

    The FS begins at the last directory before the first `*`, `?` or `[`, which no directory's name can thus have here.
    In a URL with a scheme, the path is percent-encoded but for these.
    """
    text = os.fspath(url)
    match = _SCHEME.match(text)
    start = match.end() if match else 0
    magic = _MAGIC.search(text, start)
    cut = max(text.rfind("/", 0, magic.start() if magic else len(text)) + 1, start)
    if cut == len(text):
        raise errors.error(errno.EISDIR, "open", text)
    name = keys.from_url_path(text[cut:]) if match else text[cut:]
    return from_url(text[:cut] or ".", **options), name


class LocatedFiles:
    """Files of one FS, which is closed at the end of a `with` block if it was opened here."""

    def __init__(self, fs: FS, paths: list[str], owned: bool) -> None:
        self.fs = fs
        self.paths = paths
        self._owned = owned

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._owned:
            self.fs.close()


def find(paths: Path | Sequence[Path] | FS, fs: FS | None = None) -> Iterator[LocatedFiles]:
    """The files that URLs, paths and patterns name, each pattern's ordered; a directory means the files in it.

    With `fs`, they are paths in it, and not URLs. `FileNotFoundError` for what names nothing.
    """
    if isinstance(paths, FS):
        yield LocatedFiles(paths, _files(paths), owned=False)
        return
    for one in [paths] if isinstance(paths, str | os.PathLike) else paths:
        if fs is not None:
            yield LocatedFiles(fs, _matches(fs, os.fspath(one)), owned=False)
        else:
            yield _opened(os.fspath(one))


def _opened(url: str) -> LocatedFiles:
    """Open the FS of a URL, and return it with what the URL names."""
    fs, path = (from_url(url), "") if url.endswith("/") or _is_root(url) else locate(url)
    try:
        return LocatedFiles(fs, _matches(fs, path), owned=True)
    except BaseException:
        fs.close()
        raise


def _matches(fs: FS, path: str) -> list[str]:
    """The files that a path or pattern names."""
    if _MAGIC.search(path):
        matches = [name for name in fs.glob(path) if fs.isfile(name)]
        if not matches:
            raise errors.error(errno.ENOENT, "glob", fs.url() + path, "no file matches")
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


def check_published(names: Container[str], url: str) -> None:
    """Raise an `OSError` (EBUSY) if the files in a directory, of these names, are being replaced."""
    if PUBLISHING in names:
        reason = "fsabs prepare is replacing this data set, or was interrupted while it did: run it again"
        raise errors.error(errno.EBUSY, "list", url, reason)
