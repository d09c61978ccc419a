"""Patches of other libraries: of images (cv2, PIL, imageio), arrays, tables and sound."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import calls
from .calls import PatchedCall

if TYPE_CHECKING:
    from .calls import Call


# ---- images


def _cv2(cv2: ModuleType) -> list[PatchedCall]:
    import numpy  # cv2 has imported it

    def imread(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A missing file is None and a warning, as for a local one; any other failure of the store is raised."""
        try:
            data = calls.read_bytes(path)
        except FileNotFoundError as exc:
            warnings.warn(f"cv2.imread returns None: {exc}", RuntimeWarning, stacklevel=3)
            return None
        flags = args[1] if len(args) == 2 else kwargs.get("flags", cv2.IMREAD_COLOR)
        plain = isinstance(flags, int) and len(args) <= 2 and (not kwargs or kwargs.keys() <= {"filename", "flags"})
        image = cv2.imdecode(numpy.frombuffer(data, numpy.uint8), flags) if data and plain else None
        return image if image is not None else calls.by_local(call, path, args, kwargs)  # formats read from files only

    def imwrite(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        suffix = calls.as_url(path).rpartition("/")[2].rpartition(".")
        rest = {name: value for name, value in kwargs.items() if name != "filename"}
        done, data = cv2.imencode(suffix[1] + suffix[2], *(args[1:] if args else ()), **rest)
        if done:
            with calls.open_file(path, "wb") as file:
                file.write(data)
        return done

    return [
        PatchedCall(cv2, "imread", imread, 0, "filename"),
        PatchedCall(cv2, "imwrite", imwrite, 0, "filename"),
        PatchedCall(cv2, "imreadmulti", calls.by_local, 0, "filename"),
        PatchedCall(cv2, "imcount", calls.by_local, 0, "filename"),
        PatchedCall(cv2, "imwritemulti", calls.by_written_local, 0, "filename"),
        PatchedCall(cv2, "haveImageReader", calls.by_local, 0, "filename"),
    ]


def _pil(image: ModuleType) -> list[PatchedCall]:
    def opened(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            found = calls.by_bytes(call, path, args, kwargs)
        except image.UnidentifiedImageError as exc:
            raise type(exc)(f"cannot identify image file {calls.as_url(path)!r}") from exc
        found.filename = calls.as_url(path)
        return found

    def saved(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        write = calls.by_extended_local if kwargs.get("append") else calls.by_written_local
        return write(call, path, args, kwargs)

    return [
        PatchedCall(image, "open", opened, 0, "fp"),
        PatchedCall(image.Image, "save", saved, 1, "fp"),
    ]


def _imageio(module: ModuleType) -> list[PatchedCall]:
    reads = {"imread", "mimread", "volread", "mvolread", "improps", "immeta"}
    writes = {"imwrite", "imsave", "mimwrite", "mimsave", "volwrite", "volsave"}
    lasting = {"imiter", "get_reader"}
    keyword = "uri"
    return [
        *(PatchedCall(module, name, calls.by_local, 0, keyword) for name in reads),
        *(PatchedCall(module, name, calls.by_written_local, 0, keyword) for name in writes),
        *(PatchedCall(module, name, calls.by_lasting_local, 0, keyword) for name in lasting),
    ]


# ---- arrays, tables and sound


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
        if mode in (None, "r") and driver in (None, "fileobj"):
            return call(calls.open_file(path))
        there = mode in ("a", "r+", "w-", "x") and calls.exists(path)
        opening_mode = "r+" if mode == "r+" or (there and mode == "a") else "x" if mode in ("w-", "x") else "w"
        if mode in (None, "r"):
            opening_mode = "r"  # a driver of HDF5's own reads a file of its own
        opened_ids: list[Any] = []

        def made(local: str) -> None:
            call(local)
            opened_ids.append(args[0].id)

        def close() -> None:
            if opened_ids[0].valid:
                h5py.File(opened_ids[0]).close()  # with all its data sets

        return calls.copy_until_closed(args[0], path, opening_mode, made, close)

    return [
        PatchedCall(h5py.File, "__init__", opened, 1, "name"),
        *closing(h5py.File),
    ]


@contextlib.contextmanager
def _closing_copy(owner: Any) -> Iterator[None]:
    """Close the copy of `owner` after the block; one that raises commits nothing."""
    try:
        yield
    except BaseException:
        calls.close_copy(owner, failed=True)
        raise
    calls.close_copy(owner)


class MethodPatch(PatchedCall):
    """A method that is replaced whatever its arguments are."""

    def __init__(self, owner: Any, name: str, make: Any) -> None:
        super().__init__(owner, name, calls.by_local)
        self._make = make

    def _wrapped(self, original: Any) -> Any:
        return self._make(original)


def closing(kind: Any) -> list[PatchedCall]:
    """Return the patches of a class of files whose objects may stand for a local copy, which is committed on release.

    A block that raises commits nothing.
    """

    def close(original: Any) -> Any:
        def closed(self: Any) -> None:
            with _closing_copy(self):
                original(self)

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
        *(PatchedCall(module, "load", calls.by_file, 0, "f") for module in (torch.jit, torch.export)),
        PatchedCall(torch.jit, "save", calls.by_written_file, 1, "f"),
        PatchedCall(torch.export, "save", calls.by_written_local, 1, "f"),  # a zip in which it seeks
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
        file = weakref.ref(args[0])

        def close() -> None:
            if (there := file()) is not None:  # at the end of the interpreter; one that is dropped closes itself
                there.close()

        opening_mode = {"r+": "r+", "x": "x", "x+": "x"}.get(mode, "w")
        return calls.copy_until_closed(args[0], path, opening_mode, call, close)

    return [
        PatchedCall(module.SoundFile, "__init__", opened, 1, "file"),
        *closing(module.SoundFile),
    ]


# ---- pandas: what it reads goes through fsspec's interface, what it writes through a local file

_PANDAS_OWN = ("http://", "https://", "ftp://", "memory://")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst", ".tar")

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
    return not calls.is_own_scheme(path.partition("://")[0].lower())


def _read(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _is_pandas_own(path, kwargs):
        return call(path)
    text = str(path)
    if "::" not in text and ("://" in text or isinstance(path, str)):  # fsspec takes :: for a chain of URLs
        return call(_fsspec_url(text))
    if text.lower().endswith(_COMPRESSED):  # by the name that pandas is given
        return calls.by_local(call, path, args, kwargs)
    return call(calls.open_file(path))


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
    "cv2": {"cv2": _cv2},
    "PIL": {"PIL.Image": _pil},
    "imageio": {"imageio": _imageio, "imageio.v2": _imageio, "imageio.v3": _imageio},
    "numpy": {"numpy": _numpy},
    "h5py": {"h5py": _h5py},
    "torch": {"torch": _torch},
    "safetensors": {"safetensors.numpy": _safetensors, "safetensors.torch": _safetensors},
    "soundfile": {"soundfile": _soundfile},
    "pandas": {"pandas": _pandas},
}
