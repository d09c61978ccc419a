"""Small pieces of HTML: elements, escaped text, and boxes for charts. What comes from a trace passes through `text`."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence

from . import units


def text(value: str) -> str:
    """Any text, to stand in an element or in a quoted attribute."""
    return html.escape(units.visible(value), quote=True)


def sentence(value: str) -> str:
    """Text in which `code` stands between backquotes."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text(value))


def section(code: str, title: str, body: str, lead: str = "") -> str:
    """A part of the page with its heading; `lead` is text that explains it."""
    lead = f'<p class="lead">{sentence(lead)}</p>' if lead else ""
    return f'<section id="{code}" aria-labelledby="{code}-h"><h2 id="{code}-h">{text(title)}</h2>{lead}{body}</section>'


def empty(said: str) -> str:
    """Return the text of an empty table or chart."""
    return f'<p class="empty">{sentence(said)}</p>'


def plot(label: str, svg: str, width: int, height: int, tips: Sequence[str], more: str = "") -> str:
    """A drawing that is stretched over its box, `width` by `height` in its own units.

    Labels are not part of it, since they would be stretched, too: they are HTML around it. `label` is for those who
    don't see it; `tips` say what is at each of as many places from left to right, for the script to show.
    """
    return (
        f'<div class="plot" tabindex="0" role="img" aria-label="{text(label)}" data-tips="{text(_json(tips))}">'
        f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none" aria-hidden="true">{svg}</svg>{more}</div>'
    )


def axes(plot: str, rows: Sequence[tuple[float, str]], columns: Sequence[tuple[float, str]]) -> str:
    """A plot with labels at its left and below it; each is a place, 0 to 1 from the bottom or the left, and a text."""
    left = "".join(f'<span style="bottom:{_percent(at)}">{text(label)}</span>' for at, label in rows)
    below = "".join(
        f'<span class="{_edge(at)}" style="left:{_percent(at)}">{text(label)}</span>' for at, label in columns
    )
    lines = "".join(f'<i style="bottom:{_percent(at)}"></i>' for at, _ in rows)
    return (
        f'<div class="axes"><div class="ys" aria-hidden="true">{left}</div>'
        f'<div class="area"><div class="lines" aria-hidden="true">{lines}</div>{plot}</div>'
        f'<div class="xs" aria-hidden="true">{below}</div></div>'
    )


def legend(*items: tuple[str, str]) -> str:
    """Colours (a class) and what they mean."""
    return (
        '<ul class="legend">'
        + "".join(f'<li><i class="{kind}"></i>{text(name)}</li>' for kind, name in items)
        + "</ul>"
    )


def figure(title: str, body: str, note: str = "") -> str:
    """A chart with its caption above it."""
    note = f" <span>{text(note)}</span>" if note else ""
    return f"<figure><figcaption><b>{text(title)}</b>{note}</figcaption>{body}</figure>"


def number(value: float) -> str:
    """For a drawing: short."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _percent(at: float) -> str:
    return f"{100 * at:.2f}%"


def _edge(at: float) -> str:
    return "first" if at < 0.04 else "last" if at > 0.96 else ""


def _json(tips: Sequence[str]) -> str:
    lines = [[units.visible(line) for line in tip.split("\n")] for tip in tips]
    return json.dumps(["\n".join(one) for one in lines], ensure_ascii=False, separators=(",", ":"))
