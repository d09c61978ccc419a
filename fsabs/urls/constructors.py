"""The options that the constructor of an FS takes, and their types."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any

from ..core.fs import FS


@functools.cache
def known_options(kind: type[FS]) -> Mapping[str, Any]:
    """Return the keyword-only options of a backend's or container's constructor, with their types."""
    hints = typing.get_type_hints(kind.__init__)
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            found[name] = hints.get(name, str)
        elif parameter.kind is parameter.VAR_KEYWORD and typing.get_origin(hints.get(name)) is typing.Unpack:
            found |= typing.get_type_hints(typing.get_args(hints[name])[0])
    return types.MappingProxyType(found)
