"""Any scheme that fsspec knows (http, https, gs, az, sftp, hf, ...), with our semantics on top.

fsspec's filesystems differ in what they promise. Reads go by ranges of `cat_file`. A file is written to a local
temporary file and uploaded in one call at `close()`; where a store has real renames it is uploaded under a hidden name
and moved. What fsspec can't tell, such as whether a file changed while it is open, is not promised in `capabilities`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from ..core import errors, identity, keys, process, redaction
from ..core.blobs import Blob, BytesBlob, Hint
from ..core.fs import FS, LAST_NAME, Capabilities, FileStat, ListPage, StrPath
from ..core.writing import PARTIAL_SUFFIX as PARTIAL_SUFFIX
from ..core.writing import Writer, is_partial, partial_name
from ..disk import files
from ..disk.temporary import NamedSpool

_READ_ONLY = frozenset({"http", "https", "data", "git", "github", "jlab", "jupyter", "libarchive", "reference", "zip"})
_REAL_DIRECTORIES = frozenset(
    {"arrow_hdfs", "asynclocal", "dbfs", "ftp", "local", "memory", "sftp", "smb", "ssh", "webhdfs"}
)
_OBJECT_STORES = frozenset({"abfs", "abfss", "adl", "az", "gcs", "gs", "oci", "oss", "s3", "s3a"})
"""Their versions are ETags and generations, and no times."""
_TIMES = ("mtime", "created", "LastModified", "last_modified", "updated", "last_commit")
_VERSIONS = ("ETag", "etag", "generation", "md5Hash", "version_id", "ino", *_TIMES)


def knows(scheme: str) -> bool:
    """Return whether fsspec has an implementation for `scheme`."""
    try:
        from fsspec.registry import known_implementations, registry
    except ImportError:
        raise errors.missing("fsspec", "", f"the scheme {scheme!r}, which fsabs itself does not know,") from None

    return scheme in registry or scheme in known_implementations


def opener(scheme: str) -> Callable[..., Fsspec]:
    """A function of authority, path and fsspec's own options that opens an FS of `scheme`."""
    return functools.partial(Fsspec, scheme)


class Fsspec(FS):
    """The filesystem that fsspec has for `protocol`, at `authority` and `path`; options are that filesystem's own.

    Options are checked by fsspec's class, which makes its instance on first use, once in each process.
    """

    default_concurrency = 8

    def __init__(self, protocol: str, authority: str = "", path: str = "", **storage_options: Any) -> None:
        self.scheme = protocol
        self._authority = authority
        self._root = self._cwd = keys.normalize(path)
        self._made = process.PerProcess(functools.partial(_make, protocol, authority, storage_options))
        self._settings = tuple(_options(storage_options))
        self._plain_paths = protocol not in ("http", "https")
        writable = protocol not in _READ_ONLY
        self.capabilities = Capabilities(
            write=writable,
            replace=writable,
            mkdir=writable,
            rename=writable,
            remove=writable,
            implied_directories=protocol not in _REAL_DIRECTORIES,
            last_modified=protocol in _REAL_DIRECTORIES,
            content_versions=protocol in _OBJECT_STORES,
            stat_is_request=protocol not in ("local", "memory", "data"),
        )

    def _divided_path(self, path: StrPath) -> tuple[str, str]:
        return keys.verbatim(os.fspath(path))  # keys of web servers are URLs as they are written

    @property
    def implementation(self) -> Any:
        """This process's instance of fsspec's filesystem."""
        return self._made.get()

    def _url(self, key: str) -> str:
        authority = self._authority.rpartition("@")[2]
        if self.scheme in ("http", "https"):  # with its query
            return redaction.distinct_url(f"{self.scheme}://{authority}/{key}")
        return f"{self.scheme}://{authority}/{keys.to_url_path(key)}"

    def _resolved_store(self) -> str:
        public = identity.encode(*(f"{name}={value}" for name, value in self._settings if not _GRANTS.search(name)))
        return f"fsspec {self.scheme} {self._authority.rpartition('@')[2]} {identity.digest(public)}"

    def _describe_store(self) -> dict[str, str]:
        shown = sorted(name for name, _ in self._settings)
        return {"filesystem": f"fsspec, protocol {self.scheme}", "settings": ", ".join(shown) or "none"}

    def _principal(self) -> str:
        user = self._authority.rpartition("@")[0]
        secrets = [f"{name}={value}" for name, value in self._settings if _GRANTS.search(name)]
        return identity.digest_of_secret(identity.encode(user, *secrets)) if user or secrets else ""

    def _is_strong(self, version: str) -> bool:
        fields = version.split(",")[:-1]
        if self.capabilities.content_versions and not all(field.startswith("@") for field in fields):
            return True
        times = [float(field[1:]) for field in fields if field.startswith("@")]
        return not times or identity.is_older_than_a_tick(*times)

    def _path(self, key: str) -> str:
        return str(self.implementation._strip_protocol(f"{self.scheme}://{self._authority}/{key}"))

    def _stat(self, key: str, follow: bool = True, /) -> FileStat:
        return _to_stat(keys.name(key), self._info(key))

    def _info(self, key: str) -> dict[str, Any]:
        with _translated():
            try:
                info: dict[str, Any] = self.implementation.info(self._path(key))
            except FileNotFoundError:
                if key:
                    self._check_parent(key, FileNotFoundError)
                    raise
                return {"name": "", "type": "directory", "size": 0}
            return info

    def _check_parent(self, key: str, *passed: type[OSError]) -> None:
        """Raise what is wrong with the directory that `key` is in, where directories are real and it is not."""
        if self.capabilities.implied_directories:
            return
        with contextlib.suppress(*passed):
            if self._info(keys.parent(key))["type"] != "directory":
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def _list(self, key: str, detail: bool = True, start: str = "", /) -> Iterator[FileStat]:
        path = self._path(key)
        with _translated():
            if key and self._info(key)["type"] != "directory":
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            found = self.implementation.ls(path, detail=True)
        stats = [_to_stat(info["name"].rstrip("/").rpartition("/")[2], info) for info in found]
        stats = [stat for stat, info in zip(stats, found, strict=True) if info["name"].rstrip("/") != path.rstrip("/")]
        stats = [stat for stat in stats if not is_partial(stat.filename)]
        return iter(sorted(stats, key=FileStat.listed))

    def _list_page(self, key: str, after: str) -> ListPage | None:
        if self.scheme not in _OBJECT_STORES:
            return None
        if after.endswith("/" + LAST_NAME):
            after = after.removesuffix("/" + LAST_NAME) + chr(ord("/") + 1)  # behind all that is in that directory
        folder = after[: after.rfind("/") + 1]  # a request gives one directory alone
        members = [*self._list(keys.join(key, folder.rstrip("/")))]
        names = [folder + member.listed() for member in members]
        files = [
            member._replace(filename=name) for name, member in zip(names, members, strict=True) if not member.directory
        ]
        below = (name for name in names if name[-1] == "/" and name > after)
        return ListPage(files, next(below, folder + LAST_NAME))

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        info = self._info(key)
        if info["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if info.get("size") is None:  # a server that doesn't say how much it will send
            with _translated():
                return BytesBlob(self, key, self.implementation.cat_file(self._path(key)))
        return FsspecBlob(self, key, int(info["size"]), _version(info))

    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        with contextlib.suppress(FileNotFoundError):
            if self._info(key)["type"] == "directory":
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if exclusive:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._check_parent(key)
        return FsspecWriter(self, key, exclusive)

    def _mkdir(self, key: str, mode: int) -> None:
        if self._is(key, directory=None):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._check_parent(key)
        with _translated():
            self.implementation.mkdir(self._path(key), create_parents=self.capabilities.implied_directories)

    def _rename(self, src: str, dst: str) -> None:
        source = self._stat(src)
        target = self._rename_target(dst, source)
        if target is not None and target.directory:
            self._remove(dst)
        self._check_parent(dst)
        if source.directory:
            self._move_tree(src, dst)
        else:
            self._move_file(src, dst)

    def _move_file(self, src: str, dst: str) -> None:
        fs, source, target = self.implementation, self._path(src), self._path(dst)
        with _translated():
            if _own_move(fs):
                fs.mv(source, target)
            else:  # the general mv takes paths for patterns
                fs.cp_file(source, target)
                fs.rm_file(source)

    def _move_tree(self, src: str, dst: str) -> None:
        if _own_move(self.implementation):
            with _translated():
                self.implementation.mv(self._path(src), self._path(dst), recursive=True)
            return
        self._mkdir(dst, 0o777)
        folders = [src]
        for member in list(self._walk(src)):
            source, target = keys.join(src, member.filename), keys.join(dst, member.filename)
            if member.directory:
                self._mkdir(target, 0o777)
                folders.append(source)
            else:
                self._move_file(source, target)
        for folder in reversed(folders):
            try:
                self._remove(folder)
            except OSError as exc:  # it went with its last file, or something has come meanwhile
                if exc.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise

    def _remove(self, key: str) -> None:
        with _translated():
            if not self._stat(key).directory:
                self.implementation.rm_file(self._path(key))
            elif next(self._list(key), None) is not None:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            else:
                self.implementation.rmdir(self._path(key))

    def _make_durable(self, keys: Iterable[str]) -> None:
        if self.scheme == "local":
            files.make_durable(map(self._path, keys))

    def _remove_tree(self, key: str, keep: bool = False, /) -> None:
        if keep or keys.has_magic(key):  # rm takes paths for patterns
            super()._remove_tree(key, keep)
            return
        with _translated():
            self.implementation.rm(self._path(key), recursive=True)

    def __repr__(self) -> str:
        return f"Fsspec({self._url(self._root)!r})"


class FsspecBlob(Blob):
    """A file by its path: each read is one request for a range, and one that asks whether it is still the same file."""

    __slots__ = ()
    _origin: Fsspec

    def _pread(self, size: int, offset: int) -> bytes:
        with _translated():
            data: bytes = self._origin.implementation.cat_file(
                self._origin._path(self._key), start=offset, end=offset + size
            )
        if self.version and _version(self._origin._info(self._key)) != self.version:
            raise errors.stale(self.url)
        if len(data) == self.size != size:  # a web server that knows no ranges sends everything
            return data[offset : offset + size]
        return data


class FsspecWriter(Writer):
    """Spools to a temporary file, which `commit` uploads."""

    def __init__(self, fs: Fsspec, key: str, exclusive: bool) -> None:
        self._fs = fs
        self._key = key
        self._exclusive = exclusive
        self._durable = False
        self._spool = NamedSpool(-1)  # in a file from the start
        self._spool.write(b"")

    def write(self, data: bytes) -> None:
        """Append to the spool."""
        self._spool.write(data)

    def make_durable(self) -> None:
        """Have `commit` flush a file of this machine before it is moved to its name, and its directory after it."""
        self._durable = True

    def commit(self) -> None:
        """Upload the file, in one call or by upload and rename."""
        self._fs._check_parent(self._key)
        if self._exclusive and self._fs._is(self._key, directory=None):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        fs, path = self._fs.implementation, self._fs._path(self._key)
        with _translated():
            if self._fs.capabilities.implied_directories:
                fs.put_file(self._spool.name, path)
            else:
                self._upload_and_move()
        self.abort()

    def _upload_and_move(self) -> None:
        partial = keys.join(keys.parent(self._key), partial_name(keys.name(self._key)))
        try:
            self._fs.implementation.put_file(self._spool.name, self._fs._path(partial))
            if self._durable:
                self._fs._make_durable([partial])
            self._fs._move_file(partial, self._key)
            if self._durable:
                self._fs._make_durable([self._key])
        except BaseException:
            with contextlib.suppress(OSError):  # what went wrong is being raised already
                self._fs.implementation.rm_file(self._fs._path(partial))
            raise

    def abort(self) -> None:
        """Remove the spool."""
        self._spool.close()


def _own_move(fs: Any) -> bool:
    """Return whether the implementation renames by itself."""
    from fsspec import AbstractFileSystem

    return type(fs).mv is not AbstractFileSystem.mv


def _version(info: dict[str, Any]) -> str | None:
    """Return the version of a content, of the fields beside the size; None if the implementation has none of them."""
    values = [_versioned(info[field]) for field in _VERSIONS if info.get(field) is not None]
    return ",".join([*values, f"{info.get('size')}"]) if values else None


def _versioned(value: Any) -> str:
    """Return a field of a version; a time begins with `@`, so that `_is_strong` finds it."""
    if isinstance(value, datetime):
        value = value.timestamp()
    return f"@{value!r}" if isinstance(value, float) else f"{value}".replace(",", ";").lstrip("@")


_GRANTS = re.compile(r"pass|secret|token|key|cred|auth|sas|cookie|signature", re.IGNORECASE)


def _options(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the names and values of options, those in mappings included, in the order of their names."""
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from _options(value[key], f"{name}.{key}")
    else:
        yield name, repr(value)


def _make(protocol: str, authority: str, options: dict[str, Any]) -> Any:
    import fsspec

    try:
        kind = fsspec.get_filesystem_class(protocol)
    except ImportError as exc:
        raise errors.MissingDependencyError(f"fsspec needs another package for {protocol}:// : {exc}") from exc
    values = kind._get_kwargs_from_urls(f"{protocol}://{authority}/")
    # fsspec shares instances and keeps listings; both would show another process's or an earlier state.
    try:
        return kind(**{**values, "use_listings_cache": False, "skip_instance_cache": True, **options})
    except OSError as exc:
        raise errors.of_client(exc) from redaction.as_cause(exc)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn what fsspec's implementations raise into Python's own errors."""
    try:
        yield
    except FileNotFoundError as exc:
        cause = exc.__cause__
        if cause is not None and (
            isinstance(cause, OSError) or hasattr(cause, "status")
        ):  # fsspec's http says so of every failure
            raise _of(cause) from redaction.as_cause(cause)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from redaction.as_cause(exc)
    except OSError as exc:
        if type(exc).__module__ in ("builtins", "io") or type(exc).__module__.startswith("fsabs."):
            raise
        raise _of(exc) from redaction.as_cause(exc)
    except (TypeError, AttributeError, ImportError):
        raise
    except Exception as exc:  # every implementation has exceptions of its own, and their bases tell nothing
        raise _of(exc) from redaction.as_cause(exc)


def _of(exc: BaseException) -> OSError:
    return OSError(_errno_of(exc), redaction.without_secrets(f"{type(exc).__name__}: {exc}"))


_ERRNO_OF_STATUS = {401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 408: errno.ETIMEDOUT, 504: errno.ETIMEDOUT}


def _errno_of(exc: BaseException) -> int:
    if isinstance(exc, OSError) and exc.errno:
        return exc.errno
    if isinstance(exc, FileNotFoundError):
        return errno.ENOENT
    if isinstance(exc, TimeoutError) or "timeout" in type(exc).__name__.lower():
        return errno.ETIMEDOUT
    if isinstance(exc, NotImplementedError):
        return errno.EOPNOTSUPP
    status = getattr(exc, "status", None) or getattr(exc, "code", None)
    return _ERRNO_OF_STATUS.get(status, errno.EIO) if isinstance(status, int) else errno.EIO


def _to_stat(name: str, info: dict[str, Any]) -> FileStat:
    written = next((info[field] for field in _TIMES if info.get(field) is not None), None)
    if isinstance(written, datetime):
        written = written.timestamp()
    elif not isinstance(written, int | float):
        written = None
    if info["type"] == "directory":
        return FileStat.of_directory(name, written)
    return FileStat(name, int(info.get("size") or 0), False, written, version=_version(info))
