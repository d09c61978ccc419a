"""The identity of a blob, which distinguishes one content of one file from every other content of any file;
and the places of files: whether two names lead to one file.

Whatever outlives a read (caches, records of files, cached indexes, states to resume from) is named here and nowhere
else. An identity is weaker than the thing that it names as soon as one of its parts is: a store as the user spelled it
(two endpoints have the same `s3://bucket/key`), a modification time alone (`cp -p` and `tar -x` set it).
"""

from __future__ import annotations

import contextlib
import errno
import time
import unicodedata
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from . import errors, keys, process
from .writing import partial_name

if TYPE_CHECKING:
    from .blobs import Origin
    from .fs import FS

TICK = 0.05
"""Seconds after which a filesystem's clock has ticked (every 10 ms at the slowest): two contents that are written
within a tick may have one version, if versions are made of times."""
COARSE_TICK = 2.0
"""The same of filesystems that keep times in whole seconds, or in every other one (vfat)."""
_UNASKED = 10_000  # names that are kept before the disk is asked whether it tells names apart


class Identity(NamedTuple):
    """The identity of one content of one file."""

    store: str
    """The store, as `FS._resolved_store` gives it."""
    url: str
    """The file's URL, with no secret in it."""
    version: str
    """The version of the content, as the store has it."""
    size: int
    """Bytes."""
    namespace: str = ""
    """A name that the user tells stores apart by."""

    def encode(self, *parts: str | int) -> bytes:
        """Return the identity, and the `parts` of the file that are meant, as bytes that have one reading."""
        return encode(*self, *parts)

    def digest(self, *parts: str | int) -> str:
        """Return 40 hexadecimal digits that stand for the identity and the `parts` of the file."""
        return digest(self.encode(*parts))


class Place(NamedTuple):
    """What a name leads to: names with equal places, however they are spelled, are one file or directory."""

    kind: str
    """The kind of store; places of two kinds are two."""
    store: Hashable
    """The store, resolved: what `FS._resolved_store` gives, or the place of a container's file."""
    name: Hashable
    """The file or directory in the store: a key; on a local disk device and inode."""


def encode(*fields: str | int) -> bytes:
    """Return `fields` as bytes that have one reading: each is preceded by its length."""
    texts = [str(field) for field in fields]
    joined = "".join([f"{len(text)}:{text}," for text in texts])
    if joined.isascii():  # most are, so that their lengths in characters are those in bytes
        return joined.encode()
    found = [text.encode("utf-8", "surrogatepass") for text in texts]
    return b"".join([b"%d:%b," % (len(data), data) for data in found])


def decode(data: bytes) -> list[str]:
    """Return the fields that `encode` has made `data` of; as many as can be read."""
    found, at = [], 0
    while (colon := data.find(b":", at)) >= 0 and data[at:colon].isdigit():
        size = int(data[at:colon])
        found.append(data[colon + 1 : colon + 1 + size].decode("utf-8", "replace"))
        at = colon + size + 2
    return found


def digest(data: bytes) -> str:
    """Return 40 hexadecimal digits that stand for `data`."""
    import hashlib

    return hashlib.blake2b(data, digest_size=20).hexdigest()


def digest_of_secret(secret: bytes) -> str:
    """Return digits that stand for a secret, slow enough to make that guesses can't be tried by the million."""
    import hashlib

    with process.forks_deferred:
        return hashlib.scrypt(secret, salt=b"fsabs", n=1 << 12, r=8, p=1, dklen=16).hex()


def is_older_than_a_tick(*times: float, now: float | None = None) -> bool:
    """Return whether the times of a file, in seconds since 1970, are so long before `now` that its clock has ticked
    since.

    A filesystem whose times are all whole seconds may tick that slowly.
    """
    tick = TICK + COARSE_TICK if TICK >= 0 and all(when % 1 == 0 for when in times) else TICK
    return (time.time() if now is None else now) - max(times) > tick


def same(a: FS, key_a: str, b: FS, key_b: str) -> bool | None:
    """Return whether two names lead to one file or directory; None if that can't be known.

    A local file is known by its device and inode: through links, bind mounts and on disks that fold case. A file of
    another store is known by the resolved store and its key, a member by its container and its name. Two stores that
    only look different (an endpoint with two addresses) can't be told apart by that: if the files there have one name,
    size, time and version, the answer is None. What removes takes that for True.
    """
    one, other = place(a, key_a), place(b, key_b)
    if one == other:
        return True
    if one.kind != other.kind or one.name != other.name:
        return False
    try:
        left, right = a._stat(key_a), b._stat(key_b)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR):
            return False
        raise
    known = left.size, left.version, left.last_modified
    return None if known == (right.size, right.version, right.last_modified) and any(known) else False


def inside(a: FS, key_a: str, b: FS, key_b: str) -> bool:
    """Return whether the name `key_a` leads into the directory, or the container, that `key_b` leads to, or to it."""
    return place(b, key_b) in places(a, key_a)


def store(fs: Origin) -> str:
    """Return the store that the URLs of `fs` are of, as it was resolved: see `FS._resolved_store`."""
    resolved = fs.backing._resolved_store()
    return f"{resolved} {fs._shown_as}" if fs._shown_as else resolved


def principal(fs: FS) -> str:
    """Return the principal that the store of `fs` knows it as, with no secret in it; "" if there is none."""
    return fs.backing._principal()


def place(fs: FS, key: str) -> Place:
    """Return what `key` leads to; of a name that nothing has, what it would be."""
    return fs.backing._place(key)


def places(fs: FS, key: str) -> Iterator[Place]:
    """Yield the places of `key` and of the directories that it lies in, from inside out."""
    return fs.backing._places(key)


def is_strong(fs: Origin, version: str) -> bool:
    """Return whether no later content of a file can have `version`: see `FS._is_strong`."""
    return fs.backing._is_strong(version)


class DistinctNames:
    """The names that one operation writes to an FS, none of which may be another one's file.

    A disk may take names for one that differ in case or Unicode form. It is asked when two such names come, or after
    many names, and nothing is kept where it tells them apart.
    """

    def __init__(self, fs: FS, operation: str) -> None:
        self._fs = fs
        self._operation = operation
        self._seen: dict[str, str] | None = {} if fs.capabilities.links else None  # by their folded forms
        self._parent = ""

    def check(self, key: str) -> str:
        """Return `key`; raise `FileExistsError` if it, or a directory on it, is one with another name before."""
        if self._seen is None:
            return key
        parent = keys.parent(key)
        if parent and parent != self._parent:
            self._parent = self.check(parent)
            if self._seen is None:
                return key
        other = self._seen.setdefault(_folded(key), key)
        if other == key and len(self._seen) == _UNASKED:
            with contextlib.suppress(OSError):  # nothing can be made there: it is asked when two names are alike
                self._ask(parent)
        elif other != key and not self._ask(parent):
            reason = f"{other!r} and {key!r} are one name on this filesystem"
            raise errors.error(errno.EEXIST, self._operation, self._fs._url(key), reason)
        return key

    def _ask(self, folder: str) -> bool:
        """Return whether the disk tells names apart: then nothing more is kept."""
        apart = tells_names_apart(self._fs, folder)
        if apart:
            self._seen = None
        return apart


def _folded(key: str) -> str:
    """Return what all names have in common that a disk may take for one with `key`."""
    if key.isascii():
        return key.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", key).casefold())


def tells_names_apart(fs: FS, folder: str) -> bool:
    """Return whether a directory can have names that differ in case or Unicode form alone.

    One that is missing is as the directory that it would be made in.
    """
    while folder and not fs._is(folder, directory=True):
        folder = keys.parent(folder)
    scratch = keys.join(folder, partial_name("names"))
    made = (scratch, keys.join(scratch, "a\u00e9"))  # directories: to make and to remove them takes no descriptor
    with fs._naming("mkdir", folder):
        try:
            for key in made:
                fs._mkdir(key, 0o700)
            return not any(fs._is(keys.join(scratch, name), directory=None) for name in ("A\u00e9", "ae\u0301"))
        finally:
            for key in reversed(made):
                with contextlib.suppress(FileNotFoundError):  # there was no room for it
                    fs._remove(key)
