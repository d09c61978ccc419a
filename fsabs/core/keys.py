"""Paths become keys here, and nowhere else.

A *key* is a normalised path inside an FS: UTF-8 segments separated by `/`, no leading or trailing `/`, no
empty, `.` or `..` segment; `""` is the root. The jail is here, too: a path that climbs out of its FS's root
is refused. So are the glob patterns, and the percent-encoding of keys in URLs (WHATWG: in a path, space,
`"`, `#`, `<`, `>`, `?`, `` ` ``, `{`, `}`, `%` and everything outside ASCII is written as `%XX`; `+` stands for
itself).
"""

from __future__ import annotations

import errno
import os
import re
from urllib.parse import quote, unquote

_URL_SAFE = "/!$&'()*+,;=:@[]|^-._~"
_is_url = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://").match


def normalize(path: str | os.PathLike[str], base: str = "") -> str:
    """Return the key of `path`, relative to the key `base`; an absolute path starts at the root.

    `ValueError` for a NUL or a URL, `PermissionError` for what climbs above the root.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"a path is a str or an os.PathLike of str, not {type(text).__name__}")
    if "\0" in text:
        raise ValueError(f"a path can't hold a NUL character: {text!r}")
    if text and "/." not in text and "//" not in text and text[0] != "." and text[-1] != "/":  # as most are
        return text[1:] if text[0] == "/" else f"{base}/{text}" if base else text
    if _is_url(text):  # whose file would be one in a directory `s3:`
        raise ValueError(f"a path in this FS, and not a URL: {text!r}; fsabs.open_url and fsabs.from_url take URLs")
    parts = base.split("/") if base and not text.startswith("/") else []
    for part in text.split("/"):
        if part == "..":
            if not parts:
                raise PermissionError(errno.EACCES, f"the path {text!r} climbs above the root")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


# A key of ordinary segments, the common case: none is empty, `.` or `..`.
_is_key = re.compile(r"(?:(?!\.{1,2}(?:/|\Z))[^/]+(?:/|(?=\Z)))+(?<!/)", re.DOTALL).fullmatch


def is_key(text: str) -> bool:
    """Return whether `text` is a normalised, non-empty key as it stands."""
    if text and "/." not in text and "//" not in text and text[0] not in "./" and text[-1] != "/":
        return True  # most are
    return "//" not in text and _is_key(text) is not None


def inside(key: str, root: str) -> bool:
    """Return whether `key` is `root` or lies below it."""
    return not root or key == root or key.startswith(root + "/")


def join(base: str, name: str) -> str:
    """Return the key of `name` (a key) below `base`."""
    return f"{base}/{name}" if base and name else base or name


def relative(key: str, base: str) -> str:
    """Return the path of `key` from `base`, which it lies inside of."""
    return key[len(base) + 1 :] if base else key


def parent(key: str) -> str:
    """Return the key of the directory that `key` is in; the root's is the root."""
    return key.rpartition("/")[0]


def name(key: str) -> str:
    """Return the last segment of `key`."""
    return key.rpartition("/")[2]


def ancestors(key: str) -> list[str]:
    """Return the keys of the directories above `key`, outermost first, without the root."""
    parts = key.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


_is_plain = re.compile(rf"[A-Za-z0-9{re.escape(_URL_SAFE)}]*").fullmatch  # most are, and need no quoting


def to_url_path(key: str) -> str:
    """Return `key` as it stands in a URL."""
    return key if _is_plain(key) else quote(key, safe=_URL_SAFE, errors="surrogateescape")


def from_url_path(path: str) -> str:
    """Return a URL's path, decoded; an escape that is not one stays as it is."""
    return unquote(path, errors="surrogateescape")


_QUERY = re.compile(r"([^?#]*)(.*)", re.DOTALL)
_ENCODED_DOTS = re.compile(r"(?<![^/])(?:\.|%2e){1,2}(?![^/])", re.IGNORECASE)


def verbatim(path: str) -> tuple[str, str]:
    """Return a path that is part of a URL as it is written, and the query behind it, with a slash that is before it.

    In the path, `%2e` in place of a dot of `.` and `..` is decoded, as a server does.
    """
    match = _QUERY.match(path)
    assert match is not None  # of any text
    text = _ENCODED_DOTS.sub(lambda dots: dots[0].lower().replace("%2e", "."), match[1])
    return text, "/" * (match[2] != "" and text.endswith("/")) + match[2]


def is_text(key: str) -> bool:
    """Return whether a key is text: bytes that are not UTF-8 stand in it as surrogates."""
    return key.isascii() or not re.search("[\ud800-\udfff]", key)


def join_url(url: str, key: str) -> str:
    """Return the URL of `key` in the container at `url`; a query stays at the end."""
    base, mark, query = url.partition("?")
    if base.startswith(("http:", "https:")):  # it is sent as it is written
        return f"{url}/{to_url_path(key)}"
    return f"{base}/{to_url_path(key)}{mark}{query}"


def has_magic(pattern: str) -> bool:
    """Return whether `pattern` has a wildcard: `*`, `?` or `[`."""
    return any(char in pattern for char in "*?[")


def segment_matcher(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern for one segment, as in Python's `glob`: a wildcard never matches a leading dot."""
    import fnmatch

    hidden = "" if pattern.startswith(".") else r"(?!\.)"
    return re.compile(hidden + fnmatch.translate(pattern), re.DOTALL)
