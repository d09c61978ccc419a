"""What a store is to the engine: a dialect makes its requests, and says what its responses mean.

A dialect is small: it sends nothing, waits for nothing and keeps no connection. The engine calls it from any thread and
in any process, so that it holds plain data alone, and pickles. Two kinds of methods are in it. Those of the *store*
(`access`, `failure`, `check`, `version`, `mismatch`) depend on what `same_client` has, since all FS with one of these
share a client. Those of *objects* make requests, and depend on all options.

A reader needs: `access`, `failure`, `read`, `head`, `page_request`, `page`. What writes has `put`, `remove`, and for
objects of any size the requests of an upload (`begin` to `abort`). The rest has defaults.

`tests/backends/tiny.py` has a small store and its dialect, as an example; `tests/backends/test_objects_faults.py` runs
both dialects through the kit of faults, and takes more.
"""

from __future__ import annotations

import abc
import errno
import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from ...core import errors, keys
from ...core.blobs import Blob
from ...core.ranges import Range
from . import bodies
from .access import Access
from .failures import refused
from .messages import (
    WHOLE,
    Body,
    Found,
    ObjectPage,
    PageQuery,
    Reading,
    Request,
    Response,
    ResponseHead,
    is_number,
)

AUTO = "auto"
"""The content type that is guessed by an object's name."""
EPOCH = datetime.fromtimestamp(0, UTC)


@functools.lru_cache(maxsize=4096)
def _whole_seconds(text: str) -> float | None:
    return float(int(datetime.fromisoformat(text + "+00:00").timestamp())) if text else None


def iso_seconds(text: str) -> float | None:
    """Return the seconds of a time in UTC: whole ones, since some stores list milliseconds where a HEAD has none."""
    return _whole_seconds(text[:19])


def length_of(text: str | None) -> int:
    """Return the length that a header field says; `UnknownSizeError` for anything else."""
    if text is None or not is_number(text):
        raise errors.UnknownSizeError(errno.EBADMSG, "a response that doesn't say how long the object is")
    return int(text)


def written_at(head: ResponseHead) -> datetime:
    """Return when the object was written that a response is about, by its Last-Modified; `EPOCH` if it doesn't say."""
    try:
        return parsedate_to_datetime(head.header(b"last-modified") or "")
    except (ValueError, TypeError):
        return EPOCH


class PartOf(NamedTuple):
    """A part of an upload, by its number, from 1 on."""

    key: str
    upload: str
    number: int


class Dialect(abc.ABC):
    """One kind of store, for one bucket, with the options of an FS."""

    scheme: str = ""
    """Of URLs."""
    name: str = ""
    """The name of the kind of store: spans and events in traces begin with it, as those of its FS do."""
    bucket: str
    safe: str = "/~"
    """The characters that a key has in a path as they are, beside letters, digits and `_.-`."""
    accept_encoding: str = "identity"
    """The encodings in which a response is accepted; it is kept as it comes."""
    ordered: bool = True
    """Whether the store lists keys in their order, those with any prefix, and from behind any string
    (`PageQuery.after`)."""
    lists_all: bool = True
    """Whether a listing shows all that there is: some leave out the mark of the listed directory, which is the empty
    object whose key is the prefix, or what is below a key that has an object."""
    user_agent: str = ""
    """The value of the header field of that name; without one there is no such field."""
    sent_with_objects: tuple[bytes, ...] = ()
    """The header fields (lower case) that the store sends with each object, for a GET and a HEAD, as its documentation
    says: a response without them comes from something else."""
    keeps_content: bool = False
    """Whether the store sends objects as they are stored, with their length and a strong ETag."""
    has_directories: bool = False
    """Whether an object may be a directory, as `is_directory` says."""
    checks_writes: bool = False
    """Whether written bodies carry a checksum, which the store verifies."""
    copies_like: bool = False
    """Whether `copy` takes the response to a `head` of the object."""
    max_parts: int = 10_000
    """Of an upload."""
    max_removed: int = 1000
    """The keys that one request removes at most."""

    # ---- the store

    @abc.abstractmethod
    def same_client(self) -> Hashable:
        """Return what two FS must have in common to share connections: store, bucket, credentials, limits."""

    def load(self) -> None:  # noqa: B027 - it may need nothing
        """Import all that requests need: a child that is forked in the middle of an import can't import it any more."""

    @abc.abstractmethod
    def access(self) -> Access:
        """Return this process's access to the bucket; called once in each process. `OSError` without credentials."""

    def failure(self, request: Request, head: ResponseHead, body: bytes) -> Exception:
        """Return what a response with a status of 300 and above stands for.

        An `OSError`, a `Transient` for what may be sent again (`Throttled` where the store asks for fewer requests), a
        `Moved` if the bucket is elsewhere, a `Redirected` if this request is answered elsewhere, or an `Expired` if
        credentials should be read anew. Statuses that all stores share are those of `failures.refused`.
        """
        return refused(head, "", "")

    def check(self, request: Request, head: ResponseHead, body: bytes) -> Exception | None:
        """Return what a response with a status below 300 stands for, if that is no success of the request.

        A `Mismatch` for one that answers something else (a page of a proxy, another object's), and what `failure`
        returns for an error that has the status of a success. Status, range, length, version and checksum of what is
        read have been checked by then.
        """
        return None

    def version(self, head: ResponseHead) -> str | None:
        """Return the version of the object that a response is about: by default, its ETag, a weak one without `W/`."""
        etag = head.header(b"etag")
        return etag.removeprefix("W/").strip('"') if etag else None

    def is_directory(self, head: ResponseHead) -> bool:
        """Return whether what a response is about is a directory; for a dialect that `has_directories`."""
        return False

    def has_checksum(self, head: ResponseHead) -> bool:
        """Return whether a response has a checksum of the whole object."""
        return False

    def mismatch(self, head: ResponseHead, pieces: Iterable[bytes]) -> str | None:
        """Return how a whole object's bytes differ from a checksum in the response's head; None if they don't."""
        return None

    def differs(self, digest: str, pieces: Iterable[bytes]) -> str | None:
        """Return how a whole object's bytes differ from the digest that its request has; None if they don't."""
        return None

    # ---- reading

    def url(self, key: str) -> str:
        """Return the URL of an object, for errors and traces."""
        return f"{self.scheme}://{self.bucket}/{keys.to_url_path(key)}"

    @abc.abstractmethod
    def read(self, key: str, wanted: Reading = WHOLE) -> Request:
        """Return the GET of an object, or of a range of one version of it.

        The engine adds the header field for the range; that for the version (If-Match) is the dialect's.
        """

    @abc.abstractmethod
    def head(self, key: str) -> Request:
        """Return the request for what `found` returns of an object: a HEAD, or a GET that is `about` it."""

    def found(self, response: Response, total: int | None = None) -> Found:
        """Return what the response to a `head` says. `UnknownSizeError` if that is not how long the object is, unless
        another one has said so (`total`).
        """
        head = response.head
        size = length_of(head.header(b"content-length")) if total is None else total
        return Found(size, written_at(head), self.version(head))

    # ---- listing

    @abc.abstractmethod
    def page_request(self, query: PageQuery) -> Request:
        """Return the request for a page of keys."""

    @abc.abstractmethod
    def page(self, prefix: str, response: Response) -> ObjectPage:
        """Return what a response to `page_request` has. `CorruptFileError` for what is no page of that prefix."""

    seconds: Callable[[str], float | None] = staticmethod(iso_seconds)
    """Returns the seconds since 1970 of a time on a page, None for an empty text."""

    # ---- writing

    def check_writable(self, key: str, below: bool = False) -> None:  # noqa: B027
        """Raise an `OSError` for an object that this FS must not write; `below`: if any begins with `key`."""

    def put(self, key: str, body: Body, exclusive: bool = False, mark: str = "", version: str = "") -> Request:
        """Return the request that makes a whole object.

        Args:
            key: of the object.
            body: its content.
            exclusive: whether the store refuses it, with `StaleFileError`, if there is an object.
            version: if given, the store refuses it in the same way unless the object has this version.
            mark: kept with the object, for `mark_of`: it shows, after a response that was lost, whose the object is.
        """
        raise NotImplementedError

    def mark_of(self, response: Response) -> str | None:
        """Return the mark that an object was written with, from the response to a `head`."""
        return None

    def remove(self, key: str) -> Request:
        """Return the request that removes an object; that there is none is no failure."""
        raise NotImplementedError

    def remove_many(self, keys: Sequence[str], access: Access) -> tuple[Request | None, Sequence[str]]:
        """Return the request that removes objects, up to `max_removed`, and those that need one of their own.

        `access` is that of the moment, for a store that wants each removal in it to be authorised.
        """
        return None, keys

    def not_removed(self, keys: Sequence[str], response: Response) -> Sequence[str]:
        """Return which of the `keys` of a `remove_many` were not removed: `remove` then raises the reason.

        By default, those whose part of a batch is no success, or missing.
        """
        return bodies.not_removed(keys, response.body)

    def can_copy_from(self, source: Dialect) -> bool:
        """Return whether the store copies from a bucket: one that the same user reads, by the same options."""
        return False

    def copy(self, source: Dialect, src: str, dst: str, like: Response | None = None) -> Request | None:
        """Return the request that copies an object of `source`, a dialect of the same store, with all that belongs to
        it; None where the store copies nothing.

        `like` is the response to a `head` of the object, where the dialect `copies_like` it.
        `failure` says ENOTSUP where it can't copy this object, which is then read and written, and EFBIG for one that
        it copies in parts only.
        """
        return None

    def copied(self, request: Request, response: Response) -> tuple[Request, float] | None:
        """Return the request that goes on with a copy, and the seconds to wait before it; None if the copy is done."""
        return None

    # ---- objects of any size: an upload of parts, which are sent in any order and become visible together; by default
    # with the messages that S3 has

    def begin(self, key: str, mark: str, like: Response | None = None, tags: str = "") -> Request | None:
        """Return the request that begins an upload; None if its first part does: its name is then the mark.

        `like`, a response to `head`, and `tags` are of the object that it copies.
        """
        raise NotImplementedError

    def about_upload(
        self, method: str, key: str, query: str, headers: tuple[str, ...] = (), body: Body = b"", slow: bool = False
    ) -> Request:
        """Return a request about an upload that has begun: that completes or aborts it."""
        raise NotImplementedError

    def begun(self, response: Response) -> str:
        """Return the name of the upload that a response has begun."""
        return bodies.unescaped(bodies.text_of(response.body, b"UploadId"))

    def part(self, part: PartOf, body: Body) -> Request:
        """Return the request that sends a part."""
        raise NotImplementedError

    def copied_part(self, source: Dialect, src: str, version: str | None, part: Range, into: PartOf) -> Request:
        """Return the request that copies a range of an object as a part."""
        raise NotImplementedError

    def receipt(self, number: int, request: Request, response: Response) -> str:
        """Return what `complete` needs of a part that was sent."""
        return bodies.part_element(number, response.head.header(b"etag") or "", None)

    def complete(self, key: str, upload: str, receipts: Sequence[str], exclusive: bool) -> Request:
        """Return the request that makes the object of all parts."""
        condition, body = ("if-none-match:*",) if exclusive else (), bodies.completion(receipts)
        return self.about_upload("POST", key, bodies.query_of(uploadId=upload), condition, body, slow=True)

    def abort(self, key: str, upload: str) -> Request | None:
        """Return the request that removes an upload and its parts; None where the store does so by itself."""
        return self.about_upload("DELETE", key, bodies.query_of(uploadId=upload))

    def uploads(self, prefix: str, token: Any) -> Request | None:
        """Return the request for a page of the uploads under way; None where the store doesn't tell."""
        return None

    def tags(self, key: str) -> Request | None:
        """Return the request for an object's tags; None where it has none."""
        return None

    def tags_of(self, response: Response) -> str:
        """Return the tags of a response, as `begin` takes them."""
        return ""

    # ---- what depends on options

    def has_content(self, version: str, blob: Blob, part_size: int) -> bool | None:
        """Return whether the version of a whole object is one of this content; None if versions don't say.

        False is for versions that are digests, as `has_digest` knows.
        """
        return None

    def has_digest(self, head: ResponseHead) -> bool:
        """Return whether a version is a digest of the content, from the response to a `head` of the object."""
        return True

    def same_content(self, version: str, other: str) -> bool | None:
        """Return whether two versions, in stores of this kind, are of equal contents; None if versions don't say."""
        return None


# ---- the content types of objects: as given, or guessed by their names


def content_type_of(key: str, option: str | None) -> str | None:
    """Return the content type of a new object; None where the store chooses it."""
    return option if option != AUTO else _guessed(key)


def _guessed(key: str) -> str | None:
    name = keys.name(key)
    at = name.rfind(".", 1)
    return _type_of_suffix(name[at:].lower()) if at > 0 else None


@functools.lru_cache(maxsize=1024)
def _type_of_suffix(suffix: str) -> str | None:
    import mimetypes

    types = mimetypes.MimeTypes()  # without the files of this host: a name has one type everywhere
    found, encoding = types.guess_type(f"name{suffix}", strict=False)
    return found if encoding is None else None  # of compressed data: the type is that of the content
