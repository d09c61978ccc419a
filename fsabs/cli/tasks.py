"""`fsabs job` and `tasks`: a dispatcher's job is created; its state, its failed tasks, and what puts them back."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .program import FAILED, Invocation, common

if TYPE_CHECKING:
    from ..dispatch import Counters, Status, TaskDispatcher


class _JobParser(argparse.ArgumentParser):
    """A parser whose errors are the command's."""

    def error(self, message: str) -> NoReturn:
        """Raise the error of wrong usage."""
        raise click.UsageError(message)


@click.group()
def job() -> None:
    """Create a job whose tasks are dispatched to workers; `fsabs tasks` shows and steers it.

    \b
    Example: fsabs job create --training_data_dir=data/train --minibatch_size=64 --task_database=sqlite:///job.db
    """


@job.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
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
    parser = _JobParser("fsabs job create", allow_abbrev=False, description="Create a job, by ElasticDL's arguments.")
    add_arguments(parser)
    try:
        given = parser.parse_args(arguments)
    except SystemExit:  # of --help
        return
    created = create_job(given)
    with created.dispatcher as dispatcher:
        status = dispatcher.status()
    values = {"job": given.job_name, "state": status.state, "tasks": status.tasks.todo, "epochs": status.num_epochs}
    text = f"job {given.job_name!r}: {status.tasks.todo} tasks; workers open it by the URL of its database"
    invocation.output.record(values, text)


@click.group()
def tasks() -> None:
    """Show and steer a job whose tasks are dispatched to workers.

    URL is that of the job's database: sqlite:///path or postgresql+psycopg://user@host/name.

    \b
    Example: fsabs tasks watch sqlite:///job.db
    """


def _job(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments that name a job."""
    job = click.option("--job", default="default", show_default=True, help="The job's name.")
    wait = click.option(
        "--wait", type=float, default=10.0, show_default=True, help="Seconds to wait for a database that is away."
    )
    return click.argument("url")(job(wait(command)))


@contextlib.contextmanager
def _opened(url: str, job: str, wait: float) -> Iterator[TaskDispatcher]:
    from ..dispatch import TaskDispatcher

    with TaskDispatcher(url, job, outage_seconds=wait) as dispatcher:
        yield dispatcher


@tasks.command()
@_job
@common
def status(invocation: Invocation, url: str, job: str, wait: float) -> None:
    """Show the state of a job.

    \b
    Example: fsabs tasks status sqlite:///job.db --json
    """
    with _opened(url, job, wait) as dispatcher:
        found = dispatcher.status()
    invocation.output.record(_values(found), _text(found))


@tasks.command()
@_job
@click.option("--interval", type=click.FloatRange(min=0.05), default=2.0, show_default=True, help="Seconds.")
@common
def watch(invocation: Invocation, url: str, job: str, wait: float, interval: float) -> int:
    """Show the state of a job again and again until the job ends.

    The exit code is 1 if tasks of the job failed.

    \b
    Example: fsabs tasks watch sqlite:///job.db --interval 10
    """
    with _opened(url, job, wait) as dispatcher:
        before: tuple[float, Status] | None = None
        while True:
            now, found = time.monotonic(), dispatcher.status()
            invocation.output.redraw(_values(found), _line(found, _rate(before, now, found)))
            if found.state != "running":
                return FAILED if found.state == "failed" else 0
            before = now, found
            time.sleep(interval)


@tasks.command()
@_job
@common
def failed(invocation: Invocation, url: str, job: str, wait: float) -> None:
    """List the tasks that failed for good, with their reasons.

    \b
    Example: fsabs tasks failed sqlite:///job.db
    """
    columns = ("task", "type", "epoch", "shard", "start", "end", "records", "failures", "reason")
    with _opened(url, job, wait) as dispatcher:
        rows = [(one.task_id, one.type.name, *one[2:]) for one in dispatcher.failed()]
    invocation.output.table(columns, rows)


@tasks.command()
@_job
@common
def retry(invocation: Invocation, url: str, job: str, wait: float) -> None:
    """Put the failed tasks back; a job that has failed goes on.

    \b
    Example: fsabs tasks retry sqlite:///job.db
    """
    with _opened(url, job, wait) as dispatcher:
        count = dispatcher.retry_failed()
    invocation.output.record({"retried": count}, f"{count} tasks put back")


@tasks.command()
@_job
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def reset(invocation: Invocation, url: str, job: str, wait: float, yes: bool) -> None:
    """Forget all that was done: the job begins again with its first epoch.

    \b
    Example: fsabs tasks reset sqlite:///job.db --yes
    """
    with _opened(url, job, wait) as dispatcher:
        done = dispatcher.status()
        if not yes:
            records = f"{done.tasks.records} records of epoch {done.epoch}"
            if not click.confirm(f"Forget what job {job!r} has done ({records}, and all epochs before)?", err=True):
                raise click.ClickException("nothing was changed")
        dispatcher.reset()
    invocation.output.record({"job": job, "state": "running", "epoch": 0}, f"job {job!r} begins again")


def _values(status: Status) -> dict[str, Any]:
    """Return a status as plain data."""
    return {**status._asdict(), "tasks": status.tasks._asdict(), "evaluation": status.evaluation._asdict()}


def _rate(before: tuple[float, Status] | None, now: float, status: Status) -> float | None:
    """Return how many records a second were accounted for since an earlier status of the same epoch."""
    if before is None or before[1].epoch != status.epoch or now <= before[0]:
        return None
    return (status.tasks.records - before[1].tasks.records) / (now - before[0])


def _epoch(status: Status) -> str:
    return f"epoch {status.epoch + 1} of {status.num_epochs or 'no end'}"


def _line(status: Status, rate: float | None) -> str:
    """Return a status in one line."""
    tasks = status.tasks
    counts = f"{tasks.done} of {sum(tasks[:4])} tasks done, {tasks.doing} running, {tasks.failed} failed"
    speed = f", {rate:.0f} records/s" if rate is not None else ""
    return f"{status.job}: {status.state}, {_epoch(status)}, {counts}, {len(status.workers)} workers{speed}"


def _text(status: Status) -> str:
    """Return a status in some lines."""
    lines = [f"job {status.job}: {status.state}, {_epoch(status)}", _counted("tasks", status.tasks)]
    if any(status.evaluation):
        lines.append(_counted("evaluation", status.evaluation))
    lines += [f"worker {name}: {count} tasks" for name, count in sorted(status.workers.items())]
    if status.late:
        lines.append(f"{status.late} tasks whose lease is over")
    return "\n".join(lines)


def _counted(name: str, counters: Counters) -> str:
    parts = ", ".join(f"{value} {state}" for state, value in zip(counters._fields[:4], counters[:4], strict=True))
    return f"{name}: {parts}; {counters.records} records accounted for"
