"""Write `docs/names.md`, every public name of every room with the beginning of its docstring, and `docs/options.md`,
every command with its options.

    python docs/names.py

Tests compare both pages with the package, and `docs/reference.md` with the first.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

from fsabs.cli.program import COMMANDS, PROGRAM, Command, Group

NAMES = Path(__file__).parent / "names.md"
OPTIONS = Path(__file__).parent / "options.md"
ROOMS = {
    "fsabs": "",
    "fsabs.spi": "for backends, containers and layers of your own",
    "fsabs.cache": "caches of items, and of files",
    "fsabs.manifest": "data sets pinned by a list of their files",
    "fsabs.trace": "recording and analysing",
    "fsabs.readers": "RecordIO, sharded data sets, their instances",
    "fsabs.readers.data": "data readers",
    "fsabs.readers.sharded": "sharded data sets",
    "fsabs.readers.paddle": "Paddle's readers",
    "fsabs.readers.prefetch": "reading ahead without torch",
    "fsabs.dispatch": "tasks for workers that come and go",
    "fsabs.dispatch.arguments": "ElasticDL's arguments",
    "fsabs.prepare": "preparing data",
    "fsabs.adapters.torch": "PyTorch",
    "fsabs.adapters.torch.distributed": "torch.distributed.checkpoint",
    "fsabs.adapters.torch.lightning": "Lightning",
    "fsabs.adapters.torch.transformers": "Hugging Face's Trainer",
    "fsabs.adapters.arrow": "pyarrow",
    "fsabs.adapters.fsspec": "fsspec",
    "fsabs.adapters.grain": "grain",
    "fsabs.adapters.obspec": "obspec",
    "fsabs.adapters.patch": "functions that take a file name",
    "fsabs.adapters.ray": "Ray Data",
    "fsabs.adapters.spark": "Spark",
    "fsabs.backends.hub": "the Hugging Face hub",
    "fsabs.backends.web": "web servers",
    "fsabs.core.errors": "`fsabs.errors`",
    "fsabs.core.hooks": "`fsabs.hooks`",
    "fsabs.testing": "tests of a filesystem of your own",
}


CHOSEN = {
    "fsabs.readers.prefetch": ["prefetch"],
    "fsabs.adapters.arrow": ["ArrowHandler"],
    "fsabs.adapters.fsspec": ["FsabsFileSystem", "register_fsspec"],
    "fsabs.adapters.obspec": ["ObspecStore"],
    "fsabs.adapters.ray": ["FsabsDatasource", "read_fsabs"],
    "fsabs.adapters.spark": ["FsabsDataSource", "register"],
}
"""The public names of modules that have others for this library's own use, and no `__all__`."""


def public(room: str) -> Iterator[tuple[str, object]]:
    """Yield the public names of a module and what they are: those of `__all__`, else its classes and functions."""
    module = importlib.import_module(room)
    own = getattr(module, "__all__", None) or CHOSEN.get(room)
    names = own or [name for name, value in vars(module).items() if _is_own(value, room)]
    for name in sorted(names, key=str.lower):
        value = getattr(module, name)
        if not name.startswith("_") and not isinstance(value, ModuleType):
            yield name, value


def _is_own(value: object, room: str) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == room


def summary(value: object) -> str:
    """Return the first paragraph of a docstring, up to its first full stop."""
    text = inspect.getdoc(value) if inspect.isclass(value) or callable(value) else None
    if not text or (inspect.isclass(value) and "__doc__" not in vars(value)):
        return ""
    line = " ".join(text.partition("\n\n")[0].split())
    return line.replace("|", "\\|")


def text_of_options() -> str:
    """Return the page of the commands."""
    lines = [
        "# Options of every command",
        "",
        "As `fsabs COMMAND --help` has them; [the command](command.md) shows them.",
        "",
    ]
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}):
        for name in sorted(COMMANDS):
            lines += _of_command(PROGRAM.find(name), f"fsabs {name}")
    return "\n".join(lines)


def _of_command(found: Command | Group | None, name: str) -> Iterator[str]:
    """Yield the lines of a command, and of those below it."""
    assert found is not None
    yield from (f"## {name}", "", "```text", *found.parser(name).format_help().splitlines(), "```", "")
    if isinstance(found, Group):
        for inner in sorted(found.commands):
            yield from _of_command(found.find(inner), f"{name} {inner}")


def text() -> str:
    """Return the page of the names."""
    lines = [
        "# All public names",
        "",
        "Every public name of every room; the [reference](reference.md) has the whole.",
        "",
    ]
    for room, what in ROOMS.items():
        lines += [f"## {room}", ""]
        if what:
            lines += [f"{what[0].upper()}{what[1:]}.", ""]
        lines += ["| name | |", "|---|---|"]
        lines += [f"| `{name}` | {summary(value)} |" for name, value in public(room)]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    NAMES.write_text(text())
    OPTIONS.write_text(text_of_options())
