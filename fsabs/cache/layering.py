"""The cache layers of `cache=` and `http_cache=`, of `from_url` and of custom schemes in `pfio.ini`."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from typing import Any

from .. import config
from ..fs import FS
from ..schemes import known_options
from .cachedfs import CachedFS
from .httpfs import HTTPCachedFS
from .options import is_size

_OFF = ("false", "no", "off", "0", "none", "")
_ON = ("true", "yes", "on", "1")
_QUANTITY = re.compile(r"\d[\d.,_]*(e\d+)?[ \t]*[A-Za-z]*")
"""Matches what is more likely a size than the name of a folder."""


def cached(fs: FS, option: Any) -> FS:
    """`fs` in a `CachedFS`, if it can be read.

    `option` is True; a folder; a size of disk (`50_000_000_000` or `"50GB"`); or options of `CachedFS`, as a mapping or
    as text: `"dir=/scratch/cache, max_bytes=50GB, check_interval=60"`. False, 0, `"false"` and `"0"` are no cache.
    """
    options = cache_options(option)
    return fs if options is None or not fs.capabilities.read else CachedFS(fs, **options)


def cache_options(option: Any) -> dict[str, Any] | None:
    """The options of `CachedFS` that an option of `from_url` stands for; None for no cache."""
    if option is None or (isinstance(option, int) and option == 0):
        return None
    if option is True:
        return {}
    if isinstance(option, Mapping):
        return _checked({"dir": None, **known_options(CachedFS)}, option, "cache")
    if isinstance(option, int):
        return {"max_bytes": option}
    text = os.fspath(option).strip()
    if text.lower() in _OFF:
        return None
    if text.lower() in _ON:
        return {}
    if is_size(text):
        return {"max_bytes": text}
    if "=" in text and not text.startswith(("/", ".", "~")):
        return _checked({"dir": None, **known_options(CachedFS)}, _pairs(text, "cache"), "cache")
    near = difflib.get_close_matches(text.lower(), [*_ON, *_OFF[:-1]], n=1, cutoff=0.7)
    if near and not os.path.isdir(text):
        raise ValueError(
            f"cache={text!r} is no folder; did you mean {near[0]!r}? (a new folder of that name: './{text}')"
        )
    if _QUANTITY.fullmatch(text) and not os.path.isdir(text):
        raise ValueError(f"cache={text!r} is no size, as '50GB' is (a new folder of that name: './{text}')")
    return {"dir": os.path.expanduser(text)}


def http_cached(fs: FS, option: Any) -> FS:
    """`fs` in an `HTTPCachedFS`, if it can be read; `option` is the URL, or a mapping with `url` and its other options.

    As text, options follow the URL: `"http://cache/x, max_cache_size=1000000"`. `"false"` is no cache.
    """
    known = {"max_cache_size": int, "bearer_token_path": str, **known_options(HTTPCachedFS)}
    if isinstance(option, Mapping):
        options = dict(option)
        url = options.pop("url", None)
        if url is None:
            raise TypeError("http_cache needs the url of the server")
    elif isinstance(option, str):
        url, _, rest = option.partition(",")
        options = _pairs(rest, "http_cache") if rest else {}
    else:
        raise TypeError(f"http_cache is the URL of a server, or a mapping with one, not {type(option).__name__}")
    options = _checked(known, options, "http_cache")
    return fs if url.strip().lower() in _OFF or not fs.capabilities.read else HTTPCachedFS(url.strip(), fs, **options)


def _pairs(text: str, name: str) -> dict[str, str]:
    found = {}
    for item in text.split(","):
        key, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"{name}: {item.strip()!r} is no option=value")
        found[key.strip().replace("-", "_")] = value.strip()
    return found


def _checked(known: dict[str, Any], options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`options`, all of them known; text becomes what an option is annotated with."""
    for key in options:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(sorted(known))}"
            raise TypeError(f"{name} has no option {key!r}; {hint}")
    return {key: value if _is_size(known[key]) else _typed(known, key, value, name) for key, value in options.items()}


def _typed(known: dict[str, Any], key: str, value: Any, name: str) -> Any:
    return config.convert(value, known[key], f"{name} {key}")


def _is_size(annotation: Any) -> bool:
    """Return whether an option's value is a size, which may be text."""
    return "int | str" in str(annotation)
