"""The names of entries, from the bytes in the archive to keys: encodings, and what a name must not be.

A name that would lead out of the archive (`../x`, `/x`, `C:\\x`) is refused. One that is only not normal is brought
into its normal form: `./a//b` is `a/b`, and a backslash in an archive made on Windows is a separator, as Info-ZIP's
`unzip` has it; elsewhere it is a character like any other. A name that isn't flagged as UTF-8 is in code page 437, but
for what Info-ZIP's and macOS's tools write: UTF-8 without the flag, made on Unix.
"""

from __future__ import annotations

import re

from . import records

_DRIVE = re.compile(r"[A-Za-z]:[/\\]").match
_DRIVE_IN_DOS = re.compile(r"[A-Za-z]:").match


def judge(name: str, dos: bool = False) -> tuple[str, str | None]:
    """The normal form of an entry's name, and why the name is refused, or None.

    With `dos` the entry was made on a system where the backslash separates.
    """
    if "\0" in name:
        return name, "it holds a NUL"
    text = name.replace("\\", "/") if dos else name
    if text.startswith(("/", "\\")):
        return name, "it is absolute"
    if _DRIVE(text) or (dos and _DRIVE_IN_DOS(text)):
        return name, "it names a drive"
    if ".." in re.split(r"[/\\]", text):
        return name, "it leads out of its directory by '..'"
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts:
        return name, "it names nothing"
    return "/".join(parts) + "/" * text.endswith(("/", "/.")), None


def decoded(name: bytes, flags: int, host: int) -> tuple[str, str | None]:
    """A name, and what is wrong with how it is written."""
    flagged = flags & records.FLAG_UTF8
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return name.decode("cp437"), "it is flagged as UTF-8 and is not: read as code page 437" if flagged else None
    if flagged:
        return text, None
    if host in records.HOSTS_OF_UNIX:
        return text, "it is UTF-8 and not flagged as such"
    return name.decode("cp437"), None
