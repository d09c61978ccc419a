"""Records of the multipart uploads that this user's processes have begun: files in the cache directory.

A store shows an unfinished upload without saying whose it is: another process, on another host, may be sending its
parts. So nothing but a record allows an upload to be continued or aborted. It is written before the upload is created,
names its owner (see `owners.py`), and is removed when the upload has ended. A process takes over the record of an owner
that has ended by renaming the file, which only one can do; records of other machines, and of this one before it was
started, wait for a week after the upload's last part.

An upload whose creation was never answered has no id in its record. It is one of those of its key that were begun at
that time, by the store's clock, and that has no part after a day.

Without a cache directory nothing is recorded, continued or aborted.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...core import identity, owners
from ...core.limits import parse_json
from ...disk.descriptors import open_ours
from ...disk.folders import cache_directory
from .failures import GONE, code_of
from .messages import StoredPart, StoredUpload

if TYPE_CHECKING:
    from .store import ObjectStore

KEPT_SECONDS = 7 * 24 * 3600.0
"""After so long without a part, an upload that could be continued, or whose owner can't be known, is aborted."""
UNANSWERED_SECONDS = 24 * 3600.0
"""After so long, an upload without a part, that may be the one whose creation was not answered, is aborted."""
MAX_RECORD_SECONDS = 30 * 24 * 3600.0
"""After so long, the record of an upload that could not be aborted is removed."""
MAX_SKEW = 900.0
"""Seconds between the store's clock and ours: S3 accepts no signature that is older or newer."""
CREATION_SECONDS = 900.0
"""The creation of an upload takes less: it is given up before."""
SWEEP_EVERY = 3600.0
"""Seconds between two looks at the records of a store."""
MAX_SWEEP_SECONDS = 2.0
"""The time after which a sweep begins no further request."""
FREE = "free"
"""In the place of an owner: the process has given the upload up."""
_COPY, _FILE = "copy", "file"
"""The kinds of uploads: those that the next copy of the same content continues, and the others."""
_NAME = re.compile(rf"([0-9a-f]{{16}})-([0-9a-f]{{16}})\.({_COPY}|{_FILE})\.({owners.PATTERN}|{FREE})\.([0-9a-f]{{8}})")
_MAX_SIZE = 64 * 1024

_swept: dict[str, float] = {}


class UploadRecord:
    """The record of one upload, which belongs to this process."""

    def __init__(self, path: str | None, fields: dict[str, Any]) -> None:
        self._path = path
        self.key = str(fields["key"])
        self.mark = str(fields["mark"])
        """The value of the metadata by which the writer knows its object."""
        self.begun = float(fields["begun"])
        """When the request that creates the upload was sent, in seconds since 1970."""
        self.upload = str(fields.get("upload", ""))
        """The id; empty until it is known."""

    @classmethod
    def create(cls, fs: ObjectStore, key: str, mark: str, kept: bool, owner: str = "") -> UploadRecord:
        """Record an upload that is going to be created; `kept` if the next copy of its content may continue it."""
        fields = {"key": key, "mark": mark, "begun": time.time()}
        folder, path = _folder(), None
        if folder is not None:
            kind = _COPY if kept else _FILE
            name = f"{_store(fs)}-{_target(fs, key)}.{kind}.{owner or owners.this_process()}.{secrets.token_hex(4)}"
            with contextlib.suppress(OSError):  # a disk that is full or read-only: the upload is not recorded
                os.makedirs(folder, mode=0o700, exist_ok=True)
                path = f"{folder}/{name}"
                _append(path, fields, os.O_EXCL | os.O_CREAT)
        return cls(path, fields)

    def set_upload(self, upload: str) -> None:
        """Record the id."""
        self.upload = upload
        if self._path is not None:
            with contextlib.suppress(OSError):
                _append(self._path, {"upload": upload})

    def touch(self) -> None:
        """Record that a part was sent."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def release(self, kept: bool) -> None:
        """Leave the upload to other processes: to be continued, or to be aborted."""
        if self._path is not None:
            folder, _, name = self._path.rpartition("/")
            with contextlib.suppress(OSError):
                os.rename(self._path, f"{folder}/{_renamed(name, FREE, _COPY if kept else _FILE)}")
            self._path = None

    def remove(self) -> None:
        """Remove the record: the upload has ended."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.remove(self._path)
            self._path = None


def taken_over(fs: ObjectStore, key: str) -> Iterator[UploadRecord]:
    """Yield the records of the uploads of `key` that may be continued, which are this process's from then on."""
    store, target = _store(fs), _target(fs, key)
    for path, match in _records(store):
        if (match[2], match[3]) == (target, _COPY) and _owner_has_ended(match[4]):
            found = _take_over(path, match)
            if found is not None and found.upload:
                yield found
            elif found is not None:
                found.release(kept=False)


def abort(fs: ObjectStore, record: UploadRecord) -> None:
    """Abort an upload and remove its record, which stays if the store can't be reached."""
    try:
        _abort(fs, record.key, record.upload)
        record.remove()
    except OSError:
        record.release(kept=False)
        raise


def sweep(fs: ObjectStore) -> None:
    """Abort the uploads to this store that processes of this user have abandoned; once an hour."""
    store = _store(fs)
    now = time.monotonic()
    if now - _swept.get(store, -SWEEP_EVERY) < SWEEP_EVERY:
        return
    _swept[store] = now
    for path, match in _records(store):
        if time.monotonic() - now > MAX_SWEEP_SECONDS:
            return
        with contextlib.suppress(OSError):
            if _is_due(path, match) and (record := _take_over(path, match)) is not None:
                _end(fs, record)


def _end(fs: ObjectStore, record: UploadRecord) -> None:
    """Abort what an abandoned record stands for."""
    try:
        for upload in [record.upload] if record.upload else _unanswered(fs, record):
            _abort(fs, record.key, upload)
        record.remove()
    except OSError:
        if time.time() - record.begun > MAX_RECORD_SECONDS:
            record.remove()
        else:
            record.release(kept=False)
        raise


def _unanswered(fs: ObjectStore, record: UploadRecord) -> Iterator[str]:
    """Yield the uploads that a request without an answer may have created."""
    known = {found.upload for path, _ in _records(_store(fs)) if (found := _read(path)) is not None}
    first, last = record.begun - MAX_SKEW, record.begun + CREATION_SECONDS + MAX_SKEW
    for upload in uploads_of(fs, record.key):
        if first <= upload.begun <= last and upload.name not in known:
            if next(parts_of(fs, record.key, upload.name), None) is None:
                yield upload.name


def _abort(fs: ObjectStore, key: str, upload: str) -> None:
    request = fs.dialect.abort(key, upload)
    if request is None:
        return
    try:
        fs.send(request)
    except OSError as exc:
        if code_of(exc) != GONE:
            raise


# ---- what the store knows


def uploads_below(fs: ObjectStore, prefix: str) -> Iterator[StoredUpload]:
    """Yield the unfinished uploads of objects whose keys begin with `prefix`."""
    token = None
    while (request := fs.dialect.uploads(prefix, token)) is not None:
        found, token = fs.dialect.uploads_page(fs.send(request))
        yield from found
        if token is None:
            return


def uploads_of(fs: ObjectStore, key: str) -> list[StoredUpload]:
    """Return the unfinished uploads of one object."""
    return [upload for upload in uploads_below(fs, key) if upload.key == key]


def parts_of(fs: ObjectStore, key: str, upload: str) -> Iterator[StoredPart]:
    """Yield the parts of an upload that the store has, by their numbers."""
    token = None
    while True:
        found, token = fs.dialect.parts_page(upload, fs.send(fs.dialect.parts(key, upload, token)))
        yield from found
        if token is None:
            return


# ---- files


def _folder() -> str | None:
    folder = cache_directory()
    return f"{folder}/uploads" if folder is not None else None


def _store(fs: ObjectStore) -> str:
    """Return 16 digits for the bucket and the user, as whom alone an upload can be aborted."""
    return identity.digest(identity.encode(fs._resolved_store(), fs._principal()))[:16]


def _target(fs: ObjectStore, key: str) -> str:
    """Return 16 digits for an object and the options that its upload is created with."""
    return identity.digest(identity.encode(key, *fs.dialect.like_written(key)))[:16]


def _records(store: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the paths of the records of a store, with what their names say."""
    folder = _folder()
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder)) if folder is not None else ():
            match = _NAME.fullmatch(name)
            if match is not None and match[1] == store:
                yield f"{folder}/{name}", match


def _owner_has_ended(owner: str) -> bool | None:
    return True if owner == FREE else owners.has_ended(owner)


def _is_due(path: str, match: re.Match[str]) -> bool:
    """Return whether the upload of a record is to be aborted."""
    ended = _owner_has_ended(match[4])
    if ended is False:
        return False
    age = time.time() - os.stat(path).st_mtime
    if ended is None or match[3] == _COPY:
        return age > KEPT_SECONDS
    record = _read(path)
    if record is None:
        return age > KEPT_SECONDS
    return bool(record.upload) or time.time() - record.begun > UNANSWERED_SECONDS


def _take_over(path: str, match: re.Match[str]) -> UploadRecord | None:
    """Make a record this process's, and return it; None if another process was faster, or it can't be read."""
    folder, _, name = path.rpartition("/")
    taken = f"{folder}/{_renamed(name, owners.this_process(), match[3])}"
    try:
        os.rename(path, taken)
    except OSError:
        return None
    record = _read(taken)
    if record is None:
        with contextlib.suppress(OSError):
            os.remove(taken)
    return record


def _renamed(name: str, owner: str, kind: str) -> str:
    match = _NAME.fullmatch(name)
    assert match is not None
    return f"{match[1]}-{match[2]}.{kind}.{owner}.{match[5]}"


def _append(path: str, fields: dict[str, Any], flags: int = 0) -> None:
    fd = open_ours(path, os.O_WRONLY | os.O_APPEND | flags)
    try:
        os.write(fd, json.dumps(fields).encode() + b"\n")
    finally:
        os.close(fd)


def _read(path: str) -> UploadRecord | None:
    """Return what is recorded in a file of this user; None if that is nothing."""
    fields: dict[str, Any] = {}
    try:
        fd = open_ours(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        for line in os.read(fd, _MAX_SIZE).split(b"\n")[:-1]:  # a line without an end was not written completely
            fields |= parse_json(line)
        return UploadRecord(path, fields)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    finally:
        os.close(fd)
