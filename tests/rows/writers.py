"""Files of tokens as the programs that they come from write them, byte for byte, after their sources."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def megatron(
    path: Path, documents: Sequence[Sequence[Sequence[int]]], dtype: str = "uint16", modes: bool = False
) -> None:
    """Write `path`.bin and `path`.idx of documents, each of sequences (Megatron-LM: `IndexedDatasetBuilder`)."""
    sequences = [np.array(sequence, dtype) for document in documents for sequence in document]
    path.with_suffix(".bin").write_bytes(b"".join(sequence.tobytes() for sequence in sequences))
    lengths = [len(sequence) for sequence in sequences]
    width = np.dtype(dtype).itemsize
    pointers = [width * total for total in np.cumsum([0, *lengths])[: len(lengths)].tolist()]
    starts = np.cumsum([0, *map(len, documents)]).tolist()
    with path.with_suffix(".idx").open("wb") as out:
        out.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, CODES[dtype], len(lengths), len(starts)))
        out.write(np.array(lengths, "<i4").tobytes())
        out.write(np.array(pointers, "<i8").tobytes())
        out.write(np.array(starts, "<i8").tobytes())
        if modes:
            out.write(bytes(len(lengths)))


def llm_c(path: Path, tokens: Sequence[int], wide: bool = False) -> None:
    """Write a file of llm.c's (`write_datafile`)."""
    header = np.zeros(256, np.int32)
    header[:3] = [20240801, 7, len(tokens)] if wide else [20240520, 1, len(tokens)]
    path.write_bytes(header.tobytes() + np.array(tokens, np.uint32 if wide else np.uint16).tobytes())


def datatrove(path: Path, documents: Sequence[Sequence[int]], width: int = 2) -> None:
    """Write `path`, `path`.index and `path`.metadata (datatrove: `TokenizedFile`)."""
    kind = {2: "<H", 4: "<I"}[width]
    with path.open("wb") as out:
        for document in documents:
            out.write(b"".join(struct.pack(kind, token) for token in document))
    ends = np.cumsum([len(document) for document in documents]).tolist()
    path.with_name(path.name + ".index").write_bytes(struct.pack(f"<{len(ends)}Q", *ends))
    total = ends[-1] if ends else 0
    path.with_name(path.name + ".metadata").write_text(f"gpt2|{width}\n{total}\n{total / 1e3:.2f} KT")
