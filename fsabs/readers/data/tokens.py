"""TokenDataReader: windows of tokens over files of token ids, as records of shards.

A window is found by arithmetic, and never by an index of windows: opening and planning cost the same for a file of any
size. Only documents need an index, which is the format's own (`token_files`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ...core import keys
from ...core.fs import FS, FileStat
from ...core.threads import in_threads
from .base import Mode, Shard, ShardContent, check_range
from .files import FileShardsReader, Location, derived
from .token_files import FORMATS, Format, TokenFile, TokenLayout, document_ends, layout_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

WindowLayout = Literal["stream", "packed", "documents"]
_SUFFIXES = (".bin", ".ds")


class TokenDataReader(FileShardsReader["_OpenFile"]):
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

        self._layouts = dict(zip(self._stats, self._of_all(load, list(self._stats)), strict=True))
        return [Shard(name, 0, self._windows(name)) for name in self._layouts]

    def _is_wanted(self, stat: FileStat) -> bool:
        if self._files.is_chosen:
            return not stat.filename.endswith((".idx", ".index", ".metadata", ".loss"))
        return stat.filename.endswith(_SUFFIXES)

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
        import numpy as np

        if len(numbers):
            check_range(shard_name, min(numbers), max(numbers) + 1, self._windows(shard_name))
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
        import numpy as np

        order = np.argsort(shards, kind="stable")
        used, starts = np.unique(shards[order], return_index=True)
        slots = np.split(order, starts[1:])
        parts = list(zip(used.tolist(), slots, strict=True))

        def read(part: tuple[int, Numbers]) -> Any:
            number, places = part
            return self._of_file(names[number], windows[places])

        width = min(self._files.fs.default_concurrency, len(parts)) if self.reads_ahead else 1
        found = list(in_threads(read, parts, width))
        if len(found) == 1:
            return found[0]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        if isinstance(found[0], dict):
            return {key: np.concatenate([one[key] for one in found])[back] for key in found[0]}
        return np.concatenate(found)[back]

    def _of_file(self, name: str, windows: Numbers) -> Any:
        import numpy as np

        file = self.open(name)
        if self.layout == "documents":
            return self._of_documents(file, windows)
        starts = windows * self.step
        tokens = file.tokens.read(starts, self.length)
        if self.layout == "stream":
            return tokens
        positions = starts[:, None] + np.arange(self.length)
        documents = file.ends.searchsorted(positions, side="right")
        return {"tokens": tokens, "segments": _from_zero(documents)}

    def _of_documents(self, file: _OpenFile, windows: Numbers) -> dict[str, Any]:
        import numpy as np

        documents = file.pieces.searchsorted(windows, side="right")
        before = np.where(documents > 0, file.pieces[documents - 1], 0)
        begins = np.where(documents > 0, file.ends[documents - 1], 0)
        starts = begins + (windows - before) * self.length
        lengths = np.minimum(file.ends[documents] - starts, self.length)
        tokens = np.full((len(windows), self.length), self._pad, np.int64)
        for row, run in enumerate(file.tokens.read_runs(starts.tolist(), lengths.tolist())):
            tokens[row, : len(run)] = run
        return {"tokens": tokens, "mask": np.arange(self.length) < lengths[:, None]}

    # ---- files

    def open(self, name: str) -> _OpenFile:
        """Return the open file of a shard; it stays open for a while, and is not to be closed."""
        return self._shard(name)

    def _open_shard(self, shard_name: str) -> _OpenFile:
        return _OpenFile(self._files.fs, self._layouts[shard_name], self.length)

    def offset_of(self, name: str, window: int) -> int:
        """Return the number of the first token of a window in its file."""
        if self.layout != "documents":
            return window * self.step
        file = self.open(name)
        document = int(file.pieces.searchsorted(window, side="right"))
        begin, before = (int(file.ends[document - 1]), int(file.pieces[document - 1])) if document else (0, 0)
        return begin + (window - before) * self.length


class _OpenFile:
    """A file's tokens, and the ends of its documents where they are asked for."""

    def __init__(self, fs: FS, layout: TokenLayout, length: int) -> None:
        self._fs = fs
        self._length = length
        self.tokens = TokenFile(fs, layout)
        self._ends: Any = None
        self._pieces: Any = None

    @property
    def ends(self) -> Any:
        """The ends of the documents, in tokens."""
        if self._ends is None:
            self._ends = document_ends(self._fs, self.tokens.layout)
        return self._ends

    @property
    def pieces(self) -> Any:
        """The number of windows up to the end of each document, where windows are of one document."""
        if self._pieces is None:
            import numpy as np

            layout = self.tokens.layout
            path = layout.ends or layout.path
            kind = f"document-windows-{self._length}"
            with self._fs.open_blob(path) as blob:
                self._pieces = np.frombuffer(derived(kind, blob, self._counted), np.int64)
        return self._pieces

    def _counted(self) -> list[bytes]:
        import numpy as np

        counts = -(-np.diff(self.ends, prepend=0) // self._length)
        return [np.cumsum(counts).astype(np.int64).tobytes()]

    def close(self) -> None:
        """Close the file."""
        self.tokens.close()


def _from_zero(documents: Numbers) -> Numbers:
    """Number the documents in each row from 0 on, however many empty ones are between them."""
    import numpy as np

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
