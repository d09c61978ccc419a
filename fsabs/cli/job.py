"""`fsabs job create`: a job whose tasks are dispatched to workers, by ElasticDL's arguments."""

from __future__ import annotations

import argparse
from typing import NoReturn

import click

from .program import Invocation, common


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are the command's."""

    def error(self, message: str) -> NoReturn:
        """Raise the error of wrong usage."""
        raise click.UsageError(message)


@click.group()
def command() -> None:
    """Create a job whose tasks are dispatched to workers; `fsabs tasks` shows and steers it.

    \b
    Example: fsabs job create --training_data_dir=data/train --minibatch_size=64 --task_database=sqlite:///job.db
    """


@command.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@common
def create(invocation: Invocation, arguments: tuple[str, ...]) -> None:
    """Create a job, or find it created with the same data and settings; --help shows ElasticDL's arguments.

    \b
    Example: fsabs job create --training_data=data/train --records_per_task=4096 --task_database=sqlite:///job.db
    """
    try:
        from ..dispatch.arguments import add_arguments, create_job
    except ImportError as exc:
        raise click.ClickException(str(exc)) from exc
    parser = _Parser("fsabs job create", allow_abbrev=False, description="Create a job, by ElasticDL's arguments.")
    add_arguments(parser)
    try:
        given = parser.parse_args(arguments)
    except SystemExit:  # of --help
        return
    job = create_job(given)
    with job.dispatcher as dispatcher:
        status = dispatcher.status()
    values = {"job": given.job_name, "state": status.state, "tasks": status.tasks.todo, "epochs": status.num_epochs}
    text = f"job {given.job_name!r}: {status.tasks.todo} tasks; workers open it by the URL of its database"
    invocation.output.record(values, text)
