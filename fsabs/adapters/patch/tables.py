"""Patches of pandas: what it reads goes through fsspec's interface, what it writes through a local file."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ... import urls
from . import calls
from .calls import Call, PatchedCall

_READS = ("csv", "table", "fwf", "parquet", "feather", "orc", "json", "excel", "pickle", "stata", "sas", "xml")
_WRITES = ("csv", "parquet", "feather", "orc", "json", "excel", "pickle", "stata", "xml", "html", "latex", "markdown")


def _fsspec_url(path: str) -> str:
    """Return the URL as fsspec takes it: with a protocol of this library's, and nothing percent-encoded."""
    import fsspec

    from ..fsspec import filesystem_class

    location = urls.parse(path)
    protocol = f"fsabs+{location.scheme}"
    fsspec.register_implementation(protocol, filesystem_class(location.scheme), clobber=True)
    return f"{protocol}://{location.authority}{location.path}"


def _read(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return call(_fsspec_url(str(path)) if "://" in str(path) else calls.open_file(path))


def _write(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs.get("partition_cols"):
        return _read(call, path, args, kwargs)
    adds = str(kwargs.get("mode", "w")).startswith(("a", "r+")) and calls.exists(path)
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
