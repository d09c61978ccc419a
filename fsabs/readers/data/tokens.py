"""TokenDataReader: windows of tokens over files of token ids, as records of shards; and TokenFile, one such file.

A window is found by arithmetic, and never by an index of windows: opening and planning cost the same for a file of any
size. Only documents need an index, which is the format's own; it is read once for a version of the file, and kept and
mapped by all processes of the user.

Layouts, by their sources: Megatron-LM's `.bin` and `.idx` (`megatron/core/datasets/indexed_dataset.py`), llm.c's `.bin`
with a header of 256 int32 (`dev/data/data_common.py`), datatrove's `.ds` with `.ds.index` and `.ds.metadata`
(`datatrove/utils/dataset.py`), and files of nothing but uint16 or uint32 (nanoGPT's `.bin`).
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ...core import errors, keys
from ...core.blobs import Blob
from ...core.fs import FS, FileStat
from ...core.lazy import cached_property
from ...core.threads import in_threads
from ...core.writing import AbortsOnError
from .base import Mode, Shard, ShardContent, check_numbers, digest_of
from .files import FileShardsReader, Location, derived
from .order import Numbers, by_shard

Format = Literal["megatron", "llm.c", "datatrove", "raw"]
FORMATS: tuple[Format, ...] = ("megatron", "llm.c", "datatrove", "raw")
MEGATRON = b"MMIDIDX\x00\x00"
MEGATRON_HEAD = struct.Struct("<9sQBQQ")
"""Magic, version, code of the type, sequences, length of the document index."""
MEGATRON_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
_LLM_C = {20240520: (1, "<u2"), 20240801: (7, "<u4")}
_LLM_C_HEAD = 1024
_TYPES = {"uint8": "u1", "uint16": "<u2", "uint32": "<u4", "int32": "<i4", "int64": "<i8"}
_KIND = "documents-1"
_SAMPLE = 4096  # bytes at both ends of a file that distinguish it from others of its size
_PIECE = 1 << 20  # entries of an index that are read at once


class TokenLayout(NamedTuple):
    """Where the tokens of a file lie."""

    path: str
    format: Format
    dtype: str
    """NumPy's name of a token's type."""
    start: int
    """The offset of the first token in the file, in bytes."""
    tokens: int
    size: int
    """Of the file, in bytes."""
    version: str | None
    digest: str
    """Of the header or index, and of both ends of the file."""
    ends: str | None = None
    """The path of the file with the ends of the documents; None if there is none."""


def layout_of(fs: FS, stat: FileStat, names: set[str], format: Format | None, dtype: str | None) -> TokenLayout:
    """Return the layout of the file with this stat.

    Args:
        fs: what it is in.
        stat: of a listing.
        names: of the files around it, by which the layout is recognized if `format` is None.
        format: one of `FORMATS`.
        dtype: of a raw file's tokens: "uint16", "uint32" and so on.

    Raises `CorruptFileError` for an index or header that does not fit the file, and `ValueError` where `dtype` is
    needed and missing.
    """
    path = stat.filename
    if dtype is not None and dtype not in _TYPES:
        raise ValueError(f"dtype is one of {', '.join(_TYPES)}, not {dtype!r}")
    with fs.open_blob(path, stat) as blob:
        ends = blob.pread_many([(min(_SAMPLE, blob.size), 0), (min(_SAMPLE, blob.size), max(0, blob.size - _SAMPLE))])
        found = format or _recognized(path, names, ends[0])
        if found == "megatron":
            return _megatron(fs, blob, path, ends)
        if found == "llm.c":
            return _llm_c(blob, path, ends)
        if found == "datatrove":
            return _datatrove(fs, blob, path, ends, names, dtype)
        if dtype is None:
            raise ValueError(f"{blob.url} has no header: give the dtype of its tokens, such as dtype='uint16'")
        return _plain(blob, path, "raw", _TYPES[dtype], ends)


def _recognized(path: str, names: set[str], head: bytes) -> Format:
    if path.endswith(".bin") and path[:-4] + ".idx" in names:
        return "megatron"
    if path.endswith(".ds"):
        return "datatrove"
    if len(head) >= 12 and struct.unpack_from("<i", head)[0] in _LLM_C:
        return "llm.c"
    return "raw"


def _plain(
    blob: Blob, path: str, format: Format, dtype: str, parts: Sequence[bytes], start: int = 0, index: str | None = None
) -> TokenLayout:
    width = np.dtype(dtype).itemsize
    if (blob.size - start) % width:
        raise errors.corrupt(blob.url, f"{blob.size - start} bytes are no whole number of tokens of {width}", "open")
    tokens = (blob.size - start) // width
    return TokenLayout(path, format, dtype, start, tokens, blob.size, blob.version, digest_of(*parts), index)


def _llm_c(blob: Blob, path: str, ends: list[bytes]) -> TokenLayout:
    head = ends[0]
    if len(head) < _LLM_C_HEAD:
        raise errors.corrupt(blob.url, "too short for llm.c's header of 1,024 bytes", "open")
    magic, version, tokens = struct.unpack_from("<3i", head)
    if magic not in _LLM_C or _LLM_C[magic][0] != version:
        raise errors.corrupt(blob.url, f"no magic and version of llm.c: {magic}, {version}", "open")
    found = _plain(blob, path, "llm.c", _LLM_C[magic][1], ends, _LLM_C_HEAD)
    if found.tokens != tokens:
        raise errors.corrupt(blob.url, f"the header says {tokens} tokens, and there are {found.tokens}", "open")
    return found


def _datatrove(fs: FS, blob: Blob, path: str, ends: list[bytes], names: set[str], dtype: str | None) -> TokenLayout:
    index = path + ".index" if path + ".index" in names else None
    tokens = None if index is None else _last_end(fs, index)
    if dtype is None and path + ".metadata" in names:
        dtype = _datatrove_type(fs, path + ".metadata")
    if dtype is None and tokens:  # by what the index says of the size
        dtype = {2: "uint16", 4: "uint32"}.get(blob.size // tokens)
    if dtype is None:
        raise ValueError(f"nothing says how large the tokens of {blob.url} are: give dtype='uint16' or dtype='uint32'")
    found = _plain(blob, path, "datatrove", _TYPES[dtype], ends, 0, index)
    if tokens is not None and tokens != found.tokens:
        reason = f"the index has {tokens} tokens, and there are {found.tokens} of {dtype}"
        raise errors.corrupt(blob.url, reason, "open")
    return found


def _datatrove_type(fs: FS, path: str) -> str | None:
    """Return the type of a token, by a file of metadata that begins with `TOKENIZER|SIZE`; None if it doesn't."""
    lines = fs.read_text(path).splitlines()
    _, bar, width = lines[0].rpartition("|") if lines else ("", "", "")
    if bar and width not in ("2", "4"):
        raise errors.corrupt(fs.url(path), f"{width!r} is no size of a token: 2 or 4", "open")
    return {"2": "uint16", "4": "uint32"}[width] if bar else None


def _last_end(fs: FS, path: str) -> int:
    """Return where the last document ends, by an index of datatrove, in tokens."""
    with fs.open_blob(path) as blob:
        if blob.size % 8:
            raise errors.corrupt(blob.url, f"{blob.size} bytes are no whole number of entries of 8", "open")
        return int.from_bytes(blob.pread(8, blob.size - 8), "little") if blob.size else 0


class MegatronIndex(NamedTuple):
    """The header of an `.idx` file."""

    dtype: str
    sequences: int
    documents: int
    """Entries of the document index: the documents and one more."""

    @property
    def pointers(self) -> int:
        """The offset of the sequences' places in the `.bin`, in bytes."""
        return MEGATRON_HEAD.size + 4 * self.sequences

    @property
    def starts(self) -> int:
        """The offset of the document index."""
        return self.pointers + 8 * self.sequences

    @property
    def end(self) -> int:
        """The offset after the document index, where the modes of a multimodal file begin."""
        return self.starts + 8 * self.documents


def _megatron_index(blob: Blob) -> MegatronIndex:
    head = blob.pread(MEGATRON_HEAD.size, 0)
    if len(head) < MEGATRON_HEAD.size or not head.startswith(MEGATRON):
        raise errors.corrupt(blob.url, "no index of Megatron's: it does not begin with MMIDIDX", "open")
    _, version, code, sequences, documents = MEGATRON_HEAD.unpack(head)
    if version != 1 or code not in MEGATRON_TYPES:
        raise errors.corrupt(
            blob.url, f"version {version}, type {code} of an index: only 1, and 1 to 8, are known", "open"
        )
    found = MegatronIndex(MEGATRON_TYPES[code], sequences, documents)
    if blob.size not in (found.end, found.end + sequences):
        reason = f"{sequences} sequences and {documents} entries of documents need {found.end} bytes, not {blob.size}"
        raise errors.corrupt(blob.url, reason, "open")
    return found


def _megatron(fs: FS, blob: Blob, path: str, ends: list[bytes]) -> TokenLayout:
    index_path = path.removesuffix(".bin") + ".idx"
    with fs.open_blob(index_path) as index:
        head = _megatron_index(index)
        if np.dtype(head.dtype).kind == "f":
            raise errors.corrupt(index.url, "a file of floating-point numbers holds no tokens", "open")
        found = _plain(blob, path, "megatron", head.dtype, ends, 0, index_path)
        tail = [b"", b"", b""]
        last = 0
        if head.sequences:
            places = [(4, head.pointers - 4), (8, head.starts - 8), (8, head.end - 8)]
            tail = index.pread_many(places)
            length, place = (int.from_bytes(data, "little") for data in tail[:2])
            last = place + length * np.dtype(head.dtype).itemsize
        if last != blob.size:
            reason = f"its sequences end at {last}, and {blob.url} has {blob.size} bytes"
            raise errors.corrupt(index.url, reason, "open")
        return found._replace(digest=digest_of(*ends, repr(head).encode(), *tail))


class TokenWriter(AbortsOnError):
    """Writes documents of token ids as Megatron's `.bin` and `.idx`, each of one sequence; a context manager.

    Both files appear when it is closed, and neither after an exception in its block: the `.idx` is the last, and makes
    the `.bin` one of Megatron's.

    Args:
        fs: where they are written.
        path: of both, without the suffixes.
        dtype: of a token: "uint8", "int8", "int16", "int32", "int64" or "uint16".
    """

    def __init__(self, fs: FS, path: str, dtype: str = "uint16") -> None:
        codes = {np.dtype(name).name: code for code, name in MEGATRON_TYPES.items() if np.dtype(name).kind in "iu"}
        if dtype not in codes:
            raise ValueError(f"dtype is one of {', '.join(codes)}, not {dtype!r}")
        self.path = path
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self._code = codes[dtype]
        self._fs = fs
        self._file = fs.open(path + ".bin", "wb")
        self._lengths = array("i")

    @property
    def records(self) -> int:
        """The number of documents so far."""
        return len(self._lengths)

    def write(self, tokens: Any) -> None:
        """Write a document: token ids, or their bytes; `ValueError` for ids that are not of the type."""
        if not isinstance(tokens, bytes):
            ids = np.asarray(tokens, np.int64)
            found = ids.astype(self.dtype)
            if ids.ndim != 1 or (found != ids).any():
                raise ValueError(f"no list of token ids that are {self.dtype.name}")
            tokens = found.tobytes()
        elif len(tokens) % self.dtype.itemsize:
            raise ValueError(f"{len(tokens)} bytes are no whole number of token ids that are {self.dtype.name}")
        self._file.write(tokens)
        self._lengths.append(len(tokens) // self.dtype.itemsize)

    def close(self) -> None:
        """Publish both files."""
        if self._file.closed:
            return
        lengths = np.array(self._lengths, "<i4")
        ends = np.cumsum(lengths, dtype="<i8")
        pointers = (ends - lengths) * self.dtype.itemsize
        head = MEGATRON_HEAD.pack(MEGATRON, 1, self._code, len(lengths), len(lengths) + 1)
        parts = [lengths, pointers.astype("<i8"), np.arange(len(lengths) + 1, dtype="<i8")]
        self._file.close()
        self._fs.write_bytes(self.path + ".idx", head + b"".join(part.tobytes() for part in parts))

    def abort(self) -> None:
        """Leave both files out."""
        if not self._file.closed:
            self._file.abort()

    def __enter__(self) -> TokenWriter:
        return self


# ---- documents


def document_ends(fs: FS, layout: TokenLayout) -> Numbers:
    """Return where each document of a file ends, in tokens; mapped where it was kept.

    `CorruptFileError` for ends that are not in order, or do not fit the file.
    """
    if layout.ends is None:
        return np.array([layout.tokens] if layout.tokens else [], np.int64)
    with fs.open_blob(layout.ends) as blob:
        found = np.frombuffer(derived(_KIND, blob, lambda: (part.data for part in _ends(blob, layout))), np.int64)
        last = int(found[-1]) if len(found) else 0
        if last != layout.tokens:  # asked here, since the file of tokens may be another than when they were kept
            raise errors.corrupt(blob.url, f"its documents end at token {last} of {layout.tokens}", "open")
        return found


def _ends(blob: Blob, layout: TokenLayout) -> Iterator[Numbers]:
    """Yield the ends of documents, checked, in parts."""
    last = 0
    for part in _megatron_ends(blob) if layout.format == "megatron" else _plain_ends(blob):
        if len(part) and (part[0] < last or (part[1:] < part[:-1]).any()):  # differences might not fit
            raise errors.corrupt(blob.url, "its documents are not in order", "open")
        last = int(part[-1]) if len(part) else last
        yield part


def _plain_ends(blob: Blob) -> Iterator[Numbers]:
    if blob.size % 8:
        raise errors.corrupt(blob.url, f"{blob.size} bytes are no whole number of entries of 8", "open")
    for at in range(0, blob.size, 8 * _PIECE):
        yield np.frombuffer(blob.pread(8 * _PIECE, at), "<i8").astype(np.int64)


def _megatron_ends(blob: Blob) -> Iterator[Numbers]:
    """Yield the ends of documents, which are those of their last sequences."""
    head = _megatron_index(blob)
    width = np.dtype(head.dtype).itemsize
    if head.documents and int.from_bytes(blob.pread(8, head.starts), "little"):
        raise errors.corrupt(blob.url, "its first document does not begin with its first sequence", "open")
    for at in range(1, head.documents, _PIECE):
        count = min(_PIECE, head.documents - at)
        after = np.frombuffer(blob.pread(8 * count, head.starts + 8 * at), "<i8")
        if (after < 0).any() or (after > head.sequences).any() or (np.diff(after) < 0).any():
            raise errors.corrupt(blob.url, f"its documents lead out of its {head.sequences} sequences", "open")
        first, last = int(after[0]), int(after[-1])
        begin = max(0, first - 1)
        lengths = np.frombuffer(blob.pread(4 * (last - begin), MEGATRON_HEAD.size + 4 * begin), "<i4")
        pointers = np.frombuffer(blob.pread(8 * (last - begin), head.pointers + 8 * begin), "<i8")
        if (lengths < 0).any() or (pointers < 0).any() or (pointers % width).any():
            raise errors.corrupt(blob.url, "negative lengths or places of sequences", "open")
        ends = pointers // width + lengths
        yield np.where(after > 0, ends[np.maximum(after - 1 - begin, 0)] if len(ends) else 0, 0).astype(np.int64)


# ---- tokens


class TokenFile:
    """The tokens of an open file: mapped where the file lies on a local disk, also in a stored zip; else read.

    And the ends of its documents, and how many windows of `window` tokens each has, where they are asked for.
    """

    def __init__(self, fs: FS, layout: TokenLayout, window: int) -> None:
        self._fs = fs
        self._window = window
        self.layout = layout
        self._dtype = np.dtype(layout.dtype)
        self._blob = fs.open_blob(layout.path, FileStat(layout.path, layout.size, version=layout.version))
        if (self._blob.size, self._blob.version) != (layout.size, layout.version):
            url = self._blob.url
            self._blob.close()
            raise errors.stale(url, "the file changed since its tokens were counted", "read_records")
        self.mapped = self._map()

    def _map(self) -> Any:
        """Return the tokens as an array that is mapped; None where that can't be."""
        bottom = getattr(self._blob, "bottom", None)
        with contextlib.suppress(io.UnsupportedOperation):
            base, start = (self._blob, 0) if bottom is None else bottom()
            if not self.layout.tokens:
                return None
            view = mmap.mmap(base.fileno(), 0, access=mmap.ACCESS_READ)
            return np.frombuffer(view, self._dtype, self.layout.tokens, start + self.layout.start)
        return None

    def read(self, starts: Numbers, length: int) -> Any:
        """Return windows of `length` tokens, which lie in the file, from each of `starts`: a row for each."""
        if self.mapped is not None:
            return np.lib.stride_tricks.sliding_window_view(self.mapped, length)[starts]
        width = self._dtype.itemsize
        order = np.sort(starts)
        after = np.flatnonzero(np.diff(order) > length) + 1  # windows that overlap or touch are one range
        firsts = order[np.concatenate([[0], after])]
        sizes = order[np.concatenate([after - 1, [-1]])] + length - firsts
        ranges = zip((sizes * width).tolist(), (self.layout.start + width * firsts).tolist(), strict=True)
        tokens = np.frombuffer(b"".join(self._blob.pread_many(list(ranges))), self._dtype)
        run = firsts.searchsorted(starts, side="right") - 1
        places = starts - firsts[run] + (np.cumsum(sizes) - sizes)[run]
        return np.lib.stride_tricks.sliding_window_view(tokens, length)[places]

    def read_runs(self, starts: Sequence[int], lengths: Sequence[int]) -> list[Any]:
        """Return runs of tokens of different lengths."""
        if self.mapped is not None:
            return [self.mapped[start : start + length] for start, length in zip(starts, lengths, strict=True)]
        width = self._dtype.itemsize
        ranges = [(n * width, self.layout.start + width * start) for start, n in zip(starts, lengths, strict=True)]
        return [np.frombuffer(data, self._dtype) for data in self._blob.pread_many(ranges)]

    @cached_property
    def ends(self) -> Numbers:
        """The ends of the documents, in tokens."""
        return document_ends(self._fs, self.layout)

    @cached_property
    def pieces(self) -> Numbers:
        """The number of windows up to the end of each document, where windows are of one document."""
        if self.layout.ends is None:  # one document: how long it is depends on the type of its tokens
            return self._counted()
        with self._fs.open_blob(self.layout.ends) as blob:
            kept = derived(f"document-windows-{self._window}", blob, lambda: [self._counted().tobytes()])
        return np.frombuffer(kept, np.int64)

    def _counted(self) -> Numbers:
        counts = -(-np.diff(self.ends, prepend=0) // self._window)
        return np.cumsum(counts).astype(np.int64)

    def starts_of(self, windows: Numbers) -> tuple[Numbers, Numbers]:
        """Return where windows of one document each begin, and how many tokens they have."""
        documents = self.pieces.searchsorted(windows, side="right")
        before = np.where(documents > 0, self.pieces[documents - 1], 0)
        begins = np.where(documents > 0, self.ends[documents - 1], 0)
        starts = begins + (windows - before) * self._window
        return starts, np.minimum(self.ends[documents] - starts, self._window)

    def close(self) -> None:
        """Close the file; what is mapped is freed with the last array of it."""
        self.mapped = None
        self._blob.close()


WindowLayout = Literal["stream", "packed", "documents"]
SUFFIXES = (".bin", ".ds")
"""What the names of files of tokens end in."""


class TokenDataReader(FileShardsReader[TokenFile]):
    """Windows over the tokens of the files at `location`: a URL, a path, a glob pattern, a directory, an FS.

    A window has `sequence_length` + 1 tokens, of which the first `sequence_length` are a model's input and the last
    ones what it has to predict. Each file is a shard.

    Args:
        location: a directory means the files in it, and below, that end in `.bin` or `.ds`; a Megatron file may be
            given without `.bin`.
        sequence_length: tokens of a model's input.
        layout: "stream": windows over the documents as they follow each other, an array of int64 each. "packed": the
            same as a dict, `"tokens"` and `"segments"`, which numbers the documents in the window from 0 on.
            "documents": each window is of one document, which is cut where it is longer; a dict of `"tokens"`, filled
            up with `pad`, and `"mask"`, which is True for tokens.
        overlap: windows overlap by one token, as Megatron's do, so that each token is predicted once; or are disjoint,
            as datatrove's and nanotron's are. What is left at the end of a file is dropped, except of "documents".
        format: "megatron", "llm.c", "datatrove" or "raw"; None recognizes it.
        dtype: of a raw file's tokens, such as "uint16".
        pad: fills up windows of documents.
    """

    open_at_once = 256

    def __init__(
        self,
        location: Location,
        sequence_length: int,
        *,
        layout: WindowLayout = "stream",
        overlap: bool = True,
        format: Format | None = None,
        dtype: str | None = None,
        pad: int = 0,
    ) -> None:
        try:
            super().__init__(location)
        except FileNotFoundError:
            if isinstance(location, FS) or keys.name(os.fspath(location)).endswith(".bin"):
                raise
            # Megatron's programs name a pair of files without its suffixes.
            super().__init__(os.fspath(location) + ".bin")
        if sequence_length < 1:
            raise ValueError(f"sequence_length must be at least 1, not {sequence_length}")
        if layout not in ("stream", "packed", "documents"):
            raise ValueError(f"layout is 'stream', 'packed' or 'documents', not {layout!r}")
        if format is not None and format not in FORMATS:
            raise ValueError(f"format is one of {', '.join(FORMATS)}, or None, not {format!r}")
        self._format: Format | None = format
        self._dtype = dtype
        self.layout: WindowLayout = layout
        self.length = sequence_length + 1
        """Tokens of a window."""
        self.step = sequence_length if overlap else sequence_length + 1
        """Tokens from the start of a window to that of the next one."""
        self._pad = pad
        self._layouts: dict[str, TokenLayout] = {}

    def create_shards(self, mode: str = Mode.TRAINING) -> list[Shard]:
        """A shard for each file, whose records are its windows."""
        stats = self._list(self._is_wanted, "file of tokens")
        names = {stat.filename for stat in stats} | self._beside(stats)

        def load(name: str) -> TokenLayout:
            return layout_of(self._files.fs, self._stats[name], names, self._format, self._dtype)

        self._layouts = self._of_all(load, self._stats)
        return [Shard(name, 0, self._windows(name)) for name in self._layouts]

    def _is_wanted(self, stat: FileStat) -> bool:
        if self._files.is_chosen:
            return not stat.filename.endswith((".idx", ".index", ".metadata", ".loss"))
        return stat.filename.endswith(SUFFIXES)

    def _beside(self, stats: list[FileStat]) -> set[str]:
        """Return the names of the files that belong to a file that was given by itself, or to those of a pattern."""
        if not self._files.is_chosen:
            return set()
        fs = self._files.fs
        beside = {
            path
            for stat in stats
            for path in (
                stat.filename.removesuffix(".bin") + ".idx",
                *(stat.filename + end for end in (".index", ".metadata")),
            )
        }
        return {path for path in beside if fs.isfile(path)}

    def _windows(self, name: str) -> int:
        tokens = self._layouts[name].tokens
        if self.layout == "documents":
            ends = self.open(name).pieces
            return int(ends[-1]) if len(ends) else 0
        return max(0, (tokens - self.length) // self.step + 1)

    def content_of(self, shard_name: str) -> ShardContent:
        """Return the path, the size, and a digest of the index and both ends of the file."""
        layout = self._layouts[shard_name]
        unit = f"{layout.digest}/{self.layout}/{self.length}/{self.step}"
        return ShardContent(self._files.path(shard_name), layout.size, unit)

    # ---- windows

    def read_at(self, shard_name: str, numbers: Sequence[int]) -> Iterator[Any]:
        """The windows with these numbers, in the order given."""
        check_numbers(shard_name, numbers, self._windows(shard_name))
        for at in range(0, len(numbers), 256):
            part = np.asarray(numbers[at : at + 256], np.int64)
            yield from map(widened, samples_of(self.take([shard_name], np.zeros_like(part), part)))

    def take(self, names: Sequence[str], shards: Numbers, windows: Numbers) -> Any:
        """Return windows in order: an array with a row for each, or a dict of such arrays; see `widened`.

        Args:
            names: of the shards.
            shards: for each window the number of its shard in `names`.
            windows: the windows' numbers in their files.
        """
        parts = by_shard(shards)
        width = min(self._files.fs.default_concurrency, len(parts)) if self.reads_ahead else 1
        found = list(in_threads(lambda part: self._of_file(names[part[0]], windows[part[1]]), parts, width))
        if len(found) == 1:
            return found[0]
        back = np.argsort(np.concatenate([slots for _, slots in parts]))
        if isinstance(found[0], dict):
            return {key: np.concatenate([one[key] for one in found])[back] for key in found[0]}
        return np.concatenate(found)[back]

    def _of_file(self, name: str, windows: Numbers) -> Any:
        file = self.open(name)
        if self.layout == "documents":
            return self._of_documents(file, windows)
        starts = windows * self.step
        tokens = file.read(starts, self.length)
        if self.layout == "stream":
            return tokens
        positions = starts[:, None] + np.arange(self.length)
        documents = file.ends.searchsorted(positions, side="right")
        return {"tokens": tokens, "segments": _from_zero(documents)}

    def _of_documents(self, file: TokenFile, windows: Numbers) -> dict[str, Any]:
        starts, lengths = file.starts_of(windows)
        tokens = np.full((len(windows), self.length), self._pad, np.int64)
        for row, run in enumerate(file.read_runs(starts.tolist(), lengths.tolist())):
            tokens[row, : len(run)] = run
        return {"tokens": tokens, "mask": np.arange(self.length) < lengths[:, None]}

    # ---- files

    def open(self, name: str) -> TokenFile:
        """Return the open file of a shard; it stays open for a while, and is not to be closed."""
        return self._shard(name)

    def _open_shard(self, shard_name: str) -> TokenFile:
        return TokenFile(self._files.fs, self._layouts[shard_name], self.length)

    def offset_of(self, name: str, window: int) -> int:
        """Return the number of the first token of a window in its file."""
        if self.layout != "documents":
            return window * self.step
        return int(self.open(name).starts_of(np.array([window]))[0][0])


def _from_zero(documents: Numbers) -> Numbers:
    """Number the documents in each row from 0 on, however many empty ones are between them."""
    steps = np.diff(documents, axis=1, prepend=documents[:, :1]) != 0
    return np.cumsum(steps, axis=1)


def samples_of(batch: Any) -> Iterator[Any]:
    """Yield the samples of a batch, an array or a dict of arrays with a row for each."""
    if isinstance(batch, dict):
        for row in range(len(batch["tokens"])):
            yield {key: values[row] for key, values in batch.items()}
    else:
        yield from batch


def widened(sample: Any) -> Any:
    """Return a sample, or a batch of them, with its tokens as int64: as late as can be, for they take less before."""
    if isinstance(sample, dict):
        return {**sample, "tokens": widened(sample["tokens"])}
    return sample.astype("int64", copy=False)
