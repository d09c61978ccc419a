"""The report: an analysis as one HTML file that needs nothing else, for people with a browser of any size."""

from __future__ import annotations

import os

from ..analysis import analyse
from .page import render

__all__ = ["render", "report"]


def report(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Analyse the trace in `folder`, and write the report as an HTML file at `path`, which is whole or not there.

    What stood at `path` is replaced. Raises `FileNotFoundError` where the folder is none of a trace, and what else
    `OSError` there is where the file can't be written.
    """
    text = render(analyse(folder))
    part = f"{os.fspath(path)}.{os.getpid()}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.remove(part)
        raise
