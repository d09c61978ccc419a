"""The program around the commands: lazily loaded commands, options that all of them have, errors and exit codes."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import click

from .. import __version__, errors
from . import COMMANDS
from .output import Output

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
_EXPECTED = (OSError, ValueError, LookupError, ImportError)
"""Errors whose message says what is wrong; others are faults of this package."""


class Invocation:
    """One run of the program: the object that `click.pass_obj` gives to a command."""

    def __init__(self) -> None:
        self.debug = False
        self.output = Output()


class _Program(click.Group):
    """The group of `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        line = COMMANDS.get(cmd_name)
        if line is None:
            return None
        module = importlib.import_module(f".{line.module}", __package__)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].help) for name in self.list_commands(ctx)])


def _set_debug(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).debug = True


def _set_json(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).output.json = True


_debug = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_set_debug, help="Show the traceback of an error."
)
_json = click.option(
    "--json", is_flag=True, expose_value=False, callback=_set_json, help="Write JSON, an object a line."
)


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json` and `--debug` to a command; its first parameter is the `Invocation`."""
    return _json(_debug(click.pass_obj(command)))


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="fsabs %(version)s")
@_debug
def program() -> None:
    """Work with data sets on any store.

    \b
    Example: fsabs tasks status sqlite:///job.db
    Exit codes: 0 success, 1 failure, 2 wrong usage, 130 Ctrl-C
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return the exit code."""
    invocation = Invocation()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = program.main(given, prog_name="fsabs", standalone_mode=False, obj=invocation)
        invocation.output.close()
        return result if isinstance(result, int) else 0
    except click.UsageError as exc:
        where = exc.ctx.command_path if exc.ctx is not None else "fsabs"
        sys.stderr.write(f"{where}: {exc.format_message()}\n  '{where} --help' shows how it is used\n")
        return MISUSED
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("fsabs: interrupted\n")
        return INTERRUPTED
    except click.ClickException as exc:
        sys.stderr.write(f"fsabs: {exc.format_message()}\n")
        return exc.exit_code
    except Exception as exc:
        if invocation.debug:
            traceback.print_exc()
        sys.stderr.write(f"fsabs: {_line(exc)}\n")
        return FAILED


def _line(exc: Exception) -> str:
    """Return an error as one line, without the credentials of a URL."""
    text = re.sub(r"^\[Errno -?\d+\] ", "", str(exc)) or type(exc).__name__
    if not isinstance(exc, _EXPECTED):
        text = f"{type(exc).__name__}: {text} (--debug shows the traceback)"
    return errors.without_secrets(" ".join(text.split()))
