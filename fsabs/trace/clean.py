"""Removal of credentials, queries and fragments from the URLs of a trace."""

from __future__ import annotations

import re

_USER = re.compile(r"(//|^)[^/]*@")


def url(where: str) -> str:
    """`where` without what may be a secret: everything from `?` or `#` on, and what stands before an `@`.

    In a URL these characters mean nothing else (in a path they are written as %3F, %23); in one of fsspec's chains,
    `zip://a::https://...`, each of its parts is looked at.
    """
    if "?" not in where and "#" not in where and "@" not in where:
        return where
    return "::".join(_part(part) for part in where.split("::"))


def _part(text: str) -> str:
    text = re.split(r"[?#]", text, maxsplit=1)[0]
    return _USER.sub(r"\1", text) if "@" in text else text
