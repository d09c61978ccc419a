"""A bar chart of what a benchmark found, as one SVG that needs nothing and is light or dark as its reader is."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

from .report import Content, number

WIDTH = 760
LABEL = 290
"""Where the bars begin."""
LENGTH = 340
"""Of the longest bar."""
STEP = 24
"""From one bar to the next."""

_STYLE = """
  .page { fill: #ffffff } text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600 } .note { fill: #59636e; font-size: 12px }
  .ours { fill: #0b7285 } .theirs { fill: #adb5bd } .spread { stroke: #1f2328; stroke-opacity: .55 }
  .axis { stroke: #d1d9e0 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } text { fill: #e6edf3 } .note { fill: #9198a1 }
    .ours { fill: #3bc9db } .theirs { fill: #495057 } .spread { stroke: #e6edf3 } .axis { stroke: #3d444d }
  }
"""


class Scale:
    """From a value to the length of its bar: by its logarithm where the values are too far apart."""

    def __init__(self, values: list[float]) -> None:
        high, low = max(values), min(values)
        self.logarithmic = low > 0 and high / low > 12
        self._floor = 10 ** math.floor(math.log10(low) - 0.15) if self.logarithmic else 0.0
        self._top = high or 1.0

    def __call__(self, value: float) -> float:
        if not self.logarithmic:
            return LENGTH * value / self._top
        if value <= self._floor:
            return 0.0
        return LENGTH * math.log(value / self._floor) / math.log(self._top / self._floor)

    def ticks(self) -> list[float]:
        """The powers of ten that a logarithmic axis passes."""
        if not self.logarithmic:
            return []
        first, last = math.log10(self._floor), math.log10(self._top)
        return [10.0**power for power in range(math.ceil(first - 1e-9), math.floor(last) + 1)]


def svg(found: Content) -> str:
    """One group of bars for each table."""
    parts: list[str] = []
    y = 26.0
    for table in found["tables"]:
        if table["rows"]:
            y = _group(parts, table, y)
    height = round(y)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(found["title"], {chr(34): "&quot;"})}">\n<style>{_STYLE}</style>\n'
        f'<rect class="page" width="{WIDTH}" height="{height}"/>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def _group(parts: list[str], table: Content, y: float) -> float:
    """The bars of a table from `y` on; where they end."""
    rows = table["rows"]
    scale = Scale([row["value"]["median"] for row in rows] + [row["value"]["high"] for row in rows])
    kind = "; logarithmic" if scale.logarithmic else ""
    parts.append(f'<text class="title" x="12" y="{y}">{escape(table["title"])}</text>')
    parts.append(f'<text class="note" x="12" y="{y + 17}">{escape(table["unit"])}, less is better{kind}</text>')
    top = y + 28
    bottom = top + STEP * len(rows)
    for value in scale.ticks():
        x = LABEL + scale(value)
        parts.append(f'<line class="axis" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>')
    for position, row in enumerate(rows):
        _bar(parts, row, scale, top + STEP * position)
    return bottom + 36


def _bar(parts: list[str], row: Content, scale: Scale, y: float) -> None:
    value = row["value"]
    length, low, high = (scale(value[key]) for key in ("median", "low", "high"))
    kind = "ours" if row["mine"] else "theirs"
    middle = y + STEP / 2
    parts.append(f'<text x="{LABEL - 8}" y="{middle + 4}" text-anchor="end">{escape(row["name"])}</text>')
    parts.append(
        f'<rect class="{kind}" x="{LABEL}" y="{y + 3}" width="{max(length, 1):.1f}" height="{STEP - 7}" rx="2"/>'
    )
    parts.append(f'<line class="spread" x1="{LABEL + low:.1f}" y1="{middle}" x2="{LABEL + high:.1f}" y2="{middle}"/>')
    times = row["ratio"]["median"]
    text = number(value["median"]) + (f"  ({number(times)} x)" if round(times, 3) != 1 else "")
    parts.append(f'<text x="{LABEL + max(length, high) + 7:.1f}" y="{middle + 4}">{text}</text>')
