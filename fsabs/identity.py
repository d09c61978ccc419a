"""The identity of a blob: what tells one content of one file from every other content, of this file or another.

Whatever outlives a read (caches, records of files, cached indexes, states to resume from) is named here and nowhere
else. An identity is weaker than the thing that it names as soon as one of its parts is: a store as the user spelled it
(two endpoints have the same `s3://bucket/key`), a modification time alone (`cp -p` and `tar -x` set it).
"""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol

TICK = 0.05
"""Seconds after which a filesystem's clock has ticked (every 10 ms at the slowest): two contents that are written
within a tick may have one version, if versions are made of times."""


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


class Store(Protocol):
    """An FS, as far as an identity depends on it."""

    def _resolved_store(self) -> str: ...

    def _url(self, key: str) -> str: ...


class Stat(Protocol):
    """A `FileStat`, as far as an identity depends on it."""

    @property
    def size(self) -> int: ...

    @property
    def version(self) -> str | None: ...


def of(fs: Store, key: str, stat: Stat, namespace: str = "") -> Identity | None:
    """Return the identity of the file `key` of `fs` that has this stat; None if its store tells no version."""
    if stat.version is None:
        return None
    return Identity(fs._resolved_store(), fs._url(key), stat.version, stat.size, namespace)


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

    return hashlib.scrypt(secret, salt=b"fsabs", n=1 << 12, r=8, p=1, dklen=16).hex()


def is_older_than_a_tick(when: float) -> bool:
    """Return whether a time, in seconds since 1970, is so long ago that a clock has ticked since."""
    return time.time() - when > TICK
