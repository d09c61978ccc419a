"""Modules that are made from a user's source file: model definition files, at a path or a URL."""

from __future__ import annotations

import sys
import types


def module_from(source: bytes | str, where: str) -> types.ModuleType:
    """Run the source of a module, which is the user's own code, and return the module.

    `where` is the URL or path that tracebacks show. The module is in `sys.modules`, where dataclasses and pickles look
    for it, under a name that no other module has. Raises what the code raises.
    """
    known_as = where.replace(".", "%2E")
    module = sys.modules[known_as] = types.ModuleType(known_as)
    module.__file__ = where
    try:
        exec(compile(source, where, "exec", dont_inherit=True), module.__dict__)  # no __future__ of this file
    except BaseException:
        del sys.modules[known_as]
        raise
    return module
