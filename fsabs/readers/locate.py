"""From URLs of files, directories and patterns to an FS and paths in it."""

from __future__ import annotations

import builtins
import errno
import itertools
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from ..core import errors, keys
from ..core.fs import FS, FileStat, StrPath
from ..core.threads import in_threads
from ..urls import locations
from ..urls.opening import from_url
from .prefetch import hand_over, is_immediate

Location = str | os.PathLike[str] | FS | Sequence[str | os.PathLike[str]]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*/?")
_MAGIC = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{(?:(?P<first>\d+)\.\.(?P<last>\d+)|(?P<names>[^{},]*(?:,[^{},]*)+))\}")
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


def root_of(url: str) -> str:
    """Return the scheme and authority of a URL, with the `/` after them; of a path, the `/` that it begins with."""
    match = _SCHEME.match(url)
    return match[0] if match else "/" if url.startswith("/") else ""


def expand_braces(text: str) -> list[str]:
    """Return what a text with braces stands for, as in a shell: `{a,b}`, and `{08..11}` with leading zeros kept."""
    match = _BRACES.search(text)
    if match is None:
        return [text]
    before, after = text[: match.start()], text[match.end() :]
    if match["first"] is None:
        middle = match["names"].split(",")
    else:
        first, last = int(match["first"]), int(match["last"])
        padded = any(len(match[end]) > 1 and match[end].startswith("0") for end in ("first", "last"))
        width = max(len(match["first"]), len(match["last"])) if padded else 0
        numbers = range(first, last + 1) if first <= last else range(first, last - 1, -1)
        middle = [f"{number:0{width}}" for number in numbers]
    return [before + one + rest for one in middle for rest in expand_braces(after)]


class Files:
    """The files in a directory (its own and those further down), or the one file, at a URL, a path or in an FS.

    A URL or path with `*`, `?` or `[` is a pattern, and means the files that it matches. Braces stand for several URLs,
    as in a shell: `train-{000..127}.tar`, `{train,more}/*.parquet`. So does a list, whose files lie in one store.

    A file is called by its path under the URL or path that was given, or by its URL where an FS was given; so is the
    shard that it holds.
    """

    def __init__(
        self, location: Location, fs: FS | None = None, *, suffixes: Sequence[str] = (), owned: bool = False
    ) -> None:
        """A file whose name ends in one of `suffixes` is the one file, though it could be entered as a container.
        `close` closes an FS that was given only if it is `owned`. With `fs`, the location is a path or pattern in it.
        """
        self._owned = owned or not isinstance(location, FS)
        self._chosen: Sequence[tuple[str, bool]] | None = None  # paths, and patterns, of which the second is True
        if isinstance(location, FS):
            self.fs: FS = location
            url = location.url()
            self._prefix, self._is_url = url if url.endswith("/") else url + "/", True
            return
        if fs is not None:
            text = os.fspath(cast(StrPath, location))
            self.fs, self._prefix, self._is_url, self._chosen = fs, "", False, [(text, is_pattern(text))]
            self._owned = False
            return
        texts = expanded(location)
        self._is_url = is_url(texts[0])
        if len(texts) > 1 or _is_pattern(texts[0]):
            self._prefix = _common_base(texts)
            self.fs = from_url(self._prefix or ".")
            self._chosen = [(self.path(text), _is_pattern(text)) for text in texts]
            return
        text = texts[0]
        try:
            self.fs = _directory(text, tuple(suffixes))
            self._prefix = text.rstrip("/") + "/"
        except (FileNotFoundError, NotADirectoryError):
            parent, name = _parent(text)
            self.fs = from_url(parent or ".")
            path = keys.from_url_path(name) if self._is_url else name
            self._prefix, self._chosen = parent and parent + "/", [(path, False)]
            if not self.fs.isfile(path):
                self.fs.close()
                raise

    def list(self) -> list[FileStat]:
        """The files, sorted by path; left out are those that start with a dot, or are below such a directory."""
        if self._chosen is None:
            return self._below("")
        several = min(self.fs.default_concurrency, len(self._chosen))
        found = [stat for stats in in_threads(self._listed, self._chosen, several) for stat in stats]
        for one, other in itertools.pairwise(sorted(stat.filename for stat in found)):
            if one == other:
                raise ValueError(f"{self.name(one)} is named twice")
        return found if len(self._chosen) > 1 else sorted(found)

    def paths(self) -> builtins.list[str]:
        """The paths of the files; `FileNotFoundError` where a pattern matches none."""
        found = [stat.filename for stat in self.list()]
        if not found and self._chosen is not None:
            raise errors.error(errno.ENOENT, "glob", self.fs.url(self._chosen[0][0]), "no file matches")
        return found

    @property
    def is_one(self) -> bool:
        """True if the location is one file that was named, and not a directory or a pattern."""
        return self._chosen is not None and len(self._chosen) == 1 and not self._chosen[0][1]

    def _listed(self, chosen: tuple[str, bool]) -> builtins.list[FileStat]:
        """Return the files that a path or pattern names."""
        path, is_a_pattern = chosen
        if is_a_pattern:
            return self._matches(path)
        stat = self.fs.stat(path)
        return self._below(path) if stat.directory else [stat._replace(filename=path.lstrip("/"))]

    def _below(self, folder: str) -> builtins.list[FileStat]:
        """Return the files below a directory."""
        stats = [stat for stat in self.fs.list(folder, recursive=True, detail=True) if not stat.directory]
        check_published([stat.filename for stat in stats], self.fs.url(folder))
        shown = sorted((stat for stat in stats if visible(stat.filename)), key=lambda stat: stat.filename)
        return [stat._replace(filename=keys.join(folder.rstrip("/"), stat.filename)) for stat in shown]

    def _matches(self, pattern: str) -> builtins.list[FileStat]:
        wanted = set(self.fs.glob(pattern))
        folder = base_of(pattern).rstrip("/")
        recursive = "/" in pattern.removeprefix(folder + "/") or "**" in pattern
        stats = self.fs.list(folder, recursive=recursive, detail=True)
        found = [stat._replace(filename=keys.join(folder, stat.filename)) for stat in stats]
        check_published(publishing_marks(wanted) & {stat.filename for stat in found}, self.fs.url())
        return sorted(stat for stat in found if stat.filename in wanted and not stat.directory)

    @property
    def is_chosen(self) -> bool:
        """True if the location is a file or a pattern, so that a file's name need not end as others of its format."""
        return self._chosen is not None

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
        if self._chosen is None or not self.is_one:
            raise errors.error(errno.EISDIR, "open", self.fs.url())
        return self._chosen[0][0]

    def set_order(self, paths: Iterable[str]) -> None:
        """Hand the order in which the files are read next to a cache, if one is below."""
        hand_over(self.fs, paths)

    @property
    def reads_ahead(self) -> bool:
        """True if reading them ahead of their use gains time."""
        return not is_immediate(self.fs)

    def close(self) -> None:
        """Free what the FS holds in this process, unless it is the user's."""
        if self._owned:
            self.fs.close()


def expanded(location: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the URLs or paths that a location means, its braces expanded."""
    given = [location] if isinstance(location, str | os.PathLike) else location
    texts = [text for one in given for text in _of_braces(os.fspath(one))]
    if not texts or not all(texts):
        raise ValueError("no directory or URL is given")
    return texts


def _of_braces(text: str) -> list[str]:
    return [text] if not is_url(text) and os.path.lexists(text) else expand_braces(text)


def _is_pattern(text: str) -> bool:
    return is_pattern(text) and (is_url(text) or not os.path.lexists(text))


def _common_base(texts: Sequence[str]) -> str:
    """Return the directory that all URLs, paths and patterns are in; `ValueError` if they are in several stores."""
    folders = [base_of(text.rstrip("/")).split("/")[:-1] for text in texts]
    common = itertools.takewhile(lambda segments: len(set(segments)) == 1, zip(*folders, strict=False))
    base = "".join(segments[0] + "/" for segments in common)
    if any(is_url(text) != is_url(texts[0]) for text in texts) or not base.startswith(root_of(texts[0])):
        raise ValueError(f"{texts[0]} and {texts[-1]} are not in one store: a list names files of one")
    return base


def _directory(text: str, files: tuple[str, ...]) -> FS:
    fs = from_url(text, force_type=locations.parse_without_query(text).scheme if text.lower().endswith(files) else None)
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
