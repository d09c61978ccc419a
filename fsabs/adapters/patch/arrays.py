"""Patches of libraries of arrays and sound: numpy, h5py, torch, safetensors, soundfile, torchaudio."""

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
        if mode in (None, "r"):
            return call(calls.open_file(path))
        there = mode in ("a", "r+", "w-", "x") and calls.exists(path)
        how = "r+" if mode == "r+" or (there and mode == "a") else "x" if mode in ("w-", "x") else "w"
        return call(calls.copy_until_closed(args[0], path, how))

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


TARGETS = {
    "numpy": {"numpy": _numpy},
    "h5py": {"h5py": _h5py},
    "torch": {"torch": _torch},
    "safetensors": {"safetensors.numpy": _safetensors, "safetensors.torch": _safetensors},
    "soundfile": {"soundfile": _soundfile},
    "torchaudio": {"torchaudio": _torchaudio},
}
