"""The FS of a repository on the hub: pinned to a commit, listed once, written by commits.

With `HF_HUB_OFFLINE` nothing is requested: a revision is the commit that it was when it was seen last, and listings are
those that were kept, so that a `cache=` around it can tell which contents it has.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import urllib.parse
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...core import errors, keys
from ...core.blobs import Blob, Hint
from ...core.fs import FS, Capabilities, FileStat, StoreNotes
from ...core.identity import Identity
from ...core.limits import parse_json
from ...core.ranges import Range
from ...core.writing import Writer
from ...disk import indexes
from ..objects import ObjectStore
from ..objects.access import ConnectionOptions, checked_url, described, endpoint_at
from ..objects.failures import code_of
from ..objects.messages import ObjectPage, PageQuery, Reading, Request
from ..objects.reading import StoreBlob
from .access import ENDPOINT, HubOptions, is_offline, principal_of, source_of_token, token_of
from .commits import Branch, HubWriter
from .dialect import DEFAULT_REVISION, HubDialect, Repository, Resolved, is_commit, parse
from .tree import HubFile, Listing, Tree

REFERENCE_KIND = "hub-ref-1"
PAGE = 5_000
"""Entries of a page that a listing is given out by."""
READS = Capabilities(implied_directories=True, versions=True, content_versions=True, stat_is_request=True, commits=True)
WRITES = READS._replace(write=True, exclusive=True, replace=True, rename=True, remove=True)


class Hub(ObjectStore):
    """The repository `repository`, `datasets/ORG/NAME[@REVISION]` for example, below `prefix`.

    It is read at the commit that the revision was when the FS was made, or that the FS itself has made since. Each
    write is a commit, and so are `write_many` and a block of `commit` as a whole; at a commit or a tag it is read only.

    Args:
        repository: what stands between `hf://` and the path in a URL.
        prefix: the FS's root.
        token: a token, or False for none; None: `$HF_TOKEN`, or that of `hf auth login`.
        endpoint: URL of the hub (`$HF_ENDPOINT`).
        connect_timeout, read_timeout: seconds, for each attempt; 10 and 60 unless given.
        max_attempts: how often a request is sent at most; None: 5 times.
        verify: the file of trusted certificates, or False to trust any; None: those of the environment.
        proxies: URLs of proxies by scheme; None: those of the environment.
    """

    scheme = "hf"
    default_concurrency = 32
    capabilities = WRITES
    _splits_authority = True
    _notes = StoreNotes(
        (
            "opening: a request of the API for the commit, unless the revision is one",
            "listing: a request of the API for every 1000 names, once for each commit",
            "an epoch: a request for each file, and once an hour one more (resolve) for its address",
        ),
        {"list": "read access", "read": "read access", "write": "write access"},
        records_requests=True,
    )

    def __init__(
        self,
        repository: str,
        prefix: str | None = None,
        *,
        token: str | bool | None = None,
        endpoint: str | None = None,
        connect_timeout: float | None = None,
        read_timeout: float | None = None,
        max_attempts: int | None = None,
        verify: bool | str | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> None:
        named = parse(repository)
        url = checked_url(endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT)
        connection = ConnectionOptions.of(connect_timeout, read_timeout, max_attempts, verify, proxies)
        options = HubOptions(url, token, connection)
        self._branch = Branch()
        super().__init__(HubDialect(named, named.revision, options), prefix)
        if not is_commit(named.revision):
            with self._naming("open", ""):
                self.dialect = self.dialect.at(self._current_commit())
        if is_commit(named.revision) or is_offline():
            self.capabilities = READS

    @property  # type: ignore[override]
    def dialect(self) -> HubDialect:
        """The requests to the repository, at the commit that is read."""
        return self._branch.dialect

    @dialect.setter
    def dialect(self, dialect: HubDialect) -> None:
        self._branch.dialect = dialect

    @property
    def repository(self) -> Repository:
        """The repository, and the revision that was asked for."""
        return self.dialect.repository

    @property
    def pinned(self) -> str:
        """The commit that is read."""
        return self.dialect.commit

    def _current_commit(self) -> str:
        """Return the commit that the revision is now; the one that it was last where nothing may be requested."""
        if is_offline() and (kept := indexes.load(REFERENCE_KIND, self._reference())) is not None:
            return bytes(kept).decode("ascii")
        revision = self.repository.revision or DEFAULT_REVISION
        request = self.dialect.api(f"revision/{urllib.parse.quote(revision, safe='')}", expand="sha")
        try:
            found = str(parse_json(self.send(request).body)["sha"])
        except (ValueError, KeyError, TypeError) as exc:
            raise errors.corrupt(self._url(""), f"not a description of a repository: {exc}", "open") from None
        if not is_commit(found):
            raise errors.corrupt(self._url(""), f"{found!r} is no commit", "open")
        indexes.save(REFERENCE_KIND, self._reference(), [found.encode()])
        return found

    def _reference(self) -> Identity:
        """Return the name of the commit that the revision was at last, as it is kept."""
        return Identity(self._resolved_store(), self._url(""), "", 0, self._principal())

    def _resolved_store(self) -> str:
        named = self.repository
        return f"hf {self.dialect.options.url} {named.kind}/{named.name}@{named.revision or DEFAULT_REVISION}"

    def _principal(self) -> str:
        return principal_of(token_of(self.dialect.options.token))

    def _describe_store(self) -> dict[str, str]:
        options, named = self.dialect.options, self.repository
        source = "$HF_ENDPOINT" if options.url == os.environ.get("HF_ENDPOINT", "").rstrip("/") else "option endpoint"
        return {
            **described(endpoint_at(options.url, "/", options.connection)),
            "endpoint": f"{options.url} ({'default' if options.url == ENDPOINT else source})",
            "repository": f"{named.kind}/{named.name}",
            "revision": f"{named.revision or DEFAULT_REVISION}, commit {self.pinned}",
            "credentials": source_of_token(options.token),
        }

    # ---- looking: what was listed is asked for no more

    @property
    def _tree(self) -> Tree:
        return self.dialect.tree

    def _listing(self, key: str, recursive: bool) -> Listing:
        return self._tree.listing(key, recursive, functools.partial(self._fetch, self.dialect))

    def _fetch(self, dialect: HubDialect, key: str, recursive: bool) -> Iterator[tuple[str, int, str]]:
        """Yield name, size and digest of what the hub lists in a directory: nothing where there is none."""
        prefix, token = key and key + "/", None
        while True:
            request = dialect.page_request(PageQuery(prefix, not recursive, token))
            try:
                page = dialect.page(prefix, self.send(request))
            except FileNotFoundError as exc:
                if code_of(exc) != "EntryNotFound":
                    raise
                return
            yield from ((name, int(size), digest) for name, _, digest, size in page.objects)
            if not recursive:
                yield from ((name, 0, "") for name in page.prefixes)
            if page.token is None:
                return
            if page.token == token:
                raise errors.CorruptFileError(errno.EBADMSG, "a page of a listing repeats its marker")
            token = page.token

    def _file(self, key: str) -> HubFile | None:
        """Return a file, whether it was listed or is asked for now; None if there is none."""
        tree = self._tree
        known, file = tree.find(key)
        if known:
            return file
        if tree.is_worth_listing(key):
            self._listing(keys.parent(key), False)
            return tree.find(key)[1]
        try:
            response = self.send(self.dialect.head(key))
        except Resolved as exc:
            response = exc.response
        except FileNotFoundError as exc:
            if code_of(exc) != "EntryNotFound":
                raise
            tree.remember(key, None)
            return None
        found = self.found_in(key, response)
        if found.version is None:
            raise OSError(errno.EBADMSG, "a response without the digest of the file")
        file = HubFile(found.size, found.version)
        tree.remember(key, file)
        return file

    def _head(self, key: str) -> FileStat | None:
        file = self._file(key)
        return FileStat(keys.name(key), file.size, version=file.digest) if file is not None else None

    def _any_below(self, key: str) -> bool:
        if not key:
            return True
        found = self._tree.has_directory(key)
        if found is None and self._tree.is_worth_listing(key):
            self._listing(keys.parent(key), False)
            found = self._tree.has_directory(key)
        return found if found is not None else len(self._listing(key, False)) > 0

    def _page(self, query: PageQuery) -> ObjectPage:
        """Return a page out of the listing of a directory."""
        listing = self._listing(query.prefix.rpartition("/")[0], not query.one_level)
        start, limit = query.prefix.encode("utf-8", "surrogateescape"), min(query.most or PAGE, PAGE)
        if query.token is not None:
            at = int(query.token)
        else:
            at = bisect_left(listing, start)
            if query.after is not None:
                at = max(at, bisect_right(listing, query.after.encode("utf-8", "surrogateescape")))
        objects, folders = list[tuple[str, str, str, str]](), list[str]()
        while at < len(listing) and (name := listing[at]).startswith(start):
            if len(objects) + len(folders) == limit:
                return ObjectPage(objects, folders, str(at))
            slash = name.find(b"/", len(start)) + 1 if query.one_level else 0
            if slash:
                folders.append(name[:slash].decode("utf-8", "surrogateescape"))
                at = bisect_left(listing, name[: slash - 1] + b"0", at)  # "0" follows "/": behind what is below it
            else:
                size, digest = listing.file(at)
                objects.append((name.decode("utf-8", "surrogateescape"), "", digest, str(size)))
                at += 1
        return ObjectPage(objects, folders, None)

    # ---- reading

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        file = self._file(key) if key else None
        if file is None:
            raise self._no_file(key)
        return HubBlob(self, key, file.size, file.digest)

    def _read_many(
        self, wanted: Sequence[str], concurrency: int | None = None, versions: bool = False, /
    ) -> Iterator[Any]:
        contents = super()._read_many(wanted, concurrency)
        if not versions:
            return contents
        files = [self._file(key) for key in wanted]
        return ((content, file and file.digest) for content, file in zip(contents, files, strict=True))

    # ---- writing: each change is a commit, see `commits.py`

    def commit(self, message: str, description: str = "") -> contextlib.AbstractContextManager[None]:
        """Make one commit of all that is written, copied, renamed and removed in the block, or none if it raises.

        What is changed in the block is read after it, and can't be copied nor renamed in it (EBUSY). For threads of
        this process, which write through this FS.
        """
        return self._branch.block(self, message, description)

    def _batch(self, message: str) -> contextlib.AbstractContextManager[None]:
        branch = self._branch
        return contextlib.nullcontext() if branch.in_block else branch.block(self, message, "", is_tree=True)

    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        self._branch.check(self, key, exclusive)
        return HubWriter(self, key, exclusive)

    def _write_bytes(self, key: str, data: bytes, like: FileStat | None = None, moved: bool = False, /) -> None:
        self._branch.check(self, key)
        with self._branch.change(self, f"Write {key}") as change:
            change.add(key, data)

    def _write_if(self, key: str, data: bytes, version: str) -> None:
        raise self._unsupported("write_if", key)

    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        count = 0
        with self._branch.change(self, "Write files") as change:
            for key, data in pairs:
                with self._naming("write_many", key):
                    self._branch.check(self, key)
                change.add(key, data)
                count += 1
        return count

    def _mkdir(self, key: str, mode: int) -> None:
        raise self._unsupported("mkdir", key)

    def _remove(self, key: str) -> None:
        if self._file(key) is None:
            code = errno.ENOTEMPTY if self._any_below(key) else errno.ENOENT
            raise OSError(code, os.strerror(code))
        with self._branch.change(self, f"Remove {key}") as change:
            change.remove(key)

    def _remove_tree(self, key: str, keep: bool = False, /) -> None:
        if keep:
            self._remove_members(key)
            return
        with self._branch.change(self, f"Remove {key}") as change:
            change.remove(key + "/")

    def _remove_members(self, key: str) -> None:
        with self._branch.change(self, f"Remove all in {key or 'the repository'}") as change:
            for member in self._list(key):
                path = keys.join(key, member.filename)
                change.remove(path + "/" if member.directory else path)

    def _can_copy_from(self, source: FS) -> bool:
        return isinstance(source, Hub) and source.dialect.options == self.dialect.options

    def _copy(self, source: FS, src: str, dst: str, /) -> None:
        if not self._can_copy_from(source):
            FS._copy(self, source, src, dst)
            return
        assert isinstance(source, Hub)
        if source._file(src) is None:
            raise source._no_file(src)
        source._branch.check_source(src)
        self._branch.check(self, dst)
        with self._branch.change(self, f"Copy {src} to {dst}") as change:
            change.copy(source, src, dst)

    def _rename(self, src: str, dst: str) -> None:
        source = self._stat(src)
        self._branch.check_source(src, source.directory)
        self._rename_target(dst, source)
        self._branch.check(self, dst, directory=source.directory)
        with self._branch.change(self, f"Rename {src} to {dst}") as change:
            if not source.directory:
                change.copy(self, src, dst)
                change.remove(src)
                return
            for member in self._walk(src):
                if not member.directory:
                    change.copy(self, keys.join(src, member.filename), keys.join(dst, member.filename))
            change.remove(src + "/")

    def _same_content(self, version: str, other: str) -> bool | None:
        if version == other:
            return True
        return False if len(version) == len(other) in (40, 64) else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.repository.text!r}, {self._root!r})"


class HubBlob(StoreBlob):
    """A file of one commit, which stays readable when the FS has made another one."""

    __slots__ = ("_dialect",)
    _origin: Hub

    def __init__(self, origin: Hub, key: str, size: int, version: str | None) -> None:
        super().__init__(origin, key, size, version)
        self._dialect = origin.dialect

    def _request(self, part: Range | None, into: memoryview | None = None) -> Request:
        return self._dialect.read(self._key, Reading(part, self.version, self.size, into))
