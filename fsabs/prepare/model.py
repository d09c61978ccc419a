"""The model file: the user's function that makes records of a raw file, and the feature columns that records fit.

A record is a tuple or dict of values (arrays, NumPy scalars, int, float, str, bytes), which is encoded by
`fsabs.readers.instances`, or `bytes`, which are written as they are. Where tokens are written, it is a document: a list
or an array of token ids.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import without_secrets
from ..readers import instances
from ..readers.data.base import parameters_of
from ..readers.data.factory import module_from
from ..urls import locations, opening

FUNCTION = "prepare_data_for_a_single_file"
COLUMNS = "feature_columns"
_ANY_WIDTH = "SUV"  # kinds of dtypes whose width differs between values


class ModelError(ValueError):
    """The model file can't be used; the message names the file, and the line where there is one."""


class RecordError(ValueError):
    """The function returned something that is no record, or that does not fit the feature columns."""


class FeatureColumn(NamedTuple):
    """A column that each record has: the value at its position in a tuple, or under its name in a dict."""

    name: str
    dtype: str = "float32"
    """The name of a NumPy dtype; `str` and `bytes` have any length."""
    shape: tuple[int | None, ...] = ()
    """None for a dimension of any size; `()` for a scalar."""


class ModelSource(NamedTuple):
    """The text of a model file, as it is sent to workers."""

    text: str
    url: str
    """Where it was read from; a path for a local file."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ModelSource:
        """Read a model file at a URL or path."""
        with opening.open_url(path, "rb") as file:
            data = file.read()
        local = locations.parse_without_query(path)
        where = local.path if local.scheme == "file" and os.path.isfile(local.path) else without_secrets(str(path))
        try:
            return cls(data.decode(), where)
        except UnicodeDecodeError as exc:
            raise ModelError(f"{where}: the model file is not UTF-8 text: {exc}") from None

    def modules(self) -> dict[str, str]:
        """Return the text of each module beside a local model file that it imports, by its path there; theirs, too."""
        folder = os.path.dirname(self.url)
        found: dict[str, str] = {}
        waiting = [(folder, self.text)] if os.path.isdir(folder) else []
        while waiting:
            package, text = waiting.pop()
            for path in _imported_files(text, folder, package):
                name = os.path.relpath(path, folder)  # wherever the folder is in a later run
                if name not in found:
                    with open(path, encoding="utf-8", errors="replace") as file:
                        found[name] = file.read()
                    waiting.append((os.path.dirname(path), found[name]))
        return found


class Model:
    """A model file that has been run in this process."""

    def __init__(self, source: ModelSource) -> None:
        self._where = source.url
        folder = os.path.dirname(source.url)
        if os.path.isdir(folder) and folder not in sys.path:
            sys.path.append(folder)  # for modules beside it
        try:
            module = module_from(source.text, source.url)
        except (Exception, SystemExit) as exc:
            raise ModelError(f"{self._where}: the model file can't be imported: {self._reason_of(exc)}") from exc
        function = getattr(module, FUNCTION, None)
        if not callable(function):
            raise ModelError(f"{self._where}: the model file defines no function {FUNCTION}")
        self._function = function
        self.takes_file = _takes_file(function, self._where)
        """True if the function is called with a file object and the file's name, False with the name alone."""
        self.columns = self._read_columns(getattr(module, COLUMNS, None))

    def records(self, *arguments: Any) -> Iterator[bytes]:
        """Yield the encoded records that the function makes of a file; `RecordError` says what is wrong with one."""
        return self._made(arguments, self._encoded)

    def documents(self, dtype: str, *arguments: Any) -> Iterator[bytes]:
        """Yield the token ids of the documents that the function makes of a file, as bytes of a type."""
        return self._made(arguments, functools.partial(_tokens, np.dtype(dtype)))

    def _made(self, arguments: Sequence[Any], encoded: Callable[[Any, int], bytes]) -> Iterator[bytes]:
        try:
            result = self._function(*arguments)
        except (Exception, SystemExit) as exc:
            raise RecordError(f"{FUNCTION} raised {self._reason_of(exc)}") from exc
        if isinstance(result, tuple | dict | bytes | bytearray | memoryview | np.ndarray | np.generic):
            yield encoded(result, 0)
            return
        if result is None:
            raise RecordError(f"{FUNCTION} returned None, not a record or an iterator of records")
        if isinstance(result, str) or not isinstance(result, Iterable):
            raise RecordError(f"{FUNCTION} returned {type(result).__name__}, not a record or an iterator of records")
        records = iter(result)
        number = 0
        while True:
            try:
                record = next(records)
            except StopIteration:
                return
            except (Exception, SystemExit) as exc:
                raise RecordError(f"{FUNCTION} raised {self._reason_of(exc)} at record {number}") from exc
            yield encoded(record, number)
            number += 1

    def _encoded(self, record: Any, number: int) -> bytes:
        if self.columns:
            self._check(record, number)
        elif record is None:
            raise RecordError(f"record {number} is None")
        if isinstance(record, bytes | bytearray | memoryview):
            return bytes(record)
        try:
            return instances.encode(record)
        except (TypeError, ValueError) as exc:
            raise RecordError(f"record {number} can't be encoded: {exc}") from None

    def _check(self, record: Any, number: int) -> None:
        """Raise `RecordError` if a record does not fit the columns."""
        columns = self.columns
        if isinstance(record, Mapping):
            if record.keys() != self._names:
                missing = [column.name for column in columns if column.name not in record]
                unknown = [str(name) for name in record if name not in self._names]
                parts = [f"lacks {', '.join(missing)}"] * bool(missing)
                parts += [f"has {', '.join(unknown)}, which is no feature column"] * bool(unknown)
                raise RecordError(f"record {number} {' and '.join(parts)}")
            values: Sequence[Any] = [record[column.name] for column in columns]
        elif isinstance(record, tuple):
            values = record
        elif len(columns) == 1 and not isinstance(record, bytes | bytearray | memoryview):
            values = (record,)
        else:
            raise RecordError(f"record {number} is {type(record).__name__}, not a tuple or dict of the feature columns")
        if len(values) != len(columns):
            raise RecordError(f"record {number} has {len(values)} values, and there are {len(columns)} feature columns")
        for column, dtype, value in zip(columns, self._dtypes, values, strict=True):
            if (reason := _mismatch(column, dtype, value)) is not None:
                raise RecordError(f"record {number}, column {column.name!r}: {reason}")

    def _read_columns(self, declared: Any) -> tuple[FeatureColumn, ...]:
        """Return the feature columns that the model file declares, as a sequence or a function that returns one."""
        if callable(declared):
            try:
                declared = declared()
            except (Exception, SystemExit) as exc:
                raise ModelError(f"{self._where}: {COLUMNS} raised {self._reason_of(exc)}") from exc
        if declared is None:
            declared = ()
        if isinstance(declared, Mapping):
            declared = [(name, *(form if isinstance(form, tuple) else (form,))) for name, form in declared.items()]
        try:
            columns = tuple(_column(one) for one in declared)
            self._dtypes = [np.dtype(column.dtype) for column in columns]
        except (TypeError, ValueError, AttributeError) as exc:
            raise ModelError(f"{self._where}: {COLUMNS}: {exc}") from None
        self._names = {column.name for column in columns}
        if len(self._names) != len(columns):
            raise ModelError(f"{self._where}: {COLUMNS}: a name comes twice")
        return columns

    def _reason_of(self, exc: BaseException) -> str:
        """Return an exception as text, with the last line of the model file that it came from."""
        lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == self._where]
        text = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
        if isinstance(exc, SyntaxError):
            return text
        return f"{text} (line {lines[-1]} of {os.path.basename(self._where)})" if lines else text


def _tokens(dtype: np.dtype[Any], document: Any, number: int) -> bytes:
    """Return the token ids of a document as bytes; `RecordError` for what is none, or does not fit the type."""
    try:
        ids = np.asarray(document)
    except ValueError:
        ids = np.empty((0, 0))
    if not ids.size and ids.ndim == 1:
        return b""
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise RecordError(f"document {number} is no list of token ids, but {type(document).__name__}")
    least, most = int(ids.min()), int(ids.max())
    bounds = np.iinfo(dtype)
    if least < bounds.min or most > bounds.max:
        raise RecordError(f"document {number} has token ids from {least} to {most}, which are not of {dtype.name}")
    return ids.astype(dtype.newbyteorder("<")).tobytes()


def _imported_files(text: str, folder: str, package: str) -> Iterator[str]:
    """Yield the files below a folder that a module's import statements name; relative ones start at its package."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            wanted = [(folder, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = os.path.normpath(os.path.join(package, *[".."] * (node.level - 1))) if node.level else folder
            wanted = [(start, f"{node.module or ''}.{alias.name}".strip(".")) for alias in node.names]
        else:
            continue
        for start, name in wanted:
            path = start
            for part in name.split("."):
                path = os.path.join(path, part)
                yield from filter(os.path.isfile, (f"{path}.py", os.path.join(path, "__init__.py")))


def _takes_file(function: Any, where: str) -> bool:
    """Return True if a function takes a file object and a name, False if it takes a name."""
    try:
        inspect.signature(function).bind("name")
    except TypeError:
        try:
            inspect.signature(function).bind(None, "name")
        except TypeError:
            taken = ", ".join(parameters_of(function))
            raise ModelError(f"{where}: {FUNCTION}({taken}) must take (filename) or (file_object, filename)") from None
        return True
    except ValueError:  # no signature: a function in C
        return False
    return False


def _column(declared: Any) -> FeatureColumn:
    """Return a column, declared as a `FeatureColumn`, a tuple of its fields, or an object such as TensorFlow's."""
    if isinstance(declared, tuple) and not hasattr(declared, "key"):
        name, dtype, shape = FeatureColumn(*declared)
    else:
        name = getattr(declared, "key", None) or declared.name
        dtype, shape = getattr(declared, "dtype", "float32"), getattr(declared, "shape", ())
    if not isinstance(name, str) or not name:
        raise TypeError(f"a feature column has a name, and {declared!r} has none")
    form = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    if form.kind == "O":  # TensorFlow's strings
        form = np.dtype("S")
    dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
    return FeatureColumn(name, form.kind if form.kind in _ANY_WIDTH else form.name, dimensions)


def _mismatch(column: FeatureColumn, dtype: np.dtype[Any], value: Any) -> str | None:
    """Return how a value differs from its column, or None if it fits."""
    if isinstance(value, np.ndarray | np.generic):
        same = value.dtype.kind == dtype.kind if dtype.kind in _ANY_WIDTH else value.dtype == dtype
        if not same:
            return f"the dtype is {value.dtype}, not {dtype if dtype.itemsize else _WORDS[dtype.kind]}"
        shape = value.shape
    else:
        kinds = _SCALARS.get(type(value))
        if kinds is None:
            return f"{type(value).__name__} is not an array or a scalar"
        if dtype.kind not in kinds:
            return f"{type(value).__name__} does not fit the dtype {dtype if dtype.itemsize else _WORDS[dtype.kind]}"
        shape = ()
    if len(shape) != len(column.shape) or any(
        wanted is not None and wanted != size for wanted, size in zip(column.shape, shape, strict=True)
    ):
        return f"the shape is {shape}, not {column.shape}"
    return None


_SCALARS = {bool: "b", int: "iuf", float: "f", str: "U", bytes: "SV"}
_WORDS = {"S": "bytes", "U": "str", "V": "void"}
