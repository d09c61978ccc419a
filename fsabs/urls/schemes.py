"""From a URL's scheme to its backend, which is registered, configured or known to fsspec, and to its options."""

from __future__ import annotations

import functools
import inspect
import os
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ..core import errors, keys, registry
from ..core.errors import ConfigError, ConfigWarning, UnknownSchemeError
from ..core.fs import FS
from ..core.limits import Limits
from . import config
from .locations import (
    PFS,
    VERBATIM,
    Location,
    no_query,
    parse,
    split,
)

FSSPEC = "fsspec"
"""The option by which fsspec's filesystem of a scheme takes the place of this library's; its options are then its own.
"""
SETTINGS = (*registry.LAYERS, "limits")
"""What `from_url` and sections of `pfio.ini` may set beside the options of backends and containers."""


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


def backend(
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
    by_fsspec = config.convert(configured if wanted is None else wanted, bool, f"[{location.scheme}] {FSSPEC}")
    backend = None if by_fsspec else registry.backend(scheme)
    if backend is not None:
        backend = backend.class_for(location.authority)
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
        return opener, location, options, {}
    settings = {name: value for name, value in custom.options.items() if name in SETTINGS}
    if isinstance(settings.get("manifest"), str):  # of the section's whole tree
        settings["manifest"] = {"url": settings["manifest"], "below": keys.normalize(below)}
    rest = {name: value for name, value in custom.options.items() if name not in settings}
    typed = _typed(rest, opener, location.scheme, custom.origins, strict, report)
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
        base = parse(datacenter.url)
    except ValueError as exc:
        raise ConfigError(f"{where}: {exc} ({config.config_path()})") from exc
    if base.scheme in (PFS, *VERBATIM):
        raise ConfigError(f"{where} can't be at {base.text} ({config.config_path()})")
    key = _key(location, location.path)
    whole = f"{base.path}/{_key(location, location.object)}" if location.object else ""
    there = base._replace(path=f"{base.path}/{key}", object=whole, query=location.query, text=location.text)
    try:
        opener, found, chosen, settings = backend(there, {}, strict, report)
    except UnknownSchemeError as exc:
        raise ConfigError(f"{where} can't be at {datacenter.url}: {exc}") from exc
    opener.section = opener.section or name
    full = keys.normalize(found.path)
    root = full[: len(full) - len(key)].rstrip("/")
    settings = {**settings, **{name: value for name, value in datacenter.options.items() if name in SETTINGS}}
    rest = {name: value for name, value in datacenter.options.items() if name not in settings}
    chosen = {**chosen, **_typed(rest, opener, name, datacenter.origins, strict, report), **options}
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


@functools.cache
def known_options(kind: type[FS]) -> Mapping[str, Any]:
    """Return the keyword-only options of a backend's or container's constructor, with their types."""
    hints = typing.get_type_hints(kind.__init__)
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            found[name] = hints.get(name, str)
        elif parameter.kind is parameter.VAR_KEYWORD and typing.get_origin(hints.get(name)) is typing.Unpack:
            found |= typing.get_type_hints(typing.get_args(hints[name])[0])
    return types.MappingProxyType(found)


def _typed(
    options: dict[str, Any],
    opener: BackendOpener,
    scheme: str,
    origins: dict[str, str],
    strict: bool,
    report: config.Report,
) -> dict[str, Any]:
    """Return the options of a custom scheme in their types, without keys of the file that the backend doesn't know."""
    if opener.known is None:
        return options
    found = {}
    for name, value in options.items():
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
    return found


def check_options(options: Mapping[str, Any], known: Mapping[str, Any] | None, owner: str, location: Location) -> None:
    """Raise `TypeError` for the first option that `owner` doesn't know; None knows any."""
    for name in options:
        if known is not None and name not in known:
            raise TypeError(f"{location.text}: {_unknown(name, known, owner)}")


def _unknown(name: str, known: Mapping[str, Any], owner: str) -> str:
    text = errors.unknown_option(name, known, owner, (*SETTINGS, FSSPEC))
    without = " Without an endpoint, requests go to amazonaws.com"
    return text + without if owner == "S3" and text.endswith("'endpoint'?") else text
