"""The cache layers of `cache=` and `http_cache=`, of `from_url` and of custom schemes in `pfio.ini`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ..cache.cachedfs import CachedFS, SmallArchives
from ..core import errors
from ..core.fs import FS
from . import config
from .constructors import known_options

_SWITCHES = {**config.BOOLEANS, "none": False, "": False}
_QUANTITY = re.compile(r"\d[\d.,_]*(e\d+)?[ \t]*[A-Za-z]*")
"""Matches what is more likely a size than the name of a folder."""


def cached(fs: FS, option: Any) -> FS:
    """Return `fs` in a `CachedFS`, if it can be read.

    `option` is True, a folder, or a mapping of the options of `CachedFS`; where it comes from a configuration or the
    environment, text may have them, too: `"dir=/scratch/cache, max_bytes=50GB"`. False, None and `"off"` are no cache.
    """
    options = cache_options(option)
    return fs if options is None or not fs.capabilities.read else CachedFS(fs, **options)


def archives_cached(fs: FS, option: Any) -> FS:
    """Return `fs`, a store with containers in it, in a cache of its small files; `option` is that of `cached`."""
    options = cache_options(option)
    return fs if options is None or not fs.capabilities.read else SmallArchives(fs, **options)


def cache_options(option: Any) -> dict[str, Any] | None:
    """Return the options of `CachedFS` that an option of `from_url` stands for; None for no cache."""
    if option is None or isinstance(option, bool):
        return {} if option else None
    if isinstance(option, Mapping):
        return _options_of_cache(option)
    text = str(option) if isinstance(option, int) else os.fspath(option).strip()
    if text.lower() in _SWITCHES:
        return {} if _SWITCHES[text.lower()] else None
    if "=" in text and not text.startswith(("/", ".", "~")):
        return _options_of_cache(_parse_options(text, "cache"))
    if _QUANTITY.fullmatch(text) and not os.path.isdir(text):
        raise ValueError(f"cache= is True, a folder or a mapping; a limit is cache={{'max_bytes': {option!r}}}")
    hint = errors.did_you_mean(text.lower(), filter(None, _SWITCHES), cutoff=0.7)
    if hint and not os.path.isdir(text):
        raise ValueError(f"cache={text!r} is no folder{hint} (a new folder of that name: './{text}')")
    return _options_of_cache({"dir": text})


def _options_of_cache(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of `CachedFS`; a `~` that its folder begins with is the home."""
    found = _converted({"dir": None, **known_options(CachedFS)}, options, "cache")
    return {**found, "dir": os.path.expanduser(found["dir"])} if found.get("dir") is not None else found


def http_cached(fs: FS, option: Any) -> FS:
    """Return `fs` in an `HTTPCachedFS`, if it can be read.

    `option` is the URL, or a mapping with `url` and its other options.

    As text, options follow the URL: `"http://cache/x, max_cache_size=1000000"`. `"false"` is no cache.
    """
    from ..cache.httpfs import HTTPCachedFS

    known = {"max_cache_size": int, "bearer_token_path": str, **known_options(HTTPCachedFS)}
    if isinstance(option, Mapping):
        options = dict(option)
        url = options.pop("url", None)
        if url is None:
            raise TypeError("http_cache needs the url of the server")
    elif isinstance(option, str):
        url, _, rest = option.partition(",")
        options = _parse_options(rest, "http_cache") if rest else {}
    else:
        raise TypeError(f"http_cache is the URL of a server, or a mapping with one, not {type(option).__name__}")
    options = _converted(known, options, "http_cache")
    off = not _SWITCHES.get(url.strip().lower(), True)
    return fs if off or not fs.capabilities.read else HTTPCachedFS(url.strip(), fs, **options)


def _parse_options(text: str, name: str) -> dict[str, str]:
    return {key.replace("-", "_"): value for key, value in config.pairs(text, name).items()}


def _converted(known: dict[str, Any], options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return `options`, all of them known, with text in the types that the options are annotated with."""
    for key in options:
        if key not in known:
            raise TypeError(errors.unknown_option(str(key), known, name))
    return {
        key: value if _is_size(known[key]) else config.convert(value, known[key], f"{name} {key}")
        for key, value in options.items()
    }


def _is_size(annotation: Any) -> bool:
    """Return whether an option's value is a size, which may be text."""
    return "int | str" in str(annotation)
