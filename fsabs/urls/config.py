"""Custom schemes: sections of `pfio.ini`, and those added by a program.

    [corp]                                  ; corp://bucket/key
    scheme = s3                             ; a known scheme, or another section's
    endpoint = https://s3.example.com/      ; the rest: keyword options of from_url
    aws_access_key_id = $CORP_KEY           ; $VAR and ${VAR} are expanded on use; $$ is a dollar
    prefix = datasets/2026                  ; goes before every path

A section with `username=` and no `scheme=` is a datacenter, whose files are at `/pfs/<name>/home/<user>/...` and
`/pfs/<name>/common/...`:

    [datacenter_1]
    username = wuyi                         ; writes to /pfs/datacenter_1/home/wuyi, and nowhere else
    usercert = wuyi.pem                     ; the client's certificate and its key, relative to this file
    userkey = wuyi-key.pem
    endpoint = s3.example.com               ; https, unless it names a scheme
    pfs = s3://bucket/files                 ; the directory that home/ and common/ are in; else s3://pfs/datacenter_1
    region = eu-1                           ; the rest: keyword options of from_url

The file is the one named by `$PFIO_CONFIG_PATH`, else `$XDG_CONFIG_HOME/pfio.ini`, else `~/.config/pfio.ini`; it is
never looked for in the working directory.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat as stat_bits
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..core import errors, keys, process, redaction, registry
from ..core.errors import ConfigError, ConfigWarning
from ..core.limits import Limits

Report = Callable[[ConfigError], None]
"""Receives what is wrong with a key of a section, which is then left out; or raises it."""
_PFS = "pfs"
_OF_DATACENTERS = {_PFS, "username", "usercert", "userkey", "endpoint"}
BOOLEANS = {"1": True, "yes": True, "true": True, "on": True, "0": False, "no": False, "false": False, "off": False}
_added: dict[str, dict[str, Any]] = {}
_additions = 0
_read: tuple[Any, _File] | None = None


class Scheme(NamedTuple):
    """A custom scheme, resolved to a backend's scheme and options."""

    scheme: str
    """The scheme that is no section's."""
    options: dict[str, Any]
    """Keyword options, expanded; text where they come from a file."""
    prefix: str
    """The key that goes before every path."""
    origins: dict[str, str]
    """Of the options that come from the file: its path, the line and the section."""


class Datacenter(NamedTuple):
    """A datacenter: a section of the file with `username=` or `pfs=`, and without `scheme=`."""

    url: str
    """The directory that `home` and `common` are in."""
    username: str
    """The user whose home may be written to."""
    options: dict[str, Any]
    """Keyword options, expanded; text where they come from a file."""
    origins: dict[str, str]
    """Of the options that come from the file: its path, the line and the section."""


def add_custom_scheme(name: str, scheme: str, data: Mapping[str, Any] | None = None) -> None:
    """Add a custom scheme to this process, or replace it; `data` holds what a section of the file would.

    `ConfigError` for the name of a built-in scheme, or one that no URL can have.
    """
    global _additions
    _added[_scheme_name(name, "add_custom_scheme")] = {**(data or {}), "scheme": scheme}
    _additions += 1


def state() -> object:
    """Return a value that changes when this process adds or replaces a scheme, or another file is to be read."""
    return _additions, config_path()


def get_custom_scheme(name: str) -> dict[str, Any] | None:
    """Return the keys of a custom scheme as they were written (nothing expanded), or None.

    `ConfigError` for a section that can't be read.
    """
    section = _added.get(name) or _sections().get(name)
    if section is None and (problem := _file().problems.get(name)):
        raise ConfigError(problem)
    return dict(section) if section is not None else None


def base_of(name: str) -> str:
    """Return the scheme that a custom one stands on at last; any other name as it is."""
    passed: set[str] = set()
    while name not in registry.BUILTIN_SCHEMES and name not in passed:
        passed.add(name)
        section = _added.get(name) or _sections().get(name) or {}
        name = str(section.get("scheme") or name)
    return name


def config_path() -> str:
    """Return the path of the configuration file, which need not exist; `/dev/null` for a user without a home."""
    if path := os.environ.get("PFIO_CONFIG_PATH"):
        return path
    for folder in (os.environ.get("XDG_CONFIG_HOME", ""), os.path.expanduser("~/.config")):
        if os.path.isabs(folder):
            return os.path.join(folder, "pfio.ini")
    return os.devnull  # there is no home: "~" stays as it is, and whoever owns the working directory could write there


def problems() -> list[str]:
    """Return what is wrong with the file's sections, and with what stands before the first one."""
    return list(_file().problems.values())


_warned_of: set[str] = set()


def warn_of_problems() -> None:
    """Warn of sections that can't be used, the first time in a process; a file that can't be read is no error."""
    path = config_path()
    if path not in _warned_of:
        _warned_of.add(path)
        with contextlib.suppress(OSError, ValueError):
            _file()


def is_strict(strict: bool | None = None) -> bool:
    """Return whether what is wrong in the file is an error, and not a warning; None: as the environment says."""
    return os.environ.get("FSABS_CONFIG_STRICT") == "1" if strict is None else strict


def custom_schemes() -> list[str]:
    """Return the names of all custom schemes."""
    return [name for name in sections() if not is_datacenter(name)]


def sections() -> list[str]:
    """Return the names of all custom schemes and datacenters."""
    return sorted({*_added, *_sections()})


def values() -> Iterator[tuple[str, Any]]:
    """Yield the key and value of all settings that can be read: as they are written, and with variables replaced."""
    with contextlib.suppress(OSError, ValueError):
        for section, settings in {**_sections(), **_added}.items():
            for key, value in settings.items():
                yield key, value
                with contextlib.suppress(ValueError):  # a variable that is not set
                    yield key, expand(value, section, key)


def is_datacenter(name: str) -> bool:
    """Return whether there is a datacenter of that name."""
    return _is_datacenter(_sections().get(name, {}))


def _is_datacenter(section: Mapping[str, Any]) -> bool:
    return _PFS in section or ("username" in section and "scheme" not in section)


def _error(reason: str) -> ConfigError:
    """Return the error for what is wrong in the file, which it names."""
    return ConfigError(f"{reason} ({config_path()})")


def raise_fault(fault: ConfigError) -> None:
    """Raise a fault: the `Report` of all but a check of the configuration."""
    raise fault


def datacenter(name: str, report: Report = raise_fault) -> Datacenter:
    """Return a datacenter; `ConfigError` if the file has none of that name."""
    section = get_custom_scheme(name)
    if section is None or not _is_datacenter(section):
        known = list(filter(is_datacenter, sections()))
        hint = "" if section is not None else errors.did_you_mean(name, known)
        found = "a custom scheme, by its scheme=" if section and "scheme" in section else "without both"
        here = "" if section is None else f", and [{name}] is {found}"
        also = "".join(f"; {problem}" for problem in problems())
        raise ConfigError(
            f"no datacenter {name!r}: it is a section with username= and endpoint=, or pfs=, in {config_path()}"
            f"{here}{hint}; known: {', '.join(known) or 'none'}{also}"
        )
    expanded = _expanded(section, name, report)
    for key in _OF_DATACENTERS & expanded.keys():
        if re.fullmatch(r"(['\"]).*\1", str(expanded[key])):
            raise _error(f"the datacenter [{name}]: {key}= is written without quotes")
    url, username = expanded.pop(_PFS, None), expanded.pop("username", "")
    if not username or "/" in username or username in (".", ".."):
        raise _error(f"the datacenter [{name}] needs username=, a name without /")
    if url is None and not expanded.get("endpoint"):
        raise _error(f"the datacenter [{name}] needs endpoint=, its host, or pfs=, a URL")
    if url is not None and not (url.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url)):
        raise _error(f"the datacenter [{name}] needs a URL as pfs=, or a path from /, not {url!r}")
    files = [(key, expanded.pop(key)) for key in ("usercert", "userkey") if key in expanded]
    if files:
        expanded["client_certificate"] = ", ".join(_certificate(name, files))
    if expanded.get("endpoint"):
        expanded["endpoint"] = _endpoint(name, expanded["endpoint"], bool(files))
    return Datacenter(url or f"s3://pfs/{name}", username, expanded, _origins(name, expanded))


def _origins(name: str, options: Iterable[str]) -> dict[str, str]:
    """Return where the options of a section come from, as far as they come from the file."""
    lines = {} if name in _added else _file().lines.get(name, {})
    return {key: f"{config_path()}, line {lines[key]}: [{name}]" for key in options if key in lines}


def _endpoint(name: str, text: str, secured: bool) -> str:
    """Return the URL of a datacenter's endpoint, https if it names no scheme."""
    url = text if ":/" in text else f"https://{text}"
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0]
    port = re.fullmatch(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:@\[\]?#]+)(?::([0-9]+))?", host)
    if scheme not in ("http", "https") or port is None or int(port[1] or 0) > 65535 or re.search(r"[\s?#]", url):
        shown = redaction.shown("endpoint", text)
        raise _error(f"the datacenter [{name}]: its endpoint is HOST, HOST:PORT or https://HOST, not {shown!r}")
    if secured and scheme == "http":
        raise _error(f"the datacenter [{name}]: usercert= and userkey= need an endpoint over https, and it is http://")
    return url


def _certificate(name: str, files: Sequence[tuple[str, str]]) -> list[str]:
    """Return the paths of a client's certificate and key, relative to the configuration; they can be loaded."""
    import ssl

    where, folder = f"[{name}]", os.path.dirname(config_path())
    if [key for key, _ in files] == ["userkey"]:
        raise _error(f"{where} has userkey= and no usercert=, the certificate of that key")
    paths = []
    for key, text in files:
        path = os.path.join(folder, os.path.expanduser(text))
        try:
            if not text or os.path.isdir(path):
                raise IsADirectoryError(errno.EISDIR, "it names no file")
            with open(path, "rb") as file:
                if b"-----BEGIN" not in file.read(1 << 20):
                    raise _error(f"{where}: {key}={text}: {path} is no PEM file")
        except (OSError, ValueError) as exc:
            if isinstance(exc, ConfigError):
                raise
            reason = exc.strerror if isinstance(exc, OSError) else exc
            raise _error(f"{where}: {key}={text} can't be read: {reason}: {path}") from exc
        paths.append(path)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with process.forks_deferred:
            context.load_cert_chain(paths[0], paths[-1], password="")  # not asked for at a terminal
    except ssl.SSLError as exc:
        both = " and ".join(f"{key}={text}" for key, text in files)
        fault = exc.reason or "a file is cut or damaged, or has the other one's content"  # OpenSSL says "PEM lib"
        needed = "" if len(files) > 1 else "; a certificate without its key in the file needs userkey="
        reason = f"{both} are no certificate and its unencrypted key ({fault.replace('_', ' ').lower()}){needed}"
        raise _error(f"{where}: {reason}") from exc
    return paths


def resolve(name: str, report: Report = raise_fault) -> Scheme | None:
    """Return the custom scheme `name`, resolved to a backend's scheme; None if there is none of that name."""
    if get_custom_scheme(name) is None:
        return None
    chain: list[str] = []
    options: dict[str, Any] = {}
    prefixes: list[str] = []
    origins: dict[str, str] = {}
    while name not in registry.BUILTIN_SCHEMES and (section := get_custom_scheme(name)) is not None:
        if _is_datacenter(section):
            raise _error(f"[{name}] is a datacenter and no scheme: its paths are /pfs/{name}/...")
        if name in chain:
            raise _error(f"the custom schemes {' -> '.join([*chain, name])} go in a circle")
        chain.append(name)
        if not section.get("scheme"):
            raise _error(f"the custom scheme [{name}] has no scheme=")
        base = section.pop("scheme")
        found = _expanded(section, name, report)
        if name not in _added and found.get("client_certificate"):
            files = [("client_certificate", text.strip()) for text in found["client_certificate"].split(",")]
            try:
                found["client_certificate"] = ", ".join(_certificate(name, files))
            except ConfigError as exc:
                report(exc)
        prefixes.insert(0, _prefix(found.pop("prefix", ""), name, report))
        origins |= _origins(name, found.keys() - options.keys())
        options = {**found, **options}
        name = base
    return Scheme(name, options, "/".join(filter(None, prefixes)), origins)


def _expanded(section: Mapping[str, Any], name: str, report: Report) -> dict[str, Any]:
    """Return the values of a section with their variables replaced, without those that are not set."""
    found = {}
    for key, value in section.items():
        try:
            found[key] = expand(value, name, key)
        except ConfigError as exc:
            report(exc)
    return found


def _prefix(path: Any, section: str, report: Report) -> str:
    """Return the key of a prefix: of each section by itself, so that none leads out of the one that it builds on."""
    try:
        return keys.normalize(path)
    except (PermissionError, ValueError, TypeError) as exc:
        report(_error(f"the prefix of the custom scheme [{section}] is no path: {exc}"))
        return ""


def expand(value: Any, section: str, key: str) -> Any:
    """Return `value` with `$VAR` and `${VAR}` replaced from the environment; a missing variable is a `ConfigError`."""
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        variable = match[1] or match[2]
        if variable not in os.environ:
            raise _error(f"[{section}] {key} needs the environment variable {variable}, which is not set")
        return os.environ[variable]

    return re.sub(r"\$\$|\$(\w+)|\$\{(\w+)\}", replace, value)


def convert(value: Any, annotation: Any, where: str) -> Any:
    """Return text from a file, converted to the type that an option is annotated with; other values are returned as
    they are.
    """
    if not isinstance(value, str):
        return value
    kinds = set(_alternatives(annotation))
    text = value.strip()
    if Limits in kinds:
        return Limits.of_texts(pairs(text, where), where)
    if type(None) in kinds and text.lower() in ("", "none"):
        return None
    if Mapping in kinds:
        return pairs(text, where)
    if {bool, str} <= kinds and text.lower() not in BOOLEANS:
        return value
    try:
        if bool in kinds:
            return BOOLEANS[text.lower()]
        if int in kinds and (float not in kinds or text.lstrip("+-").isdigit()):
            return int(text)
        if float in kinds:
            return float(text)
    except (KeyError, ValueError):
        wanted = " or ".join(sorted(kind.__name__ for kind in kinds if kind is not type(None)))
        shown = redaction.shown(where.split()[-1], text)
        raise ConfigError(f"{where} must be {wanted}, not {shown!r}") from None
    if kinds & {list, tuple}:
        items = [item.strip() for item in text.split(",") if item.strip()]
        return tuple(items) if tuple in kinds else items
    return value


def pairs(text: str, where: str) -> dict[str, str]:
    """Return the pairs of `name=value, name=value`; `ConfigError` for other text, which is named by `where`."""
    found: dict[str, str] = {}
    for number, item in enumerate(filter(None, (item.strip() for item in text.split(","))), 1):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not (name and equals):
            raise ConfigError(f"{where} must be name=value, name=value, ...; number {number} is not")
        found[name] = value
    return found


def _alternatives(annotation: Any) -> list[type]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [kind for part in typing.get_args(annotation) for kind in _alternatives(part)]
    kind = typing.get_origin(annotation) or annotation
    return [kind] if isinstance(kind, type) else []


def _sections() -> dict[str, dict[str, Any]]:
    """Return the file's sections; they are read again when the file or its name has changed."""
    return _file().sections


class _File(NamedTuple):
    """The content of the configuration file."""

    sections: dict[str, dict[str, Any]]
    problems: dict[str, str]
    """What is wrong with the sections that can't be used, by their names."""
    lines: dict[str, dict[str, int]]
    """The lines of the keys, by section."""


def _file() -> _File:
    global _read
    path = config_path()
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return _File({}, {}, {})
    stamp = (path, status.st_mtime_ns, status.st_size, status.st_ino)
    if _read is None or _read[0] != stamp:
        file = _parse(path)
        if file.problems and is_strict():
            raise ConfigError(next(iter(file.problems.values())))
        _read = (stamp, file)
        for problem in file.problems.values():
            warnings.warn(f"{problem}; the other sections work", ConfigWarning, stacklevel=2)
    return _read[1]


_HEADER = re.compile(r"\[([^\]]+)\]")


def _parse(path: str) -> _File:
    """Read the file section by section, so that a bad one breaks none of the others."""
    import configparser

    try:
        with open(path, encoding="utf-8-sig") as file:
            status, lines = os.fstat(file.fileno()), file.read().split("\n")
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: {_message(exc)}") from None
    starts = sorted({0, *(number for number, line in enumerate(lines) if _HEADER.match(line))})
    result, defaults = _File({}, {}, {}), dict[str, str]()
    is_ours = os.geteuid() == 0 or status.st_uid in (0, os.geteuid())
    if stat_bits.S_ISREG(status.st_mode) and (status.st_mode & stat_bits.S_IWOTH or not is_ours):
        result.problems["/"] = f"{path}: another user can write to this file, which says where credentials are sent"
    sections = itertools.pairwise([*starts, len(lines)])
    for start, end in sorted(sections, key=lambda at: not lines[at[0]].startswith("[DEFAULT]")):  # which holds for all
        header = _HEADER.match(lines[start])
        name = header[1] if header else ""
        try:
            # Behind as many empty lines as there are above it: errors then have the numbers of the file.
            found = _parse_section("\n" * start + "\n".join(lines[start:end]), defaults)
            own = _lines_of_keys(lines, start, end)
            result.lines[name] = {**result.lines.get("DEFAULT", {}), **own}
            for key, number in own.items():
                is_safe = redaction.is_harmless(key) or found.get(key, "").startswith("$")
                if not is_safe and _COMMENT(lines[number - 1]):
                    reason = f"line {number}: a '#' or ';' behind a space begins a comment, and not a part of {key}"
                    raise ConfigError(f"{reason}: write comments above it, or the value as $NAME, of the environment")
            if name == "DEFAULT":
                defaults = found
            elif header is not None and name in result.sections:
                raise ConfigError(f"line {start + 1}: there is a section [{name}] above")
            elif header is not None:
                checked = _datacenter_name if _is_datacenter(found) else _scheme_name
                result.sections[checked(name, f"{path}, line {start + 1}")] = found
        except (configparser.Error, ConfigError) as exc:
            result.sections.pop(name, None)
            message = _message(exc)
            result.problems[name] = message if message.startswith(path) else f"{path}: {message}"
    return result


_KEY = re.compile(r"([^\s;#=:\[][^=:]*?)\s*[=:]")
_COMMENT = re.compile(r"\s[;#]").search


def _lines_of_keys(lines: list[str], start: int, end: int) -> dict[str, int]:
    """Return the number of the line of each key in a section."""
    found = ((_KEY.match(lines[at]), at + 1) for at in range(start, end))
    return {_key(match[1].lower()): number for match, number in found if match}


def _key(written: str) -> str:
    """Return a key as options are named."""
    return written.replace(" ", "_").replace("-", "_")


def _parse_section(text: str, defaults: Mapping[str, str]) -> dict[str, str]:
    import configparser

    parser = configparser.RawConfigParser(defaults, inline_comment_prefixes=(";", "#"))
    parser.read_string(text)
    found = parser[parser.sections()[0]] if parser.sections() else parser.defaults()
    return {_key(key): value for key, value in found.items()}


def _message(exc: Exception) -> str:
    import configparser

    if isinstance(exc, configparser.MissingSectionHeaderError):
        return f"line {exc.lineno} stands before the first [section]"
    if isinstance(exc, configparser.ParsingError):
        return f"neither a [section] nor key = value in line {', '.join(str(number) for number, _ in exc.errors)}"
    if isinstance(exc, configparser.DuplicateOptionError):
        return f"line {exc.lineno}: {exc.option} is there twice"
    return str(exc)


def _datacenter_name(name: str, where: str) -> str:
    """Return a name that a datacenter can have; `ConfigError` for others."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise ConfigError(f"{where}: {name!r} can't be a datacenter: letters, digits and _ . - make one")
    return name


def _scheme_name(name: str, where: str) -> str:
    """Return a name that a custom scheme can have; `ConfigError` for others."""
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", name):
        raise ConfigError(f"{where}: {name!r} can't be a scheme: small letters, digits and + - . make one")
    if name in registry.BUILTIN_SCHEMES or name == _PFS:
        raise ConfigError(f"{where}: [{name}] is a built-in scheme and can't be defined again; choose another name")
    return name
