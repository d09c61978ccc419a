"""Patches of other libraries: of images (cv2, PIL, imageio), arrays, tables and sound."""

from __future__ import annotations

import contextlib
import io
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from . import calls

if TYPE_CHECKING:
    from .calls import Call, Rows


# ---- images


def _imread(call: Call) -> Any:
    """A missing file is None and a warning, as for a local one; any other failure of the store is raised."""
    import cv2
    import numpy

    try:
        data = calls.read_bytes(call.path)
    except FileNotFoundError as exc:
        warnings.warn(f"cv2.imread returns None: {exc}", RuntimeWarning, stacklevel=3)
        return None
    flags = call.get("flags", cv2.IMREAD_COLOR)
    plain = isinstance(flags, int) and len(call.args) <= 2 and not call.others().keys() - {"flags"}
    image = cv2.imdecode(numpy.frombuffer(data, numpy.uint8), flags) if data and plain else None
    return image if image is not None else calls.by_local(call)  # formats read from files only


def _imwrite(call: Call) -> Any:
    import cv2

    _, dot, suffix = str(call.path).rpartition("/")[2].rpartition(".")
    done, data = cv2.imencode(dot + suffix, **call.others())
    if done:
        calls.as_path(call.path).write_bytes(data.tobytes())
    return done


def _image_open(call: Call) -> Any:
    from PIL import UnidentifiedImageError

    try:
        found = call(io.BytesIO(calls.read_bytes(call.path)))
    except UnidentifiedImageError as exc:
        raise type(exc)(f"cannot identify image file {str(call.path)!r}") from exc
    found.filename = str(call.path)
    return found


def _image_save(call: Call) -> Any:
    return calls.by_written_local(call, adds=bool(call.get("append")))


_IMAGEIO: Rows = [
    ("imread mimread volread mvolread improps immeta", "*uri", calls.by_local),
    ("imwrite imsave mimwrite mimsave volwrite volsave", "*uri", calls.by_written_local),
    ("imiter get_reader", "*uri", calls.by_lasting_local),
]


# ---- arrays, tables and sound


def _load(call: Call) -> Any:
    import numpy

    if call.get("mmap_mode") is not None:
        return calls.refused(call)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(calls.open_file(call.path))
        found = call(file)
        if isinstance(found, numpy.lib.npyio.NpzFile):
            found.fid = file  # closed with it
            stack.pop_all()
    return found


def _save(call: Call) -> Any:
    """The suffix is added where it is missing, as numpy does."""
    suffix = ".npy" if call.patched.name == "save" else ".npz"
    if not str(call.path).endswith(suffix):
        call.path = call.path + suffix if isinstance(call.path, str) else call.path.with_name(call.path.name + suffix)
    return calls.by_written_file(call)


def _h5py_file(call: Call) -> Any:
    import h5py

    owner, path, mode = call.args[0], call.path, call.get("mode", "r")
    if mode == "r" and call.get("driver") in (None, "fileobj"):
        from ...core.remembering import RememberingFile, remembering

        with remembering(RememberingFile(calls.open_file(path))) as remembered:
            return call(remembered)
    if mode == "a":
        mode = "r+" if calls.as_path(path).exists() else "w"
    opening_mode = {"r": "r", "r+": "r+", "x": "x", "w-": "x"}.get(mode, "w")  # a driver of HDF5's own reads a copy
    opened_ids: list[Any] = []

    def made(local: str) -> None:
        call(local)
        opened_ids.append(owner.id)

    def close() -> None:
        if opened_ids[0].valid:
            h5py.File(opened_ids[0]).close()  # with all its data sets

    return calls.copy_until_closed(owner, path, opening_mode, made, close)


def _torch_load(call: Call) -> Any:
    return (calls.by_local if call.get("mmap") else calls.by_remembering_file)(call)


def _sound_file(call: Call) -> Any:
    mode = call.get("mode", "r")
    if mode == "r":
        return call(calls.open_file(call.path))
    file = weakref.ref(call.args[0])

    def close() -> None:
        if (there := file()) is not None:  # at the end of the interpreter; one that is dropped closes itself
            there.close()

    opening_mode = {"r+": "r+", "x": "x", "x+": "x"}.get(mode, "w")
    return calls.copy_until_closed(call.args[0], call.path, opening_mode, call, close)


_SAFETENSORS: Rows = [
    ("load_file safe_open", "*filename", calls.by_local),  # mapped at once, so that the copy may go
    ("save_file", "tensors *filename", calls.by_written_local),
]


def _indexed_gzip(call: Call) -> Any:
    return call(None, fileobj=calls.open_file(call.path))


# ---- pandas: what it reads goes through fsspec's interface, what it writes through a local file

_PANDAS_OWN = ("http://", "https://", "ftp://", "memory://")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst", ".tar")


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
    is_own = calls.is_own_scheme(path.partition("://")[0].lower()) and not path.startswith(_PANDAS_OWN)
    return not is_own or bool(kwargs.get("storage_options"))


def _read(call: Call) -> Any:
    path = call.path
    if _is_pandas_own(path, call.kwargs):
        return call(path)
    text = str(path)
    if "::" not in text and ("://" in text or isinstance(path, str)):  # fsspec takes :: for a chain of URLs
        return call(_fsspec_url(text))
    if text.lower().endswith(_COMPRESSED):  # by the name that pandas is given
        return calls.by_local(call)
    return call(calls.open_file(path))


def _write(call: Call) -> Any:
    if call.kwargs.get("partition_cols") or _is_pandas_own(call.path, call.kwargs):
        return _read(call)
    mode = str(call.kwargs.get("mode", "a" if call.patched.name == "to_hdf" else "w"))
    if mode.startswith("x"):
        with calls.as_path(call.path).as_local("x") as local:
            return call(local, mode=mode.replace("x", "w"))
    return calls.by_written_local(call, adds=mode.startswith(("a", "r+")))


def _methods(kinds: str) -> str:
    """Return the names of the methods that write a table or a column."""
    return " ".join(f"{owner}.to_{kind}" for owner in ("DataFrame", "Series") for kind in kinds.split())


_PANDAS: Rows = [
    ("read_csv read_table read_fwf read_pickle read_stata read_sas", "*filepath_or_buffer", _read),
    ("read_parquet read_feather read_orc", "*path", _read),
    ("read_json", "*path_or_buf", _read),
    ("read_excel", "*io", _read),
    ("read_xml", "*path_or_buffer", _read),
    ("read_hdf", "*path_or_buf", calls.by_local),
    ("read_spss", "*path", calls.by_local),
    (_methods("csv json hdf"), "self *path_or_buf", _write),
    (_methods("parquet feather orc pickle stata"), "self *path", _write),
    (_methods("html latex markdown"), "self *buf", _write),
    (_methods("excel"), "self *excel_writer", _write),
    (_methods("xml"), "self *path_or_buffer", _write),
]

TABLE: dict[str, dict[str, Rows]] = {
    "cv2": {
        "cv2": [
            ("imread", "*filename flags", _imread),
            ("imwrite", "*filename img params", _imwrite),
            ("imreadmulti imcount haveImageReader", "*filename", calls.by_local),
            ("imwritemulti", "*filename", calls.by_written_local),
        ]
    },
    "PIL": {"PIL.Image": [("open", "*fp", _image_open), ("Image.save", "self *fp", _image_save)]},
    "imageio": {"imageio": _IMAGEIO, "imageio.v2": _IMAGEIO, "imageio.v3": _IMAGEIO},
    "numpy": {
        "numpy": [
            ("load", "*file mmap_mode", _load),
            ("save savez savez_compressed", "*file", _save),
            ("fromfile", "*file", calls.by_local),
            ("loadtxt genfromtxt", "*fname", calls.by_local),
            ("savetxt", "*fname", calls.by_written_local),
            ("memmap.__new__", "cls *filename", calls.refused),
        ]
    },
    "h5py": {
        "h5py": [
            ("File.__init__", "self *name mode driver", _h5py_file),
            ("File.close", "@self", calls.closed),
            ("File.__exit__", "@self kind", calls.left),
        ]
    },
    "torch": {
        "torch": [("load", "*f", _torch_load), ("save", "obj *f", calls.by_written_remembering_file)],
        "torch.jit": [("load", "*f", calls.by_file), ("save", "m *f", calls.by_written_file)],
        # A zip in which it seeks when it writes.
        "torch.export": [("load", "*f", calls.by_file), ("save", "ep *f", calls.by_written_local)],
    },
    "safetensors": dict.fromkeys(("safetensors", "safetensors.numpy", "safetensors.torch"), _SAFETENSORS),
    "soundfile": {
        "soundfile": [
            ("SoundFile.__init__", "self *file mode", _sound_file),
            ("SoundFile.close", "@self", calls.closed),
            ("SoundFile.__exit__", "@self kind", calls.left),
        ]
    },
    "pandas": {"pandas": _PANDAS},
    "pyarrow": {
        "pyarrow.csv": [("read_csv", "*input_file", calls.by_file)],
        "pyarrow.feather": [("read_feather read_table", "*source", calls.by_file)],
        "pyarrow.json": [("read_json", "*input_file", calls.by_file)],
        "pyarrow.parquet": [
            ("read_table", "*source", calls.by_file),
            ("read_metadata read_schema", "*where", calls.by_file),
        ],
    },
    "indexed_gzip": {"indexed_gzip": [("IndexedGzipFile.__init__", "self *filename", _indexed_gzip)]},
}
