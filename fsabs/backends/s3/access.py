"""The bucket as requests need it: its name, the options and headers of requests, and this process's two clients."""

from __future__ import annotations

import abc
from typing import Any

from ...core import Core
from . import checksums
from .boto import load, shared_client
from .client import Client, shared
from .options import S3Options, parse


class BucketAccess(Core):
    """The access to the bucket `bucket`, with the options of `S3`; it is made anew in an unpickled copy."""

    def __init__(self, bucket: str, options: S3Options) -> None:
        self.bucket = bucket
        self.options, self.objects, self.versions = parse(options)
        self._prepare()

    def _prepare(self) -> None:
        load()
        if self.objects.checksum_algorithm is not None:
            checksums.function_of(self.objects.checksum_algorithm)
        self.bucket_headers = self.objects.bucket_headers()
        self.read_headers = self.objects.read_headers()
        self.write_headers = self.objects.write_headers()
        self._client = shared_client(self.options)
        self._http = shared(self._client, self.bucket, self.options)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_client", "_http")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    @property
    def client(self) -> Any:
        """This process's boto3 client."""
        return self._client.get()

    @property
    def http(self) -> Client | None:
        """This process's client for frequent requests; None where only boto3 can reach the bucket."""
        return self._http.get()

    def redirected(self) -> None:
        """Resolve the endpoint again: boto3 has followed a redirect."""
        self._http.redirected()

    @property
    def checksum_algorithm(self) -> str | None:
        """The algorithm of the checksums of written bodies; None if boto3 is configured to send none."""
        if self.objects.checksum_algorithm is not None:
            return self.objects.checksum_algorithm
        client = self.http
        return checksums.DEFAULT if client is None or client.endpoint.checksums else None

    @abc.abstractmethod
    def _no_file(self, key: str) -> OSError:
        """Return the error for a key with no object: it may be a directory, or the bucket may be missing."""
