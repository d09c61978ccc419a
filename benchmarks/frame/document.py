"""What `results/*.json` say, in Markdown: a row for each benchmark between the markers of docs/performance.md, and all
claims and tables in `results/tables.md`.
"""

from __future__ import annotations

import json
from typing import Any

from . import one
from .report import Content, figure, number, verdict

PAGE = one.ROOT / "docs" / "performance.md"
TABLES = one.RESULTS / "tables.md"
BEGIN = "<!-- tables: begin (python -m benchmarks --document writes what is below) -->"
END = "<!-- tables: end -->"


def write() -> None:
    """Write both pages."""
    results = [one.RESULTS / f"{name}.json" for name in one.names()]
    found = [json.loads(path.read_text()) for path in results if path.exists()]
    PAGE.write_text(replaced(PAGE.read_text(), summary(found)))
    head = "# Figures\n\nThe last run of each benchmark, whole; `docs/performance.md` has the method and a summary.\n\n"
    TABLES.write_text(head + "\n".join(map(section, found)))


def summary(found: list[Content]) -> str:
    """Return a table, a row for each benchmark: its first claim, how many were reached, and each that was missed."""
    lines = ["| benchmark | its first figure | measured (10 % .. 90 %) | target | reached | missed |", "|---" * 6 + "|"]
    for one_of in found:
        judged = [claim for claim in one_of["claims"] if claim["reached"] is not None]
        first = next(iter(judged or one_of["claims"]), None)
        if first is None:
            continue
        measured = figure(first["figure"], first["unit"]) if first["figure"] else "-"
        reached = f"{sum(claim['reached'] for claim in judged)} of {len(judged)}"
        missed = "<br>".join(
            f"{_cell(claim['what'])}: **{figure(claim['figure'], claim['unit'])}**, target {_cell(claim['target'])}"
            for claim in judged
            if not claim["reached"]
        )
        target = _cell(first["target"] or "")
        lines.append(f"| `{one_of['name']}` | {_cell(first['what'])} | {measured} | {target} | {reached} | {missed} |")
    return "\n".join(lines) + "\n"


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
