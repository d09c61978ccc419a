"""What patched functions open URLs by; imported when the first one is seen."""

from __future__ import annotations

import contextlib
from typing import IO, Any

from ...backends import fsspec
from ...core import registry
from ...core.fs import FS
from ...core.writing import keep_if_dropped
from ...paths import Path
from ...urls import config, locations, roots
from ...urls.locations import PFS


def is_ours(path: str) -> bool:
    """Return whether a path is the URL of a scheme that this library opens."""
    scheme, separator, _ = path.partition("://")
    if path.startswith("/pfs/"):
        return locations.parse_without_query(path).scheme != "file"
    plain = scheme.replace("+", "").replace("-", "").replace(".", "")
    is_scheme = bool(separator) and scheme[:1].isalpha() and plain.isalnum() and scheme.isascii()
    return is_scheme and (is_own_scheme(scheme.lower()) or fsspec.knows(scheme.lower()))


def is_own_scheme(scheme: str) -> bool:
    """Return whether this library opens a scheme by itself, and not through fsspec."""
    if scheme == PFS or scheme in registry.BUILTIN_SCHEMES or registry.backend(scheme) is not None:
        return True
    return config.get_custom_scheme(scheme) is not None


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a file."""
    # A string first: the class of `Path` is abstract, and to ask for its instances is expensive.
    return roots.call(path, _read_bytes) if isinstance(path, str) else path.read_bytes()


def _read_bytes(fs: FS, path: str) -> bytes:
    return fs.read_bytes(path)


def open_file(path: str | Path, mode: str = "rb", *args: Any) -> IO[Any]:
    """Open a file, which is kept if it is dropped unclosed."""
    file = roots.open_file(path, mode, *args) if isinstance(path, str) else path.open(mode, *args)
    return file if mode in ("r", "rb", "rt") else keep_if_dropped(file)


def as_local(path: str | Path, mode: str = "r") -> contextlib.AbstractContextManager[str]:
    """Return a context manager of a local path."""
    return roots.as_local(path, mode) if isinstance(path, str) else path.as_local(mode)


def as_path(path: str | Path) -> Path:
    """Return a path of this library."""
    return Path(path) if isinstance(path, str) else path
