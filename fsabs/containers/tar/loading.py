"""The index of an archive, and its decoded content: found in the index cache, or by a pass over the archive."""

from __future__ import annotations

from ...core.blobs import Blob
from ...core.fs import FS
from ...core.identity import Identity
from ...core.limits import Limits
from ...disk import indexes
from . import codecs, headers, saved
from .headers import BLOCK
from .index import HeaderScanner, TarIndex, trailing_data
from .points import SPACING, Point, Points
from .sources import PlainSource, StreamSource
from .streams import Cursor, StreamBlob

_WORTH_KEEPING = 32  # members: what the pass over fewer takes is nothing to speak of


_Scanned = tuple[TarIndex, saved.Decoding | None, Points | None]


def load(parent: FS, key: str, blob: Blob, limits: Limits) -> tuple[TarIndex, StreamBlob | None]:
    """The index of an archive, and what it holds decoded if it is compressed; kept for the next who asks."""
    identity = blob.settled_identity  # asked before anything is read
    found = _cached(blob.identity)
    index, decoding, points = found or _scan(blob, limits)
    if found is None and identity is not None and _worth_keeping(index, decoding):
        indexes.save(saved.KIND, identity, saved.pack(index, decoding))
        if points is not None:
            points.keep(identity)
        if (cached := _cached(identity)) is not None:
            index = cached[0]  # mapped: one copy for all processes
    if decoding is None or points is None:
        return index, None
    return index, StreamBlob(parent, key, blob, decoding.codec, decoding.size, points)


def _cached(identity: Identity | None) -> _Scanned | None:
    """Return what an earlier pass over this version of the archive found."""
    if identity is None or (view := indexes.load(saved.KIND, identity)) is None:
        return None
    try:
        index, decoding = saved.unpack(view)
    except ValueError:  # damaged: as good as none
        return None
    if decoding is None:
        return index, None, None
    points = Points(tuple(Point(*point) for point in decoding.points))
    if decoding.size > SPACING:
        points.find(identity)
    return index, decoding, points


def _worth_keeping(index: TarIndex, decoding: saved.Decoding | None) -> bool:
    """Return whether reading the index from the cache would cost less than another pass over the archive."""
    return len(index.tree) >= _WORTH_KEEPING or (decoding is not None and decoding.size > SPACING)


def _scan(blob: Blob, limits: Limits) -> _Scanned:
    """The pass over an archive: its index, and if it is compressed, how it is decoded."""
    start = blob.pread(BLOCK, 0)
    codec = None if headers.is_header(start) else codecs.codec_of_content(start[: codecs.MAGIC_SIZE])
    if codec is None:
        return HeaderScanner(PlainSource(blob), blob.url, limits).run(), None, None
    points = Points()
    source = StreamSource(Cursor(blob, codec, points), blob, limits)
    index = HeaderScanner(source, blob.url, limits).run()
    if source.drain() and trailing_data(index.end) not in index.problems:
        index = index._replace(problems=(*index.problems, trailing_data(index.end)))
    if codec.name == "xz" and source.end > SPACING:
        from . import xz  # loads liblzma

        for place in xz.places(blob):
            points.add(Point(place.out, place.src, None, place.how))
    return index, saved.Decoding(codec.name, source.end, points.frames()), points
