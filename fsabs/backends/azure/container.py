"""The FS of a container on Azure Blob Storage: its options, and what accounts with directories do better."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

from ...core import errors, keys
from ...core.errors import StaleFileError
from ...core.fs import FS, FileStat, StoreNotes, StrPath
from ..objects import ObjectStore
from ..objects.access import ConnectionOptions, described
from ..objects.client import shared
from ..objects.failures import code_of
from ..objects.messages import Request, Response
from ..objects.store import PART_SIZE
from ..objects.uploads import is_marked
from . import access
from .access import AzureOptions, account_of, of_adlfs
from .dialect import AzureDialect

MIN_PART_SIZE = 1024**2
_COSTS = (
    "opening: no request",
    "listing: a request for every 5000 names; of accounts with directories, one for each directory",
    "an epoch: a request for each file, more for large ones",
)
_NO_PARENT = "RenameDestinationParentPathNotFound"
_CREDENTIALS = ("account_key", "sas_token", "credential", "client_secret", "anonymous")


class Azure(ObjectStore):
    """The container `container` of an account on Azure, below `prefix`.

    The account is that of the URL (`abfss://container@account.dfs.core.windows.net/path`), of the options, of
    `$AZURE_STORAGE_CONNECTION_STRING`, or of `$AZURE_STORAGE_ACCOUNT_NAME`. Credentials that are not given are those of
    `$AZURE_STORAGE_ACCOUNT_KEY` or `$AZURE_STORAGE_SAS_TOKEN`, else what azure-identity finds: those of the
    environment, a workload's or managed identity, or the login of the Azure CLI. Each process renews its tokens by
    itself.

    Args:
        container: its name; `container@host` names the account, too.
        prefix: the FS's root.
        mpu_chunksize: bytes that are uploaded in one block, at least 1 MiB; a smaller file is one request.
        account_name: of the account.
        endpoint: URL of its blob service, for an emulator or another cloud.
        connection_string: as the portal shows it.
        account_key: the account's key.
        sas_token: a shared access signature, of the account or the container.
        credential: one of azure-identity. To be used in forked children it must not hold connections.
        tenant_id, client_id, client_secret: an application's; `client_id` alone is a managed identity's.
        anonymous: send no credentials.
        access_tier, metadata: of new blobs.
        content_type: of new blobs; `auto` guesses it by the name.
        connect_timeout, read_timeout: seconds, for each attempt; 10 and 60 unless given.
        max_attempts: how often a request is sent at most; 5 times unless given, and longer where the store throttles.
        verify: the file of trusted certificates, or False to trust any.
        proxies: URLs of proxies by scheme; those of the environment unless given.

    An account with a hierarchical namespace has directories: they stay when their last file is removed, and are renamed
    and removed in one step.
    """

    scheme = "az"
    dialect: AzureDialect
    _splits_authority = True
    _notes = StoreNotes(
        _COSTS,
        {
            "list": "Storage Blob Data Reader",
            "read": "Storage Blob Data Reader",
            "write": "Storage Blob Data Contributor",
        },
        True,
    )

    def __init__(
        self,
        container: str,
        prefix: str | None = None,
        *,
        mpu_chunksize: int = PART_SIZE,
        account_name: str | None = None,
        endpoint: str | None = None,
        connection_string: str | None = None,
        account_key: str | None = None,
        sas_token: str | None = None,
        credential: Any = None,
        tenant_id: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        anonymous: bool = False,
        access_tier: str | None = None,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        connect_timeout: float | None = None,
        read_timeout: float | None = None,
        max_attempts: int | None = None,
        verify: bool | str | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> None:
        name, at, host = container.partition("@")
        if not name or "/" in name:
            raise ValueError(f"an Azure URL names a container: az://container/path, not az://{container}/...")
        if mpu_chunksize < MIN_PART_SIZE:
            raise ValueError(f"mpu_chunksize is at least 1 MiB ({MIN_PART_SIZE}), not {mpu_chunksize}")
        options = AzureOptions(
            account_name,
            endpoint,
            connection_string,
            account_key,
            sas_token,
            credential,
            tenant_id,
            client_id,
            client_secret,
            anonymous,
            access_tier,
            content_type,
            tuple(sorted((name.lower(), value) for name, value in (metadata or {}).items())),
            ConnectionOptions.of(connect_timeout, read_timeout, max_attempts, verify, proxies),
        )
        given = [name for name in _CREDENTIALS if getattr(options, name)]
        if len(given) > 1:
            raise ValueError(f"{given[0]}= goes without {given[1]}=")
        if client_secret is not None and not (tenant_id and client_id):
            raise ValueError("client_secret= needs tenant_id= and client_id=")
        if at:
            self.scheme = "abfss"
        public = ".blob." in host  # an address of the web, whose data may be anybody's
        dialect = AzureDialect(name, account_of(host, options), options, f"{self.scheme}://{container}", public)
        super().__init__(dialect, prefix, mpu_chunksize)
        self._directories = shared(self.dialect.of_directories())
        self._hierarchical: bool | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_directories"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._directories = shared(self.dialect.of_directories())

    @classmethod
    def options_of_query(cls, authority: str, paths: list[str], query: dict[str, str]) -> dict[str, Any]:
        """Return the shared access signature that the query of a URL is."""
        if "sig" not in query:
            raise ValueError(f"an Azure URL has no ?{next(iter(query))}=, only a shared access signature")
        return {"sas_token": urllib.parse.urlencode(query, quote_via=urllib.parse.quote)}

    @classmethod
    def options_of_fsspec(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options for those of adlfs."""
        return of_adlfs(options)

    @property
    def container(self) -> str:
        """The container's name."""
        return self.dialect.bucket

    @property
    def options(self) -> AzureOptions:
        """The options."""
        return self.dialect.options

    def _key(self, path: StrPath, operation: str) -> str:
        key = super()._key(path, operation)
        if "\\" in key:
            raise errors.error(errno.EINVAL, operation, self._url(key), "Azure takes a backslash in a name for a slash")
        return key

    def _resolved_store(self) -> str:
        return f"azure {self.dialect.account.url} {self.container}"

    def _principal(self) -> str:
        return access.principal(self.dialect.account, self.options)

    def _describe_store(self) -> dict[str, str]:
        account = self.dialect.account
        return {
            "blob container": self.container,
            "account": account.name,
            **described(self.dialect.endpoint()),
            "endpoint": f"{account.url} ({account.origin})",
            "credentials": access.source(account, self.options),
        }

    # ---- directories, of accounts that have them

    def _has_directories(self) -> bool:
        """Return whether the account has directories; it is asked once. One that doesn't tell has none."""
        if self._hierarchical is None:
            try:
                found = self.http.send(self.dialect.namespace()).head.header(b"x-ms-is-hns-enabled")
            except (PermissionError, FileNotFoundError):
                found = None
            except OSError as exc:
                if exc.errno != errno.EINVAL:
                    raise
                found = None
            self._hierarchical = (found or "").lower() == "true"
        return self._hierarchical

    def _send_to_directories(self, request: Request) -> Response:
        return self._directories.get().send(request)

    def _walk(self, key: str) -> Iterator[FileStat]:
        return FS._walk(self, key) if self._has_directories() else super()._walk(key)

    def _walk_names(self, key: str) -> Iterator[str]:
        return FS._walk_names(self, key) if self._has_directories() else super()._walk_names(key)

    def _mkdir(self, key: str, mode: int) -> None:
        if not key or not self._has_directories():
            super()._mkdir(key, mode)
            return
        mark = secrets.token_hex(12)
        try:
            self._send_to_directories(self.dialect.make_directory(key, mark))
        except StaleFileError as exc:
            if not is_marked(self, key, mark):  # else only the response had been lost
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from exc

    def _rename(self, src: str, dst: str) -> None:
        if not self._has_directories():
            super()._rename(src, dst)
            return
        source = self._stat(src)
        target = self._rename_target(dst, source)
        if target is not None and target.directory:
            self._delete(dst)
        try:
            self._move(source, src, dst)
        except FileNotFoundError as exc:
            if code_of(exc) != _NO_PARENT:
                raise
            with contextlib.suppress(StaleFileError):  # another process was faster
                self._send_to_directories(self.dialect.make_directory(keys.parent(dst)))
            self._move(source, src, dst)

    def _move(self, source: FileStat, src: str, dst: str) -> None:
        """Move in one step, where there is no directory, once, even if the response to a request is lost."""
        try:
            self._send_to_directories(self.dialect.rename(src, dst))
        except FileNotFoundError as exc:
            found = self._head(dst) if code_of(exc) != _NO_PARENT else None
            # A file keeps its version when it is moved; at the target of a directory there was nothing before.
            if found is None or (found.directory, found.version) != (source.directory, source.version):
                raise

    def _empty(self, key: str) -> None:
        if not self._has_directories():
            super()._empty(key)
            return
        files = list[str]()
        for member in list(self._in_order(key, self._list(key))):
            path = keys.join(key, member.filename)
            if member.directory:
                self._remove_tree(path)
            else:
                files.append(path)
        self._delete_batch(files)

    def _remove_tree(self, key: str) -> None:
        if not key or not self._has_directories():
            super()._remove_tree(key)
            if key:
                self._delete(key)  # the mark of a directory
            return
        continuation: str | None = ""
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            while continuation is not None:
                response = self._send_to_directories(self.dialect.remove_directory(key, continuation))
                continuation = response.head.header(b"x-ms-continuation") or None
