"""From a URL to an FS: scheme -> backend -> the containers on the path -> layers.

URLs are WHATWG's: `scheme://authority/path` with percent-encoding in the path; text without a scheme is a local path
as it stands. Any segment of the path may be a file that is a container (by its suffix, or by `force_type` for the last
one), and the path goes on inside of it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, overload

from ..containers.base import Container, OwningFS
from ..core import (
    errors,
    keys,
    modes,
    registry,
)
from ..core.errors import ConfigError, error
from ..core.fs import FS
from ..core.layers import LayerFS
from ..core.limits import Limits
from . import config, schemes
from .locations import Location as Location
from .locations import parse as parse
from .locations import parsed, split
from .schemes import SETTINGS, BackendOpener
from .schemes import known_options as known_options

CACHE_VARIABLE = "FSABS_CACHE"
"""`cache=` of what is opened without it, as it stands in `pfio.ini`: for programs that aren't changed."""

if TYPE_CHECKING:
    import io
    from contextlib import AbstractContextManager

    from ..cache import CachedFS
    from ..core.files import ReadFile
    from ..core.writing import WriteFile


@overload
def from_url(
    url: str | os.PathLike[str],
    *,
    mode: Literal["r"] = "r",
    force_type: str | None = None,
    create: bool = False,
    cache: Literal[True] | str | os.PathLike[str] | dict[str, Any],
    trace: Literal[False] | None = None,
    http_cache: Any = None,
    manifest: Any = None,
    limits: Limits | None = None,
    strict: bool | None = None,
    **options: Any,
) -> CachedFS: ...
@overload
def from_url(
    url: str | os.PathLike[str],
    *,
    mode: str = "r",
    force_type: str | None = None,
    create: bool = False,
    cache: Any = None,
    trace: Any = None,
    http_cache: Any = None,
    manifest: Any = None,
    limits: Limits | None = None,
    strict: bool | None = None,
    **options: Any,
) -> FS: ...
def from_url(
    url: str | os.PathLike[str],
    *,
    mode: str = "r",
    force_type: str | None = None,
    create: bool = False,
    cache: Any = None,
    trace: Any = None,
    http_cache: Any = None,
    manifest: Any = None,
    limits: Limits | None = None,
    strict: bool | None = None,
    **options: Any,
) -> FS:
    """Return the FS at a URL: a directory of a store, or a container in a file of it, however deep.

    Args:
        url: `scheme://authority/path`, or a local path.
        mode: how the innermost container on the path is opened: `r`, `w` (new, replacing), `x` (new), or `a` (added to,
            where its format can).
        force_type: a container's name (`zip`, `tar`, `hdf5`): what the last segment is, whatever its suffix; or the
            URL's own scheme: the path is all directories.
        create: make the directory at the URL, and the directories above it, if missing; a missing container is made
            and written, as with `mode="w"`.
        cache: keep what is read on the local disk, as `CachedFS` does: True, a folder, or a dict of its options.
            Without it, what `$FSABS_CACHE` says.
        trace: record what is done, as `fsabs.trace` has it.
        http_cache: keep what is read in the web server at this URL, as `HTTPCachedFS` does; or a dict of its options.
        manifest: the URL of a manifest that `fsabs.manifest.create` has written of this tree: it is listed without a
            request, and a file that is not as the manifest has it raises `StaleFileError`. For a directory of the
            tree: `{"url": ..., "below": "its/path"}`.
        strict: True: a section of `pfio.ini` that can't be read, and a key that the backend doesn't know, are a
            `ConfigError`; False: a warning, and they don't count. By default False, unless `FSABS_CONFIG_STRICT=1`.
        fsspec: True: fsspec's filesystem of the scheme serves the URL (gcsfs for `gs`, s3fs for `s3`), in place of this
            library's own backend; `options` are then that filesystem's.
        limits: what archives on the path, files, globs and links may cost; by default `Limits()`.
        options: keyword options of the scheme's backend, and of the container.

    The layers that `cache`, `trace`, `http_cache` and `manifest` ask for go around the FS; an FS that is written to
    through a container has no cache. None means what the custom scheme says, False that there is none.

    Raises `UnknownSchemeError` (a `ValueError`), `TypeError` for an unknown option, and `OSError`.
    """
    if mode not in ("r", "w", "x", "a"):
        raise ValueError(f"a container's mode is r, w, x or a, not {mode!r}")
    if url in registry.BUILTIN_SCHEMES and not (create or os.path.exists(url)):
        raise ValueError(
            f"{url!r} is a scheme, and no URL: {url}:///path, or {url}://authority/path (a directory: ./{url})"
        )
    settings = {"cache": cache, "trace": trace, "http_cache": http_cache, "manifest": manifest, "limits": limits}
    fs, container = _open_tree(parsed(url), mode, force_type, create, options, settings, strict)
    if mode != "r" and not container:
        raise TypeError(f"mode={mode!r} is for a container, and there is none on the path of {fs.url()}")
    return fs


def open_location(location: Location, mode: str = "r") -> FS:
    """Return the FS at a location, as `from_url` does for its URL; `location.object` is what its query is about.

    With a `mode` that writes, the innermost container on the path is written to; one that is missing is made.
    """
    return _open_tree(location, mode, None, False, {}, {}, None)[0]


@overload
def open_url(
    url: str | os.PathLike[str],
    mode: modes.TextMode = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    **options: Any,
) -> AbstractContextManager[io.TextIOWrapper]: ...
@overload
def open_url(
    url: str | os.PathLike[str], mode: modes.ReadBinaryMode, buffering: int = -1, **options: Any
) -> AbstractContextManager[ReadFile]: ...
@overload
def open_url(
    url: str | os.PathLike[str], mode: modes.WriteBinaryMode, buffering: int = -1, **options: Any
) -> AbstractContextManager[WriteFile]: ...
@overload
def open_url(
    url: str | os.PathLike[str], mode: modes.UpdateBinaryMode, buffering: int = -1, **options: Any
) -> AbstractContextManager[BinaryIO]: ...
@overload
def open_url(
    url: str | os.PathLike[str],
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    **options: Any,
) -> AbstractContextManager[IO[Any]]: ...
def open_url(
    url: str | os.PathLike[str],
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    **options: Any,
) -> AbstractContextManager[Any]:
    """Open the file at a URL, as a context manager; options as of `from_url`, the rest as of `builtins.open`.

    The file is opened by `with`, and has to be used in that block: `with open_url(url) as file:`. A container on the
    path is read only: `io.UnsupportedOperation` for other modes, since each file would rewrite the whole container.
    """
    return _OpenedURL(functools.partial(_opened, url, mode, buffering, encoding, errors, newline, options))


class _OpenedURL(contextlib.AbstractContextManager[Any]):
    """The context manager that `open_url` returns: using it as a file raises an error that says so."""

    def __init__(self, open_file: Callable[[], AbstractContextManager[IO[Any]]]) -> None:
        self._open_file = open_file

    def __enter__(self) -> IO[Any]:
        self._opened = self._open_file()
        return self._opened.__enter__()

    def __exit__(self, *exc: Any) -> bool | None:
        return self._opened.__exit__(*exc)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"open_url gives a context manager, which has no {name!r}: `with open_url(...) as file:`")


@contextlib.contextmanager
def _opened(
    url: str | os.PathLike[str],
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
    options: dict[str, Any],
) -> Iterator[IO[Any]]:
    """Open the FS that the file at a URL lies in, and yield the file."""
    location = parsed(url)
    folder, _, name = location.path.rpartition("/")
    if not name:
        raise error(errno.EISDIR, "open", location.text)
    settings = {name: options.pop(name) for name in SETTINGS if name in options}
    force_type, create, strict = (options.pop(name, None) for name in ("force_type", "create", "strict"))
    tree_mode = "r" if modes.parsed(mode).only_reads else ""
    location = location._replace(path=folder or "/", object=location.path)
    fs, _ = _open_tree(location, tree_mode, force_type, bool(create), options, settings, strict)
    with fs, fs.open(name, mode, buffering, encoding, errors, newline) as file:
        yield file


def written_into_container(url: str, container: str) -> io.UnsupportedOperation:
    """Return the error for writing the file at `url`, which would be a member of the container at another URL."""
    reason = (
        f"no single file is written into a container by its URL, since each would rewrite the whole container: open "
        f'{container} once, by from_url(url, mode="a") or open_container(path, mode="a"), and write to what that gives'
    )
    return errors.unsupported("open", url, reason)


# ---- the backend


def _open_tree(
    location: Location,
    mode: str,
    force_type: str | None,
    create: bool,
    options: dict[str, Any],
    settings: dict[str, Any],
    strict: bool | None,
) -> tuple[FS, bool]:
    """Return the FS in its layers, and whether the URL leads into a container.

    `mode` is that of the container; an empty one refuses containers, for a file that is going to be written.
    `settings` that are None are those of the custom scheme.
    """
    scheme = location.scheme
    strict = config.is_strict(strict)
    if strict and (problems := config.problems()):
        raise ConfigError(problems[0])
    opener, location, options, configured = schemes.backend(location, options, strict)
    chosen = {**configured, **{name: value for name, value in settings.items() if value is not None}}
    if "limits" in chosen:
        opener.limits = _limits(chosen.pop("limits"), scheme)
    from_environment = "cache" not in chosen and os.environ.get(CACHE_VARIABLE)
    if from_environment:
        chosen["cache"] = from_environment
    fs, container = _Opening(opener, location, mode, force_type, create, chosen.get("cache")).run(options)
    if from_environment:
        if not _is_far(fs):
            del chosen["cache"]  # files of this machine need none
    return _layered(fs, chosen) if chosen else fs, container


def _is_far(fs: FS) -> bool:
    """Return whether reading its files takes requests to a server."""
    if isinstance(fs, LayerFS | Container) and not fs.capabilities.stat_is_request:
        return _is_far(fs.inner if isinstance(fs, LayerFS) else fs._parent)
    return fs.capabilities.stat_is_request


def _limits(value: Any, scheme: str) -> Limits:
    limits = config.convert(value, Limits, f"[{scheme}] limits")
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be fsabs.Limits, not {type(limits).__name__}")
    return limits.checked()


def _layered(fs: FS, layers: dict[str, Any]) -> FS:
    """Return `fs` in the layers that are wanted; it is closed if one can't be made."""
    try:
        for name in registry.LAYERS:
            if (value := layers.get(name, False)) is not False:
                fs = registry.layer(name)(fs, value)
    except BaseException as exc:
        fs.__exit__(type(exc), exc, exc.__traceback__)
        raise
    return fs


def _directory(fs: FS, create: bool) -> FS:
    """Make the FS's root a directory, or check that it is one, where writing below it does not imply it."""
    if create:
        fs.makedirs("", exist_ok=True)
        return fs
    return fs if fs.capabilities.implied_directories else _existing(fs)


def _existing(fs: FS) -> FS:
    """Return `fs`, whose root has to be a directory: `FileNotFoundError`, `NotADirectoryError`."""
    root = "/" + fs._root
    if not fs.isdir(root):
        fs.stat(root)  # which raises, if it is missing
        raise errors.error(errno.ENOTDIR, "from_url", fs.url())
    return fs


# ---- containers on the path


class _Opening(NamedTuple):
    """Opens the directory at a location: in the store, or in the containers on the path to it."""

    opener: BackendOpener
    location: Location
    mode: str
    force_type: str | None
    """A container's name, or the location's own scheme: no segment is a container."""
    create: bool
    cache: Any

    def run(self, options: dict[str, Any]) -> tuple[FS, bool]:
        """Return the FS, and whether it lies in a container."""
        parts, candidates = split(self.location.path)
        if self._forced is not None and parts and len(parts) - 1 not in candidates:
            candidates.append(len(parts) - 1)
        elif self._forced is None and self.force_type is not None:
            candidates.clear()
        if candidates:
            options, container_options = self._divided(options, self._type(parts, candidates[-1]))
            fs = self._in_containers(options, container_options, parts, candidates)
            if fs is not None:
                return fs, True
        schemes.check_options(options, self.opener.known, self.opener.name, self.location)
        return _directory(self.opener(self.location.authority, self.location.path, options), self.create), False

    @property
    def _forced(self) -> str | None:
        """The name of the container that the last segment is, whatever its suffix; None for any or none."""
        if self.force_type is None or registry.container(self.force_type) is not None:
            return self.force_type
        if self.force_type != self.location.scheme:
            known = ", ".join(registry.containers())
            raise ValueError(
                f"force_type={self.force_type!r} is neither a container ({known}) nor the scheme of "
                f"{self.location.text}"
            )
        return None

    def _type(self, parts: list[str], at: int) -> str:
        forced = self._forced if at == len(parts) - 1 else None
        return forced or registry.container_of(parts[at]) or ""

    def _divided(self, options: dict[str, Any], container: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the backend's options, and those of the innermost container."""
        kind, known = registry.container(container), self.opener.known
        theirs = known_options(kind) if kind is not None else {}
        if known is not None:
            schemes.check_options(options, {**theirs, **known}, self.opener.name, self.location)
        inner = {name: options[name] for name in options if name in theirs and (known is None or name not in known)}
        return {name: value for name, value in options.items() if name not in inner}, inner

    def _in_containers(
        self, options: dict[str, Any], container_options: dict[str, Any], parts: list[str], candidates: list[int]
    ) -> FS | None:
        """Return the directory in the innermost container; None if what looked like containers are directories."""
        fs = self.opener(self.location.authority, "/", options)
        start = 0
        try:
            if self.cache is not None and self.mode == "r" and fs.capabilities.stat_is_request:
                from . import caching

                fs = caching.archives_cached(fs, self.cache)
            for at in candidates:
                innermost = at == candidates[-1]
                if not self.mode:
                    self._check_directory(fs, parts[: at + 1], parts[: candidates[-1] + 1])
                    continue
                path = "/" + "/".join(parts[start : at + 1])
                mode = self.mode if innermost or self.mode == "r" else "a"
                kind = self._type(parts, at)
                try:
                    fs = self._entered(fs, path, mode, kind, container_options if innermost else {})
                except IsADirectoryError:
                    if self._forced and at == len(parts) - 1:
                        raise
                else:
                    start = at + 1
            if start:
                return _below(fs, "/" + "/".join(parts[start:]))
        except BaseException as exc:
            fs.__exit__(type(exc), exc, exc.__traceback__)
            raise
        fs.close()
        return None

    def _check_directory(self, fs: FS, parts: list[str], innermost: list[str]) -> None:
        """Raise if the segments lead to no directory; `innermost` lead to the last that may be a container."""
        if not fs.isdir("/" + "/".join(parts)):
            raise written_into_container(self.location.text, fs.url("/" + "/".join(innermost)))

    def _entered(self, fs: FS, path: str, mode: str, kind: str, options: dict[str, Any]) -> FS:
        """Return the container at a path, which owns `fs`; `IsADirectoryError` if that is a directory."""
        if self.create and mode == "r" and not fs.exists(path):
            mode = "w"
            if fs.capabilities.mkdir and not fs.capabilities.implied_directories:
                fs.makedirs(keys.parent(path) or "/", exist_ok=True)
        container = fs.open_container(path, mode, force_type=kind, **options)
        if not isinstance(container, Container):
            return OwningFS(container, fs)
        container.own(fs)
        return container


def _below(fs: FS, path: str) -> FS:
    """Return the directory of a container at a path."""
    if path == "/":
        return fs
    sub = fs.subfs(path)
    sub._borrowed = False  # the container has no other owner, so that closing this closes it
    return _existing(sub) if fs.capabilities.read else sub
