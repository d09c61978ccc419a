"""Sphinx's configuration; `make docs` builds with it, and takes warnings for errors."""

import importlib.util

import fsabs

project = "fsabs"
author = "the fsabs authors"
release = version = fsabs.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
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
