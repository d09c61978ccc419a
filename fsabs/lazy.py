"""Public names that are imported when they are first used, so that importing a package costs nothing; and what that
takes: a fork waits until other threads have finished what they are importing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_BOOTSTRAP = "<frozen importlib._bootstrap>"
_PATIENCE = 5.0  # seconds that a fork waits: a whole program may be running inside of an import


def exports(
    package: str, homes: Mapping[str, str], modules: Collection[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of `package`, whose public names are in its modules `homes` (PEP 562).

    `modules` are those of its modules that are public themselves.
    """

    def get(name: str) -> object:
        import importlib

        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *modules})

    return get, names


def _imports(frame: FrameType | None) -> bool:
    """Whether the thread whose innermost frame this is has an import under way."""
    while frame is not None and frame.f_code.co_filename != _BOOTSTRAP:
        frame = frame.f_back
    return frame is not None


def _waits(frame: FrameType) -> bool:
    """Whether that thread waits for what another one imports."""
    return frame.f_code.co_filename == _BOOTSTRAP and frame.f_code.co_name == "acquire"


def _under_way() -> bool:
    """Whether other threads import something. Where this one does, too, they may be waiting for it: that is none."""
    frames = sys._current_frames()
    mine = _imports(frames.pop(threading.get_ident(), None))
    return any(_imports(frame) and not (mine and _waits(frame)) for frame in frames.values())


def _before_fork() -> None:
    """Wait for other threads' imports: a child that needs a module that was half there would wait for it for ever."""
    end = time.monotonic() + _PATIENCE
    while _under_way() and time.monotonic() < end:
        time.sleep(0.001)


os.register_at_fork(before=_before_fork)
