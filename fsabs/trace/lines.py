"""The lines of a trace file: Chrome's events as text, written fast, and read back in bulk.

`Lines` renders what a process recorded; `parsed` is its opposite. See `schema.py` for what stands in a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

from .ring import Record
from .schema import (
    INSTANTS,
)

CHUNK = "fsabs.chunk"
"""The name of the `M` event that begins a gzip member: `from`, `to` are numbers of records, `lost` those missing."""
HEADER = "fsabs.process"
FOOTER = "fsabs.end"


def meta(name: str, pid: int, args: dict[str, Any]) -> str:
    """A line about the process."""
    return json.dumps({"ph": "M", "name": name, "pid": pid, "tid": 0, "ts": 0, "args": args}) + ",\n"


class Lines:
    """Renders the records of one process.

    `names` are kinds and names by their number and may grow meanwhile; `text` gives a URL by its number.
    """

    def __init__(self, pid: int, names: Sequence[tuple[str, str]], text: Callable[[int], str]) -> None:
        self._pid = pid
        self._names = names
        self._text = text
        self._begins: dict[tuple[int, int], str] = {}

    def render(self, records: Iterable[Record]) -> str:
        """One line for each of `records`."""
        begins, found, shown = self._begins, [], self._text
        for begin, took, size, offset, text, thread, name, error, _ in records:
            start = begins.get((name, thread)) or self._begin(name, thread)
            if error:
                end = self._failed(text, error)
            elif text and (where := shown(text)):
                end = f',"where":{_quoted(where)}}}}},\n'
            else:
                end = "}},\n"
            if offset >= 0:
                end = f',"offset":{offset}{end}'
            at = str(begin) if begin > 999 else f"{max(0, begin):04}"  # its digits: faster than formatting a float
            if start[0] == "i":
                found.append(f'{start[1:]}{at[:-3]}.{at[-3:]},"args":{{"size":{size}{end}')
                continue
            long = str(took) if took > 999 else f"{max(0, took):04}"
            found.append(f'{start}{at[:-3]}.{at[-3:]},"dur":{long[:-3]}.{long[-3:]},"args":{{"size":{size}{end}')
        return "".join(found)

    def _begin(self, number: int, thread: int) -> str:
        kind, name = self._names[number] if number < len(self._names) else ("span", "other")
        how = '"i","s":"t"' if kind in INSTANTS else '"X"'
        text = f'{{"ph":{how},"cat":{json.dumps(kind)},"name":{json.dumps(name)},"pid":{self._pid},"tid":{thread},"ts":'
        if len(self._begins) >= 4096:  # threads come and go
            self._begins.clear()
        self._begins[number, thread] = text = "i" + text if kind in INSTANTS else text
        return text

    def _failed(self, text: int, error: int) -> str:
        where = self._text(text) if text else ""
        failure = self._names[error][1] if error < len(self._names) else "Exception"
        return (f',"where":{_quoted(where)}' if where else "") + f',"error":{_quoted(failure)}}}}},\n'


def parsed(text: bytes) -> list[dict[str, Any]]:
    """The events of whole lines of a trace file, the first one (`[`) and the last one (`]`) left out.

    Raises `ValueError` for what is no JSON.
    """
    text = text.strip().removeprefix(b"[").removesuffix(b"]").strip().removesuffix(b",")
    found: list[dict[str, Any]] = json.loads(b"[" + text + b"]")
    return found
