"""Patches of the image libraries: cv2, PIL, imageio, tifffile."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import calls
from .calls import PatchedCall, is_ours

if TYPE_CHECKING:
    from .calls import Call


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

    single = [
        PatchedCall(cv2, "imread", imread, 0, "filename"),
        PatchedCall(cv2, "imwrite", imwrite, 0, "filename"),
        PatchedCall(cv2, "imreadmulti", calls.by_local, 0, "filename"),
        PatchedCall(cv2, "imcount", calls.by_local, 0, "filename"),
        PatchedCall(cv2, "imwritemulti", calls.by_written_local, 0, "filename"),
        PatchedCall(cv2, "haveImageReader", calls.by_local, 0, "filename"),
    ]
    return [*single, *(_ClassPatch(cv2, name) for name in ("VideoCapture", "VideoWriter", "FileStorage"))]


class _ClassPatch(PatchedCall):
    """A class of cv2: its methods can't be set, and a subclass crashes the process, so a substitute takes its place.

    For anything but a URL it makes the original's objects, which are its instances, too.
    """

    def __init__(self, cv2: ModuleType, name: str) -> None:
        super().__init__(cv2, name, calls.by_local)

    def _wrapped(self, original: Any) -> Any:
        made = _Substitute(original.__name__, (_OfUrl,), {"__module__": original.__module__})
        made._original, made._patched = original, self
        setattr(made, calls.PATCHED, made)
        return made


class _Substitute(type):
    """The type of what stands for a class of cv2."""

    _original: Any
    _patched: PatchedCall

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        path = args[0] if args else kwargs.get("filename", kwargs.get("source"))
        live = cls.__name__ == "VideoCapture" and isinstance(path, str) and path.startswith(("http:", "https:"))
        if cls._patched.active and is_ours(path) and not live:  # a camera's stream has no end to be copied
            kwargs.pop("filename", None)
            kwargs.pop("source", None)
            return super().__call__(path, *args[1:], **kwargs)
        return cls._original(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls._original) or super().__instancecheck__(instance)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls._original, name)


class _OfUrl:
    """An object of cv2 on a local copy, which `release` removes, and commits if it was written."""

    def __init__(self, path: Any, *args: Any, **kwargs: Any) -> None:
        self._object: Any = type(self)._original(self._copy(path, args, kwargs), *args, **kwargs)  # type: ignore[attr-defined]

    def _copy(self, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        kind = type(self).__name__
        flags = args[0] if args else kwargs.get("flags", 0)
        reads = kind == "VideoCapture" or (kind == "FileStorage" and flags & 3 == 0)
        adds = kind == "FileStorage" and flags & 3 == 2 and calls.exists(path)  # APPEND
        return calls.copy_until_closed(self, path, "r" if reads else "r+" if adds else "w")

    def open(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        """Open another file, after what was open is released."""
        self.release()
        return self._object.open(self._copy(path, args, kwargs) if is_ours(path) else path, *args, **kwargs)

    def release(self) -> None:
        """Release the object, and remove the local copy."""
        self._object.release()
        calls.close_copy(self)

    def __getattr__(self, name: str) -> Any:
        if name == "_object":
            raise AttributeError(name)
        return getattr(self._object, name)


def _pil(image: ModuleType) -> list[PatchedCall]:
    def opened(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            found = calls.by_bytes(call, path, args, kwargs)
        except image.UnidentifiedImageError as exc:
            raise type(exc)(f"cannot identify image file {calls.as_url(path)!r}") from exc
        found.filename = calls.as_url(path)
        return found

    return [
        PatchedCall(image, "open", opened, 0, "fp"),
        PatchedCall(image.Image, "save", _written, 1, "fp"),
    ]


def _written(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function a local path: with what is there, where it is to add to that."""
    write = calls.by_extended_local if kwargs.get("append") else calls.by_written_local
    return write(call, path, args, kwargs)


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


def _tifffile(module: ModuleType) -> list[PatchedCall]:
    def read(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (calls.by_lasting_file if kwargs.get("aszarr") else calls.by_file)(call, path, args, kwargs)

    return [
        PatchedCall(module, "imread", read, 0, "files"),
        PatchedCall(module, "imwrite", _written, 0, "file"),
        PatchedCall(module, "memmap", calls.refused, 0, "filename"),
        PatchedCall(module.TiffFile, "__init__", calls.by_lasting_file, 1, "file"),
    ]


TARGETS = {
    "cv2": {"cv2": _cv2},
    "PIL": {"PIL.Image": _pil},
    "imageio": {"imageio": _imageio, "imageio.v2": _imageio, "imageio.v3": _imageio},
    "tifffile": {"tifffile": _tifffile},
}
