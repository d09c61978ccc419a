"""Patches of libraries of arrays, sound and tables: numpy, h5py, torch, safetensors, soundfile, torchaudio, pandas."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import calls
from .calls import PatchedCall

if TYPE_CHECKING:
    from .calls import Call


def _numpy(numpy: ModuleType) -> list[PatchedCall]:
    def load(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (args[1] if len(args) > 1 else kwargs.get("mmap_mode")) is not None:
            return calls.refused(call, path, args, kwargs)
        file = calls.open_file(path)
        try:
            found = call(file)
        except BaseException:
            file.close()
            raise
        if isinstance(found, numpy.lib.npyio.NpzFile):
            found.fid = file  # closed with it
        else:
            file.close()
        return found

    def writes(suffix: str) -> calls.Handler:
        def save(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if not str(path).endswith(suffix):  # as numpy does
                path = path + suffix if isinstance(path, str) else path.with_name(path.name + suffix)
            return calls.by_written_file(call, path, args, kwargs)

        return save

    return [
        PatchedCall(numpy, "load", load, 0, "file"),
        PatchedCall(numpy, "save", writes(".npy"), 0, "file"),
        PatchedCall(numpy, "savez", writes(".npz"), 0, "file"),
        PatchedCall(numpy, "savez_compressed", writes(".npz"), 0, "file"),
        PatchedCall(numpy, "fromfile", calls.by_local, 0, "file"),
        PatchedCall(numpy, "loadtxt", calls.by_local, 0, "fname"),
        PatchedCall(numpy, "genfromtxt", calls.by_local, 0, "fname"),
        PatchedCall(numpy, "savetxt", calls.by_written_local, 0, "fname"),
        PatchedCall(numpy.memmap, "__new__", calls.refused, 1, "filename"),
    ]


def _h5py(h5py: ModuleType) -> list[PatchedCall]:
    def opened(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mode = args[2] if len(args) > 2 else kwargs.get("mode", "r")
        driver = args[3] if len(args) > 3 else kwargs.get("driver")
        if mode in (None, "r"):
            # a driver of HDF5's own reads a file of its own
            return call(
                calls.open_file(path) if driver in (None, "fileobj") else calls.copy_until_closed(args[0], path, "r")
            )
        there = mode in ("a", "r+", "w-", "x") and calls.exists(path)
        opening_mode = "r+" if mode == "r+" or (there and mode == "a") else "x" if mode in ("w-", "x") else "w"
        return call(calls.copy_until_closed(args[0], path, opening_mode))

    return [
        PatchedCall(h5py.File, "__init__", opened, 1, "name"),
        *closing(h5py.File),
    ]


class MethodPatch(PatchedCall):
    """A method that is replaced whatever its arguments are."""

    def __init__(self, owner: Any, name: str, make: Any) -> None:
        super().__init__(owner, name, calls.by_local)
        self._make = make

    def _wrapped(self, original: Any) -> Any:
        made = self._make(original)
        setattr(made, calls.PATCHED, made)
        return made


def closing(kind: Any) -> list[PatchedCall]:
    """Return the patches of a class of files whose objects may stand for a local copy, which is committed on release.

    A block that raises commits nothing.
    """

    def close(original: Any) -> Any:
        def closed(self: Any) -> None:
            original(self)
            calls.close_copy(self)

        return closed

    def leave(original: Any) -> Any:
        def left(self: Any, *exc: Any) -> None:
            if exc and exc[0] is not None:
                calls.close_copy(self, failed=True)
            original(self, *exc)

        return left

    return [MethodPatch(kind, "close", close), MethodPatch(kind, "__exit__", leave)]


def _torch(torch: ModuleType) -> list[PatchedCall]:
    def load(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (calls.by_local if kwargs.get("mmap") else calls.by_file)(call, path, args, kwargs)

    return [
        PatchedCall(torch, "load", load, 0, "f"),
        PatchedCall(torch, "save", calls.by_written_file, 1, "f"),
    ]


def _safetensors(module: ModuleType) -> list[PatchedCall]:
    return [
        PatchedCall(module, "load_file", calls.by_local, 0, "filename"),
        PatchedCall(module, "save_file", calls.by_written_local, 1, "filename"),
    ]


def _soundfile(module: ModuleType) -> list[PatchedCall]:
    def opened(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mode = args[2] if len(args) > 2 else kwargs.get("mode", "r")
        if mode in (None, "r"):
            return call(calls.open_file(path))
        return call(calls.copy_until_closed(args[0], path, {"r+": "r+", "x": "x"}.get(mode.replace("w+", "w"), "w")))

    return [
        PatchedCall(module.SoundFile, "__init__", opened, 1, "file"),
        *closing(module.SoundFile),
    ]


def _torchaudio(module: ModuleType) -> list[PatchedCall]:
    return [
        PatchedCall(module, "load", calls.by_local, 0, "uri"),
        PatchedCall(module, "info", calls.by_local, 0, "uri"),
        PatchedCall(module, "save", calls.by_written_local, 0, "uri"),
    ]


# ---- pandas: what it reads goes through fsspec's interface, what it writes through a local file

_PANDAS_OWN = ("http://", "https://", "ftp://", "memory://")

_READS = ("csv", "table", "fwf", "parquet", "feather", "orc", "json", "excel", "pickle", "stata", "sas", "xml")
_WRITES = ("csv", "parquet", "feather", "orc", "json", "excel", "pickle", "stata", "xml", "html", "latex", "markdown")


def _fsspec_url(path: str) -> str:
    """Return the URL as fsspec takes it: with a protocol of this library's, and nothing percent-encoded."""
    import fsspec

    from ...urls import locations
    from ..fsspec import filesystem_class

    location = locations.parse_without_query(path)
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
        import os
        import shutil
        import tempfile  # expensive, and not needed at the start of Python

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


TARGETS = {
    "numpy": {"numpy": _numpy},
    "h5py": {"h5py": _h5py},
    "torch": {"torch": _torch},
    "safetensors": {"safetensors.numpy": _safetensors, "safetensors.torch": _safetensors},
    "soundfile": {"soundfile": _soundfile},
    "torchaudio": {"torchaudio": _torchaudio},
    "pandas": {"pandas": _pandas},
}
