"""Assertions of the checks: functions that raise `AssertionError` with what was found; plain `assert` would be
silent under `python -O`, and mute in a kit that is run without pytest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from ..core.fs import FS

E = TypeVar("E", bound=BaseException)

_SHOWN = 300  # characters of a value that a message shows


def true(found: object, what: str) -> None:
    """Demand that `found` is true; `what` says what should have been."""
    if not found:
        raise AssertionError(what)


def equal(found: object, expected: object, what: str) -> None:
    """Demand that `found` equals `expected`; `what` says what was looked at."""
    if found == expected:
        return
    if isinstance(found, bytes) and isinstance(expected, bytes):
        raise AssertionError(f"{what}: {_difference(found, expected)}")
    if isinstance(found, list) and isinstance(expected, list):
        raise AssertionError(f"{what}: {_first(found, expected)}")
    if isinstance(found, dict) and isinstance(expected, dict):
        raise AssertionError(f"{what}: {_keys(found, expected)}")
    raise AssertionError(f"{what}: found {_short(found)}, expected {_short(expected)}")


def raises(kind: type[E] | tuple[type[E], ...], what: str, call: Callable[..., Any], *args: Any) -> E:
    """Demand that `call(*args)` raises a `kind`; returns what was raised."""
    try:
        given = call(*args)
    except kind as exc:
        return exc
    except Exception as exc:
        raise AssertionError(f"{what}: raised {exc!r}, expected {_names(kind)}") from exc
    raise AssertionError(f"{what}: gave {_short(given)}, expected {_names(kind)}")


def os_error(
    kind: type[OSError] | tuple[type[OSError], ...],
    code: int | Collection[int],
    place: tuple[FS, str] | Collection[str],
    call: Callable[..., Any],
    *args: Any,
) -> OSError:
    """Demand an `OSError` as every FS raises them: of the right type, with errno, URL and operation.

    `place` is an FS and the path on it that went wrong, or the URLs that the error may name.
    """
    urls = [place[0].url(place[1])] if isinstance(place, tuple) and isinstance(place[0], FS) else place
    what = f"{getattr(call, '__name__', call)}{args!r}"
    exc = raises(kind, what, call, *args)
    named(exc, what)
    codes = {code} if isinstance(code, int) else set(code)
    true(exc.errno in codes, f"{what}: errno {exc.errno} in {exc!r}, expected one of {[_errno(n) for n in codes]}")
    true(exc.filename in urls, f"{what}: filename {exc.filename!r} in {exc!r}, expected one of {list(urls)}")
    return exc


def named(exc: OSError, what: str) -> None:
    """Demand that an error of an FS has an errno, a URL and an operation."""
    true(isinstance(exc.errno, int), f"{what}: no errno in {exc!r}")
    true(isinstance(exc.filename, str) and exc.filename, f"{what}: no URL as the filename of {exc!r}")
    operation = getattr(exc, "operation", None)
    true(isinstance(operation, str) and operation, f"{what}: no operation in {exc!r}")
    own = type(exc).__module__.partition(".")[0]
    true(own in ("builtins", "io", "_io", "fsabs"), f"{what}: {type(exc)} is neither Python's nor fsabs's")


def _errno(code: int) -> str:
    return f"{code} ({os.strerror(code)})"


def _names(kind: type[BaseException] | tuple[type[BaseException], ...]) -> str:
    return kind.__name__ if isinstance(kind, type) else " or ".join(one.__name__ for one in kind)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def _difference(found: bytes, expected: bytes) -> str:
    at = next((n for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), None)
    if at is None:
        at = min(len(found), len(expected))
    there, wanted = found[at : at + 20], expected[at : at + 20]
    return f"{len(found)} bytes, expected {len(expected)}; at offset {at} there is {there!r}, expected {wanted!r}"


def _first(found: list[Any], expected: list[Any]) -> str:
    for at, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            return f"item {at} is {_short(one)}, expected {_short(other)} (found {_short(found)})"
    return f"{len(found)} items, expected {len(expected)}: {_short(found)} against {_short(expected)}"


def _keys(found: dict[Any, Any], expected: dict[Any, Any]) -> str:
    parts = []
    if missing := [key for key in expected if key not in found]:
        parts.append(f"missing {_short(missing)}")
    if surplus := [key for key in found if key not in expected]:
        parts.append(f"too many {_short(surplus)}")
    for key in expected:
        if key in found and found[key] != expected[key]:
            parts.append(f"{key!r} is {_short(found[key])}, expected {_short(expected[key])}")
            break
    return "; ".join(parts)
