"""ManifestFS: the layer that pins a data set to its manifest."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core import errors, keys
from ..core.blobs import Blob, BlobLayer, Hint, Origin
from ..core.fs import FS, Capabilities, FileStat, ListPage
from ..core.layers import LayerFS, list_page
from ..core.lazy import cached_property
from .entries import ManifestEntry
from .formats import Manifest


class ManifestFS(LayerFS):
    """A data set as its manifest has it: read-only, listed and asked for stats without a request of its store.

    A file that is not as the manifest has it raises `StaleFileError` when it is opened or read: its size and version
    are compared, and where there is no version to compare, the digest of what is read from front to back. A file that
    is not in the manifest is not there.

    Args:
        inner: the data set; its root is the directory that the names in the manifest start from.
        manifest: its URL, or an open one.
        below: the path of `inner` in the data set, if it is a directory of that.
    """

    def __init__(self, inner: FS, manifest: str | os.PathLike[str] | Manifest, *, below: str = "") -> None:
        super().__init__(inner)
        self._top = _above(inner, keys.normalize(below))
        self._owned = not isinstance(manifest, Manifest)
        self._manifest = manifest if isinstance(manifest, Manifest) else Manifest(manifest)

    @property
    def manifest(self) -> Manifest:
        """The manifest."""
        return self._manifest

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        """The inner FS's, without those to write; listings are ordered."""
        can = self.inner.capabilities
        return Capabilities(
            implied_directories=can.implied_directories,
            versions=can.versions,
            content_versions=can.content_versions,
            stat_is_request=can.stat_is_request and not self._has_versions,
        )

    @cached_property
    def _has_versions(self) -> bool:
        """Whether the manifest has versions, as far as its first file says."""
        return next((entry.version is not None for entry in self._manifest if not entry.directory), True)

    # ---- stats and listings, of the manifest alone: no link leads anywhere

    _listed_by = FS._listed_by

    def _stat(self, key: str, follow: bool = True, /) -> FileStat:
        name = self._name(key)
        if not name:
            return FileStat.of_directory(keys.name(key))
        entry = self._manifest.find(name)
        if entry is not None:
            return FileStat(keys.name(name), entry.size, version=self._version(key, entry))
        if self._is_directory(name):
            return FileStat.of_directory(keys.name(name))
        above = any(self._manifest.find(ancestor) for ancestor in keys.ancestors(name))
        code = errno.ENOTDIR if above else errno.ENOENT
        raise OSError(code, f"{os.strerror(code)} in the manifest {self._manifest.url}")

    def _is_directory(self, name: str) -> bool:
        following = next(self._manifest.scan(name + "/"), None)
        return following is not None and following.name.startswith(name + "/")

    def _list(self, key: str, detail: bool = True, start: str = "", /) -> Iterator[FileStat]:
        base = self._directory(key)
        entries = self._manifest.scan(base)
        least = base  # that the next name may be: where names are out of order, this might never end
        while (entry := next(entries, None)) is not None and entry.name.startswith(base):
            if entry.name < least:
                raise errors.corrupt(self._manifest.url, f"{entry.name!r} is not in its place", "list")
            name, slash, _ = entry.name[len(base) :].partition("/")
            if slash:
                yield FileStat.of_directory(name)
                least = base + name + "0"  # the character after "/"
                entries = self._manifest.scan(least)
            elif name:
                yield FileStat(name, entry.size, version=entry.version)
                least = entry.name + "\0"

    def _walk(self, key: str, detail: bool = True, after: str = "", /) -> Iterator[FileStat]:
        base = self._directory(key)
        before = ""
        for entry in self._manifest.scan(base):
            if not entry.name.startswith(base):
                return
            name = entry.name[len(base) :]
            for ancestor in keys.ancestors(name):
                if not before.startswith(ancestor + "/"):
                    yield FileStat.of_directory(ancestor)
            if not entry.directory:
                yield FileStat(name, entry.size, version=entry.version)
            before = name

    def _version(self, key: str, entry: ManifestEntry) -> str | None:
        """Return the version that the store has to have; without one, what it has. A digest is none: it is a claim."""
        if entry.version is not None or not self.inner.capabilities.versions:
            return entry.version
        found = self.inner._stat(key)
        self._compare(key, entry, found.size, found.version)
        return found.version

    def _list_page(self, key: str, after: str) -> ListPage | None:
        """Return the store's page without the files that differ from the manifest; None if that has versions."""
        page = None if self._has_versions else list_page(self.inner, key, after)
        if page is None:
            return None

        def is_listed(stat: FileStat) -> bool:
            entry = self._manifest.find(self._name(keys.join(key, stat.filename)))
            return entry is not None and entry.size == stat.size

        return page._replace(files=list(filter(is_listed, page.files)))

    def _directory(self, key: str) -> str:
        """Return the beginning of the names in the directory `key`."""
        if not self._stat(key).directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        name = self._name(key)
        return name + "/" if name else ""

    # ---- contents

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        entry = self._entry(key)
        blob = self.inner._open_blob(key, Hint.FROM_START if hint is Hint.FILE else hint)  # its version is compared
        try:
            self._compare(key, entry, blob.size, blob.version)
        except BaseException:
            blob.close()
            raise
        return ManifestBlob(self, key, blob, entry)

    def _read_many(
        self, wanted: Sequence[str], concurrency: int | None = None, versions: bool = False, /
    ) -> Iterator[Any]:
        contents = self._compared_contents(wanted, concurrency)
        return contents if versions else (content for content, _ in contents)

    def _compared_contents(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[tuple[bytes, str | None]]:
        entries: list[ManifestEntry] = []
        missing: OSError | None = None
        for key in wanted:
            try:
                entries.append(self._entry(key))
            except OSError as exc:  # of the first file that can't be read; those before it can
                missing = exc
                break
        contents = self.inner._read_many(wanted[: len(entries)], concurrency, True) if entries else iter(())
        for (content, version), key, entry in zip(contents, wanted, entries, strict=False):  # to the end of `contents`
            self._compare(key, entry, len(content), version)
            self._compare_content(key, entry, version, content)
            yield content, version
        if missing is not None:
            raise missing

    def _entry(self, key: str) -> ManifestEntry:
        """Return the entry of a file; `FileNotFoundError`, `IsADirectoryError`."""
        entry = self._manifest.find(self._name(key)) if self._name(key) else None
        if entry is None:
            if self._stat(key).directory:
                raise errors.error(errno.EISDIR, "open", self._url(key))
            raise errors.error(errno.ENOENT, "open", self._url(key))
        return entry

    def _compare(self, key: str, entry: ManifestEntry, size: int, version: str | None) -> None:
        if reason := entry.difference(size, version):
            raise self._drift(key, reason)

    def _compare_content(self, key: str, entry: ManifestEntry, version: str | None, content: bytes) -> None:
        compared = self._digest_to_compare(entry, version)
        if compared is not None:
            compared.update(content)
            self._compare_digest(key, entry, compared.hexdigest())

    def _digest_to_compare(self, entry: ManifestEntry, version: str | None) -> Any:
        """Return what computes the digest of a content; None if there is none to compare, or the version was."""
        if entry.digest is None or None not in (entry.version, version):
            return None
        return hashlib.new(entry.digest.partition(":")[0], usedforsecurity=False)

    def _compare_digest(self, key: str, entry: ManifestEntry, digits: str) -> None:
        assert entry.digest is not None
        found = f"{entry.digest.partition(':')[0]}:{digits}"
        if found != entry.digest:
            raise self._drift(key, f"{found}, {entry.digest} in the manifest")

    def _compared(self, key: str, blob: Blob) -> Blob:
        entry = self._entry(key)
        if self._digest_to_compare(entry, blob.version) is None:
            return blob
        return ManifestBlob(self, key, blob, entry, blob._origin)

    def _drift(self, key: str, reason: str) -> errors.StaleFileError:
        return errors.stale(self._url(key), f"the file has changed: {reason} {self._manifest.url}", "open")

    def _name(self, key: str) -> str:
        return keys.relative(key, self._top) if key != self._top else ""

    def _close(self) -> None:
        if self._owned:
            self._manifest.close()
        super()._close()

    def _abort(self) -> None:
        if self._owned:
            self._manifest.close()
        super()._abort()

    def __repr__(self) -> str:
        return f"ManifestFS({self.inner!r}, {self._manifest.url!r})"


class ManifestBlob(BlobLayer):
    """A file of a data set that is as the manifest has it; what is read from front to back is compared with its digest.

    Each read that adjoins or overlaps the earlier ones updates a running digest, which is compared before the last
    bytes are returned.
    """

    __slots__ = ("_digested", "_entry", "_pinned", "_running")

    def __init__(
        self, pinned: ManifestFS, key: str, inner: Blob, entry: ManifestEntry, origin: Origin | None = None
    ) -> None:
        super().__init__(origin or pinned, key, inner, inner.size, inner.version)
        self._pinned = pinned
        self._entry = entry
        self._digested = 0  # the bytes from the start that are in the digest
        self._running: dict[int, Any] = {}  # that digest, by their number; one thread alone can pop it

    def _pread(self, size: int, offset: int) -> bytes:
        data = self._inner.pread(size, offset)
        self._compare(data, offset)
        return data

    def _pread_into(self, view: memoryview, offset: int) -> int:
        size = self._inner.pread_into(view, offset)
        self._compare(view[:size], offset)
        return size

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        found = self._inner.pread_many(ranges)
        for (_, offset), data in zip(ranges, found, strict=True):
            self._compare(data, offset)
        return found

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        stream = self._inner._stream(start)
        return stream if stream is None else self._checked(stream, start)

    def _checked(self, stream: Iterator[memoryview], at: int) -> Iterator[memoryview]:
        """Yield the pieces of a stream, the last one after the digest is compared."""
        running = self._digest_before(at)
        for piece in stream:
            at += len(piece)
            if running is not None:
                self._extend(running, piece, at)
            yield piece

    def _compare(self, data: bytes | memoryview, offset: int) -> None:
        """Update the digest, if it covers all bytes before `offset`; a read from the start begins a new one."""
        at, end = self._digested if offset else 0, offset + len(data)
        if offset <= at < end and (running := self._digest_before(at)) is not None:
            self._extend(running, memoryview(data)[at - offset :], end)
            self._running, self._digested = {end: running}, end

    def _digest_before(self, offset: int) -> Any:
        """Return the digest of all before `offset`; None if it isn't known, or none is compared."""
        if offset:
            return self._running.pop(offset, None)
        return self._pinned._digest_to_compare(self._entry, self._inner.version)

    def _extend(self, running: Any, data: bytes | memoryview, end: int) -> None:
        running.update(data)
        if end == self.size:
            self._pinned._compare_digest(self._key, self._entry, running.hexdigest())


def _above(fs: FS, below: str) -> str:
    """Return the key of the directory that has the root of `fs` at the path `below`."""
    if not below or fs._root == below:
        return "" if below else fs._root
    if not fs._root.endswith("/" + below):
        raise ValueError(f"the manifest is of a tree that {fs.url()} is not the directory {below!r} of")
    return fs._root[: -len(below) - 1]


def pinned(fs: FS, option: Any) -> FS:
    """Return `fs` pinned to a manifest: its URL, a `Manifest`, or a mapping of the arguments `url` and `below`.

    `below` is the path of `fs` in the data set that the manifest is of.
    """
    if isinstance(option, str) and option.strip().lower() in ("", "false", "none"):
        return fs
    arguments = dict(option) if isinstance(option, Mapping) else {"url": option}
    manifest, below = arguments.pop("url", None), arguments.pop("below", "")
    if arguments or not isinstance(manifest, str | os.PathLike | Manifest):
        raise TypeError(f"manifest is a URL, a Manifest, or a mapping of url and below, not {option!r}")
    if not fs.capabilities.read:
        raise ValueError(f"manifest= pins what is read, and {fs.url()} is being written")
    return ManifestFS(fs, manifest, below=below)
