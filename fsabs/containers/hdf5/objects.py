"""h5py's objects of a file that may be hostile, for the user: none of them leads to another file."""

from __future__ import annotations

from typing import Any

import h5py

from ...core.limits import Limits
from . import content


class _Confined(h5py.HLObject):  # type: ignore[misc]
    """What a file, a group and a dataset have in common: the limits, and the way to the whole file."""

    def __init__(self, node: Any, limits: Limits, **options: bool) -> None:
        super().__init__(node.id, **options)
        self._limits = limits

    @property
    def file(self) -> ConfinedFile:
        """The file that the object is in."""
        return ConfinedFile(self, self._limits)


class _ConfinedMembers(_Confined):
    """What a file and a group have in common: the ways to their members."""

    def __getitem__(self, name: Any) -> Any:
        if not isinstance(name, str | bytes):  # a reference
            return confined(super().__getitem__(name), self._limits)
        path = content.text(name) if isinstance(name, bytes) else name
        start = None if path.startswith("/") else h5py.Group(self.id)
        try:
            return confined(content.locate(h5py.File(self.id), path, self._limits, start), self._limits)
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise KeyError(f"{name!r}: {exc.strerror}") from None

    def get(self, name: Any, default: Any = None, getclass: bool = False, getlink: bool = False, **options: Any) -> Any:
        if getclass or getlink:
            return super().get(name, default, getclass, getlink, **options)
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: Any) -> bool:
        try:
            return self.get(name) is not None
        except PermissionError:  # it is there
            return True


class ConfinedFile(_ConfinedMembers, h5py.File):  # type: ignore[misc]
    """An `h5py.File` whose objects are confined to it."""


class ConfinedGroup(_ConfinedMembers, h5py.Group):  # type: ignore[misc]
    """An `h5py.Group` whose objects are confined to its file."""


class ConfinedDataset(_Confined, h5py.Dataset):  # type: ignore[misc]
    """An `h5py.Dataset` whose data lie in its file."""


def confined(node: Any, limits: Limits) -> Any:
    """Return the confined object for h5py's own; `PermissionError` for a dataset whose data lie in other files."""
    if isinstance(node, h5py.Group):
        return ConfinedGroup(node, limits)
    if isinstance(node, h5py.Dataset):
        content.check_own(node)
        return ConfinedDataset(node, limits, readonly=node.file.mode == "r")
    return node
