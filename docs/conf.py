"""Sphinx's configuration; `make docs` builds with it, and takes warnings for errors. It writes `reference.md` anew."""

import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import fsabs

project = "fsabs"
author = "the fsabs authors"
release = version = fsabs.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_inherit_docstrings = False
python_use_unqualified_type_names = True
default_role = "code"
suppress_warnings = ["ref.python"]  # several classes have a field `bytes`, which annotations with the type may mean

html_theme = "furo" if importlib.util.find_spec("furo") else "alabaster"
html_title = f"fsabs {release}"


def reference() -> str:
    """Return the names of `api.rst` with the first sentences of their docstrings, as Markdown."""
    lines = [
        "# Reference",
        "",
        "Every public name, imported as it is written. `help(fsabs.from_url)` shows a whole docstring, and `make docs`",
        "builds the page of all of them. `fsabs.compat.pfio` has [PFIO's names](coming-from.md#pfio).",
    ]
    text = Path(__file__).with_name("api.rst").read_text()
    sections = re.split(r"^([^\n]+)\n-+\n", text, flags=re.MULTILINE)
    for title, section in zip(sections[1::2], sections[2::2], strict=True):
        lines += ["", f"## {title}", ""]
        lines += [
            f"- `{name}`: {_first(name)}" for name in re.findall(r"^\.\. auto(?!method)\w+:: (\S+)", section, re.M)
        ]
    return "\n".join(lines) + "\n"


def _first(name: str) -> str:
    """Return the first sentence of a docstring, or its part before a colon or semicolon."""
    found: object = fsabs
    path = "fsabs"
    for part in name.split(".")[1:]:
        path += f".{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
    text = " ".join((inspect.getdoc(found) or "").partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.:;]) ", text)[0]
    if sentence.count("(") > sentence.count(")"):
        sentence = re.split(r"(?<=\.) ", text)[0]
    return sentence.rstrip(".:;") + "."


def setup(app: object) -> None:
    """Write the list of names."""
    Path(__file__).with_name("reference.md").write_text(reference())
