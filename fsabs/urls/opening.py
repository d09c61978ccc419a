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
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Literal, overload

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
    """The FS at a URL: a directory of a store, or a container in a file of it, however deep.

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

    def __init__(self, opened: Callable[[], tuple[FS, IO[Any]]]) -> None:
        self._opened = opened

    def __enter__(self) -> Any:
        self._fs, self._file = self._opened()
        return self._file

    def __exit__(self, *exc: Any) -> None:
        try:
            self._file.__exit__(*exc)
        finally:
            self._fs.__exit__(*exc)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"open_url gives a context manager, which has no {name!r}: `with open_url(...) as file:`")


def _opened(
    url: str | os.PathLike[str],
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
    options: dict[str, Any],
) -> tuple[FS, IO[Any]]:
    """The file at a URL, and the FS that it lies in."""
    location = parsed(url)
    folder, _, name = location.path.rpartition("/")
    if not name:
        raise error(errno.EISDIR, "open", location.text)
    settings = {name: options.pop(name) for name in SETTINGS if name in options}
    force_type, create, strict = (options.pop(name, None) for name in ("force_type", "create", "strict"))
    how = modes.parsed(mode)
    tree_mode = "r" if how.action == "r" and not how.update else ""
    location = location._replace(path=folder or "/", object=location.path)
    fs, _ = _open_tree(location, tree_mode, force_type, bool(create), options, settings, strict)
    try:
        return fs, fs.open(name, mode, buffering, encoding, errors, newline)
    except BaseException as exc:
        fs.__exit__(type(exc), exc, exc.__traceback__)
        raise


def written_into_container(url: str, container: str) -> io.UnsupportedOperation:
    """The error for writing the file at `url`, which would be a member of the container at another URL."""
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
    """The FS in its layers, and whether the URL leads into a container.

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
    fs, container = _open_bare(opener, location, mode, force_type, create, options, chosen.get("cache"))
    if from_environment:
        if not _is_far(fs):
            del chosen["cache"]  # files of this machine need none
    return _layered(fs, chosen) if chosen else fs, container


def _is_far(fs: FS) -> bool:
    """Return whether its files, or the containers that they are in, take requests to a server."""
    if isinstance(fs, LayerFS | Container) and not fs.capabilities.stat_is_request:
        return _is_far(fs.inner if isinstance(fs, LayerFS) else fs._parent)
    return fs.capabilities.stat_is_request


def _limits(value: Any, scheme: str) -> Limits:
    limits = config.convert(value, Limits, f"[{scheme}] limits")
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be fsabs.Limits, not {type(limits).__name__}")
    return limits.checked()


def _layered(fs: FS, layers: dict[str, Any]) -> FS:
    """`fs` in the layers that are wanted; closed if one can't be."""
    for name in registry.LAYERS:
        value = layers.get(name, False)
        if value is False:
            continue
        try:
            fs = registry.layer(name)(fs, value)
        except BaseException as exc:
            fs.__exit__(type(exc), exc, exc.__traceback__)
            raise
    return fs


def _open_bare(
    opener: BackendOpener,
    location: Location,
    mode: str,
    force_type: str | None,
    create: bool,
    options: dict[str, Any],
    cache: Any,
) -> tuple[FS, bool]:
    parts, candidates = split(location.path)
    forced = _forced_container(force_type, location)
    if forced is not None and parts and len(parts) - 1 not in candidates:
        candidates.append(len(parts) - 1)
    elif forced is None and force_type is not None:
        candidates.clear()
    if not candidates:
        fs = _plain(opener(location.authority, location.path, schemes.only(options, opener, location)), create)
        return fs, False
    return _Descent(opener, location, parts, forced, mode, create, cache).run(options, candidates)


def _plain(fs: FS, create: bool) -> FS:
    """Make the FS's root a directory, or check that it is one, where writing below it does not imply it."""
    if create:
        fs.makedirs("", exist_ok=True)
        return fs
    return fs if fs.capabilities.implied_directories else _checked(fs)


def _checked(fs: FS) -> FS:
    root = "/" + fs._root
    if not fs.isdir(root):
        fs.stat(root)  # which raises, if it is missing
        raise errors.error(errno.ENOTDIR, "from_url", fs.url())
    return fs


# ---- containers on the path


def _forced_container(force_type: str | None, location: Location) -> str | None:
    if force_type is None or registry.container(force_type) is not None:
        return force_type
    if force_type != location.scheme:
        known = ", ".join(registry.containers())
        raise ValueError(
            f"force_type={force_type!r} is neither a container ({known}) nor the scheme of {location.text}"
        )
    return None


class _Descent:
    """The way down a path through the containers on it."""

    def __init__(
        self,
        opener: BackendOpener,
        location: Location,
        parts: list[str],
        forced: str | None,
        mode: str,
        create: bool,
        cache: Any,
    ) -> None:
        self._opener = opener
        self._location = location
        self._parts = parts
        self._forced = forced
        self._mode = mode
        self._create = create
        self._cache = cache

    def run(self, options: dict[str, Any], candidates: list[int]) -> tuple[FS, bool]:
        """The FS at the end of the path, and whether it lies in a container."""
        backend_options, container_options = self._split(options, candidates[-1])
        fs = self._opener(self._location.authority, "/", backend_options)
        start, opened = 0, False
        try:
            if self._cache is not None and self._mode == "r" and fs.capabilities.stat_is_request:
                from . import caching

                fs = caching.archives_cached(fs, self._cache)
            for at in candidates:
                innermost = at == candidates[-1]
                if not self._mode:
                    self._refuse(fs, at, candidates[-1])
                    continue
                mode = self._mode if innermost or self._mode == "r" else "a"
                found = self._enter(fs, start, at, mode, container_options if innermost else {})
                if found is not None:
                    fs, start, opened = found, at + 1, True
            if opened:
                return self._below(fs, start), True
        except BaseException as exc:
            fs.__exit__(type(exc), exc, exc.__traceback__)
            raise
        fs.close()  # what looked like containers were directories
        return _plain(self._opener(self._location.authority, self._location.path, backend_options), self._create), False

    def _split(self, options: dict[str, Any], last: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The backend's options, and the innermost container's."""
        kind = registry.container(self._type(last))
        theirs = known_options(kind) if kind is not None else {}
        mine = self._opener.known
        container = {
            name: value for name, value in options.items() if name in theirs and (mine is None or name not in mine)
        }
        backend = {name: value for name, value in options.items() if name not in container}
        if mine is not None:
            schemes.only(
                backend, BackendOpener(self._opener._open_at, {**theirs, **mine}, self._opener.name), self._location
            )
        return backend, container

    def _type(self, at: int) -> str:
        forced = self._forced if at == len(self._parts) - 1 else None
        return forced or registry.container_of(self._parts[at]) or ""

    def _refuse(self, fs: FS, at: int, last: int) -> None:
        """Raise if the segment at `at` is no directory; the one at `last` is the innermost that may be a container."""
        if not fs.isdir("/" + "/".join(self._parts[: at + 1])):
            container = fs.url("/" + "/".join(self._parts[: last + 1]))
            raise written_into_container(self._location.text, container)

    def _enter(self, fs: FS, start: int, at: int, mode: str, options: dict[str, Any]) -> FS | None:
        """The container in the segment at `at`; None if that is a directory."""
        path = "/" + "/".join(self._parts[start : at + 1])
        if self._create and mode == "r" and not fs.exists(path):
            mode = "w"
            if fs.capabilities.mkdir and not fs.capabilities.implied_directories:
                fs.makedirs(keys.parent(path) or "/", exist_ok=True)
        try:
            container = fs.open_container(path, mode, force_type=self._type(at), **options)
        except IsADirectoryError:
            if self._forced and at == len(self._parts) - 1:
                raise
            return None
        if not isinstance(container, Container):
            return OwningFS(container, fs)
        container.own(fs)
        return container

    def _below(self, fs: FS, start: int) -> FS:
        """The directory of the container that the rest of the path names."""
        rest = "/" + "/".join(self._parts[start:])
        if rest == "/":
            return fs
        sub = fs.subfs(rest)
        sub._borrowed = False  # the container has no other owner, so that closing this closes it
        return _checked(sub) if fs.capabilities.read else sub
