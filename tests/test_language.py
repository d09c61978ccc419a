"""The language of the package and its size: docstrings, retired words, names, lengths of files and functions."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import fsabs

pytestmark = pytest.mark.quick

PACKAGE = Path(fsabs.__file__).parent

# Names of the formats' and the seeds' own interfaces: `fsabs.Writer` is what every backend implements, and
# `fsabs.readers.Writer` is RecordIO's.
SHARED_NAMES = {"Writer"}

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50

QUESTION = re.compile(r"(What|Whether|Who|Whom|Whose|Where|When|Which|Why|How)\b")
RETIRED_IN_PROSE = re.compile(
    r"\b(nobody|somebody|whoever|dear|patience|told|at hand|goes? on behind|hears? of it|as it pleases)\b",
    re.IGNORECASE,
)
RETIRED_IN_NAMES = {"told", "patience", "nobody", "somebody", "dear", "jot"}
# The words of a name: `max_gapBytes` has three.
WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def documented(path: Path) -> Iterator[tuple[str, str]]:
    """The name and the docstring of everything in a module that has one."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield f"{path.relative_to(PACKAGE)}: {getattr(node, 'name', 'module')}", text


def stored_names(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the name of each definition, argument and assignment."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of each comment and string."""
    with io.StringIO(path.read_text()) as text:
        for token in tokenize.generate_tokens(text.readline):
            kind = tokenize.tok_name[token.type]
            if kind in ("COMMENT", "STRING", "FSTRING_MIDDLE"):
                yield token.start[0], token.string


def test_a_docstring_begins_with_what_is_returned_or_done() -> None:
    wrong = []
    for where, text in (each for path in modules() for each in documented(path)):
        paragraph = text.split("\n\n")[0].strip()
        if QUESTION.match(paragraph) or paragraph.endswith("?"):
            wrong.append(f"{where} is a question: {paragraph}")
        elif not re.search(r"[.:][`\"')]*$", paragraph):
            wrong.append(f"{where} has no end: {paragraph}")
    assert not wrong, "\n".join(wrong)


def test_the_rule_of_docstrings_finds_what_it_is_for() -> None:
    for text in ("What is known of a file.", "Whether it is open.", "Where the rows are.", "How many there are."):
        assert QUESTION.match(text)
    assert not QUESTION.match("Return whether it is open.")
    assert not QUESTION.match("Whole files.")


def test_retired_words_are_gone_from_names() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in modules()
        for line, name in stored_names(path)
        if RETIRED_IN_NAMES & {word.lower() for word in WORD.findall(name)}
    ]
    assert not wrong, "\n".join(wrong)


def test_retired_words_are_gone_from_sentences() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {found.group()}"
        for path in modules()
        for line, text in prose(path)
        for found in RETIRED_IN_PROSE.finditer(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_class_name_has_one_meaning() -> None:
    """Names that start with an underscore are local to their module; those of PFIO are PFIO's."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in parsed(path).body:
            if path.is_relative_to(PACKAGE / "compat"):
                continue
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path.relative_to(PACKAGE).as_posix())
    shared = {name: where for name, where in homes.items() if len(where) > 1}
    assert shared.keys() == SHARED_NAMES, shared


def test_the_instrument_has_one_name() -> None:
    """A variable that holds `hooks.active` is called `instrument`."""
    wrong = []
    for path in modules():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.NamedExpr):
                pairs: list[tuple[ast.expr, ast.expr]] = [(node.target, node.value)]
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                values = node.value.elts if isinstance(node.value, ast.Tuple) else []
                pairs = list(zip(node.targets[0].elts, values, strict=False))
            elif isinstance(node, ast.Assign):
                pairs = [(target, node.value) for target in node.targets]
            else:
                continue
            for target, value in pairs:
                if ast.unparse(value) == "hooks.active" and ast.unparse(target) != "instrument":
                    wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(target)}")
    assert not wrong, "\n".join(wrong)


def test_files_are_short() -> None:
    lengths = {path.relative_to(PACKAGE).as_posix(): len(path.read_text().splitlines()) for path in modules()}
    long = {name for name, length in lengths.items() if length > MAX_FILE_LINES}
    assert not long, long


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a docstring, which names each parameter of a function that a user calls."""
    first = node.body[0]
    if ast.get_docstring(node) is None or first.end_lineno is None:
        return 0
    return first.end_lineno - first.lineno + 1


def test_functions_are_short() -> None:
    long = {
        f"{path.relative_to(PACKAGE).as_posix()}: {node.name}"
        for path in modules()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 - docstring_lines(node) > MAX_FUNCTION_LINES
    }
    assert not long, long
