"""The tables of docs/performance.md, written between its markers from `results/*.json`."""

from __future__ import annotations

import json
from typing import Any

from . import one
from .report import Content, figure, number, verdict

PAGE = one.ROOT / "docs" / "performance.md"
BEGIN = "<!-- tables: begin (python -m benchmarks --document writes what is below) -->"
END = "<!-- tables: end -->"


def write() -> None:
    """Replace what is between the markers."""
    results = [one.RESULTS / f"{name}.json" for name in one.names()]
    text = "\n".join(section(json.loads(path.read_text())) for path in results if path.exists())
    PAGE.write_text(replaced(PAGE.read_text(), text))


def replaced(page: str, text: str) -> str:
    """The page with `text` between its markers. Raises `ValueError` where they are missing."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no markers in the page: {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n\n{text}\n{END}{tail}"


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
        lines += [f"![{found['title']}](../benchmarks/results/{found['name']}.svg)", ""]
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
