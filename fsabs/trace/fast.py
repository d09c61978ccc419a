"""Traced reads, written for speed: what a recorder's `record_span` does, without the calls.

Positioned reads and the files of a batch are what a program reads most. `watched` returns a function that reads a blob
and counts (and keeps) a span, exactly as a call of `record_span` around `pread` would; `spans` returns a function that
records the spans of files whose URLs are known beforehand. Tests hold that. A function belongs to one recorder. What
isn't the usual case (another recorder, a range that doesn't lie inside, a closed blob) it hands to the usual way.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Sequence
from time import monotonic_ns

from .. import errors, hooks
from ..blobs import Blob
from .recorder import EventRecorder, Recorder
from .ring import RECORD

Read = Callable[[int, int], bytes]
_pack = RECORD.pack_into

GROUP = 64
"""Files of one call of `spans`: enough to share its cost, and few enough not to delay the first read."""


def watched(recorder: Recorder, blob: Blob, otherwise: Read, name: str, where: str) -> Read:
    """Return `blob.pread` that also records a span `fs` of that name at the URL `where`."""
    if type(blob).pread is not Blob.pread or type(blob)._clip is not Blob._clip:
        return otherwise  # it reads in a way of its own
    if isinstance(recorder, EventRecorder):
        return _keeping(recorder, blob, otherwise, name, where)
    return _counting(recorder, blob, otherwise, name, where)


def _counting(recorder: Recorder, blob: Blob, otherwise: Read, name: str, where: str) -> Read:
    """For a recorder that keeps no events."""
    counter = recorder.counter("fs", name)
    latency, sizes, read, whole = counter.latency, counter.sizes, blob._pread, blob.size
    failed = _failing(recorder, blob, name, where)

    def pread(size: int, offset: int) -> bytes:
        if hooks.active is not recorder or offset < 0 or not 0 < size <= whole - offset or blob._closed:
            return otherwise(size, offset)
        begin = monotonic_ns()
        try:
            data = read(size, offset)
            if len(data) != size:
                raise blob._short(len(data), size, offset)
        except BaseException as exc:
            failed(exc, begin, offset)
            raise
        took = monotonic_ns() - begin
        bucket = took.bit_length()
        latency[bucket] += 1
        bucket = size.bit_length()
        sizes[bucket] += 1
        counter.bytes += size
        counter.nanoseconds += took
        if took > counter.most:
            counter.most = took
        if took < counter.least:
            counter.least = took
        return data

    return pread


def _keeping(recorder: EventRecorder, blob: Blob, otherwise: Read, name: str, where: str) -> Read:
    """For a recorder that keeps events."""
    counter = recorder.counter("fs", name)
    read, whole = blob._pread, blob.size
    claim, records, mask, threads, number = (
        recorder.claim, recorder.records, recorder.mask, recorder.threads, counter.number
    )  # fmt: skip
    failed = _failing(recorder, blob, name, where)

    def pread(size: int, offset: int) -> bytes:
        if hooks.active is not recorder or offset < 0 or not 0 < size <= whole - offset or blob._closed:
            return otherwise(size, offset)
        begin = monotonic_ns()
        try:
            data = read(size, offset)
            if len(data) != size:
                raise blob._short(len(data), size, offset)
        except BaseException as exc:
            failed(exc, begin, offset)
            raise
        took = monotonic_ns() - begin
        counter.calls += 1
        counter.bytes += size
        counter.nanoseconds += took
        try:
            text, thread = recorder.wheres[where], threads[get_ident()]
        except KeyError:
            text, thread = recorder.text_number(where), recorder.thread()
        at = claim()
        _pack(records, at & mask, begin, took, size, offset, text, thread, number, 0, at)
        return data

    return pread


def spans(
    recorder: hooks.Instrument | None, name: str, keys: Sequence[str], url: Callable[[str], str]
) -> Callable[[int, int, int], None]:
    """Return `record(n, begin, size)`: it records a span `fs` at the URL of key number `n`, which ends now.

    The URLs of all files are made and recorded here, together: while the program decodes a file, the processor's caches
    lose this code, so that the work for each file has to be small.
    """

    def otherwise(n: int, begin: int, size: int) -> None:
        if (instrument := hooks.active) is not None:
            instrument.record_span("fs", name, begin, size, url(keys[n]))

    if not isinstance(recorder, EventRecorder):
        return otherwise
    counter, texts = recorder.counter("fs", name), recorder.text_numbers([url(key) for key in keys])
    claim, records, mask, threads, number = (
        recorder.claim, recorder.records, recorder.mask, recorder.threads, counter.number
    )  # fmt: skip

    def record(n: int, begin: int, size: int) -> None:
        took = monotonic_ns() - begin
        thread = threads.get(get_ident())
        if hooks.active is not recorder or thread is None:
            otherwise(n, begin, size)
            return
        counter.calls += 1
        counter.bytes += size
        counter.nanoseconds += took
        at = claim()
        _pack(records, at & mask, begin, took, size, -1, texts[n], thread, number, 0, at)

    return record


def _failing(recorder: Recorder, blob: Blob, name: str, where: str) -> Callable[[BaseException, int, int], None]:
    """Handle a failed read: raise the error of `Blob.pread`, and record an event."""

    def failed(exc: BaseException, begin: int, offset: int) -> None:
        if isinstance(exc, OSError):
            errors.named(exc, "read", blob.url)
        recorder.record_span("fs", name, begin, 0, where, type(exc).__name__, offset)

    return failed
