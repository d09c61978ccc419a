"""Figures as people read them, the same ones in the report and in a terminal."""

from __future__ import annotations

import datetime
import math

from . import chunks

NOTHING = "–"
"""What stands for a figure that isn't known."""

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def count(number: float) -> str:
    """`12,345`."""
    return f"{number:,.0f}"


def short_count(number: float) -> str:
    """At most five characters: `12k`, `1.2M`."""
    for limit, divisor, letter in ((1e3, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M")):
        if number < 0.9995 * limit:
            return _digits(number / divisor) + letter
    return _digits(number / 1e9) + "G"


def size(number: float) -> str:
    """Bytes in powers of 1024, with three digits: `1.46 GiB`."""
    power = 0
    while number >= 999.5 and power < len(_SIZES) - 1:
        number, power = number / 1024, power + 1
    return f"{_digits(number)} {_SIZES[power]}"


def rate(number: float) -> str:
    """Bytes a second."""
    return f"{size(number)}/s"


def duration(seconds: float) -> str:
    """Seconds with three digits in the unit that suits them, and as hours and minutes from two minutes on."""
    if seconds != seconds:
        return NOTHING
    if seconds >= 7200:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    if seconds >= 120:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 0.9995:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{_digits(seconds * 1e9)} ns" if seconds > 0 else "0 s"


def short_duration(seconds: float) -> str:
    """As `duration`, of at most eight characters: `12.5 min`."""
    if seconds >= 120:
        return f"{_digits(seconds / 60)} min" if seconds < 7200 else f"{_digits(seconds / 3600)} h"
    return duration(seconds)


def percent(part: float) -> str:
    """A part of 1 as `12.3 %`."""
    return f"{_digits(100 * part)} %"


def moment(nanoseconds: int) -> str:
    """Nanoseconds since 1970 as a date and a time of UTC."""
    when = datetime.datetime.fromtimestamp(nanoseconds // 10**9, datetime.UTC)
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")


def evidence(name: str, value: float | int | str) -> str:
    """A figure of a finding's; its name says what it is."""
    if isinstance(value, str):
        return visible(value)
    if "bytes" in name.split()[:1]:
        return size(value)
    if "seconds" in name.split()[:1]:
        return duration(value)
    return count(value) if float(value).is_integer() else f"{value:,.4g}"


def visible(text: str) -> str:
    """`text` with everything that is not seen, or that a terminal would obey, in the spelling of Python's strings."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def address(where: str, most: int = 240) -> str:
    """A URL with no secret in it, that can be shown; the middle of one that is very long is left out."""
    text = visible(chunks.clean_url(where))
    return text if len(text) <= most else f"{text[: most // 3]}…{text[-(most - most // 3 - 1) :]}"


def _digits(number: float) -> str:
    """Three digits that count, and no zeros at the end."""
    if not math.isfinite(number):
        return NOTHING
    if abs(number) >= 99.95:
        return f"{number:,.0f}"
    text = f"{number:.1f}" if abs(number) >= 9.995 else f"{number:.2f}"
    return text.rstrip("0").rstrip(".")
