"""The FS of a bucket on Google Cloud Storage, and its options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...core.fs import StoreNotes
from ..objects import ObjectStore
from ..objects.access import ConnectionOptions, described
from ..objects.store import COSTS, PART_SIZE
from . import access
from .access import EMULATOR, GCSOptions, of_gcsfs, url_of
from .dialect import GCSDialect

MIN_PART_SIZE = 5 * 1024**2


class GCS(ObjectStore):
    """The bucket `bucket` on Google Cloud Storage, below `prefix`.

    Credentials that are not given are those that Google's libraries find: of `$GOOGLE_APPLICATION_CREDENTIALS`, of
    `gcloud auth application-default login`, of workload identity, or of the metadata server. Each process renews its
    tokens by itself, before they end. An emulator at `$STORAGE_EMULATOR_HOST` is asked without.

    Args:
        bucket: its name.
        prefix: the FS's root.
        mpu_chunksize: bytes that are uploaded in one part, at least 5 MiB; a smaller file is one request.
        endpoint: URL of the store; Google's if there is none.
        credentials: the file of a service account's key or of an external account, its content as a mapping, or
            credentials of google-auth.
        impersonate: the service account that these credentials act as.
        access_token: a token as it is, which is not renewed.
        anonymous: send no token.
        requester_pays: the project that pays for requests; True: that of `$GOOGLE_CLOUD_PROJECT`.
        storage_class, cache_control, metadata: of new objects.
        kms_key_name: the key of Cloud KMS that new objects are encrypted by.
        content_type: of new objects; `auto` guesses it by the name.
        connect_timeout, read_timeout: seconds, for each attempt; 10 and 60 unless given.
        max_attempts: how often a request is sent at most; 5 times unless given, and longer where the store throttles.
        verify: the file of trusted certificates, or False to trust any.
        proxies: URLs of proxies by scheme; those of the environment unless given.

    A file is read in the generation that was opened. Mode `x` is safe for files that are written by one request. For
    those that are uploaded in parts the store has no condition: an object is looked for just before the last request.
    Objects that are stored compressed (`Content-Encoding: gzip`) are read as they are stored.
    """

    scheme = "gs"
    dialect: GCSDialect
    _notes = StoreNotes(
        COSTS, {"list": "storage.objects.list", "read": "storage.objects.get", "write": "storage.objects.create"}, True
    )

    def __init__(
        self,
        bucket: str,
        prefix: str | None = None,
        *,
        mpu_chunksize: int = PART_SIZE,
        endpoint: str | None = None,
        credentials: Any = None,
        impersonate: str | None = None,
        access_token: str | None = None,
        anonymous: bool = False,
        requester_pays: bool | str = False,
        storage_class: str | None = None,
        kms_key_name: str | None = None,
        content_type: str | None = None,
        cache_control: str | None = None,
        metadata: Mapping[str, str] | None = None,
        connect_timeout: float | None = None,
        read_timeout: float | None = None,
        max_attempts: int | None = None,
        verify: bool | str | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> None:
        if not bucket or "/" in bucket:
            raise ValueError(f"a URL of Google Cloud Storage names a bucket: gs://bucket/key, not gs://{bucket}/...")
        if mpu_chunksize < MIN_PART_SIZE:
            raise ValueError(f"mpu_chunksize is at least 5 MiB ({MIN_PART_SIZE}), not {mpu_chunksize}")
        given = [name for name, value in (("credentials", credentials), ("access_token", access_token)) if value]
        if len(given) + bool(anonymous) > 1:
            raise ValueError(f"{given[0]}= goes without {'anonymous=' if anonymous else given[1] + '='}")
        _, emulated = url_of(endpoint)
        options = GCSOptions(
            endpoint=endpoint,
            credentials=(json.dumps(dict(credentials), sort_keys=True),)
            if isinstance(credentials, Mapping)
            else credentials,
            impersonate=impersonate,
            access_token=access_token,
            anonymous=anonymous or (emulated and not given),
            requester_pays=requester_pays,
            storage_class=storage_class,
            kms_key_name=kms_key_name,
            content_type=content_type,
            cache_control=cache_control,
            metadata=tuple(sorted((name.lower(), value) for name, value in (metadata or {}).items())),
            connection=ConnectionOptions.of(connect_timeout, read_timeout, max_attempts, verify, proxies),
        )
        super().__init__(GCSDialect(bucket, options), prefix, mpu_chunksize)

    @classmethod
    def options_of_fsspec(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options for those of gcsfs."""
        return of_gcsfs(options)

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self.dialect.bucket

    @property
    def options(self) -> GCSOptions:
        """The options."""
        return self.dialect.options

    def _resolved_store(self) -> str:
        return f"gcs {self.dialect.store_url} {self.bucket}"

    def _principal(self) -> str:
        return access.principal(self.options)

    def _describe_store(self) -> dict[str, str]:
        found = {"bucket": self.bucket, **described(self.dialect.endpoint())}
        if self.options.endpoint is not None or url_of(None)[1]:
            found["endpoint"] += f" ({'option endpoint' if self.options.endpoint else f'${EMULATOR}'})"
        found["credentials"] = access.source(self.options)
        if self.options.impersonate:
            found["acting as"] = self.options.impersonate
        if self.options.project_billed:
            found["project that pays"] = self.options.project_billed
        return found
