"""One timeline of all processes: a file that ui.perfetto.dev and chrome://tracing open as it is."""

from __future__ import annotations

import functools
import gzip
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from ..disk.files import Replacement
from .reading import TraceSource, sources
from .schema import INSTANTS, OVERLAPPING

FIRST_MADE_UP_PID = 10_000_000
ROUNDING = 0.001
"""Microseconds by which times that are written down may be off."""
MOST_ENDED = 100_000
"""Events of a thread that a later one may enclose."""


def merge(folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> str:
    """Merge a trace's files into one valid JSON array, gzipped; returns its path, `merged.json.gz` in the folder.

    Times are microseconds from the begin of the first process. Work of which a thread has several pieces under way at
    once, or that begins in one and ends behind it, becomes pairs of `b` and `e` events, which viewers lay out side by
    side: all `X` events of a thread nest. What could not be read is reported by
    an `M` event, `fsabs.merged`, at the end. Raises `FileNotFoundError` where the folder is none of a trace.
    """
    target = os.fspath(path) if path is not None else os.path.join(folder, "merged.json.gz")
    found, notes = sources(folder)
    zero = min((source.header["monotonic_ns"] + source.offset for source in found), default=0)
    pids = _pids(found)
    with (
        Replacement(target, mode=0o600) as out,  # as private as what it is made of
        open(out.descriptor, "wb", closefd=False) as raw,
        gzip.open(raw, "wt", compresslevel=2, encoding="utf-8") as file,
    ):
        file.write("[\n")
        for source in found:
            for text in _process(source, pids[source.number], zero):
                file.write(text)
            notes += source.notes
        about = {"begin_wall_ns": zero, "notes": notes}
        file.write(json.dumps({"ph": "M", "name": "fsabs.merged", "pid": 0, "tid": 0, "ts": 0, "args": about}))
        file.write("\n]\n")
    return target


def _pids(found: list[TraceSource]) -> list[int]:
    """A number for each process: its pid, but for what has one that is taken."""
    taken: set[int] = set()
    numbers = []
    for source in found:
        pid = source.header["pid"]
        if pid in taken:
            pid = FIRST_MADE_UP_PID + source.number
        taken.add(pid)
        numbers.append(pid)
    return numbers


def _process(source: TraceSource, pid: int, zero: int) -> Iterator[str]:
    for name, args in (
        ("process_name", {"name": _title(source.header)}),
        ("process_sort_index", {"sort_index": source.number}),
        ("fsabs.process", source.header),
    ):
        yield json.dumps({"ph": "M", "name": name, "pid": pid, "tid": 0, "ts": 0, "args": args}) + ",\n"
    overlapping, quoted, nesting = 0, functools.lru_cache(50_000)(json.dumps), _Nesting()
    for some in source.columns():
        lines = []
        for at in range(len(some.begin)):
            event = some.event(at, source.number)
            begin, took = max(0, event.begin - zero) / 1000, event.duration / 1000
            args = {"size": event.size}
            args |= {"offset": event.offset} if event.offset >= 0 else {}
            args |= {name: value for name in ("where", "error") if (value := getattr(event, name))}
            common = f'"cat":{quoted(event.kind)},"name":{quoted(event.name)},"pid":{pid},"tid":{event.thread}'
            timed = f'{common},"ts":{begin:.3f}'
            if event.kind in INSTANTS:
                lines.append(f'{{"ph":"i","s":"t",{timed},"args":{_args(args, quoted)}}},\n')
            elif event.kind not in OVERLAPPING and nesting.holds(event.thread, begin, begin + took):
                lines.append(f'{{"ph":"X",{timed},"dur":{took:.3f},"args":{_args(args, quoted)}}},\n')
            else:
                overlapping += 1
                number = f'"id":"{source.number}.{overlapping}"'
                lines.append(f'{{"ph":"b",{number},{timed},"args":{_args(args, quoted)}}},\n')
                lines.append(f'{{"ph":"e",{number},{common},"ts":{begin + took:.3f}}},\n')
        yield "".join(lines)


def _title(header: dict[str, Any]) -> str:
    """Return the name of a process in a timeline."""
    parts = [f"{header['program']} {header['host']}:{header['pid']}"]
    parts += [f"{name} {header[name]}" for name in ("rank", "worker") if header[name] is not None]
    return " ".join(parts)


class _Nesting:
    """Says which events of a thread nest, given in the order of their ends."""

    def __init__(self) -> None:
        self._ended: dict[int, list[tuple[float, float]]] = {}

    def holds(self, thread: int, begin: float, end: float) -> bool:
        """Return whether an event encloses, or lies behind, each one before; one that does is one of those then."""
        ended = self._ended.setdefault(thread, [])
        enclosed = len(ended)
        while enclosed and ended[enclosed - 1][0] >= begin:
            enclosed -= 1
        if enclosed and ended[enclosed - 1][1] > begin + ROUNDING:
            return False
        del ended[enclosed:]
        ended.append((begin, end))
        if len(ended) > 2 * MOST_ENDED:
            del ended[:-MOST_ENDED]
        return True


def _args(args: dict[str, Any], quoted: Callable[[str], str]) -> str:
    values = (f'"{name}":{quoted(value) if isinstance(value, str) else value}' for name, value in args.items())
    return f"{{{','.join(values)}}}"
