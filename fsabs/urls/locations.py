"""Locations: parsed URLs, as scheme, authority, path and query."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ..core import keys, redaction, registry
from . import config

VERBATIM = frozenset({"http", "https"})
"""Schemes whose paths are sent as they are written."""
LONG_AUTHORITIES = {
    "hf": re.compile(
        r"(?:(?:datasets|spaces|kernels|models)/)?[^/@]+/[^/@]+"
        r"(?:@(?:refs/convert/[^/]+|refs/pr/\d+|[^/]*))?(?=/|\Z)"
    )
}
"""What names a store, by scheme, where that takes several segments: a repository and its revision."""
PFS = "pfs"
"""The scheme of the datacenters' files; without one their paths are `/pfs/<datacenter>/...`."""
_PFS_PATH = re.compile(r"/+pfs/+([^/]+)(/.*)?", re.DOTALL)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=//|/)")


class Location(NamedTuple):
    """A URL, taken apart."""

    scheme: str
    authority: str
    path: str
    """Starts with `/`, or is empty; decoded, but for http, where it is sent as it is written, with its query."""
    text: str
    """The URL as it was given, without what is secret in it."""
    query: tuple[tuple[str, str], ...] = ()
    """The query's names and values, for the backends that know any."""
    object: str = ""
    """The path that the query is about, where it is not `path`."""


def parse_without_query(url: str | os.PathLike[str]) -> Location:
    """Take a URL without a query apart; a path without a scheme is a local one."""
    location = parse(url)
    if not location.query:
        return location
    verbatim = _verbatim(os.fspath(url))
    if verbatim is None:
        raise no_query(location)
    return verbatim


def split(path: str) -> tuple[list[str], list[int]]:
    """Return the segments of a path, and the positions among them of those that may be containers, by their names."""
    key = keys.normalize(path)
    parts = key.split("/") if key else []
    return parts, [at for at, part in enumerate(parts) if registry.container_of(part)]


def folder_and_name(location: Location) -> tuple[str, str]:
    """Return the path of the directory that a file lies in, and its name: on a web server, with its query."""
    text, rest = keys.verbatim(location.path) if location.scheme in VERBATIM else (location.path, "")
    if rest.startswith("/"):  # the slash is that of a directory, or of the root
        text, rest = text.rstrip("/"), rest if text.strip("/") else rest[1:]
    folder, _, name = text.rpartition("/")
    return folder or "/", name + rest


def no_query(location: Location) -> ValueError:
    """Return the error for a query that the scheme doesn't have."""
    return ValueError(f"a '?' in a path is written as %3F: {location.text}")


def parse(url: str | os.PathLike[str]) -> Location:
    """Take a URL apart, with its query; a path without a scheme is a local one, or a datacenter's."""
    text = os.fspath(url) if hasattr(url, "__fspath__") else url
    if not isinstance(text, str):
        raise TypeError(f"a URL or a path is a str or an os.PathLike of str, not {type(text).__name__}")
    match = _SCHEME.match(text)
    if match is None:
        if ":" in text.split("/")[0] and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:[^/]*$", text) and not os.path.exists(text):
            scheme = text.partition(":")[0]
            raise ValueError(
                f"a URL has // after its scheme: {scheme}://... (a local path with a colon: ./{scheme}:...)"
            )
        path = os.path.abspath(text)
        if text.startswith("/") and (found := _in_datacenter(text) or _in_datacenter(path)) is not None:
            return found
        return Location("file", "", path, "file://" + keys.to_url_path(path))
    rest = text[match.end() :]
    scheme, shown = match[1].lower(), redaction.distinct_url(text)
    authority, slash, path = _authority(scheme, rest[2:]) if rest.startswith("//") else ("", "/", rest[1:])
    if scheme in VERBATIM:
        served, (name, _, path) = registry.scheme_of_host(authority), path.partition("/")
        if scheme == "http" or served is None or not name or "#" in path or "@" in authority:
            return _verbatim(text) or Location(scheme, authority, "", shown)
        scheme, authority = served, f"{keys.from_url_path(name)}@{authority}"
    path, mark, query = path.partition("?")
    if "#" in path or "#" in query:
        raise ValueError(f"a '#' in a path is written as %23: {shown}")
    return Location(scheme, authority, keys.from_url_path(slash + path), shown, _query(query, shown) if mark else ())


def long_authority(scheme: str) -> re.Pattern[str] | None:
    """Return the pattern of what names a store, where that takes several segments: only a whole URL shows its end."""
    return LONG_AUTHORITIES.get(scheme if scheme in registry.BUILTIN_SCHEMES else config.base_of(scheme))


def _authority(scheme: str, rest: str) -> tuple[str, str, str]:
    """Return the authority in what follows `//`, the slash behind it, and the path without that."""
    long = long_authority(scheme)
    match = long.match(rest) if long is not None else None
    end = match.end() if match is not None else rest.find("/")
    return (rest, "", "") if end < 0 else (rest[:end], rest[end : end + 1], rest[end + 1 :])


def _verbatim(text: str) -> Location | None:
    """Return the location of an address of the web as it is written; None for another URL."""
    scheme, _, rest = text.partition("://")
    if scheme.lower() not in VERBATIM:
        return None
    authority, slash, path = rest.partition("/")
    return Location(scheme.lower(), authority, slash + path, redaction.distinct_url(text))


def _in_datacenter(text: str) -> Location | None:
    """Return the location of a path `/pfs/<datacenter>/...`; None for another path, and below a mount at `/pfs`.

    The configuration decides which datacenters there are; where it has some, or what can't be read, and nothing is
    mounted at `/pfs`, the name of another one is a `ConfigError`. What climbs out of the datacenter is left in the
    path, and refused where the path becomes a key.
    """
    match = _PFS_PATH.fullmatch(text)
    if match is None:
        return None
    if not config.is_datacenter(match[1]):
        found = config.sections()
        meant = match[1] in found or config.problems() or any(map(config.is_datacenter, found))
        if meant and not os.path.lexists("/pfs"):
            config.datacenter(match[1])  # raises, and names those that there are
        return None
    return Location(PFS, match[1], match[2] or "", text)


def _query(text: str, url: str) -> tuple[tuple[str, str], ...]:
    """Return the names and values of a query."""
    found: dict[str, str] = {}
    for field in text.split("&"):
        name, equals, value = field.partition("=")
        name, value = keys.from_url_path(name), keys.from_url_path(value)
        if not equals or not value or name in found:
            raise ValueError(f"a query is name=value, each name once; a '?' in a path is written as %3F: {url}")
        found[name] = value
    return tuple(found.items())
