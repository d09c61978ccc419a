"""TokenDataset: windows of tokens, of files of token ids or of documents that are tokenized and packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from ...readers.data import AbstractDataReader
from ...readers.data.files import Location
from ...readers.data.token_files import Format
from ...readers.data.tokens import Layout, TokenDataReader
from .files import Transform
from .packing import Packing
from .plan import Uneven
from .sharded import WINDOW, ShardedDataset


class TokenDataset(ShardedDataset):
    """Windows of `sequence_length` + 1 tokens, each once an epoch, whichever rank and worker it falls to.

    Without `tokenize`, `source` is files of token ids, as `TokenDataReader` reads them (`layout`, `overlap`, `format`,
    `dtype` and `pad` are its own). Every window has a random place in an epoch; or every block of `block_size` windows
    has one, and the windows within each buffer of `buffer_size` are shuffled, which reads longer runs from a store.
    With `tokenize`, the source is documents: Parquet files, JSON lines, RecordIO or a data reader, and windows are
    packed of them as `Packing` has it.

    Args:
        source: a URL, a path, a pattern, a directory, an FS or a data reader.
        sequence_length: tokens of a model's input.
        transform: makes a sample of a window, or of a batch of them.
        tokenize: makes token ids of a document; of a list of documents with `batched`.
        columns, window: of Parquet files, as `ShardedDataset` has them.
        uneven, padding: as `ShardedDataset` has them; windows of documents and packed ones need no `padding`.
        batch_size: a sample is a batch of so many windows, and the loader takes `batch_size=None`: faster than batches
            that are collated of single windows.

    Else as `ShardedDataset`.
    """

    def __init__(
        self,
        source: AbstractDataReader | Location,
        sequence_length: int,
        transform: Transform | None = None,
        *,
        tokenize: Callable[[Any], Sequence[Any]] | None = None,
        batched: bool = False,
        layout: Layout = "stream",
        overlap: bool = True,
        format: Format | None = None,
        dtype: str | None = None,
        pad: int = 0,
        columns: Sequence[str] | None = None,
        window: int = WINDOW,
        seed: int | None = None,
        block_size: int | None = None,
        buffer_size: int = 0,
        batch_size: int | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        uneven: Uneven = "keep",
        padding: Any = None,
        max_bytes: int | Literal["auto"] | None = "auto",
    ) -> None:
        import numpy as np

        packing = None
        if tokenize is not None:
            if layout != "stream" or format is not None or dtype is not None:
                raise TypeError("layout, format and dtype are of files of token ids, and not of tokenized documents")
            packing = Packing(tokenize, sequence_length, overlap, batched, pad, batch_size)
        elif not isinstance(source, AbstractDataReader):
            source = TokenDataReader(
                source, sequence_length, layout=layout, overlap=overlap, format=format, dtype=dtype, pad=pad
            )
        if uneven == "pad" and padding is None and layout != "stream":
            length = sequence_length + 1
            padding = {"tokens": np.full(length, pad, np.int64)}
            if layout == "documents":
                padding["mask"] = np.zeros(length, bool)
            else:
                padding["segments"] = np.full(length, -1, np.int64)
        super().__init__(
            source,
            transform,
            seed=seed,
            block_size=block_size,
            buffer_size=buffer_size,
            columns=columns,
            window=window,
            batch_size=None if packing is not None else batch_size,
            packing=packing,
            rank=rank,
            ranks=ranks,
            uneven=uneven,
            padding=padding,
            max_bytes=max_bytes,
        )
