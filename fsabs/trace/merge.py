"""One timeline of all processes: a file that ui.perfetto.dev and chrome://tracing open as it is."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from typing import Any

from .reading import TraceSource, sources
from .schema import OVERLAPPING
from .writer import title

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
    partial = f"{target}.{os.getpid()}.partial"
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)  # as what it has
        with os.fdopen(descriptor, "wb") as raw, gzip.open(raw, "wt", compresslevel=2, encoding="utf-8") as file:
            file.write("[\n")
            for source in found:
                for text in _process(source, pids[source.number], zero):
                    file.write(text)
                notes += source.notes
            about = {"begin_wall_ns": zero, "notes": notes}
            file.write(json.dumps({"ph": "M", "name": "fsabs.merged", "pid": 0, "tid": 0, "ts": 0, "args": about}))
            file.write("\n]\n")
        os.replace(partial, target)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise
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
        ("process_name", {"name": title(source.header)}),
        ("process_sort_index", {"sort_index": source.number}),
        ("fsabs.process", source.header),
    ):
        yield json.dumps({"ph": "M", "name": name, "pid": pid, "tid": 0, "ts": 0, "args": args}) + ",\n"
    shift, overlapping, quoted, nesting = (source.offset - zero) / 1000, 0, _Quoted(), _Nesting()
    for chunk in source.chunks():
        lines = []
        for event in chunk:
            begin = max(0.0, event["ts"] + shift)
            common = f'"cat":{quoted[event["cat"]]},"name":{quoted[event["name"]]},"pid":{pid},"tid":{event["tid"]}'
            common += f',"ts":{begin:.3f}'
            if event["ph"] == "i":
                lines.append(f'{{"ph":"i","s":"t",{common},"args":{_args(event["args"], quoted)}}},\n')
            elif event["cat"] not in OVERLAPPING and nesting.holds(event["tid"], begin, begin + event["dur"]):
                how = f'"ph":"X",{common},"dur":{event["dur"]:.3f}'
                lines.append(f'{{{how},"args":{_args(event["args"], quoted)}}},\n')
            else:
                overlapping += 1
                number = f'"id":"{source.number}.{overlapping}"'
                ended = common[: common.rindex(":") + 1] + f"{begin + event['dur']:.3f}"
                lines.append(f'{{"ph":"b",{number},{common},"args":{_args(event["args"], quoted)}}},\n')
                lines.append(f'{{"ph":"e",{number},{ended}}},\n')
        yield "".join(lines)


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


class _Quoted(dict[str, str]):
    """Texts as JSON, of which few are new."""

    def __missing__(self, text: str) -> str:
        if len(self) > 50_000:
            self.clear()
        quoted = self[text] = json.dumps(text)
        return quoted


def _args(args: dict[str, Any], quoted: _Quoted) -> str:
    values = (f'"{name}":{quoted[value] if isinstance(value, str) else value}' for name, value in args.items())
    return f"{{{','.join(values)}}}"
