"""Writing objects: one request, or an upload whose parts are in flight while the next one is filled; and many at once.

Small contents are written from one request pipeline, large ones by a thread each. The caller's iterable is used in the
caller's thread alone.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import secrets
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...core import errors, writemany
from ...core.writing import Writer
from .messages import Body, Pieces, Request, Response
from .pipeline import send_many
from .uploads import Upload, is_marked, part_size

if TYPE_CHECKING:
    from .store import ObjectStore

SMALL_PIECE = 64 * 1024
"""Bytes below which a piece that is written is joined with its neighbours."""
LARGE_PIECE = 256 * 1024
"""Bytes of a joined piece, at least, before the next one is begun."""
MAX_PIPELINED = 2 * 1024**2
"""Contents of up to so many bytes are sent by a pipeline; larger ones take a thread each."""


def put(fs: ObjectStore, key: str, body: Body) -> None:
    """Make `body` the content of an object."""
    fs.dialect.check_writable(key)
    fs.send(fs.dialect.put(key, body))


def put_new(fs: ObjectStore, key: str, body: Body) -> None:
    """Make a new object; `FileExistsError` if there is one."""
    fs.dialect.check_writable(key)
    mark = secrets.token_hex(12)
    try:
        fs.send(fs.dialect.put(key, body, exclusive=True, mark=mark))
    except errors.StaleFileError as exc:
        if not is_marked(fs, key, mark):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from exc


def put_if(fs: ObjectStore, key: str, body: Body, version: str) -> None:
    """Replace an object that has still this version; `StaleFileError` if not."""
    fs.dialect.check_writable(key)
    mark = secrets.token_hex(12)
    try:
        fs.send(fs.dialect.put(key, body, mark=mark, version=version))
    except FileNotFoundError as exc:
        raise errors.StaleFileError(errno.ESTALE, "the object was removed") from exc
    except errors.StaleFileError:
        if not is_marked(fs, key, mark):  # else only the response had been lost
            raise


# ---- one, of any size


class StoreWriter(Writer):
    """Collects a part in memory: one PUT if there is only one, else a multipart upload, completed at `commit`.

    Large `bytes` objects are neither copied nor joined. An upload that is `kept` is continued by the next copy of the
    same content if this process is killed.
    """

    takes_views = True
    keeps_bytes = True

    def __init__(
        self, fs: ObjectStore, key: str, exclusive: bool, chunk: int, upload: Upload | None = None, kept: bool = False
    ) -> None:
        fs.dialect.check_writable(key)
        self._fs = fs
        self._key = key
        self._exclusive = exclusive
        self._chunk = chunk
        self._pieces: list[bytes | bytearray | memoryview] = []  # of the part; only a bytearray may become longer
        self._size = 0  # of all of them
        self._upload = upload
        self._kept = kept

    def write(self, data: bytes) -> None:
        """Collect `data`; send the parts that are full, when there is more."""
        rest: bytes | memoryview = data
        while len(rest) > (room := self._part_size() - self._size):
            view = memoryview(rest)
            self._collect(view[:room], type(data) is bytes)
            self._send()
            rest = view[room:]
        self._collect(rest, type(data) is bytes)

    def _part_size(self) -> int:
        return part_size(self._upload.count + 1 if self._upload else 1, self._chunk)

    def _collect(self, piece: bytes | memoryview, fixed: bool) -> None:
        """Add a piece to the part; it is copied if it is small, or its memory not `fixed`."""
        pieces, size = self._pieces, len(piece)
        self._size += size
        if size < SMALL_PIECE:
            if not (pieces and isinstance(pieces[-1], bytearray) and len(pieces[-1]) < LARGE_PIECE):
                pieces.append(bytearray())
            pieces[-1] += piece  # type: ignore[operator]
        else:
            pieces.append(piece if fixed else bytes(piece))

    def _body(self) -> Body:
        """Return the part, and begin the next one."""
        pieces, self._pieces, self._size = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else Pieces(pieces)

    def commit(self) -> None:
        """Make the object visible."""
        if self._upload is None:
            (put_new if self._exclusive else put)(self._fs, self._key, self._body())
            return
        if self._size:
            self._send()
        if self._exclusive and self._fs._is(self._key, directory=False):  # for stores that ignore the condition below
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._upload.complete(self._exclusive)
        self._upload = None

    def leave(self) -> None:
        """Keep the parts that the store has, for `uploads.resume`."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.leave()
        self.abort()

    def abort(self) -> None:
        """Abort the upload, so that the store removes its parts."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.abort()
        self._pieces, self._size = [], 0

    def _send(self) -> None:
        body = self._body()
        if self._upload is None:
            self._upload = Upload.create(self._fs, self._key, self._kept)
        self._upload.send_part(body)


# ---- many


def put_many(fs: ObjectStore, pairs: Iterator[writemany.Content], width: int) -> int:
    """Write objects with up to `width` requests in flight; return how many."""
    count, small = 0, width  # contents since the last large one

    def takes_thread(pair: writemany.Content) -> bool:
        """Small ones that are mixed with large ones go with them: else each would wait for the one before it."""
        nonlocal small
        small = 0 if len(pair[1]) > MAX_PIPELINED else small + 1
        return small < width

    for by_threads, group in itertools.groupby(pairs, takes_thread):
        if by_threads:
            count += writemany.in_threads(functools.partial(_put_named, fs), group, width)
        else:
            count += _put_small(fs, group, width)
    return count


def _put_named(fs: ObjectStore, key: str, data: bytes) -> None:
    with fs._naming("write_many", key):
        fs._write_bytes(key, data)


def _put_small(fs: ObjectStore, pairs: Iterator[writemany.Content], width: int) -> int:
    """Write objects by one pipeline, in this thread; after a failure no more of them are taken."""
    failures, under_way, count = writemany.Failures(), deque[Request](), 0

    def requests() -> Iterator[Request]:
        try:
            for key, data in pairs:
                if failures:
                    return
                try:
                    fs.dialect.check_writable(key)
                    request = fs.dialect.put(key, data)
                except OSError as exc:
                    fs._named(exc, "write_many", key)
                    raise
                under_way.append(request)
                yield request
        except GeneratorExit:
            raise
        except BaseException as exc:  # of the caller's iterable, too: what is under way still ends
            failures.add(exc)

    with contextlib.closing(send_many(fs.http, requests(), width, ahead=width)) as outcomes:
        for outcome in outcomes:
            request = under_way.popleft()
            if isinstance(outcome, Response):
                count += 1
            else:
                fs._named(outcome, "write_many", request.key)
                failures.add(outcome)
    failures.raise_first()
    return count
