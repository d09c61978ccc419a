"""All claims and tables of `results/*.json`, in Markdown: `results/tables.md`."""

from __future__ import annotations

import json
from typing import Any

from . import one
from .report import Content, figure, number, verdict

TABLES = one.RESULTS / "tables.md"


def write() -> None:
    """Write the page."""
    results = [one.RESULTS / f"{name}.json" for name in one.names()]
    found = [json.loads(path.read_text()) for path in results if path.exists()]
    head = "# Figures\n\nThe last run of each benchmark, whole; `docs/performance.md` has the method and a summary.\n\n"
    TABLES.write_text(head + "\n".join(map(section, found)))


def section(found: Content) -> str:
    """One benchmark in Markdown."""
    machine = found["machine"]
    lines = [
        f"### {found['name']}",
        "",
        found["title"],
        "",
        f"`{found['command']}` on {machine['cpus']} CPUs, {machine['system']}, Python {machine['python']}",
        "",
    ]
    if found["claims"]:
        lines += ["| | measured (10 % .. 90 %) | target | |", "|---|---|---|---|"]
        lines += [_claim(one_of) for one_of in found["claims"]]
        lines.append("")
    if found["tables"]:
        lines += [f"![{found['title']}]({found['name']}.svg)", ""]
    for table in found["tables"]:
        lines += _table(table)
    lines += [f"- {_cell(name)} is absent: {_cell(why)}" for name, why in found["absent"].items()]
    lines += [f"- {note}" for note in found["notes"]]
    return "\n".join(lines).rstrip() + "\n"


def _claim(claim: Content) -> str:
    measured = figure(claim["figure"], claim["unit"]) if claim["figure"] else "-"
    told = verdict(claim)
    told = f"**{told}**" if claim["reached"] is False else "" if claim["target"] is None else told
    return f"| {_cell(claim['what'])} | {measured} | {claim['target'] or ''} | {_cell(told)} |"


def _table(table: dict[str, Any]) -> list[str]:
    lines = [f"| {_cell(table['title'])} | {table['unit']} | times the first (10 % .. 90 %) |", "|---|---:|---:|"]
    for row in table["rows"]:
        lines.append(f"| {_cell(row['name'])} | {number(row['value']['median'])} | {figure(row['ratio'])} |")
    return [*lines, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
