"""Patches of soundfile and torchaudio."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import calls
from .arrays import closing
from .calls import PatchedCall

if TYPE_CHECKING:
    from .calls import Call


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


TARGETS = {"soundfile": {"soundfile": _soundfile}, "torchaudio": {"torchaudio": _torchaudio}}
