"""`fsabs config`: the sections of `pfio.ini`, and what is wrong with them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator

import click

from .program import FAILED, Invocation, common


@click.group()
def command() -> None:
    """Show and check the configuration: custom schemes in pfio.ini.

    \b
    Example: fsabs config list
    """


@command.command("list")
@common
def listing(invocation: Invocation) -> None:
    """Show the sections and their keys, as they are written; what may be secret is not shown.

    \b
    Example: fsabs config list --json
    """
    from ..core import redaction
    from ..urls import config

    path = config.config_path()
    invocation.output.record({"file": path, "exists": os.path.exists(path)}, _heading(path))
    for name in config.sections():
        section = config.get_custom_scheme(name) or {}
        shown = {key: redaction.shown(key, value) for key, value in section.items()}
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
    from ..urls import config

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


def _problems() -> Iterator[tuple[str, str]]:
    from ..core.errors import ConfigWarning
    from ..urls import config

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        for problem in config.problems():
            yield "", problem
        told = set[str]()
        for name in config.sections():
            for fault in _faults(name):
                if str(fault) not in told:  # as one of the section that this one builds on
                    told.add(str(fault))
                    yield name, str(fault)


def _faults(name: str) -> list[Exception]:
    """Return all that is wrong with a section."""
    from ..core.limits import Limits
    from ..urls import config, locations, schemes
    from ..urls.caching import cache_options

    found: list[Exception] = []
    url = f"pfs://{name}/home" if config.is_datacenter(name) else f"{name}://authority/path"
    try:
        settings = schemes.backend(locations.parsed(url), {}, strict=True, report=found.append)[3]
    except (ValueError, ImportError, TypeError) as exc:
        return [*found, exc]
    for check in (
        lambda: config.convert(settings.get("limits"), Limits, f"[{name}] limits"),
        lambda: cache_options(settings.get("cache")),
    ):
        try:
            check()
        except (ValueError, TypeError) as exc:
            found.append(exc)
    return found
