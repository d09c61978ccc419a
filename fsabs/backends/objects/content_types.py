"""The content types of objects: as given, or guessed by their names."""

from __future__ import annotations

import functools

from ...core import keys

AUTO = "auto"
"""The content type that is guessed by an object's name."""


def content_type_of(key: str, option: str | None) -> str | None:
    """Return the content type of a new object; None where the store chooses it."""
    return option if option != AUTO else _guessed(key)


def _guessed(key: str) -> str | None:
    name = keys.name(key)
    at = name.rfind(".", 1)
    return _type_of_suffix(name[at:].lower()) if at > 0 else None


@functools.lru_cache(maxsize=1024)
def _type_of_suffix(suffix: str) -> str | None:
    import mimetypes

    types = mimetypes.MimeTypes()  # without the files of this host: a name has one type everywhere
    found, encoding = types.guess_type(f"name{suffix}", strict=False)
    return found if encoding is None else None  # of compressed data: the type is that of the content
