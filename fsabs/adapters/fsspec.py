"""fsspec's interface over any FS: `fs.fsspec()`, and the protocols `fsabs`, `fsabs+s3`, `fsabs+hdfs`, ...

A path is what follows the protocol, as it stands: fsspec knows no percent-encoding. It may lead through containers.
What has no URL, and options, go by `fs=`: a filesystem of `fs.fsspec()` has paths of that FS.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import functools
import io
import os
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import fsspec
from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.spec import AbstractBufferedFile

from ..core import errors, identity, keys, registry
from ..core.fs import FS, FileStat
from ..core.writing import AbortsOnError, WriteFile, discard_if_failing
from ..urls import constructors, roots

try:
    from fsspec.implementations.chained import ChainedFileSystem
except ImportError:  # before 2025.10, when chained URLs came to any filesystem
    from fsspec import AbstractFileSystem as ChainedFileSystem

T = TypeVar("T")
_HINTS = """
asynchronous batch_size block_size blocksize cache_options cache_type compression default_block_size default_cache
default_cache_type default_fill_cache fill_cache listings_expiry_time loop max_concurrency max_paths refresh size
skip_instance_cache use_listings_cache version_aware
"""
HINTS = frozenset(_HINTS.split())
"""What callers of fsspec give to filesystems and to their methods, and changes no result here."""


class FsabsFileSystem(ChainedFileSystem):  # type: ignore[misc]
    """A filesystem of fsspec's over an FS, or over all URLs of a scheme.

    Args:
        fs: the FS; paths are relative to its `cwd`.
        target_protocol: without `fs`, the scheme of the paths; a chained URL, `fsabs::s3://...`, sets it.
        target_options: options of `from_url`, from a chained URL.
        fo: not used; a chained URL sets it.
        options: options of `from_url`.
    """

    protocol: Any = "fsabs"
    cachable = False  # instances are cheap, and two FS objects may look the same to fsspec
    scheme = ""

    def __init__(
        self,
        fs: FS | None = None,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        fo: Any = None,
        **options: Any,
    ) -> None:
        self._given = {"fs": fs, "target_protocol": target_protocol, "target_options": target_options, **options}
        # fsspec's own options are not ours
        names = {"skip_instance_cache", "use_listings_cache", "asynchronous", "loop", "batch_size"}
        super().__init__(**{name: options.pop(name) for name in names & set(options)})
        self._fs = fs
        self._scheme = target_protocol or self.scheme
        options = {**(target_options or {}), **options}
        backend = registry.backend(self._scheme)
        known = constructors.known_options(backend) if backend is not None else {}
        options = {name: value for name, value in options.items() if name in known or name not in HINTS}
        self._table = roots.with_options(backend.options_of_fsspec(options) if backend is not None else options)
        if fs is not None:  # what lists names asks for their URLs, and opens those by a protocol that it knows
            self.protocol = ("fsabs", f"fsabs+{fs.url('').partition('://')[0]}")
        if fs is None and not self._scheme:
            raise ValueError("the protocol fsabs needs fs=, or the protocol of a store: fsabs+s3://bucket/key")

    # ---- paths

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = os.fspath(path)
        protocols = (cls.protocol,) if isinstance(cls.protocol, str) else cls.protocol
        for protocol in protocols:
            if path.startswith(f"{protocol}://"):
                path = path[len(protocol) + 3 :]
                break
        rooted = cls.scheme == "file" and path.startswith("/")
        return path.rstrip("/") or ("/" if rooted else cls.root_marker)

    def unstrip_protocol(self, name: str) -> str:
        """Return the URL of a path: with an FS that was given, its own URL after `fsabs+`."""
        name = self._strip_protocol(name)
        if self._fs is not None:
            return f"fsabs+{self._fs.url(name)}"
        return f"fsabs+{self._scheme}://{name}"

    def _stripped(self, path: Any) -> str:
        """Return a path without its protocol; of a URL of the FS that was given, the path in it."""
        path = os.fspath(path)
        if self._fs is not None and path.startswith(f"{self.protocol[1]}://"):
            below = path.removeprefix(f"fsabs+{self._fs.url('/' + self._fs._root)}".rstrip("/"))
            if below == path or below[:1] not in ("", "/"):
                raise errors.error(errno.EACCES, "open", path, "outside of the filesystem's root")
            path = "/" + keys.join(self._fs._root, urllib.parse.unquote(below).strip("/"))
        found: str = self._strip_protocol(path)
        return found

    def _run(self, path: str, function: Callable[[FS, str], T], *, inside: bool = False) -> T:
        path = self._stripped(path)
        if self._fs is not None:
            return function(self._fs, path)
        return self._table.call(self._url(path), function, inside=inside)

    def _url(self, path: str) -> str:
        """The URL of a stripped path."""
        if self._scheme in ("http", "https"):
            return f"{self._scheme}://{path}"
        authority, slash, rest = path.partition("/")
        return f"{self._scheme}://{authority}{slash}{keys.to_url_path(rest)}"

    def _with_parents(self, path: str, function: Callable[[], T], source: str | None = None) -> T:
        """Return `function()`, called again with the directory of `path` made, unless `source` is missing."""
        try:
            return function()
        except FileNotFoundError:
            if source is not None and not self.exists(source):
                raise
            self.makedirs(self._parent(path), exist_ok=True)
            return function()

    # ---- questions

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Return what is known of a path: name, size, type, and mtime, mode, ETag where the store has them."""
        _refuse_unknown("info", kwargs)
        path = self._strip_protocol(path)
        return file_info(path, self._run(path, lambda fs, there: fs.stat(there)))

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Return whether there is a file or a directory; a store that can't be reached is an error, not False."""
        _refuse_unknown("exists", kwargs)
        try:
            return self._run(path, lambda fs, there: fs.exists(there))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except ValueError:
            if not self._is_root(path):
                raise
            return True  # a store that has buckets: its root is none

    def isdir(self, path: str) -> bool:
        """Return whether there is a directory."""
        return self.exists(path) and (self._is_root(path) or self._run(path, lambda fs, there: fs.isdir(there)))

    def isfile(self, path: str) -> bool:
        """Return whether there is a file; a container is one."""
        return self.exists(path) and not self._is_root(path) and self._run(path, lambda fs, there: fs.isfile(there))

    def _is_root(self, path: str) -> bool:
        """Return whether a path is the root of the protocol's stores."""
        return self._fs is None and not self._strip_protocol(path).strip("/")

    def modified(self, path: str) -> datetime.datetime:
        """Return when a file was written."""
        if (seconds := self.info(path).get("mtime")) is None:
            raise errors.unsupported("modified", self.unstrip_protocol(path), "the store keeps no times")
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Return the members of a directory or of a container's root, or the file itself."""
        _refuse_unknown("ls", kwargs)
        path = self._strip_protocol(path)
        try:
            found = self._run(path, lambda fs, there: list(fs.list(there, detail=True)), inside=True)
        except NotADirectoryError:
            infos = [self.info(path)]
        else:
            infos = [file_info(_joined(path, stat.filename.rstrip("/")), stat) for stat in found]
        return infos if detail else [info["name"] for info in infos]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        """Return all files below a path, by one recursive listing."""
        if maxdepth is not None:
            return super().find(path, maxdepth, withdirs, detail, **kwargs)
        prefix = kwargs.pop("prefix", "")
        _refuse_unknown("find", kwargs)
        path = self._strip_protocol(path)
        found = {}
        try:
            stats = self._run(path, lambda fs, there: list(fs.list(there, recursive=True, detail=True)), inside=True)
            found = {_joined(path, stat.filename.rstrip("/")): stat for stat in stats if withdirs or not stat.directory}
            if withdirs and path not in ("", "/"):
                found[path] = FileStat.of_directory(path)
        except NotADirectoryError:
            with contextlib.suppress(NotADirectoryError):  # it is below a file
                found = {path: self._run(path, lambda fs, there: fs.stat(there))}
        except FileNotFoundError:
            if self.exists(path):  # a directory in it was removed meanwhile: not all of it was listed
                raise
        start = _joined(path, prefix)
        names = sorted(name for name in found if not prefix or name.startswith(start))
        return {name: file_info(name, found[name]) for name in names} if detail else names

    # ---- reading

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Any = None,
        autocommit: bool = True,
        cache_type: str | None = None,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        _refuse_unknown("open", kwargs)
        if mode == "rb":
            file = self._opened(path, mode, {})
            return (
                file if cache_type is None else FileWithCache(self, path, file, block_size, cache_type, cache_options)
            )
        file = self._with_parents(path, lambda: self._opened(path, mode, {}))
        return file if autocommit else FileInTransaction(file)

    def open(self, path: Any, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
        """Open a file; one that is written is whole or not at all, as text and compressed, too."""
        text = {name: kwargs.pop(name, None) for name in ("encoding", "errors", "newline")} if "b" not in mode else {}
        compression = kwargs.pop("compression", None)
        path = self._stripped(path)
        if mode.startswith("r") or compression is None:
            if args or self._intrans or (mode.startswith("r") and compression):
                return super().open(path, mode, *args, compression=compression, **kwargs, **text)
            if not text:
                return self._open(path, mode, **kwargs)
            _refuse_unknown("open", kwargs)
            if mode.startswith("r"):
                return self._opened(path, mode, text)
            return self._with_parents(path, lambda: self._opened(path, mode, text))
        binary = super().open(path, mode.replace("t", "").replace("b", "") + "b", *args, **kwargs)
        file = CompressedFile(binary, compr[get_compression(path, compression)])
        return CompressedTextFile(cast(Any, file), **text) if text else file

    def _opened(self, path: str, mode: str, text: dict[str, Any]) -> Any:
        if self._fs is not None:
            file: Any = self._fs.open(path, mode, **text)
        else:
            file = self._table.open_file(self._url(path), mode, **text)
        file.fs, file.path = self, path  # as of fsspec's own files
        if mode[0] in "wx":  # fsspec.open's block closes a file, whatever has happened in it
            discard_if_failing(file)
        if mode.startswith("r"):
            file.size = getattr(getattr(file, "raw", None), "size", None) or self.info(path)["size"]
        return file

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Return the content of a file, or a range of it; negative bounds count from its end."""
        _refuse_unknown("cat_file", kwargs)
        if start is None and end is None:
            return self._run(path, lambda fs, there: fs.read_bytes(there))
        return self.cat_ranges([path], [start], [end], on_error="raise")[0]  # type: ignore[no-any-return]

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        """Return the content of a file, or a dict of the contents of several, which are read concurrently."""
        _refuse_unknown("cat", kwargs)
        paths = self.expand_path(path, recursive=recursive)
        several = len(paths) > 1 or isinstance(path, list) or paths[0] != self._strip_protocol(path)
        if not several or on_error != "raise" or self._fs is None:
            return super().cat(path, recursive, on_error, **kwargs)
        files = [each for each in paths if not self.isdir(each)] if recursive else paths
        return dict(zip(files, self._fs.read_many(map(self._stripped, files)), strict=True))

    def cat_ranges(
        self, paths: Any, starts: Any, ends: Any, max_gap: int | None = None, on_error: str = "return", **kwargs: Any
    ) -> list[Any]:
        """Return ranges of files; those of one file are read together, neighbours in one request."""
        _refuse_unknown("cat_ranges", kwargs)
        if max_gap is not None:
            raise NotImplementedError("max_gap: neighbours are joined by the store's own measure")
        starts = [starts] * len(paths) if not isinstance(starts, Iterable) else list(starts)
        ends = [ends] * len(paths) if not isinstance(ends, Iterable) else list(ends)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends have different lengths")
        wanted: dict[str, list[int]] = {}
        for number, path in enumerate(paths):
            wanted.setdefault(path, []).append(number)
        results: list[Any] = [None] * len(paths)
        for path, numbers in wanted.items():
            bounds = [(starts[number], ends[number]) for number in numbers]
            try:
                contents: Sequence[Any] = self._run(path, functools.partial(_read_ranges, bounds=bounds))
            except Exception as exc:  # fsspec returns whatever was raised
                if on_error != "return":
                    raise
                contents = [exc] * len(numbers)
            for number, content in zip(numbers, contents, strict=True):
                results[number] = content
        return results

    # ---- writing

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Make `value` the content of a file, whole or not at all; mode "create" refuses an existing one."""
        _refuse_unknown("pipe_file", kwargs)
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def mkdir(self, path: str, create_parents: bool = True, mode: int = 0o777, **kwargs: Any) -> None:
        """Make a directory."""
        _refuse_unknown("mkdir", kwargs)
        self._run(path, lambda fs, there: (fs.makedirs if create_parents else fs.mkdir)(there, mode))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and what is missing above it."""

        def make(fs: FS, there: str) -> None:
            if fs.capabilities.mkdir:
                fs.makedirs(there, exist_ok=exist_ok)

        self._run(path, make)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self._run(path, lambda fs, there: fs.rmdir(there))

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        self._run(path, lambda fs, there: fs.remove(there))

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files, or with `recursive` directories and all that is in them."""
        if maxdepth is not None:
            super().rm(path, recursive, maxdepth)
            return
        for each in self.expand_path(path) if not isinstance(path, str) or keys.has_magic(path) else [path]:
            self._run(each, lambda fs, there: fs.remove(there, recursive=recursive))

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy a file within the store, or make a directory."""
        _refuse_unknown("cp_file", kwargs)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return

        def copy() -> None:
            self._run(path1, lambda fs, src: self._run(path2, lambda to, dst: fs.copy(src, dst, to)))

        self._with_parents(path2, copy, path1)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        """Move a file or a directory: within a store by a rename, else by a copy."""
        _refuse_unknown("mv", kwargs)
        if isinstance(path1, str) and isinstance(path2, str) and not keys.has_magic(path1) and maxdepth is None:
            target = self._strip_protocol(path2)
            if path2.endswith("/") or self.isdir(target):
                target = _joined(target, self._strip_protocol(path1).rpartition("/")[2])
            with contextlib.suppress(io.UnsupportedOperation, _OtherStore):
                self._with_parents(target, lambda: self._renamed(path1, target), path1)
                return
        super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)

    def _renamed(self, path1: str, path2: str) -> None:
        def rename(fs: FS, src: str) -> None:
            self._run(path2, lambda to, dst: fs.rename(src, dst) if to is fs else _refuse())

        self._run(path1, rename)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Make an empty file; an existing one is emptied, or with `truncate=False` left as it is."""
        _refuse_unknown("touch", kwargs)
        if truncate or not self.exists(path):
            self.pipe_file(path, b"")

    def ukey(self, path: str) -> str:
        """Return a text that differs between contents of the path."""
        info = self.info(path)
        return f"{info.get('ETag') or info.get('mtime')}-{info['size']}"

    checksum = ukey

    def sign(self, path: str, expiration: int = 100, **kwargs: Any) -> str:
        """Return a URL that allows whoever has it to read a file of S3 for `expiration` seconds."""
        _refuse_unknown("sign", kwargs)

        def signed(fs: FS, there: str) -> str:
            if not hasattr(fs, "signed_url"):
                raise errors.unsupported("sign", self.unstrip_protocol(path), "URLs of this store are not signed")
            return str(fs.signed_url(there, expires=expiration))

        return self._run(path, signed)

    # ---- as a value

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self).scheme, self._given)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FsabsFileSystem):
            return NotImplemented
        return self.__dask_tokenize__() == other.__dask_tokenize__()

    def __hash__(self) -> int:
        return hash(self.__dask_tokenize__())

    def __dask_tokenize__(self) -> object:
        # Two stores may have one URL, by their endpoints.
        place = None if self._fs is None else identity.place(self._fs, self._fs._cwd)
        return type(self).__name__, self._scheme, repr(self._fs), repr(place), repr(sorted(self._table.options.items()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._fs if self._fs is not None else self._scheme!r})"


def _refuse_unknown(operation: str, options: dict[str, Any]) -> None:
    if unknown := sorted(options.keys() - HINTS):
        raise TypeError(f"{operation}() got an unexpected keyword argument {unknown[0]!r}")


class _OtherStore(Exception):
    """The two ends of a rename are in different stores."""


def _refuse() -> None:
    raise _OtherStore


def _read_ranges(fs: FS, path: str, bounds: Sequence[tuple[int | None, int | None]]) -> list[bytes]:
    """Return the bytes of a file between each start and end; a negative bound counts from the file's end."""
    with fs.open_blob(path) as blob:
        limits = [slice(start, end).indices(blob.size)[:2] for start, end in bounds]
        ranges = [(max(0, stop - begin), begin) for begin, stop in limits]
        return [blob.pread(*ranges[0])] if len(ranges) == 1 else blob.pread_many(ranges)


def _joined(base: str, name: str) -> str:
    return f"{base.rstrip('/')}/{name}" if base else name


# ---- protocols

_classes: dict[str, type[FsabsFileSystem]] = {"": FsabsFileSystem}


def filesystem_class(scheme: str) -> type[FsabsFileSystem]:
    """Return the class of the protocol `fsabs+SCHEME`."""
    if scheme not in _classes:
        name = _class_name(scheme)
        members = {"protocol": (f"fsabs+{scheme}",), "scheme": scheme, "root_marker": "/" if scheme == "file" else ""}
        _classes[scheme] = type(name, (FsabsFileSystem,), {"__module__": __name__, **members})
    return _classes[scheme]


def _class_name(scheme: str) -> str:
    return f"Fsabs{scheme.title().replace('+', '').replace('-', '').replace('.', '')}FileSystem"


def _rebuilt(scheme: str, given: dict[str, Any]) -> FsabsFileSystem:
    return filesystem_class(scheme)(**given)


def as_fsspec(fs: FS, asynchronous: bool = False) -> Any:
    """Return an FS as a filesystem of fsspec's; with `asynchronous`, one whose methods are coroutines."""
    found = FsabsFileSystem(fs=fs)
    if not asynchronous:
        return found
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

    return AsyncFileSystemWrapper(found, asynchronous=True)


def register_fsspec(*schemes: str) -> None:
    """Have fsspec open `SCHEME://` and `fsabs+SCHEME://` URLs by this library, in this process.

    A scheme that fsspec serves already, by another package, is taken from that one.
    """
    for scheme in schemes:
        kind = filesystem_class(scheme)
        kind.protocol = tuple(dict.fromkeys((*kind.protocol, scheme)))
        for protocol in (f"fsabs+{scheme}", scheme):
            fsspec.register_implementation(protocol, kind, clobber=True)


def __getattr__(name: str) -> Any:
    """Return the class of an entry point: `FsabsS3FileSystem` for the protocol `fsabs+s3`."""
    for scheme in (*registry.BUILTIN_SCHEMES, "http", "https"):
        if name == _class_name(scheme):
            return filesystem_class(scheme)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---- files as fsspec hands them out: described, written through a compressor, and held back by a transaction


class FileWithCache(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read through one of fsspec's caches, as `cache_type=` and `blockcache::` ask for it."""

    def __init__(
        self, fs: Any, path: str, file: Any, block_size: Any, cache_type: str, cache_options: dict[str, Any] | None
    ) -> None:
        self._file = file
        options = {} if block_size in (None, "default") else {"block_size": block_size}
        super().__init__(fs, path, cache_type=cache_type, cache_options=cache_options, size=file.size, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self._file.raw.blob.pread(end - start, start)
        return data

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._file.close()


class CompressedFile(AbortsOnError):
    """A compressor and the file that it writes to, closed together."""

    def __init__(self, file: WriteFile, compressor: Callable[..., Any]) -> None:
        self._file = file
        self._compressor = compressor(file, mode="w")

    def close(self) -> None:
        """Write what the compressor holds back, and make the file visible."""
        try:
            self._compressor.close()
        except BaseException:
            self._file.abort()
            raise
        self._file.close()

    def abort(self) -> None:
        """Drop the file."""
        self._file.abort()
        with contextlib.suppress(ValueError, OSError):  # it writes its trailer to a closed file
            self._compressor.close()

    @property
    def closed(self) -> bool:
        """True if the file is closed."""
        return self._file.closed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._file if name == "inherited" else self._compressor, name)

    def __enter__(self) -> CompressedFile:
        return self


class CompressedTextFile(AbortsOnError, io.TextIOWrapper):
    """Text over a `CompressedFile`: whole or not at all."""

    buffer: Any

    def abort(self) -> None:
        """Drop the file."""
        self.buffer.abort()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, ValueError):  # never made
            if not self.buffer.closed:
                self.abort()


class FileInTransaction(AbortsOnError):
    """A file of a transaction: `close` keeps it, `commit` makes it visible; a block that raises drops it."""

    def __init__(self, file: WriteFile) -> None:
        self._file = file

    def close(self) -> None:
        """Leave the file to the transaction."""

    def commit(self) -> None:
        """Make the file visible."""
        self._file.close()

    def discard(self) -> None:
        """Drop the file."""
        self._file.abort()

    abort = discard

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._file, name)

    def __enter__(self) -> FileInTransaction:
        return self


def file_info(name: str, stat: FileStat) -> dict[str, Any]:
    """Return what `AbstractFileSystem.info` returns."""
    found: dict[str, Any] = {
        "name": name,
        "size": stat.size,
        "type": "directory" if stat.directory else "file",
        "mode": stat.mode,
        "islink": False,
    }
    if stat.last_modified is not None:
        found["mtime"] = stat.last_modified
    if stat.version is not None:
        found["ETag"] = stat.version
    return found
