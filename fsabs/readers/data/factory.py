"""Which data reader reads a location: `reader_of` goes by the names of its files, `create_data_reader` as ElasticDL
decides it, and `create_custom_data_reader` makes one of a user's own.

A model definition file is Python code that the user names to be run; nothing else here runs code: the parameters of a
custom reader are literals or text.
"""

from __future__ import annotations

import ast
import os
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ...core.fs import FS
from ...urls import opening
from .archives import ArchiveDataReader
from .base import AbstractDataReader, OnError, adopt, check_options, parameters_of
from .files import Files, Location, is_called
from .images import FileListDataReader, ImageFolderDataReader
from .jsonl import SUFFIXES as JSON_LINES
from .jsonl import JsonLinesDataReader
from .mds import INDEX, MDSDataReader
from .odps import ODPSDataReader
from .parquet import SUFFIXES as PARQUET
from .parquet import ParquetDataReader
from .recordio import RecordIODataReader
from .text import TextDataReader
from .tokens import SUFFIXES as TOKENS

if TYPE_CHECKING:
    import pyarrow.compute as pc

_ODPS_ENV = {"project": "MAXCOMPUTE_PROJECT", "access_id": "MAXCOMPUTE_AK", "access_key": "MAXCOMPUTE_SK"}
_ODPS_ENV_TOO = {"endpoint": "MAXCOMPUTE_ENDPOINT", "tunnel_endpoint": "MAXCOMPUTE_TUNNEL_ENDPOINT"}

READER_TYPES = ("RecordIO", "CSV", "ODPS", "ImageFolder", "FileList")


def create_data_reader(
    data_origin: str,
    records_per_task: int | None = None,
    reader_type: str | None = None,
    **options: Any,
) -> AbstractDataReader:
    """The reader of a data origin: the URL of files, the name of a table.

    Args:
        data_origin: what to read; for ODPS the name of the table.
        records_per_task: records of a shard, where the reader cuts its data into shards.
        reader_type: "RecordIO", "CSV", "ODPS", "ImageFolder" or "FileList"; None decides: ODPS where the environment
            has MAXCOMPUTE_PROJECT, MAXCOMPUTE_AK and MAXCOMPUTE_SK, CSV for a name that ends in `.csv`, else RecordIO.
        options: the reader's own.

    Raises `ValueError` for another type, or an ODPS one with no account, and `TypeError` for an unknown option.
    """
    if not data_origin:
        raise ValueError("no data origin is given")
    kind = reader_type if reader_type is not None else _decide(data_origin)
    if kind == "RecordIO":
        return RecordIODataReader(data_origin, **options)  # a file is a shard
    if kind == "ODPS":
        return _odps(data_origin, records_per_task, options)
    if kind not in READER_TYPES:
        raise ValueError(f"the reader type {kind!r} is not supported; known: {', '.join(READER_TYPES)}")
    readers: dict[str, Callable[..., AbstractDataReader]] = {
        "CSV": TextDataReader,
        "ImageFolder": ImageFolderDataReader,
        "FileList": FileListDataReader,
    }
    return readers[kind](data_origin, records_per_task, **options)


def _decide(data_origin: str) -> str:
    if all(os.environ.get(name) for name in _ODPS_ENV.values()):
        return "ODPS"
    return "CSV" if data_origin.endswith(".csv") else "RecordIO"


def _odps(table: str, records_per_task: int | None, options: Mapping[str, Any]) -> AbstractDataReader:
    known = {**_ODPS_ENV, **_ODPS_ENV_TOO}
    account = {option: os.environ[name] for option, name in known.items() if os.environ.get(name)}
    given = {"records_per_task": records_per_task, **account, **options}
    missing = [name for option, name in _ODPS_ENV.items() if option not in given]
    if missing:
        raise ValueError(f"{', '.join(missing)} must be set in the environment to read the ODPS table {table!r}")
    return ODPSDataReader(table, **given)


# ---- a user's own reader


def create_custom_data_reader(
    model_file: str | os.PathLike[str],
    name: str,
    params: str | Mapping[str, Any] = "",
    *,
    data_origin: str | None = None,
    records_per_task: int | None = None,
) -> AbstractDataReader:
    """The reader that `name` (a class or function) makes in a model definition file, at a path or URL.

    It is called with `params` (as `parse_params` reads them), and with `data_origin` and `records_per_task` where they
    are given and it takes them. Raises `ValueError` where the file has no such name, or what it makes reads nothing.
    """
    maker = _definition(model_file, name)
    given = dict(parse_params(params) if isinstance(params, str) else params)
    for option, value in {"data_origin": data_origin, "records_per_task": records_per_task}.items():
        if value is not None and _takes(maker, option):
            given.setdefault(option, value)
    check_options(maker, given)
    made = maker(**given)
    try:
        return adopt(made)
    except TypeError as exc:
        raise ValueError(f"{name} of {os.fspath(model_file)}: {exc}") from exc


def parse_params(text: str) -> dict[str, Any]:
    """Return the parameters in `"k=v;k2=v2"`: a value is a Python literal where it is one, else the text as it stands.

    Split at `;` and the first `=`; a `;` within a literal (`k="a;b"`, `k=["a;b"]`) is part of it. Nothing is
    evaluated. Raises `ValueError` for what has no `=` or no name, and for a name that comes twice.
    """
    params: dict[str, Any] = {}
    parts = text.split(";")
    while parts:
        part = parts.pop(0)
        if not part.strip():
            continue
        name, equals, value = part.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name:
            raise ValueError(f"a parameter is written name=value, and there is {part!r} in {text!r}")
        if name in params:
            raise ValueError(f"the parameter {name!r} comes twice in {text!r}")
        params[name] = _value(value, parts)
    return params


def _value(text: str, following: list[str]) -> Any:
    """Return the value that `text` begins; takes from `following` the parts that its literal goes on in."""
    joined = text
    for count in range(len(following) + 1 if text[:1] in _OPENING else 1):
        if count:
            joined += ";" + following[count - 1]
        try:
            value = ast.literal_eval(joined.strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # what literal_eval documents
            continue
        del following[:count]
        return value
    return text


_OPENING = frozenset("\"'[({")  # of literals that a `;` may be in


def _definition(model_file: str | os.PathLike[str], name: str) -> Callable[..., Any]:
    with opening.open_url(model_file, "rb") as file:
        source, where = file.read(), file.name
    module = module_from(source, where)
    module.__file__ = os.fspath(model_file)
    found = getattr(module, name, None)
    if not callable(found):
        raise ValueError(f"{os.fspath(model_file)} defines no class or function {name!r}")
    return cast(Callable[..., Any], found)


def _takes(maker: Callable[..., Any], option: str) -> bool:
    parameters = parameters_of(maker)
    return option in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


# ---- by the names of files

_ARCHIVES = (".tar", ".zip", ".tar.gz", ".tgz")


def reader_of(
    source: AbstractDataReader | Location,
    on_error: OnError,
    columns: Sequence[str] | None = None,
    filters: Sequence[Any] | pc.Expression | None = None,
) -> AbstractDataReader:
    """Return the data reader of a location, or the one that is given; `columns` and `filters` are of Parquet files.

    A reader that is given skips damage if its own `on_error` or this one says so.
    """
    reader = _reader_of(source, on_error, columns, filters)
    if (columns is not None or filters is not None) and not isinstance(reader, ParquetDataReader):
        raise TypeError(f"columns and filters are of Parquet files, and not for {type(reader).__name__}")
    return reader


def _reader_of(
    source: AbstractDataReader | Location,
    on_error: OnError,
    columns: Sequence[str] | None,
    filters: Sequence[Any] | pc.Expression | None,
) -> AbstractDataReader:
    if not isinstance(source, FS | str | os.PathLike):
        if columns is not None or filters is not None:
            raise TypeError("columns and filters are given to the data reader")
        reader = adopt(source)
        if on_error == "skip":
            reader.on_error = on_error
        return reader
    if is_called(source, PARQUET):
        return ParquetDataReader(source, columns=columns, filters=filters, on_error=on_error)
    if is_called(source, JSON_LINES):
        return JsonLinesDataReader(source, on_error=on_error)
    files = Files(source, suffixes=_ARCHIVES)
    try:
        names = [stat.filename.lower() for stat in files.list()]
    finally:
        files.close()
    if INDEX in names and any(".mds" in name for name in names):
        return MDSDataReader(source)
    found = [ends for ends in (PARQUET, JSON_LINES, _ARCHIVES) if any(name.endswith(ends) for name in names)]
    if len(found) > 1:
        ends, others = found[0], " and ".join("/".join(ends) for ends in found[1:])
        reason = f"only {'/'.join(ends)} are read, and not {others}: name one kind by a pattern"
        warnings.warn(f"there are files of several formats: {reason}", stacklevel=4)
    if PARQUET in found:
        return ParquetDataReader(source, columns=columns, filters=filters, on_error=on_error)
    if JSON_LINES in found:
        return JsonLinesDataReader(source, on_error=on_error)
    if _ARCHIVES in found:
        return ArchiveDataReader(source)
    if tokens := [name for name in names if name.endswith(TOKENS)]:
        reason = f"{tokens[0]!r} is called as files of tokens are, which TokenDataset reads"
        raise ValueError(f"{reason}; data.RecordIODataReader reads RecordIO files, whatever they are called")
    return RecordIODataReader(source, on_error=on_error)


def module_from(source: bytes | str, where: str) -> types.ModuleType:
    """Run the source of a module, which is the user's own code, and return the module.

    `where` is the URL or path that tracebacks show. The module is in `sys.modules`, where dataclasses and pickles look
    for it, under a name that no other module has. Raises what the code raises.
    """
    known_as = where.replace(".", "%2E")
    module = sys.modules[known_as] = types.ModuleType(known_as)
    module.__file__ = where
    try:
        exec(compile(source, where, "exec", dont_inherit=True), module.__dict__)  # no __future__ of this file
    except BaseException:
        del sys.modules[known_as]
        raise
    return module
