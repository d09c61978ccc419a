"""Python imports this when it starts, where its folder is on PYTHONPATH; another `sitecustomize` comes after it."""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_spec = importlib.machinery.PathFinder.find_spec(
    "sitecustomize", [path for path in sys.path if os.path.abspath(path) != _here]
)
if _spec is not None and _spec.loader is not None:
    _spec.loader.exec_module(importlib.util.module_from_spec(_spec))
if os.environ.get("FSABS_PATCH"):
    import fsabs  # noqa: F401 - applies it
