"""Patches of Python's own: `open`, `os`, `glob` and `pathlib`, for URLs only, where they are asked for by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ... import keys, roots
from ...paths import Path
from . import calls
from .calls import Call, PatchedCall


def _path(path: Any) -> Path:
    return path if isinstance(path, Path) else Path(path)


def _open(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = ("file", "mode", "buffering", "encoding", "errors", "newline", "closefd", "opener")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if not given.pop("closefd", True) or given.pop("opener", None) is not None:
        raise ValueError("closefd and opener are for local files")
    given.pop("file")
    values = [given.pop(name, default) for name, default in zip(names[1:6], ("r", -1, None, None, None), strict=True)]
    if given:
        raise TypeError(f"open() got an unexpected keyword argument {next(iter(given))!r}")
    return calls.open_file(path, *values)


def _builtins(module: ModuleType) -> list[PatchedCall]:
    return [PatchedCall(module, "open", _open, 0, "file")]


class _Entry:
    """An entry of `os.scandir` for one file of a URL."""

    def __init__(self, base: str, name: str) -> None:
        self.name = name.rstrip("/")
        self.path = f"{base.rstrip('/')}/{keys.to_url_path(self.name)}"
        self._directory = name.endswith("/")

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a directory."""
        return self._directory

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a file."""
        return not self._directory

    def is_symlink(self) -> bool:
        """False."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return its stat."""
        return Path(self.path).stat()

    def __fspath__(self) -> str:
        return self.path


class _Entries:
    """The iterator and context manager that `os.scandir` returns."""

    def __init__(self, path: Path) -> None:
        self._entries = (_Entry(str(path), name) for name in _names(path))

    def __iter__(self) -> Iterator[_Entry]:
        return self._entries

    def __next__(self) -> _Entry:
        return next(self._entries)

    def close(self) -> None:
        """Drop what was not taken."""
        self._entries.close()

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _names(path: Path) -> list[str]:
    return [f"{found.name}/" if directory else found.name for found, directory in _members(path)]


def _members(path: Path) -> list[tuple[Path, bool]]:
    _, directories, files = next(path.walk(on_error=_raise))
    return [*((path / name, True) for name in directories), *((path / name, False) for name in files)]


def _raise(exc: OSError) -> None:
    raise exc


def _os(module: ModuleType) -> list[PatchedCall]:
    def question(function: Any) -> calls.Handler:
        return lambda call, path, args, kwargs: function(_path(path))

    def walk(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = ("topdown", "onerror", "followlinks")
        given = {**dict(zip(names, args[1:], strict=False)), **kwargs}
        given.pop("top", None)
        found = _path(path).walk(given.get("topdown", True), given.get("onerror"), given.get("followlinks", False))
        return ((str(folder), directories, files) for folder, directories, files in found)

    return [
        PatchedCall(module, "listdir", question(lambda path: [n.rstrip("/") for n in _names(path)]), 0, "path"),
        PatchedCall(module, "scandir", question(_Entries), 0, "path"),
        PatchedCall(module, "walk", walk, 0, "top"),
        PatchedCall(module.path, "exists", question(Path.exists), 0, "path"),
        PatchedCall(module.path, "isfile", question(Path.is_file), 0, "path"),
        PatchedCall(module.path, "isdir", question(Path.is_dir), 0, "s"),
        PatchedCall(module.path, "getsize", question(lambda path: path.stat().st_size), 0, "filename"),
        PatchedCall(module.path, "getmtime", question(lambda path: path.stat().st_mtime), 0, "filename"),
    ]


def _glob(module: ModuleType) -> list[PatchedCall]:
    def found(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        if not isinstance(path, str):
            raise TypeError("a pattern is a str")
        if kwargs.get("root_dir") is not None or kwargs.get("dir_fd") is not None:
            raise ValueError("root_dir and dir_fd are for local files")
        scheme, _, rest = path.partition("://")
        parts = rest.split("/")
        literal = next((at for at, part in enumerate(parts) if keys.has_magic(part)), len(parts))
        base = f"{scheme}://{'/'.join(parts[:literal])}"
        if literal == len(parts):
            return [path] if Path(path).exists() else []
        pattern = "/".join(parts[literal:])
        if not kwargs.get("recursive"):
            pattern = "/".join("*" if part == "**" else part for part in pattern.split("/"))
        try:
            names = roots.call(base, lambda fs, at: list(fs.subfs(at).glob(pattern)), inside=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [f"{base}/{keys.to_url_path(name)}" for name in names]

    return [
        PatchedCall(module, "glob", found, 0, "pathname"),
        PatchedCall(module, "iglob", lambda *given: iter(found(*given)), 0, "pathname"),
    ]


def _pathlib(module: ModuleType) -> list[PatchedCall]:
    def made(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return Path(*args[1:])

    return [PatchedCall(module.Path, "__new__", made, 1)]


TARGETS = {
    "builtins": {"builtins": _builtins, "io": _builtins},
    "os": {"os": _os},
    "glob": {"glob": _glob},
    "pathlib": {"pathlib": _pathlib},
}
