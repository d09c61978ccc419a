"""The files of a datacenter at `/pfs/<datacenter>/...`, of which a user writes to one home.

A datacenter is a section of `pfio.ini`; its files are in a directory of any store. `/pfs/<datacenter>/home/<user>` is
the home of a user, and `/pfs/<datacenter>/common` is shared, and read-only. The store decides what a user may read.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..backends import local_trees
from ..backends.local import Local
from ..core import errors, keys
from ..core.fs import FS, FileStat, StrPath
from ..core.layers import LayerFS

if TYPE_CHECKING:
    from typing_extensions import Buffer

Method = TypeVar("Method", bound=Callable[..., Any])

COMMON = "common"
HOME = "home"


def _checked(method: Method, **allowed: bool) -> Method:
    """Return a method of `PfsFS`: that of a layer, for a key that `PfsFS._check` allows with these options."""

    @functools.wraps(method)
    def checked(self: PfsFS, key: str, *args: Any) -> Any:
        return method(self, self._check(key, **allowed), *args)

    return cast("Method", checked)


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
        sub._owns_resources = True  # closing it closes the store's FS
        return sub

    def _url(self, key: str) -> str:
        if not keys.inside(key, self._base):
            return self.inner._url(key)
        return f"pfs://{self._datacenter}/{keys.to_url_path(keys.relative(key, self._base))}"

    @property
    def _shown_as(self) -> str:  # type: ignore[override]
        return self.inner._url(self._base)

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
        if isinstance(self.backing, Local):
            local_trees.check_links(key, self._home, "inside", last=not link)

    # ---- what writes: the inner FS's methods, after the check of every key that they change

    _create = _checked(LayerFS._create)
    _mkdir = _checked(LayerFS._mkdir, home_too=True)
    _remove = _checked(LayerFS._remove, link=True)

    def write_if(self, path: StrPath, data: Buffer, version: str) -> None:
        """Replace a file that has still this `version`, where the store has such a method."""
        self._check(self._file_key(path, "write_if"))
        self._inner_here().write_if(path, data, version)

    def _rename(self, src: str, dst: str) -> None:
        self.inner._rename(self._check(src, link=True), self._check(dst, link=True))

    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        return self.inner._write_many(((self._check(key), data) for key, data in pairs), concurrency)

    def _set(self, key: str, stat: FileStat, /) -> None:
        is_link = stat.link is not None
        self.inner._set(self._check(key, link=is_link, home_too=not is_link), stat)

    def _makedirs(self, key: str, mode: int) -> None:
        self.inner._makedirs(self._check(key, home_too=True), mode)  # what is above the home is made with it

    def _remove_tree(self, key: str, keep: bool = False, /) -> None:
        self.inner._remove_tree(self._check(key, link=not keep, home_too=keep), keep)

    def _copy(self, source: FS, src: str, dst: str, /) -> None:
        super()._copy(source, src, self._check(dst))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r}, {self._datacenter!r}, {self._user!r})"
