"""The program around the commands: their table, arguments by argparse, options that all have, errors and exit codes."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import signal
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from .. import __version__
from ..core.errors import did_you_mean
from .output import CommandOutput, coloured, error_text, standard_streams, terminal_columns, to_nowhere

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
_EXPECTED = (OSError, ValueError, LookupError, ImportError)
"""Errors whose message says what is wrong; others are faults of this package."""


class UsageError(Exception):
    """Arguments make no sense: the exit code is 2."""


class Invocation:
    """One run of the program: what a command gets beside its arguments."""

    def __init__(self) -> None:
        self.debug = False
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


class Parser(argparse.ArgumentParser):
    """The parser of a command, or of a group of them: options may stand anywhere, as GNU's commands have it."""

    def __init__(self, prog: str, text: str, commands: dict[str, str] | None = None) -> None:
        """Take the help as a text whose last paragraph is an example, and the commands of a group with their lines."""
        usage = None if commands is None else f"{prog} [-h] [--debug] COMMAND ..."
        self._width = max(50, min(80, terminal_columns()) - 2)
        formatter = functools.partial(argparse.RawDescriptionHelpFormatter, width=self._width)
        super().__init__(prog, usage, formatter_class=formatter, add_help=False, allow_abbrev=False)
        self._text = text
        self._commands = commands or {}
        self.arguments: list[argparse.Action] = []
        """In the order in which they were added."""

    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:
        """Add an argument."""
        action = super().add_argument(*args, **kwargs)
        self.arguments.append(action)
        return action

    def parse(self, words: Sequence[str]) -> Namespace:
        """Parse arguments; raise `UsageError` for wrong ones, and `SystemExit` after `--help`.

        Options are parsed first, wherever they stand, and their values may begin with a dash: `--size -20k`.
        """
        if all(action.option_strings for action in self.arguments):
            return self._parsed(words)
        valued = {name for action in self.arguments if action.nargs is None for name in action.option_strings}
        options, others = list[str](), list[str]()
        rest = iter(words)
        for word in rest:
            if word == "--":
                others += rest
            elif word in valued:
                value = next(rest, None)
                given = [word] if value is None else [f"{word}={value}"] if value.startswith("-") else [word, value]
                options += given
            else:
                (options if word.startswith("-") and word != "-" else others).append(word)
        return self._parsed([*options, *(["--", *others] if others else ())])

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError`."""
        raise UsageError(message)

    def _parsed(self, words: Sequence[str]) -> Namespace:
        """Parse arguments; of one that is not known, the error names the option that it may be meant for."""
        found, unknown = self.parse_known_args(words)
        if unknown:
            known = [name for action in self.arguments for name in action.option_strings]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{_did_you_mean(unknown[0], known)}")
        return found

    def print_help(self, file: Any = None) -> None:
        """Write the help; an error of the output is not hidden, as argparse does."""
        sys.stdout.write(self.format_help())

    def format_help(self) -> str:
        """Return the help, which fits the terminal."""
        import textwrap

        *about, example = [" ".join(paragraph.split()) for paragraph in self._text.split("\n\n")]
        lines = [
            textwrap.fill(f"  {name:<12}{line}", self._width, subsequent_indent=" " * 14)
            for name, line in self._commands.items()
        ]
        self.description = "\n\n".join(textwrap.fill(paragraph, self._width) for paragraph in about)
        self.epilog = "\n".join([*(["commands:", *lines, ""] if lines else ()), example])
        return super().format_help()


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return the end of a message about a word that is not known: the first known one that it may stand for."""
    plain = word.partition("=")[0].lower()
    same = [name for name in known if name.lower() == plain]
    longer = [name for name in known if name.startswith("--") and name.lower().startswith("--" + plain.lstrip("-"))]
    if word.startswith("-") and (same or longer):
        return f"; did you mean {(same or longer)[0]!r}?"
    return did_you_mean(plain, known)


Adder = Callable[[Parser], object]
"""Adds arguments to a parser."""
Run = Callable[[Invocation, Namespace], "int | None"]
"""Runs a command with its parsed arguments, and returns the exit code, if it is not 0."""


def argument(*names: str, **settings: Any) -> Adder:
    """Return what adds an argument, which is described as for `ArgumentParser.add_argument`."""
    return lambda parser: parser.add_argument(*names, **settings)


def flag(*names: str, help: str, dest: str | None = None) -> Adder:
    """Return what adds an option without a value, which is False or True."""
    return argument(*names, help=help, dest=dest, action="store_true")


def dry_run(done: str) -> Adder:
    """Return what adds `--dry-run` to a command by which something is `done`."""
    return flag("--dry-run", help=f"Show what would be {done}.")


def at_least(least: float) -> Callable[[str], float]:
    """Return the type of an argument that is a number, an int or a float as `least` is, and no smaller one."""

    def number(text: str) -> float:
        value = type(least)(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    return number


_HELP = argument("-h", "--help", action="help", help="Show this help.")
_LONG_HELP = argument("--help", action="help", help="Show this help.")
_DEBUG = flag("--debug", help="Show the traceback of an error.")
_JSON = flag("--json", help="Write JSON, an object a line.")
_VERSION = flag("--version", help="Show the version.")


class Command:
    """A command, whose docstring is its help."""

    def __init__(self, run: Run, arguments: Sequence[Adder], json: bool = True) -> None:
        """Take a function, and its arguments beside `--debug` and, unless `json` is False, `--json`."""
        self.run = run
        self.arguments = [*arguments, *((_JSON,) if json else ()), _DEBUG]

    @property
    def line(self) -> str:
        """The first sentence of the help."""
        return " ".join((self.run.__doc__ or "").partition("\n\n")[0].split())

    def parser(self, prog: str) -> Parser:
        """Return its parser."""
        parser = Parser(prog, self.run.__doc__ or "")
        for add in self.arguments:
            add(parser)
        taken = any("-h" in action.option_strings for action in parser.arguments)
        (_LONG_HELP if taken else _HELP)(parser)
        return parser


class CommandLine(NamedTuple):
    """A command or group of `COMMANDS`: it has its name in a module of this package, which is imported to run it."""

    module: str
    line: str
    """One sentence, for `fsabs --help`."""


class Group:
    """Commands under one name."""

    def __init__(self, text: str, commands: dict[str, Command | CommandLine] | None = None) -> None:
        """Take its help."""
        self.text = text
        self.commands = commands if commands is not None else {}

    def command(self, name: str, *arguments: Adder) -> Callable[[Run], Command]:
        """Make a function a command of the group."""

        def made(run: Run) -> Command:
            self.commands[name] = found = Command(run, arguments)
            return found

        return made

    def find(self, name: str) -> Command | Group | None:
        """Return a command, or a group in this one."""
        found = self.commands.get(name)
        if isinstance(found, CommandLine):
            module = importlib.import_module(f".{found.module}", __package__)
            loaded: Command | Group = getattr(module, name)
            return loaded
        return found

    def parser(self, prog: str) -> Parser:
        """Return the parser of what stands before the command's name."""
        parser = Parser(prog, self.text, {name: self.commands[name].line for name in sorted(self.commands)})
        for add in (_HELP, _DEBUG, *((_VERSION,) if self is PROGRAM else ())):
            add(parser)
        return parser


def command(*arguments: Adder, json: bool = True) -> Callable[[Run], Command]:
    """Make a function a command of the program, which is also a line of `COMMANDS`; `json` gives it `--json`."""
    return lambda run: Command(run, arguments, json)


COMMANDS: dict[str, Command | CommandLine] = {
    "cache": CommandLine("upkeep", "Show, fill, empty and check the cache."),
    "cat": CommandLine("content", "Write files to the standard output."),
    "config": CommandLine("upkeep", "Show and check the configuration."),
    "convert": CommandLine("packing", "Write a container in another format."),
    "cp": CommandLine("changing", "Copy files and trees between any two places."),
    "diff": CommandLine("content", "Show what differs between two files or trees."),
    "doctor": CommandLine("doctor", "Check this machine, and the way to a store."),
    "du": CommandLine("listing", "Sum up the bytes and files below paths."),
    "explain": CommandLine("explain", "Show how a URL resolves, and what it costs to read."),
    "find": CommandLine("listing", "Find files by name, size or time."),
    "head": CommandLine("content", "Write the first lines of files."),
    "job": CommandLine("jobs", "Create a job whose tasks are dispatched to workers."),
    "ls": CommandLine("listing", "List directories and containers."),
    "manifest": CommandLine("datasets", "Write, check and merge manifests, which pin data sets."),
    "mkdir": CommandLine("changing", "Make directories."),
    "mv": CommandLine("changing", "Move files and trees between any two places."),
    "pack": CommandLine("packing", "Pack a directory into a container."),
    "pfs": CommandLine("pfs", "List, copy, make and remove files of datacenters: /pfs/DATACENTER/..."),
    "prepare": CommandLine("datasets", "Make RecordIO or token files of raw files, here or on a Spark cluster."),
    "repair": CommandLine("packing", "Replace damaged RecordIO files by what is good in them."),
    "rm": CommandLine("changing", "Remove files and trees."),
    "samples": CommandLine("datasets", "Show where the samples of a training step came from."),
    "stat": CommandLine("listing", "Show what is known of files without reading them."),
    "sync": CommandLine("changing", "Make a directory equal to another one."),
    "tail": CommandLine("content", "Write the last lines of files."),
    "tasks": CommandLine("jobs", "Show and steer a job whose tasks are dispatched to workers."),
    "trace": CommandLine("upkeep", "Show what a trace has recorded."),
    "unpack": CommandLine("packing", "Unpack a container into a directory."),
    "verify": CommandLine("packing", "Read containers and RecordIO files, and show what is damaged."),
}
PROGRAM = Group(
    "Work with data sets on any store.\n\n"
    "Exit codes: 0 success, 1 failure, 2 wrong usage, 130 Ctrl-C.\n\n"
    "Example: fsabs cp -r s3://bucket/train.zip/images/ /data/images",
    COMMANDS,
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return the exit code."""
    invocation = Invocation()
    with standard_streams() as output:
        try:
            code = _run(invocation, list(sys.argv[1:] if arguments is None else arguments))
        except SystemExit:  # of an error that nobody reads, or of a function of the user
            code = FAILED
        try:
            output.flush()
        except OSError as exc:  # its reader has gone away, or its disk is full
            to_nowhere(output)
            if code == 0:
                invocation.error(exc)
                code = FAILED
        return code


def _run(invocation: Invocation, words: list[str]) -> int:
    prog = ["fsabs"]
    try:
        with _terminated_as_interrupted(), _warnings_as_lines():
            found: Command | Group | None = PROGRAM
            while isinstance(found, Group):
                at = next((at for at, word in enumerate(words) if not word.startswith("-")), len(words))
                parser = found.parser(" ".join(prog))
                if (given := _parse(parser, words[:at], invocation)) is None:
                    return 0
                if vars(given).get("version"):
                    sys.stdout.write(f"fsabs {__version__}\n")
                    return 0
                if at == len(words):
                    sys.stderr.write(parser.format_help())
                    return MISUSED
                found_in, found = found, found.find(words[at])
                if found is None:
                    raise UsageError(
                        f"No such command {words[at]!r}{_did_you_mean(words[at], sorted(found_in.commands))}"
                    )
                prog.append(words[at])
                del words[: at + 1]
            if found is None or (given := _parse(found.parser(" ".join(prog)), words, invocation)) is None:
                return 0
            invocation.output.json = vars(given).get("json", False)
            code = found.run(invocation, given)
            invocation.output.close()
        return code or 0
    except UsageError as exc:
        where = " ".join(prog)
        sys.stderr.write(f"{where}: {exc}\n  '{where} --help' shows how it is used\n")
        return MISUSED
    except KeyboardInterrupt:
        sys.stderr.write(": ".join(filter(None, ("fsabs", "interrupted", invocation.how_to_go_on))) + "\n")
        return INTERRUPTED
    except Exception as exc:
        invocation.error(exc)
        return FAILED


def _parse(parser: Parser, words: list[str], invocation: Invocation) -> Namespace | None:
    """Return parsed arguments; None if they asked for help, which is written."""
    try:
        given = parser.parse(words)
    except SystemExit:
        return None
    invocation.debug |= given.debug
    return given


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
