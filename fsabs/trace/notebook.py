"""An analysis in a notebook: the headline figures and the findings, in a few lines of HTML with no script."""

from __future__ import annotations

from .headlines import bad_first, headlines
from .markup import sentence, text
from .results import Analysis

_MUTED = "opacity:.72"


class ShownAnalysis(Analysis):
    """An analysis that a notebook shows by itself."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return fragment(self)


def fragment(analysis: Analysis) -> str:
    """Return the HTML of `_repr_html_`, in the notebook's own colours, light or dark."""
    figures = "".join(
        f'<div style="min-width:8em"><div style="{_MUTED};font-size:.85em">{text(one.name)}</div>'
        f'<div style="font-size:1.3em;font-weight:600">{text(one.value)}</div>'
        f'<div style="{_MUTED};font-size:.8em">{text(one.note)}</div></div>'
        for one in headlines(analysis)
    )
    findings = "".join(
        f'<li style="margin:.3em 0"><b>{text(one.severity)}</b> {text(one.title)} ({text(one.code)})<br>'
        f'<span style="{_MUTED}">{sentence(one.advice)}</span></li>'
        for one in analysis.findings
    )
    notes = "".join(f"<li>{text(note)}</li>" for note in analysis.notes)
    return (
        f'<div style="max-width:60em"><div style="display:flex;flex-wrap:wrap;gap:.6em 2em">{figures}</div>'
        f'<p style="margin:.8em 0 .2em">{text(bad_first(analysis))}</p><ol style="margin:0">{findings}</ol>'
        + (f"<details><summary>Notes</summary><ul>{notes}</ul></details>" if notes else "")
        + "</div>"
    )
