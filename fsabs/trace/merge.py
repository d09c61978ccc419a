"""One timeline of all processes: a file that ui.perfetto.dev and chrome://tracing open as it is."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from typing import Any

from .reading import TraceSource, sources
from .schema import (
    OVERLAPPING,
)
from .writer import title

FIRST_MADE_UP_PID = 10_000_000


def merge(folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> str:
    """Merge a trace's files into one valid JSON array, gzipped; returns its path, `merged.json.gz` in the folder.

    Times are microseconds from the begin of the first process. Work of which a thread has several pieces under way at
    once becomes pairs of `b` and `e` events, which viewers lay out side by side. What could not be read is reported by
    an `M` event, `fsabs.merged`, at the end. Raises `FileNotFoundError` where the folder is none of a trace.
    """
    target = os.fspath(path) if path is not None else os.path.join(folder, "merged.json.gz")
    found, notes = sources(folder)
    zero = min((source.header["monotonic_ns"] + source.offset for source in found), default=0)
    pids = _pids(found)
    partial = f"{target}.{os.getpid()}.partial"
    try:
        with gzip.open(partial, "wt", compresslevel=2, encoding="utf-8") as file:
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
    shift, overlapping, quoted = (source.offset - zero) / 1000, 0, _Quoted()
    for chunk in source.chunks():
        lines = []
        for event in chunk:
            begin = max(0.0, event["ts"] + shift)
            common = f'"cat":{quoted[event["cat"]]},"name":{quoted[event["name"]]},"pid":{pid},"tid":{event["tid"]}'
            common += f',"ts":{begin:.3f}'
            if event["ph"] == "i":
                lines.append(f'{{"ph":"i","s":"t",{common},"args":{_args(event["args"], quoted)}}},\n')
            elif event["cat"] not in OVERLAPPING:
                how = f'"ph":"X",{common},"dur":{event["dur"]:.3f}'
                lines.append(f'{{{how},"args":{_args(event["args"], quoted)}}},\n')
            else:
                overlapping += 1
                number = f'"id":"{source.number}.{overlapping}"'
                ended = common[: common.rindex(":") + 1] + f"{begin + event['dur']:.3f}"
                lines.append(f'{{"ph":"b",{number},{common},"args":{_args(event["args"], quoted)}}},\n')
                lines.append(f'{{"ph":"e",{number},{ended}}},\n')
        yield "".join(lines)


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
