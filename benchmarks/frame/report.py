"""What a benchmark found, as JSON for `--against`, and as Markdown for a terminal and `results/NAME.md`."""

from __future__ import annotations

import os
import platform
from typing import Any

from .measure import Spread, Target
from .race import Bench

Content = dict[str, Any]
"""What a JSON file of `results/` says."""


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
        "claims": [{**_plain(one), "reached": one.reached} for one in bench.claims],
        "tables": [_plain(one) for one in bench.tables],
        "cpu": bench.cpu,
        "absent": bench.absent,
        "notes": bench.notes,
    }


def _plain(value: Any) -> Any:
    """Return named tuples as dictionaries, and a target in words."""
    if isinstance(value, Target):
        return str(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return {name: _plain(one) for name, one in value._asdict().items()} if hasattr(value, "_asdict") else value


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


def text(found: Content) -> str:
    """Return all of it as Markdown."""
    machine = found["machine"]
    lines = [
        f"# {found['name']}",
        "",
        found["title"],
        "",
        f"`{found['command']}` on {machine['cpus']} CPUs, {machine['system']}, Python {machine['python']}",
        "",
    ]
    if found["claims"]:
        lines += ["| | measured (10 % .. 90 %) | target | |", "|---|---|---|---|"]
        lines += [*map(_claimed, found["claims"]), ""]
    for table in found["tables"]:
        lines += [f"| {_cell(table['title'])} | {table['unit']} | times the first (10 % .. 90 %) |", "|---|---:|---:|"]
        for row in table["rows"]:
            lines.append(f"| {_cell(row['name'])} | {number(row['value']['median'])} | {figure(row['ratio'])} |")
        lines.append("")
    lines += [f"- {_cell(name)} is absent: {_cell(why)}" for name, why in found["absent"].items()]
    lines += [f"- {note}" for note in found["notes"]]
    return "\n".join(lines).rstrip() + "\n"


def _claimed(claim: Content) -> str:
    measured = figure(claim["figure"], claim["unit"]) if claim["figure"] else "-"
    told = {True: "reached", False: "**NOT reached**", None: _cell(claim["note"])}[claim["reached"]]
    return f"| {_cell(claim['what'])} | {measured} | {claim['target'] or ''} | {told} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
