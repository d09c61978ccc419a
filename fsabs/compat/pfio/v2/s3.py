"""PFIO's `S3`, on this library's client.

An error is the `OSError` that this library raises, and a `botocore.exceptions.ClientError` as well, which is what code
written for PFIO catches.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import posixpath
import urllib.parse
from collections.abc import Iterator
from typing import Any

import fsabs

from ....core import redaction
from ....core.writing import keep_if_dropped
from .fs import FS, FileStat, error_of_both, format_repr, warn_ignored

DEFAULT_MAX_BUFFER_SIZE = 16 * 1024 * 1024
_MIN_PART = 5 * 1024 * 1024


class S3ObjectStat(FileStat):
    """The stat of an object of S3.

    Args:
        key: becomes `filename`.
        head: the response to a HEAD, as boto3 has it, or an object of a listing.

    Attributes:
        filename, last_modified, size: those of `FileStat`; there is no mode.
        metadata: the object's own; of an object of a listing, none.
    """

    def __init__(self, key: str, head: dict[str, Any]) -> None:
        self.filename = key
        self.last_modified = head["LastModified"].timestamp()
        self.size = head.get("ContentLength", head.get("Size"))
        self.metadata = head.get("Metadata", {})
        self._head = head

    def isdir(self) -> bool:
        """Return False."""
        return False


class S3PrefixStat(FileStat):
    """The stat of a common prefix, which is no object."""

    def __init__(self, key: str) -> None:
        self.filename = key
        self.last_modified = 0
        self.size = -1

    def isdir(self) -> bool:
        """Return True."""
        return True


class S3(FS):
    """The objects of a bucket; relative paths start at `prefix`, and none leads out of the bucket.

    Args:
        bucket: its name.
        prefix: a prefix of keys, which need not exist.
        endpoint: the URL of the store; `$S3_ENDPOINT`, else what boto3 is configured for.
        create_bucket: make the bucket if it is missing.
        aws_access_key_id, aws_secret_access_key: credentials, with `$VARIABLES` expanded.
        mpu_chunksize: bytes of the parts of large uploads, at least 5 MiB.
        buffering: bytes that readers of `rb` buffer; 0 for none, -1 for what suits the object.
        create: PFIO's; it has no effect.
        connect_timeout, read_timeout: seconds.
        scheme: that of the URL.
        trace: record calls in a trace of `fsabs.trace`.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str | None = None,
        endpoint: str | None = None,
        create_bucket: bool = False,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: str | None = None,
        mpu_chunksize: int = 32 * 1024 * 1024,
        buffering: int = -1,
        create: bool = False,
        connect_timeout: int | None = None,
        read_timeout: int | None = None,
        scheme: str | None = None,
        _skip_connect: bool | None = None,
        trace: bool = False,
        **_: Any,
    ) -> None:
        super().__init__(scheme=scheme)
        warn_ignored("S3", _)
        self.bucket, self.create_bucket, self.trace = bucket, create_bucket, trace
        self._cwd = prefix or ""
        self.mpu_chunksize, self.buffering = int(mpu_chunksize), int(buffering)
        self.aws_access_key_id, self.aws_secret_access_key = aws_access_key_id, aws_secret_access_key
        self.endpoint = endpoint if endpoint is not None else os.environ.get("S3_ENDPOINT")
        timeouts = {"connect_timeout": connect_timeout, "read_timeout": read_timeout}
        self.botocore_config = {name: int(value) for name, value in timeouts.items() if value is not None}
        own = {"aws_access_key_id": aws_access_key_id, "aws_secret_access_key": aws_secret_access_key}
        self.kwargs = {name: os.path.expandvars(value) for name, value in own.items() if value is not None}
        options: dict[str, Any] = {**self.kwargs, **self.botocore_config}
        store = fsabs.S3(
            bucket,
            endpoint=self.endpoint,
            mpu_chunksize=max(self.mpu_chunksize, _MIN_PART),
            **options,
        )
        if self.endpoint is not None:
            self.kwargs["endpoint_url"] = self.endpoint
        self.hostname = _host(self.endpoint) if self.endpoint else "undefined"
        self._store = store
        self.fsabs = store
        if not _skip_connect:
            self._check_bucket()

    @property
    def client(self) -> Any:
        """This process's boto3 client."""
        return self._store.client

    def _check_bucket(self) -> None:
        """Look for the bucket, and make it if that is wanted."""
        from botocore.exceptions import ClientError

        try:
            self.client.head_bucket(Bucket=self.bucket)
        except ClientError as exc:
            if exc.response["Error"]["Code"] == "404" and self.create_bucket:
                self.client.create_bucket(Bucket=self.bucket)
            else:
                raise

    def __repr__(self) -> str:
        endpoint = self.endpoint and redaction.without_secrets(self.endpoint)
        return format_repr(S3, {"bucket": self.bucket, "prefix": self.cwd, "endpoint": endpoint})

    def _path(self, path: str | None) -> str:
        self._checkfork()
        key = posixpath.normpath(posixpath.join(self.cwd, path or "")).lstrip("/")
        if key.split("/")[0] == "..":
            raise ValueError(f"Invalid S3 key: {path} as {key}")
        return "/" if key == "." else "/" + key

    def _key(self, path: str) -> str:
        """Return the key of a path, which is `.` for the bucket itself."""
        return self._path(path)[1:] or "."

    def open(self, path: str, mode: str = "r", **kwargs: Any) -> Any:  # type: ignore[override]  # PFIO's
        """Open an object; a written one is visible, whole, when it is closed.

        `buffering`, `encoding`, `errors` and `newline` mean what they mean to `builtins.open`.
        """
        if "a" in mode or {"r", "w"} <= set(mode):
            raise io.UnsupportedOperation(f"mode {mode!r} is not supported")
        known = {name: kwargs.pop(name, None) for name in ("encoding", "errors", "newline")}
        buffering = kwargs.pop("buffering", -1)
        buffering = self.buffering if buffering == -1 else buffering
        warn_ignored("S3.open", kwargs)
        with _client_errors("HeadObject" if "r" in mode else "PutObject"):
            if "b" not in mode:
                buffering = buffering if buffering > 1 else -1
                return keep_if_dropped(self.fsabs.open(self._path(path), mode, buffering, **known))
            if "r" not in mode:
                return keep_if_dropped(self.fsabs.open(self._path(path), mode))
            return self.fsabs.open(self._path(path), "rb", buffering)

    def list(self, prefix: str | None = "", recursive: bool = False, detail: bool = False) -> Iterator[Any]:
        """Yield the objects below a prefix; if not `recursive`, up to the next `/`, and the prefixes that go on.

        Names are relative to the prefix. There is no object below a prefix that does not exist, and that is no error.
        """
        path = self._path(prefix)
        try:
            for found in self.fsabs.list(path, recursive, detail=True):
                if found.directory and recursive:
                    continue
                if detail:
                    yield S3PrefixStat(found.filename) if found.directory else _object_stat(found)
                else:
                    yield found.filename
        except (FileNotFoundError, NotADirectoryError):
            if not self.fsabs.exists(""):  # the bucket is missing
                raise

    def stat(self, path: str) -> FileStat:
        """Return the stat of an object or of a prefix."""
        key = self._key(path)
        with _client_errors("HeadObject"):
            found = self.fsabs.stat(self._path(path))
            if found.directory:
                return S3PrefixStat(key)
            return S3ObjectStat(key, self.client.head_object(Bucket=self.bucket, Key=key))

    def isdir(self, file_path: str) -> bool:
        """Return True if there are objects below a prefix; True of the bucket."""
        path = self._path(file_path)
        with _client_errors("ListObjectsV2"):
            return path == "/" or self.fsabs.isdir(path) or next(self.list(path), None) is not None

    def mkdir(self, file_path: str, mode: int = 0o777, *args: Any, dir_fd: int | None = None) -> None:
        """Do nothing: there are no directories."""

    def makedirs(self, file_path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Do nothing: there are no directories."""

    def exists(self, file_path: str) -> bool:
        """Return True if there is an object, or objects below a prefix."""
        with _client_errors("HeadObject"):
            return self.fsabs.exists(self._path(file_path))

    def rename(self, src: str, dst: str) -> None:
        """Copy an object, or all below a prefix, and remove the original."""
        with _client_errors("CopyObject"):
            self.fsabs.rename(self._path(src), self._path(dst))

    def remove(self, file_path: str, recursive: bool = False) -> None:
        """Remove an object, or with `recursive` all below a prefix."""
        with _client_errors("DeleteObject"):
            self.fsabs.remove(self._path(file_path), recursive)

    def _canonical_name(self, file_path: str) -> str:
        return f"s3://{self.hostname}/{self.bucket}/{self._key(file_path)}"


def _host(endpoint: str) -> str | None:
    return urllib.parse.urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}").hostname


def _object_stat(found: fsabs.FileStat) -> S3ObjectStat:
    modified = datetime.datetime.fromtimestamp(found.last_modified or 0, datetime.UTC)
    return S3ObjectStat(found.filename, {"LastModified": modified, "Size": found.size, "ETag": found.version})


_CODES = {
    FileNotFoundError: "404",
    IsADirectoryError: "404",
    NotADirectoryError: "404",
    PermissionError: "403",
    FileExistsError: "412",
}


@contextlib.contextmanager
def _client_errors(operation: str) -> Iterator[None]:
    """Raise an `OSError` as one that is a `ClientError` as well, where the store has refused a request."""
    try:
        yield
    except tuple(_CODES) as exc:
        from botocore.exceptions import ClientError

        code = next(code for base, code in _CODES.items() if isinstance(exc, base))
        raised = error_of_both(type(exc), ClientError)(*exc.args)  # type: ignore[arg-type]
        raised.__dict__.update(exc.__dict__)
        raised.filename = exc.filename
        raised.response = {
            "Error": {"Code": code, "Message": exc.strerror},
            "ResponseMetadata": {"HTTPStatusCode": int(code)},
        }
        raised.operation_name = operation
        raise raised from exc
