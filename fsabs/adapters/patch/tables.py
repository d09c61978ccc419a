"""Patches of pandas: what it reads goes through fsspec's interface, what it writes through a local file."""

from __future__ import annotations

import os
import shutil
import tempfile
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import calls
from .calls import PatchedCall

if TYPE_CHECKING:
    from .calls import Call

_PANDAS_OWN = ("http://", "https://", "ftp://", "memory://")

_READS = ("csv", "table", "fwf", "parquet", "feather", "orc", "json", "excel", "pickle", "stata", "sas", "xml")
_WRITES = ("csv", "parquet", "feather", "orc", "json", "excel", "pickle", "stata", "xml", "html", "latex", "markdown")


def _fsspec_url(path: str) -> str:
    """Return the URL as fsspec takes it: with a protocol of this library's, and nothing percent-encoded."""
    import fsspec

    from ...urls import opening
    from ..fsspec import filesystem_class

    location = opening.parse(path)
    protocol = f"fsabs+{location.scheme}"
    fsspec.register_implementation(protocol, filesystem_class(location.scheme), clobber=True)
    return f"{protocol}://{location.authority}{location.path}"


def _is_pandas_own(path: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether pandas opens a URL itself: with options for fsspec, or by a protocol of the user's."""
    if not isinstance(path, str) or "://" not in path:
        return False
    if kwargs.get("storage_options") or path.startswith(_PANDAS_OWN):
        return True
    return not calls.opened().is_own_scheme(path.partition("://")[0].lower())


def _read(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _is_pandas_own(path, kwargs):
        return call(path)
    return call(_fsspec_url(str(path)) if "://" in str(path) else calls.open_file(path))


def _write(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs.get("partition_cols") or _is_pandas_own(path, kwargs):
        return _read(call, path, args, kwargs)
    mode = str(kwargs.get("mode", "w"))
    if mode.startswith("x"):
        with calls.open_file(path, "xb") as file, tempfile.TemporaryDirectory() as folder:
            local = os.path.join(folder, calls.as_url(path).rpartition("/")[2])
            result = call(local)
            with open(local, "rb") as written:
                shutil.copyfileobj(written, file)
            return result
    adds = mode.startswith(("a", "r+")) and calls.exists(path)
    with calls.as_local(path, "r+" if adds else "w") as local:
        return call(local)


def _write_hdf(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _write(call, path, args, {"mode": "a", **kwargs})


def _pandas(pandas: ModuleType) -> list[PatchedCall]:
    keyword = {"pickle": "filepath_or_buffer", "excel": "io", "parquet": "path", "feather": "path", "orc": "path"}
    keyword |= {"json": "path_or_buf", "xml": "path_or_buffer"}
    found = [PatchedCall(pandas, f"read_{kind}", _read, 0, keyword.get(kind, "filepath_or_buffer")) for kind in _READS]
    found += [PatchedCall(pandas, "read_hdf", calls.by_local, 0, "path_or_buf")]
    found += [PatchedCall(pandas, "read_spss", calls.by_local, 0, "path")]
    written = {"csv": "path_or_buf", "json": "path_or_buf", "excel": "excel_writer", "pickle": "path"}
    written |= {"html": "buf", "latex": "buf", "markdown": "buf", "xml": "path_or_buffer"}
    for owner in (pandas.DataFrame, pandas.Series):
        for kind in _WRITES:
            found.append(PatchedCall(owner, f"to_{kind}", _write, 1, written.get(kind, "path")))
        found.append(PatchedCall(owner, "to_hdf", _write_hdf, 1, "path_or_buf"))
    return found


TARGETS = {"pandas": {"pandas": _pandas}}
