"""The arguments of `open`: what a mode says, and which arguments are refused, as `builtins.open` refuses them."""

from __future__ import annotations

import codecs
import functools
import operator
from typing import Literal, cast

TextUpdateMode = Literal["r+", "+r", "r+t", "rt+", "+rt", "+tr", "t+r", "tr+"]
TextMode = Literal["r", "rt", "tr", "w", "wt", "tw", "x", "xt", "tx", "a", "at", "ta"] | TextUpdateMode
ReadBinaryMode = Literal["rb", "br"]
WriteBinaryMode = Literal["wb", "bw", "xb", "bx", "ab", "ba"]
UpdateBinaryMode = Literal["r+b", "rb+", "+br", "+rb", "b+r", "br+"]
"""The modes by what `open` returns, for type checkers."""


class OpenMode:
    """A parsed mode of `builtins.open`: `action` is one of `r w x a`, beside `update` (`+`) and `text`."""

    __slots__ = ("action", "only_reads", "text", "update")

    def __init__(self, mode: str) -> None:
        if not isinstance(mode, str):
            raise TypeError(f"a mode is a str, not {type(mode).__name__}")
        letters = set(mode)
        actions = letters & set("rwxa")
        if letters - set("rwxabt+") or len(letters) < len(mode) or len(actions) != 1:
            raise ValueError(f"invalid mode: {mode!r}")
        if {"b", "t"} <= letters:
            raise ValueError(f"can't have text and binary mode at once: {mode!r}")
        self.action = cast(Literal["r", "w", "x", "a"], actions.pop())
        self.update = "+" in letters
        self.text = "b" not in letters
        self.only_reads = self.action == "r" and not self.update


@functools.lru_cache(maxsize=64)
def parse(mode: str) -> OpenMode:
    """Return the mode, taken apart; `ValueError`, `TypeError`."""
    return OpenMode(mode)


def check(mode: OpenMode, buffering: int, encoding: str | None, errors: str | None, newline: str | None) -> None:
    """Refuse what `builtins.open` refuses, before anything is opened or made."""
    if type(buffering) is not int:
        operator.index(buffering)
    if buffering == 0 and mode.text:
        raise ValueError("can't have unbuffered text I/O")
    if encoding is not None or errors is not None or newline is not None:
        if not mode.text:
            raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
        _check_text(encoding, errors, newline)


def _check_text(encoding: str | None, errors: str | None, newline: str | None) -> None:
    for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} must be str or None, not {type(value).__name__}")
    if newline not in (None, "", "\n", "\r", "\r\n"):
        raise ValueError(f"illegal newline value: {newline!r}")
    if encoding is not None and encoding != "locale":
        codecs.lookup(encoding)
