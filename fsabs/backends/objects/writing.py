"""Writing objects: one request, or an upload whose parts are in flight while the next one is filled; and many at once.

Small contents are written from one request pipeline, large ones by a thread each. The caller's iterable is used in the
caller's thread alone.

An upload that fails is aborted. One that a killed process has left is shown by the store, which does not say whose it
is: another process, on another host, may be sending its parts. Only its age tells, and only the user's call aborts it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...core import errors, writemany
from ...core.ranges import Range
from ...core.threads import Threads
from ...core.writing import Writer
from .bodies import uploads_page
from .dialect import PartOf
from .failures import GONE, code_of
from .messages import Body, Pieces, Request, Response, StoredUpload
from .pipeline import send_many

if TYPE_CHECKING:
    from .store import ObjectStore

SMALL_PIECE = 64 * 1024
"""Bytes below which a piece that is written is joined with its neighbours."""
LARGE_PIECE = 256 * 1024
"""Bytes of a joined piece, at least, before the next one is begun."""
MAX_PIPELINED = 2 * 1024**2
"""Contents of up to so many bytes are sent by a pipeline; larger ones take a thread each."""
PARTS_IN_FLIGHT = 4
"""Parts of one upload that are sent while the next one is filled."""
COPIED_PART = 512 * 1024**2
"""Bytes of a part that the store copies by itself; there are more where so many parts would be too many."""
SHORTEST_AGE = 24 * 3600.0
"""The age, in seconds, of the youngest upload that may be taken for one that was left over."""


def put(fs: ObjectStore, key: str, body: Body) -> None:
    """Make `body` the content of an object."""
    fs.dialect.check_writable(key)
    fs.send(fs.dialect.put(key, body))


def put_marked(fs: ObjectStore, key: str, body: Body, exclusive: bool = False, version: str = "") -> None:
    """Make an object, `exclusive` if there is none, else `FileExistsError`; or replace one that has still this version,
    else `StaleFileError`."""
    fs.dialect.check_writable(key)
    mark = secrets.token_hex(12)
    with done_once(fs, key, mark, exclusive):
        try:
            fs.send(fs.dialect.put(key, body, exclusive, mark, version))
        except FileNotFoundError as exc:
            if not version:
                raise
            raise errors.StaleFileError(errno.ESTALE, "the object was removed") from exc


@contextlib.contextmanager
def done_once(fs: ObjectStore, key: str, mark: str, exclusive: bool) -> Iterator[None]:
    """Ignore that a request is refused which has made the object with this `mark`: only its first response was lost.

    Where another one is there that was to be new (`exclusive`), raise `FileExistsError`.
    """
    try:
        yield
    except OSError as exc:
        stale = isinstance(exc, errors.StaleFileError)
        if not stale and code_of(exc) != GONE:
            raise
        with contextlib.suppress(OSError):
            if fs.dialect.mark_of(fs.send(fs.dialect.head(key))) == mark:
                return
        if stale and exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from exc
        raise


# ---- one, of any size


class StoreWriter(Writer):
    """Collects a part in memory: one PUT if there is only one, else a multipart upload, completed at `commit`.

    Large `bytes` objects are neither copied nor joined.
    """

    takes_views = True
    keeps_bytes = True

    def __init__(self, fs: ObjectStore, key: str, exclusive: bool, chunk: int) -> None:
        fs.dialect.check_writable(key)
        self._fs = fs
        self._key = key
        self._exclusive = exclusive
        self._chunk = chunk
        self._pieces: list[bytes | bytearray | memoryview] = []  # of the part; only a bytearray may become longer
        self._size = 0  # of all of them
        self._upload: Upload | None = None

    def write(self, data: bytes) -> None:
        """Collect `data`; send the parts that are full, when there is more."""
        rest: bytes | memoryview = data
        while len(rest) > (room := self._chunk - self._size):
            view = memoryview(rest)
            self._collect(view[:room], type(data) is bytes)
            self._send()
            rest = view[room:]
        self._collect(rest, type(data) is bytes)

    def expect(self, size: int) -> None:
        """Plan parts of which there are not too many."""
        self._chunk = part_size(size, self._chunk, self._fs.dialect.max_parts)

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
            if self._exclusive:
                put_marked(self._fs, self._key, self._body(), exclusive=True)
            else:
                put(self._fs, self._key, self._body())
            return
        if self._size:
            self._send()
        if self._exclusive and self._fs._is(self._key, directory=False):  # for stores that ignore the condition below
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._upload.complete(self._exclusive)
        self._upload = None

    def abort(self) -> None:
        """Abort the upload, so that the store removes its parts."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.abort()
        self._pieces, self._size = [], 0

    def _send(self) -> None:
        body = self._body()
        if self._upload is None:
            self._upload = Upload(self._fs, self._key)
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


# ---- uploads of parts


def part_size(size: int, least: int, most: int) -> int:
    """Return the size of the parts of `size` bytes, but for the last one's, so that there are at most `most` of them.

    Some stores take parts of one size only.
    """
    return max(least, -(-size // most))


class Upload:
    """An upload of parts, which is begun at once, and ended by `complete` or `abort`.

    Args:
        fs: of the bucket.
        key: of the object.
        like, tags: of the object that it copies.
    """

    def __init__(self, fs: ObjectStore, key: str, like: Response | None = None, tags: str = "") -> None:
        self._fs = fs
        self._key = key
        self._mark = secrets.token_hex(12)
        request = fs.dialect.begin(key, self._mark, like, tags)
        self._name = self._mark if request is None else fs.dialect.begun(fs.send(request))
        if not self._name:
            raise errors.CorruptFileError(errno.EBADMSG, "the store began an upload and gave it no id")
        self._receipts: list[str] = []
        self._in_flight: deque[Callable[[], str]] = deque()
        self.count = 0
        """Parts so far."""
        self._threads = Threads[str](PARTS_IN_FLIGHT, wait=True)

    def send_part(self, body: Body) -> None:
        """Send the next part, when there is room for it among those in flight; raises what became of an earlier one."""
        self._begin(lambda part: self._fs.dialect.part(part, body))

    def copy_part(self, source: ObjectStore, src: str, version: str | None, range_: Range) -> None:
        """Have the store copy a range of an object as the next part."""
        self._begin(lambda part: self._fs.dialect.copied_part(source.dialect, src, version, range_, part))

    def _begin(self, request: Callable[[PartOf], Request]) -> None:
        if self.count >= self._fs.dialect.max_parts:
            raise OSError(errno.EFBIG, f"more than {self.count} parts: a larger mpu_chunksize reaches further")
        while len(self._in_flight) >= PARTS_IN_FLIGHT:
            self._wait()
        self.count += 1
        self._in_flight.append(self._threads.start(functools.partial(self._sent, self.count, request)))

    def _sent(self, number: int, make: Callable[[PartOf], Request]) -> str:
        """Send the request of a part, and return its receipt."""
        request = make(PartOf(self._key, self._name, number))
        return self._fs.dialect.receipt(number, request, self._fs.send(request))

    def _wait(self) -> None:
        self._receipts.append(self._in_flight.popleft()())

    def complete(self, exclusive: bool) -> None:
        """Wait for the parts in flight, and make the object of all parts."""
        while self._in_flight:
            self._wait()
        with done_once(self._fs, self._key, self._mark, exclusive):
            self._fs.send(self._fs.dialect.complete(self._key, self._name, self._receipts, exclusive))
        self._threads.end()

    def abort(self) -> None:
        """Wait for the parts in flight, and remove them all; what went wrong before is what the user has to see."""
        self._threads.end()
        with contextlib.suppress(OSError):
            _abort_upload(self._fs, self._key, self._name)


def copy_parts(fs: ObjectStore, source: ObjectStore, src: str, dst: str) -> None:
    """Have the store copy an object in parts, with its metadata and tags."""
    head = source.send(source.dialect.head(src))
    size, _, version, _ = source.found_in(src, head)
    asked = source.dialect.tags(src)
    tags = source.dialect.tags_of(source.send(asked)) if asked is not None else ""
    upload = Upload(fs, dst, head, tags)
    try:
        step = part_size(size, COPIED_PART, fs.dialect.max_parts)
        for offset in range(0, size, step):
            upload.copy_part(source, src, version, (min(step, size - offset), offset))
        upload.complete(exclusive=False)
    except BaseException:
        upload.abort()
        raise


# ---- uploads that were left


def uploads_below(fs: ObjectStore, prefix: str) -> Iterator[StoredUpload]:
    """Yield the unfinished uploads of objects whose keys begin with `prefix`."""
    token = None
    while (request := fs.dialect.uploads(prefix, token)) is not None:
        try:
            found, following = uploads_page(fs.send(request))
        except (ValueError, KeyError) as exc:
            raise errors.CorruptFileError(errno.EBADMSG, f"not a page of uploads: {exc}") from exc
        yield from found
        if following is None:
            return
        if following == token:
            raise errors.CorruptFileError(errno.EBADMSG, "a page of uploads repeats its marker")
        token = following


def abort_old(fs: ObjectStore, older_than: float, prefix: str) -> int:
    """Abort the uploads below `prefix` that were begun so many seconds ago; return how many."""
    if not older_than >= SHORTEST_AGE:
        reason = "uploads of programs that run would be aborted, too"
        raise ValueError(f"older_than={older_than} is less than a day ({SHORTEST_AGE:.0f} seconds): {reason}")
    aborted = 0
    for upload in list(uploads_below(fs, prefix)):
        if time.time() - upload.begun >= older_than:
            aborted += _abort_upload(fs, upload.key, upload.name)
    return aborted


def _abort_upload(fs: ObjectStore, key: str, upload: str) -> bool:
    """Abort an upload; return False if it had ended before, or the store removes it by itself."""
    request = fs.dialect.abort(key, upload)
    if request is None:
        return False
    try:
        fs.send(request)
    except OSError as exc:
        if code_of(exc) != GONE:
            raise
        return False
    return True
