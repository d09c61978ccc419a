"""What may be shown of options and URLs: what is on one list of harmless names. All else is hidden.

No list of secret-looking names is ever complete, so there is none: an option, a field of a URL's query with or without
a name, a parameter in its path or a nested value that isn't known to be harmless is shown as `***`, wherever it would
be printed: in errors, in the `repr` of objects, in traces and by the command. So is in any text what follows
`Authorization:`, `Bearer` and `Basic`, and the value of a `name=value` that is as long as a key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

HIDDEN = "***"
_NAMES = """
acl anonymous block_size bucket checksum_algorithm client_certificate compression compresslevel configuration
connect_timeout connection content_type create create_bucket endpoint fsync impersonate keytab links max_attempts
mpu_chunksize path_style
principal profile read_timeout region replication requester_pays server_side_encryption storage_class ticket_cache
timeout timestamp usercert userkey username verify
bucket_key_enabled cache_control content_disposition content_encoding content_language expected_bucket_owner expires
object_lock_legal_hold object_lock_mode object_lock_retain_until
bearer_token_path below cache check_interval dir force_type fsspec http_cache limits manifest max_age
max_bytes max_cache_size max_depth max_header_bytes max_index_bytes max_line_length max_linked_entries max_links
max_pattern_parts max_ratio max_window_bytes memory_bytes min_free mode namespace offline pfs prefix scheme strict
trace url whole_file_size
access_tier account_name alt anon application_name branch database dataset dbname download encoding file filename format
generation host id lang length limit name offset page part partnumber path port project protocol raw ref rev
revision size split sslmode start tag type uploads v version versionid
"""  # of S3, HDFS, local trees and containers; of from_url and pfio.ini; of other filesystems and of queries
HARMLESS = frozenset(_NAMES.split())
"""Names of options, and of fields of queries, whose values are shown; in small letters, with `_`."""

_VARIABLES = re.compile(r"(\$\w+|\$\{\w+\})+").fullmatch
_PAIR = re.compile(r"\s*([\w.-]+)\s*=\s*(.*)", re.DOTALL).fullmatch
# All take a time in proportion to the text, which may be a stranger's.
_PASSWORD = r"[^/\s@:\[]*:(?!\d*(?:[/?#\s]|$))[^\s@]{0,200}@"
# In URLs of Azure the name of a container stands where others have a user.
_USER = re.compile(
    rf"(?<=:)(?<!\babfs:)(?<!\babfss:)//(?:[^/\s]*@|{_PASSWORD})"
    rf"|(?<=:)(?<!file:)///{_PASSWORD}"
    r"|(?<=:)//[^/\s@:]*:[^/\s@]*@"
)
_QUERY = re.compile(r"""(?<!\s)[?#](?:[^\s"<>]|(?<==)["<][^\s"<>]*)*""")
_URL = re.compile(r"""(?<=://)([^\s"<>?#]*)([?#](?:[^\s"<>]|(?<==)["<][^\s"<>]*)*)?""")
_FIELD = re.compile(r"(?<=[?&#;])([^=?&#;]*)=([^&#;]+)")
_FIELD_OR_VALUE = re.compile(r"(?<=[?&#;])(?:([^=?&#;]*)=(?!=*(?:[&#;]|$)))?([^&#;?]+)")
_CREDENTIALS = re.compile(
    r"""(?i:(\bauthorization\b['"]?\s?[:=]\s?(?:b?['"])?))[^'"\r\n]+|\b((?:Bearer|Basic)\s)[^\s'"]{16,}"""
)
_LONG_VALUE = re.compile(  # behind a slash it is the name of a file
    r"""(?<![\w./=-])([\w.-]{1,64})=(['"]?)(?:[\w.~+-]{20,}|[\w+/]{40,})={0,2}"""
)
_LOGIN = re.compile(r"^([^/\s@:]*:[^/\s@]+)@")
_NESTED = re.compile(r"%(?:25)*(?:3d|40)", re.IGNORECASE).search
"""Finds, in the value of a field, one of a URL or a query in it, quoted once or more: `=` or `@`."""
_QUOTED_USER = re.compile(
    r"((?:%(?:25){0,5}2f){2})([^/\s?&#;%]{1,200}(?:%[^/\s?&#;%]{1,200}){0,9}?)(?=%(?:25){0,5}40)", re.I
)


def without_secrets(text: str) -> str:
    """Return `text` with `***` in place of users and passwords in its URLs, of what is not harmless in queries, and of
    credentials.
    """
    if "=" in text:
        text = _LONG_VALUE.sub(_without_long_value, text)
    text = _CREDENTIALS.sub(lambda found: f"{found[1] or found[2]}{HIDDEN}", text)
    return _cleaned(text, lambda value: HIDDEN)


def _without_long_value(found: re.Match[str]) -> str:
    return found[0] if is_harmless(found[1]) else f"{found[1]}={found[2]}{HIDDEN}"


def distinct_url(url: str) -> str:
    """Return a URL without its secrets that differs from that of other secrets: with digests of them."""
    return _cleaned(url, lambda value: HIDDEN + _digest(value))


def _cleaned(text: str, hide: Callable[[str], str]) -> str:
    def field(found: re.Match[str]) -> str:
        name, value = found.groups()
        harmless = is_harmless(value if name is None else name) and not _NESTED(value)
        if harmless or value.startswith(HIDDEN):
            return found[0]
        return hide(value) if name is None else f"{name}={hide(value)}"

    def fields(text: str, pattern: re.Pattern[str]) -> str:
        found = text.rstrip("])}'.,:;")  # what follows belongs to the sentence that the URL is in
        return pattern.sub(field, found) + text[len(found) :]

    def url(found: re.Match[str]) -> str:
        path = _QUOTED_USER.sub(lambda user: user[1] + hide(user[2]), found[1]) if "%" in found[1] else found[1]
        return fields(path, _FIELD) + fields(found[2] or "", _FIELD_OR_VALUE)

    def query(found: re.Match[str]) -> str:
        return fields(found[0], _FIELD)

    if "://" in text:
        text = _USER.sub(f"//{HIDDEN}@", text)
        if any(mark in text for mark in "?#;%"):
            text = _URL.sub(url, text)
    if "?" in text or "#" in text:
        text = _QUERY.sub(query, text)
    return text


def _digest(secret: str) -> str:
    import hashlib

    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def as_cause(exc: BaseException) -> BaseException | None:
    """Return `exc`, for another to be raised from it; None if its text, which a traceback prints, has a secret."""
    return exc if without_secrets(str(exc)) == str(exc) else None


def is_harmless(name: str) -> bool:
    """Return whether the value of an option of this name is shown."""
    return name.lower().replace("-", "_") in HARMLESS


def shown(name: str, value: object) -> str:
    """Return the value of an option as text, with `***` in place of what is not known to be harmless.

    None, booleans and names of environment variables (`$VAR`) are harmless under any name.
    """
    return _text(name, value, lambda _: HIDDEN)


def secrets_of(name: str, value: object) -> set[str]:
    """Return the texts in the value of an option that are hidden: whole, and each value that is nested in them."""
    found: set[str] = set()

    def hide(value: object) -> str:
        if isinstance(value, Mapping):
            for each in value.values():
                hide(each)
        elif isinstance(value, str):
            pieces = re.split(r"""[\s,;&'"{}\[\]]+""", value)
            found.update((value, *(piece.partition("=")[2] or piece for piece in pieces)))
        return HIDDEN

    _text(name, value, hide)
    return found


def representation(owner: str, options: Mapping[str, object]) -> str:
    """Return the `repr` of an object that is made of options."""
    texts = ((name, value, shown(name, value)) for name, value in options.items())
    fields = (f"{name}={value!r}" if text == str(value) else f"{name}={text}" for name, value, text in texts)
    return f"{owner}({', '.join(fields)})"


def _text(name: str, value: Any, hide: Callable[[object], str]) -> str:
    if value is None or isinstance(value, bool) or (isinstance(value, str) and _VARIABLES(value)):
        return str(value)
    if not is_harmless(name):
        return hide(value)
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_text(str(key), each, hide)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_text(name, each, hide) for each in value)
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str) or not value.isprintable() or value.startswith(("{", "[")):
        return hide(value)
    whole = without_secrets(value)  # before it is taken apart: there may be a comma in a password
    return ", ".join(_item(name, item.strip(), hide) for item in re.split("[,;]", whole))


def _item(name: str, text: str, hide: Callable[[object], str]) -> str:
    """Return an item of a value: `name=value` of another option, else text of this one."""
    if "://" not in text:
        text = _LOGIN.sub(lambda found: f"{hide(found[1])}@", text)
    pair = _PAIR(text) if name != "prefix" else None  # as data/year=2026
    return f"{pair[1]}={_text(pair[1], pair[2], hide)}" if pair else without_secrets(text)
