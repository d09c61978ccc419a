"""Patches of Python's own: `open`, `os`, `glob` and `pathlib`, for URLs only, where they are asked for by name."""

from __future__ import annotations

import os
from collections.abc import Iterator

from . import calls
from .calls import Entry, elsewhere, refused

TYPE_CHECKING = False  # as typing's, which takes as long to import as all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...paths import Path
    from .calls import Call, Handler, Rows


def _open(call: Call) -> Any:
    options = {"mode": "r", **call.others()}
    if not options.pop("closefd", True) or options.pop("opener", None) is not None:
        raise ValueError("closefd and opener are for local files")
    return calls.open_file(call.path, **options)


_FILE = "*file mode buffering encoding errors newline closefd opener"
# Some modules know it by another name, which they took when they were imported.
_OPENS = {"builtins": "open", "io": "open", "bz2": "_builtin_open", "tarfile": "bltn_open", "tokenize": "_builtin_open"}


# ---- os


class _Entries(Iterator[Entry]):
    """The iterator and context manager that `os.scandir` returns."""

    def __init__(self, path: str | Path) -> None:
        self._entries = (Entry(_member(path, name.rstrip("/")), name) for name in _names(path))

    def __next__(self) -> Entry:
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


def _member(path: str | Path, name: str) -> str | Path:
    """Return the member `name`, a joinable one, of the directory at `path`."""
    return f"{path.rstrip('/')}/{name}" if isinstance(path, str) else path / name


def _raise(exc: OSError) -> None:
    raise exc


def _by(function: Callable[..., Any]) -> Handler:
    """Return a handler that calls `function` with the path and the other arguments, by their names."""

    def served(call: Call) -> Any:
        others = call.others()
        if others.pop("dir_fd", None) is not None:
            raise ValueError("dir_fd is for local files")
        return function(calls.as_path(call.path), **others)

    return elsewhere(served)


def _walk(call: Call) -> Iterator[Any]:
    top, text = calls.as_path(call.path), os.fspath(call.path)
    options = call.get("topdown", True), call.get("onerror"), call.get("followlinks", False)
    for folder, directories, files in top.walk(*options):
        joinable = {_joinable(text, name): name for name in directories}
        names = list(joinable)
        below = _joinable(text, folder.relative_to(top).as_posix())
        spelled = text if below == "." else f"{text.rstrip('/')}/{below}"
        yield spelled, names, [_joinable(text, name) for name in files]
        directories[:] = [joinable.get(name, name) for name in names]  # those that the caller left are walked


def _access(path: Path, mode: int, **_: Any) -> bool:
    is_directory = path.is_dir()
    is_allowed = is_directory or (path.exists() and not mode & os.X_OK)
    return is_allowed and (not mode & os.W_OK or path.fs.capabilities.write)


def _makedirs(path: Path, mode: int = 0o777, exist_ok: bool = False) -> None:
    if not exist_ok and path.exists():
        raise FileExistsError(17, os.strerror(17), str(path))
    if path.fs.capabilities.mkdir:
        path.mkdir(parents=True, exist_ok=exist_ok)


def _between(function: Callable[[Path, Path], Any]) -> Handler:
    """Return a handler that calls `function` with both paths, either of which may be local."""

    def served(call: Call) -> Any:
        first, second = call.patched.parameters[:2]
        return function(_either(call.get(first)), _either(call.get(second)))

    return served


def _either(path: Any) -> Path:
    return calls.as_path(calls.ours(path) or os.path.abspath(os.fsdecode(path)))


def _rename(source: Path, target: Path) -> None:
    source.replace(target)


def _normal(call: Call) -> str:
    """Return the URL without dots and double slashes; one of a web server as it is."""
    text = str(os.fspath(call.path))
    scheme, mark, rest = text.partition("://") if "://" in text else ("", "", text)
    if scheme.lower() in ("http", "https"):
        return text
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority}{os.path.normpath(f'/./{path}') if slash else ''}"


def _join(call: Call) -> str:
    """Return the URL of what is below a `Path`, whose members have their names as they are."""
    path = call.path
    return str(call(path) if isinstance(path, str) else os.fspath(path.joinpath(*call.args[1:])))


def _relative(call: Call) -> str:
    given = call.get("path")
    path, start = _either(given), _either(call.get("start", os.curdir))
    return _joinable(given if isinstance(given, str) else str(path), str(path.relative_to(start, walk_up=True)))


_OS: Rows = [
    ("listdir", "*path", elsewhere(lambda call: [name.rstrip("/") for name in _names(call.path)])),
    ("scandir", "*path", elsewhere(lambda call: _Entries(call.path))),
    ("walk", "*top topdown onerror followlinks", elsewhere(_walk)),
    ("stat lstat", "*path", _by(lambda path, follow_symlinks=True: path.stat())),
    ("access", "*path mode", _by(_access)),
    ("remove unlink", "*path", _by(lambda path: path.unlink())),
    ("rmdir", "*path", _by(lambda path: path.rmdir())),
    ("mkdir", "*path mode", _by(lambda path, mode=0: path.mkdir())),
    ("makedirs", "*name mode exist_ok", _by(_makedirs)),
    ("rename replace", "*src *dst", _between(_rename)),
    ("open chdir chmod chown lchown truncate utime statvfs readlink mkfifo mknod", "*path", refused),
    ("getxattr setxattr listxattr removexattr", "*path", refused),
    ("link symlink", "*src *dst", refused),
    ("path.exists path.lexists", "*path", _by(lambda path: path.exists())),
    ("path.isfile", "*path", _by(lambda path: path.is_file())),
    ("path.isdir", "*s", _by(lambda path: path.is_dir())),
    ("path.abspath path.normpath", "+path", elsewhere(_normal)),
    ("path.join", "*a", elsewhere(_join)),
    ("path.realpath", "+filename", elsewhere(_normal)),
    ("path.isabs", "+s", elsewhere(lambda call: True)),
    ("path.ismount", "*path", elsewhere(lambda call: False)),
    ("path.relpath", "+path +start", _relative),
    ("path.samefile", "*f1 *f2", _between(lambda first, second: first.samefile(second))),
]


# ---- shutil, glob, pathlib


def _copy(call: Call) -> Any:
    """Copy a file, by `copy` and `copy2` into the directory that the target is; return where it is."""
    source, target = call.get("src"), call.get("dst")
    if call.patched.name != "copyfile" and _either(target).is_dir():
        folder, name = calls.ours(target), _either(source).name
        target = os.path.join(target, name) if folder is None else _member(folder, _joinable(folder, name))
    import shutil

    there, here = _either(source), _either(target)
    # A URL of a local file is ours, and its path is not: two names of one file.
    may_be_same = there.as_uri().startswith("file:") == here.as_uri().startswith("file:")
    if may_be_same and here.exists() and there.samefile(here):
        raise shutil.SameFileError(f"{str(source)!r} and {str(target)!r} are the same file")
    # Written aside: a download that fails leaves what is there.
    with calls.open_file(there) as reads, calls.open_file(here, "wb") as writes:
        shutil.copyfileobj(reads, writes, 1 << 20)
    return target


def _move(source: Path, target: Path) -> str:
    return str(source.move_into(target) if target.is_dir() else source.move(target))


def _glob(call: Call) -> list[str]:
    from ...core import keys
    from ...urls import roots

    path, recursive = call.path, call.get("recursive")
    if not isinstance(path, str):
        raise TypeError("a pattern is a str")
    for name, value in call.others().items():
        if name != "recursive" and value not in (None, False):
            raise ValueError(f"{name} is for local files")
    scheme, mark, rest = path.rpartition("://")
    parts = rest.split("/")
    literal = next((at for at, part in enumerate(parts) if keys.has_magic(part)), len(parts))
    base = f"{scheme}{mark}{'/'.join(parts[:literal])}"
    if literal == len(parts):
        return [path] if calls.as_path(path).exists() else []
    pattern = "/".join("*" if part == "**" and not recursive else part for part in parts[literal:])
    try:
        names = roots.call(base, lambda fs, at: list(fs.subfs(at).glob(pattern)), inside=True)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [f"{base}/{_joinable(path, name)}" for name in names]


def _path(call: Call) -> Path:
    return calls.as_path(call.path).joinpath(*call.args[2:])


TABLE: dict[str, dict[str, Rows]] = {
    "builtins": {module: [(name, _FILE, _open)] for module, name in _OPENS.items()},
    "fsabs": {"fsabs.paths": [("Path.__fspath__", "*self", calls.fspath)]},
    "glob": {"glob": [("glob", "*pathname", _glob), ("iglob", "*pathname", lambda call: iter(_glob(call)))]},
    "os": {"os": _OS, "io": [("open_code", "*path", lambda call: calls.open_file(call.path))]},
    "pathlib": {"pathlib": [("Path.__new__", "cls *path", elsewhere(_path))]},
    "shutil": {
        "shutil": [
            ("copy copy2 copyfile", "*src *dst", _copy),
            ("move", "*src *dst", _between(_move)),
            ("copymode copystat", "*src *dst", refused),
            ("disk_usage chown", "*path", refused),
            ("unpack_archive", "*filename", calls.by_local),
        ]
    },
}
