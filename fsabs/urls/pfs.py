"""The files of a datacenter at `/pfs/<datacenter>/...`, of which a user writes to one home.

A datacenter is a section of `pfio.ini`; its files are in a directory of any store. `/pfs/<datacenter>/home/<user>` is
the home of a user, and `/pfs/<datacenter>/common` is shared, and read-only. The store decides what a user may read.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator

from ..backends import local_trees
from ..backends.local import Local
from ..core import errors, keys
from ..core.blobs import Blob
from ..core.fs import FS
from ..core.layers import LayerFS
from ..core.stats import FileStat
from ..core.writing import Writer

COMMON = "common"
HOME = "home"


class PfsFS(LayerFS):
    """The files of a datacenter; nothing but the home of its user is written to.

    Args:
        inner: the FS of the directory that `home` and `common` are in.
        datacenter: the name of the section.
        user: the user whose home is written to.
    """

    def __init__(self, inner: FS, datacenter: str, user: str) -> None:
        super().__init__(inner)
        self._datacenter = datacenter
        self._base = inner._root
        self._user = user
        self._home = keys.join(self._base, f"{HOME}/{user}")

    @classmethod
    def at(cls, inner: FS, datacenter: str, user: str, path: str) -> PfsFS:
        """Return the FS at `path`, counted from the store's root; at the datacenter's root if it is not below that."""
        fs, key = cls(inner, datacenter, user), keys.normalize(path)
        if not keys.inside(key, fs._base):
            return fs
        sub = fs.subfs("/" + key)
        sub._borrowed = False  # closing it closes the store's FS
        return sub

    def _url(self, key: str) -> str:
        if not keys.inside(key, self._base):
            return self.inner._url(key)
        return f"pfs://{self._datacenter}/{keys.to_url_path(keys.relative(key, self._base))}"

    def _resolved_store(self) -> str:
        return f"{self.inner._resolved_store()} {self.inner._url(self._base)}"

    def _check(self, key: str, link: bool = False, home_too: bool = False) -> str:
        """Return the key of a file or directory that may be changed; `PermissionError` for others.

        With `link`, a symbolic link at `key` is checked, not its target; with `home_too`, the home itself is allowed.
        """
        home = f"/pfs/{self._datacenter}/{HOME}/{self._user}"
        below = keys.relative(key, self._base) if keys.inside(key, self._base) else ""
        if keys.inside(key, self._home):
            if key == self._home and not home_too:
                reason = f"{home} is a home: it can't be replaced or removed"
                raise errors.error(errno.EACCES, "write", self._url(key), reason)
            self._check_home_links(key, link)
            return key
        if keys.inside(below, COMMON):
            reason = f"/pfs/{self._datacenter}/{COMMON} is read by all and written by none"
        elif below.startswith(f"{HOME}/"):
            reason = f"the home of {below.split('/')[1]}"
        else:
            reason = "no home"
        raise errors.error(errno.EACCES, "write", self._url(key), f"{reason}: {self._user} writes to {home}")

    def _check_home_links(self, key: str, link: bool) -> None:
        """Refuse a link of a local home that leads out of it."""
        inner = self.inner
        while isinstance(inner, LayerFS):
            inner = inner.inner
        if isinstance(inner, Local):
            local_trees.check_links(key, self._home, "inside", last=not link)

    # ---- what writes

    def _create(self, key: str, exclusive: bool) -> Writer:
        return self.inner._create(self._check(key), exclusive)

    def _append(self, key: str) -> Writer:
        return self.inner._append(self._check(key))

    def _open_update(self, key: str) -> io.BufferedIOBase:
        return self.inner._open_update(self._check(key))

    def _mkdir(self, key: str, mode: int) -> None:
        self.inner._mkdir(self._check(key, home_too=True), mode)

    def _makedirs(self, key: str, mode: int) -> None:
        self.inner._makedirs(self._check(key, home_too=True), mode)

    def _rename(self, src: str, dst: str) -> None:
        self.inner._rename(self._check(src, link=True), self._check(dst, link=True))

    def _remove(self, key: str) -> None:
        self.inner._remove(self._check(key, link=True))

    def _remove_tree(self, key: str) -> None:
        self.inner._remove_tree(self._check(key, link=True))

    def _empty(self, key: str) -> None:
        self.inner._empty(self._check(key, home_too=True))

    def _write_bytes(self, key: str, data: bytes) -> None:
        self.inner._write_bytes(self._check(key), data)

    def _write_like(self, key: str, data: bytes, stat: FileStat) -> None:
        self.inner._write_like(self._check(key), data, stat)

    def _make_link(self, key: str, target: str) -> None:
        self.inner._make_link(self._check(key, link=True), target)

    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        return self.inner._write_many(((self._check(key), data) for key, data in pairs), concurrency)

    def _copy(self, src: str, dst: str) -> None:
        self.inner._copy(src, self._check(dst))

    def _can_copy_from(self, source: FS) -> bool:
        return self.inner._can_copy_from(source)

    def _copy_from(self, source: FS, src: str, dst: str) -> None:
        self.inner._copy_from(source, src, self._check(dst))

    def _resume(self, key: str, source: Blob) -> tuple[Writer, int]:
        return self.inner._resume(self._check(key), source)

    def _set_modified(self, key: str, when: float) -> None:
        self.inner._set_modified(self._check(key), when)

    def _set_mode(self, key: str, mode: int) -> None:
        self.inner._set_mode(self._check(key, home_too=True), mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r}, {self._datacenter!r}, {self._user!r})"
