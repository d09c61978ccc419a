"""`fsabs config`: the sections of `pfio.ini`, and what is wrong with them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator

import click

from .program import FAILED, Invocation, common
from .redaction import is_secret_name, is_variable


@click.group()
def command() -> None:
    """Show and check the configuration: custom schemes in pfio.ini.

    \b
    Example: fsabs config list
    """


@command.command("list")
@common
def listing(invocation: Invocation) -> None:
    """Show the sections and their keys, as they are written; secrets are not shown.

    \b
    Example: fsabs config list --json
    """
    from .. import config

    path = config.config_path()
    invocation.output.record({"file": path, "exists": os.path.exists(path)}, _heading(path))
    for name in config.sections():
        section = config.get_custom_scheme(name) or {}
        shown = {key: _value(key, str(value)) for key, value in section.items()}
        text = "\n".join([f"\n[{name}]", *(f"{key} = {value}" for key, value in shown.items())])
        invocation.output.record({"section": name, "keys": shown}, text)


@command.command()
@common
def check(invocation: Invocation) -> int:
    """Show what is wrong: unreadable lines, unknown schemes and keys, values of a wrong type, missing variables.

    The exit code is 1 if anything is wrong.

    \b
    Example: fsabs config check
    """
    from .. import config

    found = list(_problems())
    for section, problem in found:
        invocation.output.record({"section": section, "problem": problem}, problem)
    if not found:
        count = len(config.sections())
        text = f"{config.config_path()}: {count} sections, nothing is wrong"
        invocation.output.record({"section": None, "problem": None}, text)
    return FAILED if found else 0


def _heading(path: str) -> str:
    return path if os.path.exists(path) else f"{path} (not there)"


def _value(key: str, written: str) -> str:
    """Return a value as it is written, without secrets; the name of a variable is none."""
    return "***" if is_secret_name(key) and not is_variable(written) else written


def _problems() -> Iterator[tuple[str, str]]:
    from .. import config, locations, schemes
    from ..errors import ConfigWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        for problem in config.problems():
            yield "", problem
        for name in config.sections():
            try:
                url = f"pfs://{name}/home" if config.is_datacenter(name) else f"{name}://authority/path"
                schemes.backend(locations.parsed(url), {}, strict=True)
            except (ValueError, ImportError, TypeError) as exc:
                yield name, str(exc)
