"""The one rule of paths: what an argument of a command names, on any store and in any container.

- A path is a URL or a local path. `*`, `?`, `[seq]` and `**` are patterns, unless the path exists as it is written.
  In a URL `?` begins the query and is no pattern.
- A container in the middle of a path is walked into: `s3://b/train.zip/part/`.
- At the end of a path a container is the file that it is: `s3://b/train.zip`. With a `/` behind it, it is the directory
  of its members: `s3://b/train.zip/`.
- `-` is the standard input or output, where a command reads or writes a file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..containers.base import Container
from ..core import errors, identity, keys, registry
from ..transfer.walks import entry, is_link
from ..urls import locations
from .output import redacted
from .program import Adder, argument

if TYPE_CHECKING:
    from ..core.fs import FS
    from ..core.stats import FileStat
    from .program import Invocation

PIPE = "-"


class ResolvedPath(NamedTuple):
    """The file or directory that a path of the command line names; it need not exist."""

    fs: FS
    path: str
    """The path on `fs`; an empty one is its root."""
    text: str
    """As it was written; may have secrets in it."""
    contents: bool
    """It was written with a `/` at its end: a directory, or the members of a container."""

    @property
    def key(self) -> str:
        """The key on `fs`."""
        return self.fs._key(self.path, "resolve")

    @property
    def shown(self) -> str:
        """As it was written, without secrets."""
        return redacted(self.text)

    @property
    def spelled(self) -> str:
        """The path on `fs`, with a `/` at its end if it was written with one."""
        return f"{self.path}/" if self.contents and self.path else self.path

    @property
    def url(self) -> str:
        """The full URL, without secrets."""
        return self.fs.url(self.path)

    def stat(self) -> FileStat:
        """Return the stat of the file or directory."""
        return self.fs.stat(self.spelled)

    def is_directory(self) -> bool:
        """Return whether there is a directory."""
        return self.fs.isdir(self.spelled)

    def is_link(self) -> bool:
        """Return whether there is a symbolic link, which is not followed by what removes."""
        found = None if self.contents else entry(self.fs, self.key)
        return found is not None and is_link(found)

    def refuse_removal(self, emptied: bool = False) -> None:
        """Raise `ValueError` for the working directory, a home, and what these are in, and for a root, unless that is
        only to be `emptied` of some.
        """
        from ..backends.local import Local

        last = self.text.rstrip("/").rpartition("/")[2]
        last = urllib.parse.unquote(last) if "://" in self.text else last
        what = ""
        if last in (".", ".."):
            what = f"a directory by the name {last!r}"
        elif not self.path and not emptied:
            what = "a root"
        elif not self.is_link():
            here = Local()
            for name, place in (("the working directory", here.cwd), ("a home", os.path.expanduser("~"))):
                if identity.inside(here, keys.normalize(place), self.fs, self.key):
                    what = f"{name}, or above it"
        if what:
            raise ValueError(f"{self.shown} is {what}: it is not touched without --force")

    def member(self, name: str) -> ResolvedPath:
        """Return what `name`, a path below this directory, names."""
        path = f"{self.path}/{name}" if self.path else name
        return self._replace(path=path.rstrip("/"), text=_joined(self.text, name), contents=name.endswith("/"))


class Paths(contextlib.ExitStack):
    """Resolves the paths of one command.

    `close()`, or the end of the `with` block, closes what was opened: containers that were written become visible.
    """

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[tuple[object, ...], FS] = {}

    def resolve(self, text: str, mode: str = "r") -> ResolvedPath:
        """Return what a path names, whether it exists or not; `mode` is that of the container that it leads into.

        With the mode `a` a container on the path is written to, and made if it is missing; it becomes visible when
        this object is closed without an exception.
        """
        if not text:
            raise errors.error(errno.ENOENT, "resolve", "''", "an empty path names nothing")
        location = locations.parse(text)
        contents = _names_contents(text, location)
        if location.scheme in locations.VERBATIM:
            folder, name = locations.folder_and_name(location)
            return ResolvedPath(self._opened(location, folder, "r"), name, text, contents)
        parts, named = locations.split(location.path)
        inner = [at for at in named if at + 1 < len(parts) or contents]
        if not inner:
            return ResolvedPath(self._opened(location, location.path and "/", "r"), "/".join(parts), text, contents)
        end = inner[-1] + 1
        fs = self._opened(location, "/" + "/".join(parts[:end]), mode)
        return ResolvedPath(fs, "/".join(parts[end:]), text, contents)

    def members(self, text: str) -> ResolvedPath:
        """Return the directory, or the members of the container, that a path names with or without a `/` at its end."""
        return self.resolve(text and text.rstrip("/") + "/")

    def expand(self, text: str) -> Iterator[ResolvedPath]:
        """Yield what a path or a pattern names; `FileNotFoundError` for a pattern that nothing matches."""
        head, pattern = _split_pattern(text)
        if not pattern:
            yield self.resolve(text)
            return
        with contextlib.suppress(OSError):
            literal = self.resolve(text)
            if entry(literal.fs, literal.key) is not None:  # a link to nothing, too
                yield literal
                return
        empty = True
        for found in self._matches(head, pattern):
            empty = False
            yield found
        if empty:
            raise errors.error(errno.ENOENT, "glob", redacted(text), "nothing matches")

    def expand_all(self, texts: tuple[str, ...]) -> Iterator[ResolvedPath]:
        """Yield what each of some paths or patterns names."""
        for text in texts:
            yield from self.expand(text)

    def _matches(self, head: str, pattern: str) -> Iterator[ResolvedPath]:
        """Yield the matches of a pattern below `head`; one that leads through containers is matched in each of them."""
        parts = pattern.split("/")
        cut = next((at for at, part in enumerate(parts[:-1], 1) if registry.container_of(part)), len(parts))
        rest = "/".join(parts[cut:])
        base = self.resolve(head)
        decoded = keys.from_url_path("/".join(parts[:cut])) if "://" in head else "/".join(parts[:cut])
        below = base.fs.subfs(base.path) if base.path else base.fs
        for name in below.glob(decoded):
            match = base.member(name)
            if cut == len(parts):
                yield match
            elif rest.strip("/"):
                yield from self._deeper(f"{match.text}/{rest}")
            else:
                yield self.resolve(f"{match.text}/")

    def _deeper(self, text: str) -> Iterator[ResolvedPath]:
        with contextlib.suppress(FileNotFoundError):
            for found in self.expand(text):
                if found.fs.exists(found.path):
                    yield found

    def _opened(self, location: locations.Location, path: str, mode: str) -> FS:
        """Return the FS at `path` of a location, opened once."""
        from ..urls import opening

        key = (location.scheme, location.authority, location.query, path, mode)
        if key not in self._open:
            found = opening.open_location(location._replace(path=path, object=location.path), mode)
            self._open[key] = self.enter_context(found)
        return self._open[key]

    def discard(self) -> None:
        """Throw away the containers that are being written."""
        for fs in self._open.values():
            if isinstance(fs, Container):
                fs._abort()


def _names_contents(text: str, location: locations.Location) -> bool:
    """Return whether a path is written as that of a directory."""
    written = text if location.scheme in locations.VERBATIM else text.partition("?")[0] if "://" in text else text
    return not location.path or written.endswith(("/", "/.", "/..")) or written in (".", "..")


def _split_pattern(text: str) -> tuple[str, str]:
    """Return the directory that a pattern is matched in, and the pattern; the latter is empty if it is none."""
    start = text.find("://") + 3 if "://" in text else 0
    slash = text.find("/", start) + 1 if start else 0
    if start and not slash:
        return text, ""
    wild = "*[" if start else "*?["
    parts = text[slash:].split("/")
    for at, part in enumerate(parts):
        if any(char in part for char in wild):
            above = "/".join(parts[:at])
            head = text[:slash] + above + ("/" if above else "")
            if not above and text.startswith("/"):
                head = "/"
            return head or "./", "/".join(parts[at:])
    return text, ""


def _joined(text: str, name: str) -> str:
    """Return the text of the member `name` of what is written as `text`."""
    if "://" not in text:
        return name if text == "./" else f"{text}{name}" if text.endswith("/") else f"{text}/{name}"
    base, mark, query = text.partition("?")
    return f"{base.rstrip('/')}/{keys.to_url_path(name)}{mark}{query}"


def each_path(
    invocation: Invocation,
    texts: Sequence[str],
    act: Callable[[ResolvedPath], None],
    *,
    patterns: bool = True,
    ignore_missing: bool = False,
    pipe: Callable[[], None] | None = None,
) -> int:
    """Call `act` for each path that arguments name, and return the exit code; an error does not stop the others.

    With `patterns` an argument may be one; `ignore_missing` makes a path that is not there no error. `pipe`, if given,
    is called for the path `-`.
    """
    code = 0

    @contextlib.contextmanager
    def reported() -> Iterator[None]:
        nonlocal code
        try:
            yield
        except (OSError, ValueError) as exc:
            if not (ignore_missing and isinstance(exc, FileNotFoundError)):
                invocation.error(exc)
                code = 1

    with Paths() as paths:
        for text in texts:
            if pipe is not None and text == PIPE:
                pipe()
                continue
            with reported():
                for found in paths.expand(text) if patterns else (paths.resolve(text),):
                    with reported():
                        act(found)
    return code


def path_argument(name: str, count: str | None = None, **settings: Any) -> Adder:
    """Return what adds an argument that is a path, or with `count` some: `?` none or one, `*` any number, `+` some."""
    return argument(name, nargs=count, **{"metavar": name.upper(), **settings})


PATHS = path_argument("paths", "+")
