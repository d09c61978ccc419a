"""A bucket as an FS: its core operations, made of those in the other modules of this folder."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ...core import errors, keys, writemany
from ...core.blobs import Blob, Hint
from ...core.fs import FS, LAST_NAME, Capabilities, FileStat, ListPage, StoreNotes, StrPath
from ...core.threads import Threads
from ...core.writing import Writer
from .. import WRITABLE
from . import listing
from .client import Client, shared
from .dialect import Dialect
from .listing import fetch, prefix_of
from .messages import Found, ObjectPage, PageQuery, Reading, Request, Response
from .pipeline import send_many
from .reading import StoreBlob, get_many, open_from_start, read_whole
from .writing import StoreWriter, abort_old, copy_parts, put, put_many, put_marked

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")
COSTS = (
    "opening: no request",
    "listing: a request for every 1000 names",
    "an epoch: a request for each file, more for large ones",
)
PART_SIZE = 8 * 1024 * 1024
"""Bytes of a part by default: small ones are sent sooner, and their memory, of a few in flight, is used again."""
MAX_LISTINGS = 64
"""Times that a tree is listed which is removed: some stores list nothing below a key that has an object."""
BATCHES = 8
"""Requests to remove many objects that are in flight."""


class ObjectStore(FS):
    """A tree of names over the keys of a bucket, which `dialect` knows; `part_size` bytes are uploaded in one part.

    Directories are common prefixes of keys, or empty objects whose keys end in `/`.
    """

    default_concurrency = 32
    _notes: StoreNotes = StoreNotes(COSTS, records_requests=True)
    capabilities: Capabilities = WRITABLE._replace(
        implied_directories=True, flat_listing=True, content_versions=True, stat_is_request=True
    )

    def __init__(self, dialect: Dialect, prefix: str | None = None, part_size: int = PART_SIZE) -> None:
        self.dialect = dialect
        """What the store is; for code that makes requests of its own."""
        self.part_size = part_size
        self._root = self._cwd = keys.normalize(prefix or "")
        self._clients = shared(dialect)
        dialect.load()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_clients"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._clients = shared(self.dialect)
        self.dialect.load()

    @property
    def http(self) -> Client:
        """This process's client."""
        return self._clients.get()

    @property
    def lists_in_order(self) -> bool:
        """Whether the store lists keys in their order, as far as this process knows."""
        return self.dialect.ordered and self._clients.lists_in_order

    @lists_in_order.setter
    def lists_in_order(self, found: bool) -> None:
        self._clients.lists_in_order = found

    def send(self, request: Request) -> Response:
        """Return the successful response to a request; raises `OSError`, with `status` and `code` for a refusal."""
        return self._clients.get().send(request)

    def _resolved_store(self) -> str:
        endpoint = self.http.endpoint
        return f"{self.scheme} {endpoint.url}{endpoint.bucket_path}"

    def _url(self, key: str) -> str:
        return self.dialect.url(key)

    # ---- looking

    def _stat(self, key: str, follow: bool = True, /) -> FileStat:
        if key and (found := self._head(key)) is not None:
            return found
        if not self._any_below(key) and key and not self._is_marked(key):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return FileStat.of_directory(keys.name(key))

    def _is_marked(self, key: str) -> bool:
        """Return whether there is the mark of a directory, which its own listing does not show."""
        return not self.dialect.lists_all and self._head(key + "/") is not None

    def _found(self, key: str) -> Found:
        return self.found_in(key, self._clients.get().send(self.dialect.head(key)))

    def found_in(self, key: str, response: Response) -> Found:
        """Return what the response to a `head` says of an object; its length is asked for where that doesn't say it."""
        try:
            return self.dialect.found(response)
        except errors.UnknownSizeError as exc:  # of a gateway
            unknown = exc
        try:
            total = self.send(self.dialect.read(key, Reading((1, 0)))).total
        except errors.StaleFileError:  # an empty object has no range
            total = 0
        except errors.CorruptFileError as exc:
            raise unknown from exc
        return self.dialect.found(response, total)

    def _head(self, key: str) -> FileStat | None:
        try:
            size, written, version, directory = self._found(key)
        except FileNotFoundError:
            return None
        if directory:
            return FileStat.of_directory(keys.name(key))
        # Some stores list milliseconds where a HEAD has seconds.
        return FileStat(keys.name(key), size, False, float(int(written.timestamp())), version=version)

    def _any_below(self, key: str) -> bool:
        """Return whether there is any object below `key`; a missing bucket is an error."""
        page = fetch(self, PageQuery(prefix_of(key), most=1))
        return bool(page.objects or page.folders)

    def _page(self, query: PageQuery) -> ObjectPage:
        """Return a page of a listing."""
        return self.dialect.page(query.prefix, self.send(self.dialect.page_request(query)))

    def _list(self, key: str, detail: bool = True, start: str = "", /) -> Iterator[FileStat]:
        if start and self.dialect.ordered:  # others don't look for a part of a name
            return (member for member in listing.level(self, key, start) if member is not None)
        return self._existing(key, listing.level(self, key))

    def _list_page(self, key: str, after: str) -> ListPage | None:
        if not self.lists_in_order:
            return None
        prefix = prefix_of(key)
        page = fetch(self, PageQuery(prefix, after=prefix + after if after else None))
        names = [name[len(prefix) :] for name in page.keys()]  # noqa: SIM118 - not a dictionary
        if not listing.ascends(after, list(filter(None, names))):
            return None  # some stores ignore where a listing is to begin
        listed = zip(names, page.objects, strict=True)
        to_stat = listing.stats_of(self.dialect)
        files = [to_stat(name, entry) for name, entry in listed if listing.is_path(name) and name[-1] != "/"]
        last = max((*names, *(folder[len(prefix) :] for folder in page.folders)), default=after)
        return ListPage(files, LAST_NAME if page.token is None else last)

    def _existing(self, key: str, members: Iterator[T | None]) -> Iterator[T]:
        """`members` without the Nones, which only show that the directory is there; an error if there is nothing."""
        there = not key
        for member in members:
            there = True
            if member is not None:
                yield member
        if not there:
            found = self._head(key)
            if found is None and self._is_marked(key):
                return
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            if not found.directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def _walk(self, key: str, detail: bool = True, after: str = "", /) -> Iterator[Any]:
        if not detail:
            return self._existing(key, listing.walk(self, key, lambda name, _: name, lambda name: name + "/", after))
        return self._existing(
            key, listing.walk(self, key, listing.stats_of(self.dialect), FileStat.of_directory, after)
        )

    def _unnamed(self, key: str) -> Iterator[str]:
        return listing.unnamed(self, key)

    # ---- reading

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        if stat is not None and stat.version is not None:
            return StoreBlob(self, key, stat.size, stat.version)
        try:
            if key and hint is not Hint.ANY and (blob := open_from_start(self, key)) is not None:
                return blob
            found = self._found(key) if key else None
        except FileNotFoundError:
            found = None
        if found is None or found.directory:
            raise self._no_file(key)
        return StoreBlob(self, key, found.size, found.version)

    def _read_many(
        self, wanted: Sequence[str], concurrency: int | None = None, versions: bool = False, /
    ) -> Iterator[Any]:
        width = min(concurrency or self.default_concurrency, len(wanted))
        if width <= 1 or not all(wanted):
            if versions:
                return super()._read_many(wanted, concurrency, True)
            return self._read_each(functools.partial(read_whole, self), wanted, concurrency)
        if not versions:
            return get_many(self, wanted, width, lambda response: response.body)
        version = self.dialect.version
        return get_many(self, wanted, width, lambda response: (response.body, version(response.head)))

    def _no_file(self, key: str) -> OSError:
        code = errno.EISDIR if self._any_below(key) or not key else errno.ENOENT
        return OSError(code, os.strerror(code))

    # ---- writing

    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        if exclusive and self._head(key) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        return StoreWriter(self, key, exclusive, self.part_size)

    def _write_bytes(self, key: str, data: bytes, like: FileStat | None = None, moved: bool = False, /) -> None:
        if len(data) <= self.part_size:
            put(self, key, data)
        else:
            super()._write_bytes(key, data)

    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        width = concurrency or self.default_concurrency
        if width == 1:
            return super()._write_many(pairs, concurrency)
        return put_many(self, pairs, width)

    def write_if(self, path: StrPath, data: Buffer, version: str) -> None:
        """Replace a file that has still this `version`, as `stat(path).version` says; `StaleFileError` if not."""
        key = self._file_key(path, "write_if")
        self._require("write", "write_if", key)
        if key in ("", self._root):
            raise errors.error(errno.EISDIR, "write_if", self._url(key))
        with self._naming("write_if", key):
            self._write_if(key, writemany.content_of(path, data), version)

    def _write_if(self, key: str, data: bytes, version: str) -> None:
        put_marked(self, key, data, version=version)

    @property
    def checks_writes(self) -> bool:  # type: ignore[override]
        """True if written bodies carry a checksum, which the store verifies."""
        return self.dialect.checks_writes

    def _mkdir(self, key: str, mode: int) -> None:
        if not key:
            self._any_below(key)  # raises an error if there is no such bucket
        with contextlib.suppress(PermissionError):  # who may write may not look, perhaps
            if not key or self._is(key, directory=None):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        put(self, key + "/", b"")

    def _has_digest(self, key: str) -> bool:
        return self.dialect.has_digest(self.send(self.dialect.head(key)).head)

    def _has_content(self, stat: FileStat, blob: Blob) -> bool | None:
        if stat.version is None or stat.size != blob.size:
            return None if stat.size == blob.size else False
        return self.dialect.has_content(stat.version, blob, self.part_size)

    def _same_content(self, version: str, other: str) -> bool | None:
        return self.dialect.same_content(version, other)

    # ---- removing

    def _remove(self, key: str) -> None:
        found = self._head(key)
        if found is None or found.directory:
            page = fetch(self, PageQuery(key + "/", most=2))
            below = [name for name in page.keys() if name != key + "/"]  # noqa: SIM118 - not a dictionary
            if page.objects and page.key(0) == key + "/" and page.objects[0][3] != "0":  # no mere mark of a directory
                raise errors.unnamed_left(self._url(key), 1, key + "/")
            if below and not listing.is_path(below[0][len(key) + 1 :]):
                raise errors.unnamed_left(self._url(key), 1, below[0])
            if below:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        self._delete(key if found is not None else f"{key}/")

    def _delete(self, key: str) -> None:
        self.dialect.check_writable(key)
        with contextlib.suppress(FileNotFoundError):  # an attempt that was not answered has removed it, perhaps
            self.send(self.dialect.remove(key))

    def _remove_tree(self, key: str, keep: bool = False, /) -> None:
        self._remove_below(key, prefix_of(key) if keep else "")
        if keep and key and not self._is(key, directory=True):
            self._mkdir(key, 0o777)  # it went with the last file

    def _remove_below(self, key: str, kept: str) -> None:
        """Remove the keys of a tree that paths name, but `kept`; at the end raises an error if there are others."""
        self.dialect.check_writable(prefix_of(key), below=True)
        for _ in range(MAX_LISTINGS):
            there = False
            for names in listing.named(self, key):
                some = [name for name in names if name != kept]
                there = there or bool(some)
                self._delete_batch(some)
            if self.dialect.lists_all:
                return
            if not there:
                if key and not kept:
                    self._delete(prefix_of(key))
                return
        raise OSError(errno.ENOTEMPTY, "more is listed each time that all of it was removed")

    def _delete_batch(self, names: list[str]) -> None:
        """Remove objects, by requests for many where the store has such."""
        dialect = self.dialect
        alone: list[str] = []
        batches: list[tuple[Request, Sequence[str]]] = []
        for some in (names[at : at + dialect.max_removed] for at in range(0, len(names), dialect.max_removed)):
            request, others = dialect.remove_many(some, self.http.access)
            alone.extend(others)
            if request is not None:
                batches.append((request, some))
        with contextlib.closing(send_many(self.http, [request for request, _ in batches], BATCHES)) as outcomes:
            for (_, wanted), outcome in zip(batches, outcomes, strict=True):
                if not isinstance(outcome, Response):
                    self._named(outcome, "remove", wanted[0])
                    try:
                        raise outcome
                    finally:
                        del outcome  # as in `client.Client`
                alone.extend(dialect.not_removed(wanted, outcome))
        with contextlib.closing(send_many(self.http, map(dialect.remove, alone), self.default_concurrency)) as outcomes:
            for name, outcome in zip(alone, outcomes, strict=True):
                if not isinstance(outcome, Response | FileNotFoundError):
                    self._named(outcome, "remove", name)
                    try:
                        raise outcome
                    finally:
                        del outcome  # as in `client.Client`

    # ---- copying

    def _can_copy_from(self, source: FS) -> bool:
        """A bucket of the same store, which the same user reads by the same options."""
        return isinstance(source, ObjectStore) and (
            source is self or (type(source) is type(self) and self.dialect.can_copy_from(source.dialect))
        )

    def _copy(self, source: FS, src: str, dst: str, /) -> None:
        """By the store itself, in parts where the object is large."""
        if not self._can_copy_from(source):
            super()._copy(source, src, dst)
            return
        assert isinstance(source, ObjectStore)
        if source.dialect.has_directories and (found := source._head(src)) is not None and found.directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        self._copy_object(source, src, dst)

    def _copy_object(self, source: ObjectStore, src: str, dst: str) -> None:
        """Copy an object, or the mark of a directory."""
        self.dialect.check_writable(dst)
        try:
            like = source.send(source.dialect.head(src)) if self.dialect.copies_like else None
            request = self.dialect.copy(source.dialect, src, dst, like)
            if request is None:
                raise OSError(errno.ENOTSUP, "the store copies nothing")
            while (following := self.dialect.copied(request, self.send(request))) is not None:
                request, seconds = following
                time.sleep(seconds)
        except FileNotFoundError as exc:
            raise source._no_file(src) from exc
        except OSError as exc:
            if exc.errno == errno.EFBIG:
                copy_parts(self, source, src, dst)
            elif exc.errno == errno.ENOTSUP:  # as Ceph's copy of encrypted objects is
                with source._open_blob(src, Hint.FROM_START) as blob:
                    self._write_blob(dst, blob)
            else:
                raise

    def _rename(self, src: str, dst: str) -> None:
        """By copies and removals: not in one moment. What is interrupted leaves the source whole."""
        self.dialect.check_writable(src)
        if self._any_below(dst):
            self._rename_target(dst, self._stat(src))
        try:
            self._copy(self, src, dst)
        except IsADirectoryError:
            self._rename_target(dst, self._stat(src))
        else:
            self._delete(src)
            return
        self.dialect.check_writable(prefix_of(src), below=True)
        pages = list(listing.named(self, src))  # raises if there are keys that would stay
        if self.dialect.has_directories and self._head(src) is not None:
            pages.append([src])  # its mark
        copy = functools.partial(self._copy_object, self)
        with Threads[None](self.default_concurrency, wait=True) as threads:
            for names in pages:
                copies = [threads.start(functools.partial(copy, name, dst + name[len(src) :])) for name in names]
                for done in copies:
                    done()
        for names in pages:
            self._delete_batch(names)  # and nothing that has come meanwhile, which was not copied

    # ---- uploads that were left

    def abort_uploads(self, older_than: float) -> int:
        """Abort uploads below the FS's root that were begun at least `older_than` seconds ago; return how many.

        Killed writers leave them behind: invisible, but stored. Uploads of programs that still run are aborted, too, on
        whichever host, so that less than a day is a `ValueError`.
        """
        return abort_old(self, older_than, prefix_of(self._root))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dialect.bucket!r}, {self._root!r})"
