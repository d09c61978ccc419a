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
import warnings
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, overload

from ..containers.base import Container, OwningFS
from ..core import errors, keys, modes, registry
from ..core.errors import ConfigError, ConfigWarning, UnknownSchemeError, error
from ..core.fs import FS
from ..core.layers import LayerFS
from ..core.limits import Limits
from . import config
from .constructors import known_options
from .locations import PFS, VERBATIM, Location, folder_and_name, no_query, parse, parse_without_query, split

if TYPE_CHECKING:
    import io
    from contextlib import AbstractContextManager

    from ..cache import CachedFS
    from ..core.files import ReadFile
    from ..core.writing import WriteFile

CACHE_VARIABLE = "FSABS_CACHE"
"""`cache=` of what is opened without it, as it stands in `pfio.ini`: for programs that aren't changed."""


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
        trace: the folder of a trace that begins now, of the whole process, as by `fsabs.trace.start`.
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

    Raises `UnknownSchemeError`, `ConfigError` and other `ValueError`s for what is no URL, `TypeError` for an unknown
    option, and `OSError`.
    """
    if mode not in ("r", "w", "x", "a"):
        raise ValueError(f"a container's mode is r, w, x or a, not {mode!r}")
    if url in registry.BUILTIN_SCHEMES and not (create or os.path.exists(url)):
        raise ValueError(
            f"{url!r} is a scheme, and no URL: {url}:///path, or {url}://authority/path (a directory: ./{url})"
        )
    settings = {"cache": cache, "trace": trace, "http_cache": http_cache, "manifest": manifest, "limits": limits}
    fs, container = _open_tree(parse(url), mode, force_type, create, options, settings, strict)
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

    def __init__(self, open_file: Callable[[], tuple[FS, IO[Any]]]) -> None:
        self._open_file = open_file

    def __enter__(self) -> IO[Any]:
        self._fs, self._file = self._open_file()
        return self._file.__enter__()

    def __exit__(self, *exc: Any) -> bool | None:
        with self._fs:
            return self._file.__exit__(*exc)

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
    """Open the FS that the file at a URL lies in, and the file."""
    location, options = parse(url), dict(options)  # a second block opens the file with the same ones
    if options.get("force_type") is None:
        folder, name = folder_and_name(location)
    else:  # of what is before the last slash, with a query if it has one
        folder, _, name = location.path.rpartition("/")
    if not name:
        raise error(errno.EISDIR, "open", location.text)
    settings = {name: options.pop(name) for name in SETTINGS if name in options}
    force_type, create, strict = (options.pop(name, None) for name in ("force_type", "create", "strict"))
    tree_mode = "r" if modes.parse(mode).only_reads else ""
    location = location._replace(path=folder or "/", object=location.path)
    fs, _ = _open_tree(location, tree_mode, force_type, bool(create), options, settings, strict)
    try:
        return fs, fs.open(name, mode, buffering, encoding, errors, newline)
    except BaseException as exc:
        fs.__exit__(type(exc), exc, exc.__traceback__)
        raise


def written_into_container(url: str, container: str) -> io.UnsupportedOperation:
    """Return the error for writing the file at `url`, which would be a member of the container at another URL."""
    reason = (
        f"no single file is written into a container by its URL, since each would rewrite the whole container: open "
        f'{container} once, by from_url(url, mode="a") or open_container(path, mode="a"), and write to what that gives'
    )
    return errors.unsupported("open", url, reason)


# ---- the store, the containers on the path, the layers


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
    opener, location, options, configured = find_backend(location, options, strict)
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
        check_options(options, self.opener.known, self.opener.name, self.location)
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
            check_options(options, {**theirs, **known}, self.opener.name, self.location)
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
    sub._owns_resources = True  # the container has no other owner, so that closing this closes it
    return _existing(sub) if fs.capabilities.read else sub


FSSPEC = "fsspec"
"""The option by which fsspec's filesystem of a scheme takes the place of this library's; its options are then its own.
"""
SETTINGS = (*registry.LAYERS, "limits")
"""The settings of `from_url` and of sections of `pfio.ini`, beside the options of backends and containers."""


class BackendOpener:
    """A backend as from_url needs it: a function of authority, path and options, and the options that it knows."""

    def __init__(self, open_at: Callable[..., FS], options: Mapping[str, Any] | None, name: str) -> None:
        self._open_at = open_at
        self.known = options
        self.name = name
        self.section = ""
        """The section of `pfio.ini` that the options come from, or none."""
        self.limits: Limits | None = None

    def __call__(self, authority: str, path: str, options: dict[str, Any]) -> FS:
        try:
            fs = self._open_at(authority, path, **options)
        except ValueError as exc:
            if not self.section or isinstance(exc, OSError):
                raise
            raise ConfigError(f"[{self.section}]: {exc} ({config.config_path()})") from exc
        if self.limits is not None:
            fs.limits = self.limits
        return fs


def find_backend(
    location: Location, options: dict[str, Any], strict: bool, report: config.Report = config.raise_fault
) -> tuple[BackendOpener, Location, dict[str, Any], dict[str, Any]]:
    """Return the backend of a URL: a registered one, one of fsspec, or a custom scheme's with its layers.

    Faults of single keys of a section go to `report`: with `strict`, keys that the backend doesn't know are such.
    """
    options = dict(options)
    if location.scheme == PFS:
        return _of_datacenter(location, options, strict, report)
    scheme = location.scheme
    custom = None if registry.backend(scheme) else config.resolve(scheme, report)
    below = location.path
    if custom is not None:
        scheme = custom.scheme
        whole = _prefixed(custom.prefix, location._replace(path=location.object)) if location.object else ""
        location = location._replace(path=_prefixed(custom.prefix, location), object=whole)
    wanted = options.pop(FSSPEC, None)
    configured = custom.options.pop(FSSPEC, False) if custom is not None else False
    chosen = configured if wanted is None else wanted
    by_fsspec = chosen is not False and config.convert(chosen, bool, f"[{location.scheme}] {FSSPEC}")
    backend = None if by_fsspec else registry.backend(scheme)
    options = {**_options_of_query(backend, location), **options}
    own = backend is not None and scheme in registry.BUILTIN_SCHEMES and not backend._splits_authority
    if own and "@" in location.authority:  # it would be part of every URL and error
        raise ValueError(f"{scheme}: takes no user and no password from a URL: {location.text}")
    if backend is not None:
        opener = BackendOpener(backend.from_location, known_options(backend), backend.__name__)
    else:
        opener = _fsspec_opener(scheme, location)
    if custom is not None:
        opener.section = location.scheme
    if scheme in VERBATIM and location.scheme not in VERBATIM:
        location = location._replace(path=keys.to_url_path(location.path))
    if custom is None:
        if scheme != "file":  # of which there are many, with no other cost
            config.warn_of_problems()  # a section of this name, say, which has no effect
        return opener, location, options, {}
    settings, typed = _of_section(custom.options, opener, location.scheme, custom.origins, strict, report)
    if isinstance(settings.get("manifest"), str):  # of the section's whole tree
        settings["manifest"] = {"url": settings["manifest"], "below": keys.normalize(below)}
    return opener, location, {**typed, **options}, settings


def _of_datacenter(
    location: Location, options: dict[str, Any], strict: bool, report: config.Report
) -> tuple[BackendOpener, Location, dict[str, Any], dict[str, Any]]:
    """Return the backend of a path in a datacenter: that of the section's URL, in a `PfsFS`."""
    from .pfs import PfsFS

    name = location.authority
    datacenter = config.datacenter(name, report)
    where = f"the datacenter [{name}]"
    try:
        base = parse_without_query(datacenter.url)
    except ValueError as exc:
        raise ConfigError(f"{where}: {exc} ({config.config_path()})") from exc
    if base.scheme in (PFS, *VERBATIM):
        raise ConfigError(f"{where} can't be at {base.text} ({config.config_path()})")
    key = _key(location, location.path)
    whole = f"{base.path}/{_key(location, location.object)}" if location.object else ""
    there = base._replace(path=f"{base.path}/{key}", object=whole, query=location.query, text=location.text)
    try:
        opener, found, chosen, settings = find_backend(there, {}, strict, report)
    except UnknownSchemeError as exc:
        raise ConfigError(f"{where} can't be at {datacenter.url}: {exc}") from exc
    opener.section = opener.section or name
    full = keys.normalize(found.path)
    root = full[: len(full) - len(key)].rstrip("/")
    own, typed = _of_section(datacenter.options, opener, name, datacenter.origins, strict, report)
    settings, chosen = {**settings, **own}, {**chosen, **typed, **options}
    if opener.known and "links" in opener.known:  # of a local tree, from one home to another
        chosen.setdefault("links", "inside")

    def open_at(authority: str, path: str, **options: Any) -> FS:
        there = f"/{root}"
        if found.scheme == "file" and not (os.path.isdir(there) or (split(there)[1] and os.path.isfile(there))):
            raise ConfigError(
                f"{where}: its pfs={datacenter.url} is no directory, or not mounted ({config.config_path()})"
            )
        return PfsFS.at(opener(authority, "/" + root, options), name, datacenter.username, path)

    return BackendOpener(open_at, opener.known, PfsFS.__name__), found._replace(scheme=PFS), chosen, settings


def _key(location: Location, path: str) -> str:
    """Return the key of a path in a datacenter or a custom scheme, which none leads out of."""
    try:
        return keys.normalize(path)
    except PermissionError as exc:
        raise errors.named(exc, "from_url", location.text) from None


def _options_of_query(backend: type[FS] | None, location: Location) -> dict[str, Any]:
    """Return the options that the query of a URL stands for; it is about the outermost file on the path."""
    if not location.query:
        return {}
    read = getattr(backend, "options_of_query", None)
    if read is None:
        raise no_query(location)
    parts, containers = split(location.object or location.path)
    files = ["/" + "/".join(parts[: at + 1]) for at in sorted({*containers, len(parts) - 1})]
    found: dict[str, Any] = read(location.authority, files, dict(location.query))
    return found


def _fsspec_opener(scheme: str, location: Location) -> BackendOpener:
    from ..backends import fsspec

    if not fsspec.knows(scheme):
        schemes = [*registry.schemes(), *config.custom_schemes()]
        known = ", ".join(schemes)
        if scheme != location.scheme:
            raise UnknownSchemeError(
                f"the custom scheme [{location.scheme}] has scheme = {scheme}, which is unknown"
                f"{errors.did_you_mean(scheme, schemes)}; known: {known}, and what fsspec knows "
                f"({config.config_path()})"
            )
        raise UnknownSchemeError(
            f"unknown scheme {location.scheme!r} in {location.text!r}; known: {known}, and what fsspec knows. "
            f"Custom schemes are looked for in {'; '.join([config.config_path(), *config.problems()])}"
        )
    return BackendOpener(fsspec.opener(scheme), None, scheme)


def _prefixed(prefix: str, location: Location) -> str:
    """Return the path below the prefix of a custom scheme: a root, which no path leads out of."""
    if not prefix:
        return location.path
    _key(location, location.path)
    return f"/{prefix}/{location.path.lstrip('/')}"


# ---- options


def _of_section(
    options: dict[str, Any],
    opener: BackendOpener,
    scheme: str,
    origins: dict[str, str],
    strict: bool,
    report: config.Report,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a section, and its other options in their types, without keys of the file that the backend
    doesn't know.
    """
    settings = {name: value for name, value in options.items() if name in SETTINGS}
    rest = {name: value for name, value in options.items() if name not in settings}
    if opener.known is None:
        return settings, rest
    found = {}
    for name, value in rest.items():
        if name in opener.known:
            try:
                found[name] = config.convert(value, opener.known[name], f"{origins.get(name, f'[{scheme}]')} {name}")
            except ConfigError as exc:
                report(exc)
            continue
        reason = f"{origins.get(name, f'custom scheme [{scheme}]')}: {_unknown(name, opener.known, opener.name)}"
        if strict or name not in origins:
            report(ConfigError(reason))
            continue
        warnings.warn(f"{reason}; the key is ignored", ConfigWarning, stacklevel=2)
    return settings, found


def check_options(options: Mapping[str, Any], known: Mapping[str, Any] | None, owner: str, location: Location) -> None:
    """Raise `TypeError` for the first option that `owner` doesn't know; None knows any."""
    for name in options:
        if known is not None and name not in known:
            raise TypeError(f"{location.text}: {_unknown(name, known, owner)}")


def _unknown(name: str, known: Mapping[str, Any], owner: str) -> str:
    text = errors.unknown_option(name, known, owner, (*SETTINGS, FSSPEC))
    without = " Without an endpoint, requests go to amazonaws.com"
    return text + without if owner == "S3" and text.endswith("'endpoint'?") else text
