"""The members that an archive being written has so far, by directory."""

from __future__ import annotations

from ...core import keys

DIRECTORY = -1
"""The size of a directory."""


class WrittenMembers:
    """The written members, by directory: the size of each file, less than 0 for a directory."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, int]] = {"": {}}

    def size(self, key: str) -> int | None:
        """The size of a file, less than 0 for a directory, None if there is neither."""
        if key in self._members:
            return DIRECTORY
        return self._members.get(keys.parent(key), {}).get(keys.name(key))

    def add(self, key: str, size: int) -> None:
        """Put a file (or a directory: size less than 0) where it belongs, with the directories above it."""
        if size < 0:
            self._members.setdefault(key, {})
        while key:
            folder = keys.parent(key)
            known = folder in self._members
            self._members.setdefault(folder, {})[keys.name(key)] = size
            if known:
                return
            key, size = folder, DIRECTORY

    def discard(self, key: str) -> None:
        """Take out a file, or a directory without members."""
        self._members.get(keys.parent(key), {}).pop(keys.name(key), None)
        self._members.pop(key, None)

    def new_name(self, key: str) -> tuple[dict[str, int], str] | None:
        """Return the members of the directory above `key`, and the name in it; None unless that name is a new one."""
        folder, _, name = key.rpartition("/")
        members = self._members.get(folder)
        return None if members is None or name in members else (members, name)

    def is_below_file(self, key: str) -> bool:
        """Return whether a file is above `key`."""
        return any((size := self.size(above)) is not None and size >= 0 for above in keys.ancestors(key))

    def members(self, key: str) -> dict[str, int]:
        """The members of a directory, which may be none of what was written."""
        return dict(self._members.get(key, {}))
