"""How a process reaches a bucket: its place, the signer of the requests, and credentials that are read anew."""

from __future__ import annotations

import errno

from ..objects.dialect import Access, header_lines
from ..objects.messages import Body
from .endpoint import Place, forget, resolve
from .options import Options
from .signing import Signer


class S3Access(Access):
    """The access to `bucket` with `options`."""

    def __init__(self, bucket: str, options: Options, place: Place) -> None:
        if place.signature is not None and place.credentials is None:
            forget(bucket, options)  # the next one looks for them again
            if options.session is None:
                _forget_client(options)
            raise PermissionError(
                errno.EACCES,
                "no credentials in options, environment, ~/.aws or roles; for a public bucket: anonymous=True",
            )
        self._bucket = bucket
        self._options = options
        self.place = place
        self.endpoint = place.endpoint
        self._signer = Signer(place) if place.signature is not None and place.endpoint.transport is None else None
        if self._signer is not None:
            self.authorise = self._signer.lines  # type: ignore[method-assign]  # a call less for each request

    @classmethod
    def resolved(cls, bucket: str, options: Options) -> S3Access:
        """Return the access to a bucket, as it is configured."""
        return cls(bucket, options, resolve(bucket, options))

    def authorise(self, method: str, path: str, query: str, headers: tuple[str, ...], body: Body) -> str:
        """Return the header lines of a request that is not signed here."""
        return header_lines(headers)

    def presigned(self, method: str, path: str, query: str, seconds: int) -> str:
        """Return the query that allows a request to whoever has it."""
        return self._signer.presigned(method, path, query, seconds) if self._signer is not None else query

    def renewed(self) -> Access | None:
        """Read the credentials anew: those of a file or of a role may be newer."""
        forget(self._bucket, self._options)
        if self.place.signature is None:
            return None
        before = self.place.credentials.get_frozen_credentials()[:3]
        _forget_client(self._options)
        found = S3Access.resolved(self._bucket, self._options)
        return found if found.place.credentials.get_frozen_credentials()[:3] != before else None

    def moved(self, place: str) -> Access | None:
        """Resolve the bucket's address in another region."""
        if place == self.place.region:
            return None
        elsewhere = self._options._replace(region=place)
        return S3Access(self._bucket, self._options, resolve(self._bucket, elsewhere))


def _forget_client(options: Options) -> None:
    """Have boto3, if it has been asked, look for credentials again."""
    import sys

    if (boto := sys.modules.get("fsabs.backends.s3.boto")) is not None:
        boto.forget_credentials(options)
