"""What a benchmark found, as JSON, and as text for a terminal."""

from __future__ import annotations

import os
import platform
from typing import Any

from .measure import Spread
from .race import Bench, Claim, Table

Content = dict[str, Any]
"""What a file of `results/` says."""


def content(name: str, title: str, command: str, bench: Bench) -> Content:
    """All that was found, as JSON can say it."""
    machine = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }
    return {
        "name": name,
        "title": title,
        "command": command,
        "machine": machine,
        "claims": [_claim(one) for one in bench.claims],
        "tables": [_table(one) for one in bench.tables],
        "cpu": bench.cpu,
        "absent": bench.absent,
        "notes": bench.notes,
    }


def _claim(claim: Claim) -> Content:
    return {
        "what": claim.what,
        "figure": claim.figure._asdict() if claim.figure else None,
        "unit": claim.unit,
        "target": str(claim.target) if claim.target else None,
        "reached": claim.reached,
        "note": claim.note,
    }


def _table(table: Table) -> Content:
    rows = [
        {"name": row.name, "value": row.value._asdict(), "ratio": row.ratio._asdict(), "mine": row.mine}
        for row in table.rows
    ]
    return {"title": table.title, "unit": table.unit, "rows": rows}


def number(value: float) -> str:
    """Three digits that matter, without an exponent, thousands grouped."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def figure(value: Content, unit: str = "") -> str:
    """`1.52 x (1.40 .. 1.61)`, from a median and its spread."""
    one = Spread(**value)
    text = f"{number(one.median)} {unit}".rstrip()
    return text if one.low == one.high else f"{text} ({number(one.low)} .. {number(one.high)})"


def verdict(claim: Content) -> str:
    """Whether the target was reached, in words."""
    if claim["reached"] is None:
        return claim["note"] or "no target"
    return "reached" if claim["reached"] else "NOT reached"


def text(found: Content) -> str:
    """All of it for a terminal."""
    lines = [f"\n=== {found['name']}: {found['title']}"]
    for table in found["tables"]:
        lines += [f"\n{table['title']}", f"{'':<38} {table['unit']:>14}    ratio   10% .. 90%"]
        for row in table["rows"]:
            ratio = Spread(**row["ratio"])
            value = number(row["value"]["median"])
            spread = f"{number(ratio.low)} .. {number(ratio.high)}"
            lines.append(f"{row['name']:<38} {value:>14} {number(ratio.median):>8}   {spread}")
    if found["claims"]:
        lines.append("\nTargets (median, 10% .. 90%)")
    for claim in found["claims"]:
        measured = figure(claim["figure"], claim["unit"]) if claim["figure"] else "-"
        lines.append(f"  {claim['what']}:\n      {measured}; target {claim['target'] or '-'}: {verdict(claim)}")
    lines += [f"  absent: {name}: {why}" for name, why in found["absent"].items()]
    lines += [f"  note: {note}" for note in found["notes"]]
    return "\n".join(lines) + "\n"
