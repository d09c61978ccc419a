"""The classes of schemes and suffixes: the built-in ones by name, so that nothing is imported before it is used,
then what was registered, then other packages' entry points (`fsabs.backends`, `fsabs.containers`). The names of
compressed files. And which function puts a layer around an FS, for an option of `from_url`.

An entry point of `fsabs.backends` is named by its scheme; one of `fsabs.containers` by its suffix without the
leading dot.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from .fs import FS

_BACKENDS: dict[str, str | type[FS]] = {
    "file": "fsabs.backends.local:Local",
    "memory": "fsabs.backends.memory:Memory",
    "gs": "fsabs.backends.gcs:GCS",
    "gcs": "fsabs.backends.gcs:GCS",
    "s3": "fsabs.backends.s3:S3",
    "az": "fsabs.backends.azure:Azure",
    "abfs": "fsabs.backends.azure:Azure",
    "abfss": "fsabs.backends.azure:Azure",
    "hdfs": "fsabs.backends.hdfs:Hdfs",
    "hf": "fsabs.backends.hub:Hub",
    "http": "fsabs.backends.web:Http",
    "https": "fsabs.backends.web:Https",
    "viewfs": "fsabs.backends.hdfs:ViewFs",
}
_CONTAINERS: dict[str, str | type[FS]] = {
    "zip": "fsabs.containers.zip:Zip",
    "tar": "fsabs.containers.tar:Tar",
    "hdf5": "fsabs.containers.hdf5:Hdf5",
}
COMPRESSIONS: dict[str, tuple[str, ...]] = {
    "gz": (".gz", ".tgz"),
    "zst": (".zst", ".tzst"),
    "xz": (".xz", ".txz"),
    "bz2": (".bz2", ".tbz2", ".tbz", ".tb2"),
}
"""How the names of compressed files end: by the compression's own suffix, or, if it is a tar, by a short one. A new
compression goes to the end, since indexes that are kept have the numbers of these."""
_SUFFIXES: dict[str, str] = {
    ".zip": "zip",
    ".tar": "tar",
    **{suffix: "tar" for own, *short in COMPRESSIONS.values() for suffix in (f".tar{own}", *short)},
    ".h5": "hdf5",
    ".hdf5": "hdf5",
}
LAYERS: dict[str, str] = {
    "manifest": "fsabs.manifest:pinned",
    "http_cache": "fsabs.urls.caching:http_cached",
    "cache": "fsabs.urls.caching:cached",
    "trace": "fsabs.trace:traced",
}
"""Functions of an FS and the option's value, by the option's name; the first is the innermost layer."""
ADAPTERS: dict[str, str] = {
    "arrow": "fsabs.adapters.arrow:as_arrow",
    "fsspec": "fsabs.adapters.fsspec:as_fsspec",
}
"""Functions of an FS that give it another library's interface, by the method of `FS` that calls them."""
BUILTIN_SCHEMES = frozenset(_BACKENDS)
_HOSTS = {".blob.core.windows.net": "abfss", ".dfs.core.windows.net": "abfss"}
"""Ends of the names of hosts, whose `https://HOST/NAME/path` is `SCHEME://NAME@HOST/path`."""
_plugins_loaded = False


def register_backend(scheme: str, backend: type[FS]) -> None:
    """Serve URLs of `scheme` by `backend`; a scheme that is taken, or that no URL can have, is a `ValueError`."""
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise ValueError(f"{scheme!r} can't be a scheme: small letters, digits and + - . make one")
    if _BACKENDS.get(scheme, backend) is not backend:
        raise ValueError(f"the scheme {scheme!r} is already served by {_BACKENDS[scheme]}")
    _BACKENDS[scheme] = backend


def register_container(name: str, suffixes: tuple[str, ...], container: type[FS]) -> None:
    """Open files with one of `suffixes` (".xyz") on a URL's path by `container`, which is also called `name`.

    A suffix or a name that another container has is a `ValueError`.
    """
    for suffix in suffixes:
        if not suffix.startswith(".") or "/" in suffix:
            raise ValueError(f"a suffix starts with a dot and has no slash: {suffix!r}")
        if _SUFFIXES.get(suffix, name) != name:
            raise ValueError(f"the suffix {suffix!r} already belongs to {_SUFFIXES[suffix]!r}")
    if _CONTAINERS.get(name, container) is not container:
        raise ValueError(f"the container {name!r} is already served by {_CONTAINERS[name]}")
    _CONTAINERS[name] = container
    _SUFFIXES.update(dict.fromkeys((suffix.lower() for suffix in suffixes), name))


def backend(scheme: str) -> type[FS] | None:
    """Return the class that serves `scheme`, or None."""
    return _class_of(_BACKENDS, scheme)


def scheme_of_host(host: str) -> str | None:
    """Return the scheme of the backend that serves what a host has, in place of a client of the web; or None."""
    return next((scheme for suffix, scheme in _HOSTS.items() if host.lower().endswith(suffix)), None)


def container(name: str) -> type[FS] | None:
    """Return the container class of that name (`"zip"`), or None."""
    return _class_of(_CONTAINERS, name)


def layer(name: str) -> Callable[[FS, Any], FS]:
    """Return the function that puts the layer of that name (of `LAYERS`) around an FS."""
    return cast("Callable[[FS, Any], FS]", _attribute(LAYERS[name]))


def adapter(name: str) -> Callable[..., Any]:
    """Return the function that gives an FS the interface of that name (of `ADAPTERS`)."""
    return cast("Callable[..., Any]", _attribute(ADAPTERS[name]))


def container_of(filename: str) -> str | None:
    """Return the name of the container that a file's suffix names, or None; the longest suffix wins."""
    lower = filename.lower()
    dot = lower.find(".")
    while dot >= 0:
        if lower[dot:] in _SUFFIXES:
            return _SUFFIXES[lower[dot:]]
        dot = lower.find(".", dot + 1)
    if "." in lower and not _plugins_loaded:
        _load_plugins()
        return container_of(filename)
    return None


def schemes() -> list[str]:
    """Return all schemes that a backend is registered for."""
    _load_plugins()
    return sorted(_BACKENDS)


def containers() -> list[str]:
    """Return all names of containers."""
    _load_plugins()
    return sorted(_CONTAINERS)


def _class_of(table: dict[str, str | type[FS]], name: str) -> type[FS] | None:
    """Return the class of an entry, which is kept in the place of its text; None if there is no such entry."""
    if name not in table:
        _load_plugins()
    found = table.get(name)
    if isinstance(found, str):
        table[name] = found = cast("type[FS]", _attribute(found))
    return found


def _attribute(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _load_plugins() -> None:
    global _plugins_loaded
    if _plugins_loaded:
        return
    for entry in _entry_points("fsabs.backends"):
        _BACKENDS.setdefault(entry.name, entry.value)
    for entry in _entry_points("fsabs.containers"):
        _SUFFIXES.setdefault("." + entry.name.lower(), entry.name)
        _CONTAINERS.setdefault(entry.name, entry.value)
    _plugins_loaded = True  # not before: another thread, or a child that is forked meanwhile, would miss them


def _entry_points(group: str) -> Any:
    from importlib import metadata

    return metadata.entry_points(group=group)
