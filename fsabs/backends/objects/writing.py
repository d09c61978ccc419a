"""Writing objects: one request, or an upload whose parts are in flight while the next one is filled; and many at once.

Small contents are written from one request pipeline, large ones by a thread each. The caller's iterable is used in the
caller's thread alone.

A store shows an unfinished upload without saying whose it is: another process, on another host, may be sending its
parts. So each is recorded in a file in the cache directory, which its process locks as long as it sends, and touches
with each part; nothing without a record is continued or aborted. A copy that was interrupted is continued by the next
one of the same content to the same key, as far as each part has the bytes of the file, by the MD5 that some stores give
a part. A record that no process has touched for a day is a leftover, as a partial file is: its upload is aborted.

Nothing rests on the lock, which some filesystems don't have: of two processes that send the parts of one upload only
one completes it, and only with the parts that it has seen. Without a cache directory nothing is recorded.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import itertools
import json
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ...core import errors, identity, writemany
from ...core.blobs import Blob
from ...core.limits import parse_json
from ...core.ranges import Range
from ...core.threads import Threads
from ...core.writing import Writer
from ...disk.descriptors import write_all
from ...disk.files import LEFTOVER_SECONDS
from ...disk.folders import Folder, cache_directory
from .bodies import uploads_page
from .dialect import PartOf
from .failures import GONE, code_of
from .messages import Body, Pieces, Request, Response, StoredPart, StoredUpload
from .pipeline import send_many

if TYPE_CHECKING:
    from .store import ObjectStore

T = TypeVar("T")
SMALL_PIECE = 64 * 1024
"""Bytes below which a piece that is written is joined with its neighbours."""
LARGE_PIECE = 256 * 1024
"""Bytes of a joined piece, at least, before the next one is begun."""
MAX_PIPELINED = 2 * 1024**2
"""Contents of up to so many bytes are sent by a pipeline; larger ones take a thread each."""
MAX_PART_SIZE = 5 * 1024**3
PARTS_IN_FLIGHT = 4
"""Parts of one upload that are sent while the next one is filled."""
COPIED_PART = 512 * 1024**2
"""Bytes of a part that the store copies by itself; there are more where so many parts would be too many."""
CREATION_SECONDS = 1800.0
"""The creation of an upload takes less, with what the clocks of a store and of this host differ by at most."""
MAX_RECORD_SECONDS = 30 * 24 * 3600.0
"""After so long, the record of an upload that could not be aborted is removed."""
SWEEP_EVERY = 3600.0
"""Seconds between two looks at the records of a store."""
MAX_SWEEP_SECONDS = 2.0
"""The time after which a sweep begins no further request."""
_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})-[0-9a-f]{8}").fullmatch
_MAX_SIZE = 64 * 1024
_swept: dict[str, float] = {}


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


# ---- uploads of parts


def part_size(number: int, first: int) -> int:
    """Return the size of part `number` (from 1) of an upload of unknown length: it doubles every 1,000 parts.

    10,000 parts that start at 5 MiB reach 4.8 TiB, those that start at 32 MiB 31 TiB.
    """
    return int(min(first << ((number - 1) // 1000), MAX_PART_SIZE))


class Upload:
    """One upload: a new one, or one that was begun earlier, of which the `parts` are known.

    Args:
        fs: of the bucket.
        record: of the upload, which has its key and its id.
        receipts: of its parts, from the first on.
    """

    def __init__(self, fs: ObjectStore, record: UploadRecord, receipts: Sequence[str] = ()) -> None:
        self._fs = fs
        self._record = record
        self._receipts = list(receipts)
        self._in_flight: deque[Callable[[], str]] = deque()
        self.count = len(receipts)
        """Parts so far."""
        self._threads = Threads[str](PARTS_IN_FLIGHT, wait=True)

    @classmethod
    def create(cls, fs: ObjectStore, key: str, kept: bool, like: Response | None = None, tags: str = "") -> Upload:
        """Return a new upload; `kept` if a later process may continue it, `like` and `tags` of what it copies."""
        sweep(fs)
        record = UploadRecord.create(fs, key, kept)
        try:
            request = fs.dialect.begin(key, record.mark, like, tags)
            if request is None:
                record.set_upload(record.mark)
            else:
                response = fs.send(request)
                if response.attempts > 1:  # an earlier one may have created an upload, too
                    UploadRecord.create(fs, key, kept=False).release()
                record.set_upload(fs.dialect.begun(response))
        except BaseException as exc:
            if 400 <= getattr(exc, "status", 0) < 500:
                record.remove()
            else:
                record.release()  # it may have been created all the same
            raise
        return cls(fs, record)

    def send_part(self, body: Body) -> None:
        """Send the next part, when there is room for it among those in flight; raises what became of an earlier one."""
        self._begin(lambda part: self._fs.dialect.part(part, body))

    def copy_part(self, source: ObjectStore, src: str, version: str | None, range_: Range) -> None:
        """Have the store copy a range of an object as the next part."""
        self._begin(lambda part: self._fs.dialect.copied_part(source.dialect, src, version, range_, part))

    def _begin(self, request: Callable[[PartOf], Request]) -> None:
        if self.count >= self._fs.dialect.max_parts:
            raise OSError(errno.EFBIG, f"more than {self.count} parts; larger parts reach further")
        while len(self._in_flight) >= PARTS_IN_FLIGHT:
            self._wait()
        self.count += 1
        self._in_flight.append(self._threads.start(functools.partial(self._sent, self.count, request)))

    def _sent(self, number: int, make: Callable[[PartOf], Request]) -> str:
        """Send the request of a part, and return its receipt."""
        request = make(PartOf(self._record.key, self._record.upload, number))
        response = self._fs.send(request)
        self._record.touch()
        return self._fs.dialect.receipt(number, request, response)

    def _wait(self) -> None:
        self._receipts.append(self._in_flight.popleft()())

    def complete(self, exclusive: bool) -> None:
        """Wait for the parts in flight, and make the object of all parts."""
        while self._in_flight:
            self._wait()
        record = self._record
        with done_once(self._fs, record.key, record.mark, exclusive):
            self._fs.send(self._fs.dialect.complete(record.key, record.upload, self._receipts, exclusive))
        self._threads.end()
        record.remove()

    def leave(self) -> None:
        """Wait for the parts in flight; they stay."""
        self._threads.end()
        self._record.release()

    def abort(self) -> None:
        """Wait for the parts in flight, and remove them all; what went wrong before is what the user has to see."""
        self._threads.end()
        with contextlib.suppress(OSError):
            _abort(self._fs, self._record, [self._record.upload])


def copy_parts(fs: ObjectStore, source: ObjectStore, src: str, dst: str) -> None:
    """Have the store copy an object in parts, with its metadata and tags."""
    head = source.send(source.dialect.head(src))
    size, _, version, _ = source.dialect.found(head)
    asked = source.dialect.tags(src)
    tags = source.dialect.tags_of(source.send(asked)) if asked is not None else ""
    upload = Upload.create(fs, dst, kept=False, like=head, tags=tags)
    try:
        step = max(COPIED_PART, -(-size // fs.dialect.max_parts))
        for offset in range(0, size, step):
            upload.copy_part(source, src, version, (min(step, size - offset), offset))
        upload.complete(exclusive=False)
    except BaseException:
        upload.abort()
        raise


# ---- what the store knows


def uploads_below(fs: ObjectStore, prefix: str) -> Iterator[StoredUpload]:
    """Yield the unfinished uploads of objects whose keys begin with `prefix`."""

    def page(token: Any) -> tuple[list[StoredUpload], Any]:
        request = fs.dialect.uploads(prefix, token)
        return uploads_page(fs.send(request)) if request is not None else ([], None)

    return _members(page)


def parts_of(fs: ObjectStore, key: str, upload: str) -> Iterator[StoredPart]:
    """Yield the parts of an upload that the store has, by their numbers."""
    return _members(lambda token: fs.dialect.parts_page(upload, fs.send(fs.dialect.parts(key, upload, token))))


def _members(page: Callable[[Any], tuple[list[T], Any]]) -> Iterator[T]:
    """Yield what is on the pages that `page` gives, each for the token of the one before it."""
    token = None
    while True:
        try:
            found, following = page(token)
        except (ValueError, KeyError) as exc:
            raise errors.CorruptFileError(errno.EBADMSG, f"not a page of uploads or parts: {exc}") from exc
        yield from found
        if following is None:
            return
        if following == token:
            raise errors.CorruptFileError(errno.EBADMSG, "a page of uploads or parts repeats its marker")
        token = following


def abort_old(fs: ObjectStore, older_than: float, prefix: str) -> int:
    """Abort the uploads below `prefix` that were begun so many seconds ago; return how many."""
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


def resume(fs: ObjectStore, key: str, source: Blob, chunk: int) -> tuple[Upload | None, int]:
    """Return an interrupted upload of the content of `source`, if there is one, and the offset of its next byte."""
    for record in _records(fs, key):
        if not (record.kept and record.upload):
            record.release()
            continue
        try:
            parts = list(_parts_with_bytes_of(source, fs, record, chunk))
        except BaseException as exc:
            if code_of(exc) != GONE:
                record.release()
                raise
            parts = []
        if parts:
            receipts = [fs.dialect.receipt_of_stored(part) for part in parts]
            return Upload(fs, record, receipts), sum(part.size for part in parts)
        with contextlib.suppress(OSError):
            _abort(fs, record, [record.upload])  # of another content, or gone
    return None, 0


def _parts_with_bytes_of(source: Blob, fs: ObjectStore, record: UploadRecord, chunk: int) -> Iterator[StoredPart]:
    """Yield the parts of an upload, from the first on, as far as they have the bytes of `source`."""
    offset = 0
    for number, part in enumerate(parts_of(fs, record.key, record.upload), 1):
        size = part_size(number, chunk)
        if (part.number, part.size) != (number, size) or offset + size > source.size:
            return
        if not fs.dialect.is_part_of(part, source, offset):
            return
        yield part
        offset += size


# ---- records


class UploadRecord:
    """The record of one upload, which this process has locked.

    Args:
        path: the file; empty if the upload is not recorded.
        fd: its descriptor.
        fields: what is recorded.
    """

    def __init__(self, path: str, fd: int, fields: dict[str, Any]) -> None:
        self._path = path
        self._fd = fd
        self.key = str(fields["key"])
        self.mark = str(fields["mark"])
        """The value of the metadata by which the writer knows its object."""
        self.begun = float(fields["begun"])
        """When the request that creates the upload was sent, in seconds since 1970."""
        self.kept = bool(fields["kept"])
        """Whether the next copy of the same content continues it."""
        self.upload = str(fields.get("upload", ""))
        """The id; empty if the creation was not answered."""

    @classmethod
    def create(cls, fs: ObjectStore, key: str, kept: bool) -> UploadRecord:
        """Record an upload that is going to be created; it is not, if the disk is full or can't be written to."""
        fields = {"key": key, "mark": secrets.token_hex(12), "begun": time.time(), "kept": kept}
        with contextlib.suppress(OSError), _folder() as folder:
            name = f"{_store(fs)}-{_target(fs, key)}-{secrets.token_hex(4)}"
            fd = folder.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            record = cls(f"{folder.path}/{name}", fd, fields)
            record._append(fields)
            _lock(fd)
            return record
        return cls("", -1, fields)

    @classmethod
    def taken(cls, folder: Folder, name: str) -> UploadRecord | None:
        """Return a record that was left; None if its process is alive, or if it is none: then it is removed in time."""
        fd = folder.open(name, os.O_RDWR)
        try:
            if not (_lock(fd) and os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=folder.descriptor))):
                os.close(fd)
                return None
            fields: dict[str, Any] = {}
            for line in os.pread(fd, _MAX_SIZE, 0).split(b"\n")[:-1]:  # one without an end was not written completely
                fields |= parse_json(line)
            return cls(f"{folder.path}/{name}", fd, fields)
        except (ValueError, KeyError, TypeError):
            if _is_old(fd, LEFTOVER_SECONDS):
                folder.remove(name)
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise

    def set_upload(self, upload: str) -> None:
        """Record the id. Raises `CorruptFileError` for an empty one."""
        if not upload:
            raise errors.CorruptFileError(errno.EBADMSG, "the store began an upload and gave it no id")
        self.upload = upload
        self._append({"upload": upload})

    def _append(self, fields: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # also of no descriptor: the upload is not recorded
            write_all(self._fd, json.dumps(fields).encode() + b"\n")

    def touch(self) -> None:
        """Record that a part was sent."""
        with contextlib.suppress(OSError):
            os.utime(self._fd)

    def is_old(self, seconds: float) -> bool:
        """Return whether no process has touched it for so long."""
        return _is_old(self._fd, seconds)

    def release(self) -> None:
        """Leave the upload to other processes: to be continued, or to be aborted."""
        if self._path:
            with contextlib.suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)  # and not only by a close: a forked child may have it, too
            os.close(self._fd)
            self._path, self._fd = "", -1

    def remove(self) -> None:
        """Remove the record: the upload has ended."""
        if self._path:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        self.release()


def _folder() -> Folder:
    root = cache_directory()
    if root is None:
        raise FileNotFoundError(errno.ENOENT, "no cache directory")
    return Folder(root / "uploads", create=True, private=True)


def _lock(fd: int) -> bool:
    """Lock a record; return whether no other process has. Where nothing can be locked, none is known to."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _is_old(fd: int, seconds: float) -> bool:
    return time.time() - os.fstat(fd).st_mtime > seconds


def _store(fs: ObjectStore) -> str:
    """Return 16 digits for the bucket and the user, as whom alone an upload can be aborted."""
    return identity.digest(identity.encode(fs._resolved_store(), fs._principal()))[:16]


def _target(fs: ObjectStore, key: str) -> str:
    """Return 16 digits for an object and the options that its upload is created with."""
    return identity.digest(identity.encode(key, *fs.dialect.like_written(key)))[:16]


def _records(fs: ObjectStore, key: str = "") -> Iterator[UploadRecord]:
    """Yield the records of a store, or of one object, whose processes have ended; they are this process's then."""
    with contextlib.suppress(OSError), _folder() as folder:
        wanted = _store(fs), _target(fs, key) if key else ""
        for name in sorted(os.listdir(folder.descriptor)):
            match = _NAME(name)
            if match is not None and match[1] == wanted[0] and wanted[1] in ("", match[2]):
                with contextlib.suppress(OSError):
                    if (record := UploadRecord.taken(folder, name)) is not None:
                        yield record


def sweep(fs: ObjectStore) -> None:
    """Abort the uploads to this store that no process has continued for a day; once an hour."""
    store, now = _store(fs), time.monotonic()
    if now - _swept.get(store, -SWEEP_EVERY) < SWEEP_EVERY:
        return
    _swept[store] = now
    for record in _records(fs):
        if record.is_old(LEFTOVER_SECONDS) and time.monotonic() - now < MAX_SWEEP_SECONDS:
            with contextlib.suppress(OSError):
                _abort(fs, record, [record.upload] if record.upload else list(_unanswered(fs, record)))
        record.release()


def _unanswered(fs: ObjectStore, record: UploadRecord) -> Iterator[str]:
    """Yield the uploads that a request without an answer may have created: those of its time that have no part."""
    for upload in uploads_below(fs, record.key):
        if upload.key == record.key and abs(upload.begun - record.begun) <= CREATION_SECONDS:
            if next(parts_of(fs, upload.key, upload.name), None) is None:
                yield upload.name


def _abort(fs: ObjectStore, record: UploadRecord, uploads: Sequence[str]) -> None:
    """Abort uploads and remove their record, which stays if the store can't be reached."""
    try:
        for upload in uploads:
            _abort_upload(fs, record.key, upload)
    except OSError:
        if not record.is_old(MAX_RECORD_SECONDS):
            record.release()
            raise
    record.remove()
