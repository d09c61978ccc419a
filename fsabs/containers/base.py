"""The base of all containers: the file in the parent FS, its URLs, and atomic writing."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import errors, keys
from ..blobs import Blob
from ..files import WriteFile
from ..fs import FS, Capabilities, Path
from ..layers import LayerFS
from ..limits import Limits
from .problems import Problem

if TYPE_CHECKING:
    from typing import Self

READ_ONLY = Capabilities(implied_directories=True, versions=True)


READ_AHEAD = 4
"""A cache admits members that follow one that is read, within the part of the store's `max_gap_bytes` that this is: so
an epoch of small members does not read gaps again of which it has the members already."""


class Container(FS):
    """An FS that is a file of another FS.

    Opened with `r` it reads `self._blob`; opened with `w`, `x` or `a` it writes to `self._out`, a file that becomes
    visible when the container is closed, complete, or never: an exception in its `with` block throws it away.
    """

    modes: str = "r"
    """The modes that the format knows, of `r w x a`."""

    def __init__(self, parent: FS, path: Path, mode: str = "r", limits: Limits | None = None) -> None:
        self._parent = parent
        self.limits = parent.limits if limits is None else limits.checked()
        self._file = parent._key(path, "open_container")
        self._file_url = parent._url(self._file)
        self._mode = mode
        self._owned: list[FS] = []
        self._blob: Blob | None = None
        self._out: WriteFile | None = None
        self.scheme = parent.scheme
        if mode not in ("r", "w", "x", "a"):
            raise ValueError(f"a container's mode is r, w, x or a, not {mode!r}")
        if mode not in self.modes:
            raise parent._unsupported(f"open a {type(self).__name__} with mode {mode!r}", self._file)
        if mode == "r":
            self._blob = self._open_file()
        elif mode == "a" and parent._is(self._file, directory=False):
            self._blob = self._open_file()
            try:
                self._out = parent.open("/" + self._file, "wb")
            except BaseException:
                self._blob.close()
                raise
        else:
            self._out = parent.open("/" + self._file, "xb" if mode == "x" else "wb")

    @property
    def file_url(self) -> str:
        """The full URL of the container's file."""
        return self._file_url

    def own(self, fs: FS) -> None:
        """Have `fs` closed together with this container."""
        self._owned.append(fs)

    def _open_file(self) -> Blob:
        if self._file == "":
            raise errors.error(errno.EISDIR, "open_container", self.file_url)
        try:
            return self._parent._open_blob(self._file)
        except OSError as exc:
            errors.named(exc, "open_container", self.file_url)
            raise

    def _reader(self) -> Blob:
        """The container's bytes; `ValueError` once it is closed."""
        if self._blob is None or self._blob._closed:
            raise ValueError(f"I/O operation on a closed container: {self.file_url}")
        return self._blob

    def _writer(self) -> WriteFile:
        """The file that the container is written to; `ValueError` once it is closed."""
        if self._out is None or self._out.closed:
            raise ValueError(f"I/O operation on a closed container: {self.file_url}")
        return self._out

    def _finish(self) -> None:
        """Write what the format has at its end; called once, before a written container becomes visible."""

    def _close(self) -> None:
        try:
            if self._out is not None and not self._out.closed:
                self._commit(self._out)
        finally:
            if self._blob is not None:
                self._blob.close()
        for fs in self._owned:
            fs.close()

    def _commit(self, out: WriteFile) -> None:
        try:
            if not out.inherited:
                self._finish()
            out.close()
        except BaseException:
            self._abort()
            raise

    def _abort(self) -> None:
        if self._out is not None:
            self._out.abort()
        if self._blob is not None:
            self._blob.close()
        for fs in self._owned:
            fs._abort()

    def _url(self, key: str) -> str:
        return keys.join_url(self._file_url, key) if key else self._file_url

    def _read_many_versioned(
        self, wanted: Sequence[str], concurrency: int | None
    ) -> Iterator[tuple[bytes, str | None]]:
        """Yield contents and versions: a member's is the archive's, which is open."""
        for key, data in zip(wanted, self._read_many(wanted, concurrency), strict=True):
            yield data, self._stat(key).version

    def _resolved_store(self) -> str:
        return self._parent._resolved_store()

    def _principal(self) -> str:
        return self._parent._principal()

    def _describe_store(self) -> dict[str, str]:
        return self._parent._describe_store()

    def left_out(self) -> Sequence[Problem]:
        """Return the members without content: with names that lead out of the container, devices, links to nothing."""
        return ()

    @property
    def parent(self) -> FS:
        """The FS that the container's file is in."""
        return self._parent

    def _is_settled(self, version: str) -> bool:
        """Return whether the archive's version is settled: a member has no other."""
        archive = self._blob.version if self._blob is not None else None
        return archive is not None and self._parent._is_settled(archive)

    def __copy__(self) -> Self:
        """Return the copy that `subfs` starts from: it shares the open file, also of a container that is written."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        if self._out is not None:
            raise TypeError(f"a container opened for writing can't be pickled: {self.file_url}")
        return self.__dict__.copy()

    def __repr__(self) -> str:
        inside = f", {self._root!r}" if self._root else ""
        return f"{type(self).__name__}({self._parent!r}, {self._file!r}{inside})"


class OwningFS(LayerFS):
    """A container whose class is a plain FS, and which is closed together with the FS that it lies in."""

    def __init__(self, inner: FS, owned: FS) -> None:
        super().__init__(inner)
        self._owned = owned

    def _close(self) -> None:
        self.inner._close()
        self._owned.close()

    def _abort(self) -> None:
        self.inner._abort()
        self._owned._abort()

    def __repr__(self) -> str:
        return repr(self.inner)
