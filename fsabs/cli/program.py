"""The program around the commands: lazily loaded commands, options that all of them have, errors and exit codes."""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from .. import __version__
from .commands import COMMANDS
from .output import CommandOutput, coloured, error_text, standard_streams, terminal_columns, to_nowhere

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
_EXPECTED = (OSError, ValueError, LookupError, ImportError)
"""Errors whose message says what is wrong; others are faults of this package."""


class Invocation:
    """One run of the program: the object that `click.pass_obj` gives to a command."""

    def __init__(self) -> None:
        self.debug = False
        self.arguments: Sequence[str] = ()
        """As they were given."""
        self.output = CommandOutput()
        self.how_to_go_on = ""
        """A sentence that is shown after Ctrl-C."""

    def error(self, exc: Exception) -> None:
        """Write an error as one line, and its traceback with `--debug`; the command may go on."""
        if isinstance(exc, BrokenPipeError) and exc.filename is None:
            raise SystemExit(FAILED)  # the reader of the output has gone away, as `head` does when it has enough
        self.output.flush()
        if self.debug:
            import traceback

            sys.stderr.write("".join(traceback.format_exception(exc)))
        sys.stderr.write(coloured(f"fsabs: {_line(exc)}", "error", sys.stderr) + "\n")


class _Program(click.Group):
    """The group of `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        line = COMMANDS.get(cmd_name)
        if line is None:
            return None
        command: click.Command = getattr(importlib.import_module(f".{line.module}", __package__), line.name)
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
    return _json(raw(command))


def raw(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--debug` to a command that writes the contents of files; its first parameter is the `Invocation`."""
    return _debug(click.pass_obj(command))


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="fsabs %(version)s")
@_debug
def program() -> None:
    """Work with data sets on any store.

    \b
    Example: fsabs cp -r s3://bucket/train.zip/images/ /data/images
    Exit codes: 0 success, 1 failure, 2 wrong usage, 130 Ctrl-C
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return the exit code."""
    invocation = Invocation()
    invocation.arguments = given = list(sys.argv[1:] if arguments is None else arguments)
    with standard_streams() as output:
        try:
            code = _run(invocation, given)
        except SystemExit:  # click's, with a standard output that hides the error: its reader has gone away, as `head`
            code = FAILED
        try:
            output.flush()
        except OSError as exc:  # as that, or its disk is full
            to_nowhere(output)
            if code == 0:
                invocation.error(exc)
                code = FAILED
        return code


def _run(invocation: Invocation, given: list[str]) -> int:
    try:
        with _terminated_as_interrupted(), _warnings_as_lines():
            width = max(50, min(80, terminal_columns()) - 2)  # as click has it
            result = program.main(given, prog_name="fsabs", standalone_mode=False, obj=invocation, terminal_width=width)
            invocation.output.close()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as exc:
        sys.stderr.write(exc.format_message() + "\n")
        return MISUSED
    except click.UsageError as exc:
        where = exc.ctx.command_path if exc.ctx is not None else "fsabs"
        sys.stderr.write(f"{where}: {exc.format_message()}\n  '{where} --help' shows how it is used\n")
        return MISUSED
    except (click.Abort, KeyboardInterrupt) as exc:
        if isinstance(exc.__context__, EOFError):
            sys.stderr.write("fsabs: the standard input has ended, and a question has no answer\n")
            return FAILED
        sys.stderr.write(": ".join(filter(None, ("fsabs", "interrupted", invocation.how_to_go_on))) + "\n")
        return INTERRUPTED
    except click.ClickException as exc:
        sys.stderr.write(f"fsabs: {exc.format_message()}\n")
        return exc.exit_code
    except Exception as exc:
        invocation.error(exc)
        return FAILED


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Have SIGTERM end a command as Ctrl-C does."""
    try:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Write each warning as one line."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        text = " ".join(str(message).split())
        sys.stderr.write(coloured(f"fsabs: warning: {text}", "warning", sys.stderr) + "\n")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _line(exc: Exception) -> str:
    """Return an error as one line."""
    if isinstance(exc, _EXPECTED):
        return error_text(exc)
    return f"{type(exc).__name__}: {error_text(exc)} (--debug shows the traceback)"
