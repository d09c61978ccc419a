"""Patches of Python's own: `open`, `os`, `glob` and `pathlib`, for URLs only, where they are asked for by name."""

from __future__ import annotations

import os

from . import calls
from .calls import PatchedCall

TYPE_CHECKING = False  # as typing's, which takes as long to import as all of this
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any

    from ...paths import Path
    from .calls import Call


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
    """An entry of `os.scandir` for one file of a URL or of a `Path`."""

    def __init__(self, base: str | Path, name: str) -> None:
        self.name = name.rstrip("/")
        self.path = _member(base, self.name)
        self._base = base
        self._directory = name.endswith("/")

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a directory."""
        return self._directory

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a file."""
        return not self._directory

    def is_symlink(self) -> bool:
        """Return False."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return its stat."""
        where = self.path if isinstance(self._base, str) else self._base / self.name
        return calls.as_path(where).stat()

    def __fspath__(self) -> str:
        return self.path


class _Entries:
    """The iterator and context manager that `os.scandir` returns."""

    def __init__(self, path: str | Path) -> None:
        self._entries = (_Entry(path, name) for name in _names(path))

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


def _names(path: str | Path) -> list[str]:
    """Return the names of a directory's members, those of directories with a slash."""
    _, directories, files = next(calls.as_path(path).walk(on_error=_raise))
    return [*(_joinable(path, name) + "/" for name in directories), *(_joinable(path, name) for name in files)]


def _joinable(path: str | Path, name: str) -> str:
    """Return a name as it leads to the member when it is joined to `path`: quoted, if that is the text of a URL."""
    is_url = isinstance(path, str) and "://" in path  # and not "/pfs/dc/..."
    return name.replace("%", "%25").replace("?", "%3F").replace("#", "%23") if is_url else name


def _member(path: str | Path, name: str) -> str:
    """Return the text of the member `name`, a joinable one, of the directory at `path`."""
    return f"{path.rstrip('/')}/{name}" if isinstance(path, str) else str(path / name)


def _raise(exc: OSError) -> None:
    raise exc


class _OfOs(PatchedCall):
    """A function of `os`, in each of the sets that the one it stands for is in: `shutil` asks `os.supports_fd`."""

    def apply(self) -> bool:
        """Replace the attribute, and enter it into the sets."""
        original = getattr(self._owner, self._name, None)
        applied = super().apply()
        if applied:
            for functions in self._sets():
                if original in functions:
                    functions.add(self._wrapper)
        return applied

    def restore(self) -> None:
        """Put the original back, and take ours out of the sets."""
        super().restore()
        for functions in self._sets():
            functions.discard(self._wrapper)

    def _sets(self) -> Iterator[set[Any]]:
        return (found for name, found in vars(os).items() if name.startswith("supports_") and isinstance(found, set))


def _os(module: ModuleType) -> list[PatchedCall]:
    def question(function: Any) -> calls.Handler:
        return lambda call, path, args, kwargs: function(calls.as_path(path))

    def change(function: Any, names: tuple[str, ...] = ()) -> calls.Handler:
        def changed(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            given = {**dict(zip(names, args[1:], strict=False)), **kwargs}
            given.pop("path", None)
            if given.pop("dir_fd", None) is not None:
                raise ValueError("dir_fd is for local files")
            return function(calls.as_path(path), **given)

        return changed

    def walk(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = {**dict(zip(("topdown", "onerror", "followlinks"), args[1:], strict=False)), **kwargs}
        options = given.get("topdown", True), given.get("onerror"), given.get("followlinks", False)
        top, text = calls.as_path(path), str(path)
        for folder, directories, files in top.walk(*options):
            joinable = {_joinable(text, name): name for name in directories}
            names = list(joinable)
            below = _joinable(text, folder.relative_to(top).as_posix())
            spelled = text if below == "." else f"{text.rstrip('/')}/{below}"
            yield spelled, names, [_joinable(text, name) for name in files]
            directories[:] = [joinable.get(name, name) for name in names]  # those that the caller left are walked

    return [
        _OfOs(module, "listdir", _listdir, 0, "path"),
        _OfOs(module, "scandir", lambda call, path, args, kwargs: _Entries(path), 0, "path"),
        _OfOs(module, "walk", walk, 0, "top"),
        _OfOs(module, "stat", change(_stat), 0, "path"),
        _OfOs(module, "remove", change(lambda path: path.unlink()), 0, "path"),
        _OfOs(module, "unlink", change(lambda path: path.unlink()), 0, "path"),
        _OfOs(module, "rmdir", change(lambda path: path.rmdir()), 0, "path"),
        _OfOs(module, "mkdir", change(lambda path, mode=0: path.mkdir(), ("mode",)), 0, "path"),
        _OfOs(module, "makedirs", _makedirs, 0, "name"),
        _OfOs(module, "rename", _renamed, 0, "src"),
        _OfOs(module, "replace", _renamed, 0, "src"),
        PatchedCall(module.path, "exists", question(lambda path: path.exists()), 0, "path"),
        PatchedCall(module.path, "lexists", question(lambda path: path.exists()), 0, "path"),
        PatchedCall(module.path, "isfile", question(lambda path: path.is_file()), 0, "path"),
        PatchedCall(module.path, "isdir", question(lambda path: path.is_dir()), 0, "s"),
        PatchedCall(module.path, "getsize", question(lambda path: path.stat().st_size), 0, "filename"),
        PatchedCall(module.path, "getmtime", question(lambda path: path.stat().st_mtime), 0, "filename"),
    ]


def _listdir(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    return [name.rstrip("/") for name in _names(path)]


def _stat(path: Path, follow_symlinks: bool = True) -> os.stat_result:
    return path.stat()


def _makedirs(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = {**dict(zip(("mode", "exist_ok"), args[1:], strict=False)), **kwargs}
    where = calls.as_path(path)
    exist_ok = bool(given.get("exist_ok", False))
    if not exist_ok and where.exists():
        raise FileExistsError(17, os.strerror(17), str(path))
    if where.fs.capabilities.mkdir:
        where.mkdir(parents=True, exist_ok=exist_ok)


def _renamed(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    calls.as_path(path).replace(calls.as_path(args[1] if len(args) > 1 else kwargs["dst"]))


class _Copy(PatchedCall):
    """A function of `shutil` with two paths, of which either may be a URL."""

    def _patched(self, original: Any) -> Any:
        def copied(*args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(("src", "dst"), args, strict=False)), **kwargs}
            source, target = given.get("src"), given.get("dst")
            if source is None or target is None or not (calls.is_ours(source) or calls.is_ours(target)):
                return original(*args, **kwargs)
            return _copy(source, target, into=self._name != "copyfile") if self.active else original(*args, **kwargs)

        return copied


def _copy(source: Any, target: Any, into: bool) -> Any:
    """Copy a file, with `into` into the directory that `target` is; return where it is."""
    if into and _is_directory(target):
        name = calls.as_path(source).name if calls.is_ours(source) else os.path.basename(os.fspath(source))
        if not calls.is_ours(target):
            target = os.path.join(target, name)
        elif isinstance(target, str):
            target = _member(target, _joinable(target, name))
        else:
            target = target / name
    _refuse_same(source, target)
    with _opened(source, "rb") as from_there, _opened(target, "wb") as to_there:
        import shutil

        shutil.copyfileobj(from_there, to_there, 1 << 20)
    return target


def _refuse_same(source: Any, target: Any) -> None:
    """Raise `SameFileError` for two names of one file: a URL of a local file is ours, and its path is not."""
    from_there, to_there = (
        calls.as_path(path if calls.is_ours(path) else os.path.abspath(os.fsdecode(path))) for path in (source, target)
    )
    if from_there.as_uri().startswith("file:") != to_there.as_uri().startswith("file:"):
        return
    if to_there.exists() and from_there.samefile(to_there):
        import shutil

        raise shutil.SameFileError(f"{str(source)!r} and {str(target)!r} are the same file")


def _is_directory(path: Any) -> bool:
    return calls.as_path(path).is_dir() if calls.is_ours(path) else os.path.isdir(path)


def _opened(path: Any, mode: str) -> Any:
    if calls.is_ours(path):
        return calls.open_file(path, mode)
    if mode == "rb":
        return open(path, mode)
    # Written aside: a download that fails leaves what is there.
    return calls.open_file(os.path.abspath(os.fsdecode(path)), mode)


def _shutil(module: ModuleType) -> list[PatchedCall]:
    return [_Copy(module, name, calls.by_local) for name in ("copy", "copy2", "copyfile")]


def _glob(module: ModuleType) -> list[PatchedCall]:
    def found(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        from ...core import keys
        from ...urls import roots

        if not isinstance(path, str):
            raise TypeError("a pattern is a str")
        for name in kwargs.keys() - {"pathname", "recursive"}:
            if kwargs[name] not in (None, False):
                raise ValueError(f"{name} is for local files")
        scheme, mark, rest = path.rpartition("://")
        parts = rest.split("/")
        literal = next((at for at, part in enumerate(parts) if keys.has_magic(part)), len(parts))
        base = f"{scheme}{mark}{'/'.join(parts[:literal])}"
        if literal == len(parts):
            return [path] if calls.exists(path) else []
        pattern = "/".join(parts[literal:])
        if not kwargs.get("recursive"):
            pattern = "/".join("*" if part == "**" else part for part in pattern.split("/"))
        try:
            names = roots.call(base, lambda fs, at: list(fs.subfs(at).glob(pattern)), inside=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [f"{base}/{_joinable(path, name)}" for name in names]

    return [
        PatchedCall(module, "glob", found, 0, "pathname"),
        PatchedCall(module, "iglob", lambda *given: iter(found(*given)), 0, "pathname"),
    ]


def _pathlib(module: ModuleType) -> list[PatchedCall]:
    def made(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from ...paths import Path

        return Path(*args[1:])

    return [PatchedCall(module.Path, "__new__", made, 1)]


TARGETS = {
    "builtins": {"builtins": _builtins, "io": _builtins},
    "os": {"os": _os},
    "shutil": {"shutil": _shutil},
    "glob": {"glob": _glob},
    "pathlib": {"pathlib": _pathlib},
}
