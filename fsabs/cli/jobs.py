"""`fsabs job` and `tasks`: a dispatcher's job is created; its state, its failed tasks, and what puts them back."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from .output import confirmed
from .program import FAILED, Group, Invocation, Parser, argument, at_least, flag

if TYPE_CHECKING:
    from ..dispatch import Counters, Status, TaskDispatcher

job = Group(
    """Create a job whose tasks are dispatched to workers; `fsabs tasks` shows and steers it.

    Example: fsabs job create --training_data_dir=data/train --minibatch_size=64 --task_database=sqlite:///job.db"""
)
tasks = Group(
    """Show and steer a job whose tasks are dispatched to workers.

    URL is that of the job's database: sqlite:///path or postgresql+psycopg://user@host/name.

    Example: fsabs tasks watch sqlite:///job.db"""
)


def _elasticdl(parser: Parser) -> None:
    from ..dispatch.arguments import add_arguments

    add_arguments(parser)


@job.command("create", _elasticdl)
def _create(invocation: Invocation, given: Namespace) -> None:
    """Create a job by ElasticDL's arguments, or find it created with the same data and settings.

    Example: fsabs job create --training_data=data/train --records_per_task=4096 --task_database=sqlite:///job.db
    """
    from ..dispatch.arguments import create_job

    with create_job(given).dispatcher as dispatcher:
        status = dispatcher.status()
    values = {"job": given.job_name, "state": status.state, "tasks": status.tasks.todo, "epochs": status.num_epochs}
    text = f"job {given.job_name!r}: {status.tasks.todo} tasks; workers open it by the URL of its database"
    if status.state != "running":
        again = "fsabs tasks reset begins it again, --job_name another one"
        text = f"job {given.job_name!r} has ended ({status.state}): {again}"
    invocation.output.record(values, text)


_JOB = (
    argument("url", metavar="URL"),
    argument("--job", default="default", help="The job's name (default: %(default)s)."),
    argument(
        "--wait",
        type=float,
        default=10.0,
        help="Seconds to wait for a database that is away (default: %(default)s).",
    ),
)


def _opened(given: Namespace) -> TaskDispatcher:
    from ..dispatch import TaskDispatcher

    return TaskDispatcher(given.url, given.job, outage_seconds=given.wait)


@tasks.command("status", *_JOB)
def _show_status(invocation: Invocation, given: Namespace) -> None:
    """Show the state of a job.

    Example: fsabs tasks status sqlite:///job.db --json
    """
    with _opened(given) as dispatcher:
        found = dispatcher.status()
    invocation.output.record(_values(found), _text(found))


@tasks.command(
    "watch",
    *_JOB,
    argument("--interval", type=at_least(0.05), default=2.0, help="Seconds (default: %(default)s)."),
)
def _watch(invocation: Invocation, given: Namespace) -> int:
    """Show the state of a job again and again until the job ends.

    The exit code is 1 if tasks of the job failed.

    Example: fsabs tasks watch sqlite:///job.db --interval 10
    """
    with _opened(given) as dispatcher:
        before: tuple[float, Status] | None = None
        while True:
            now, found = time.monotonic(), dispatcher.status()
            invocation.output.redraw(_values(found), _line(found, _rate(before, now, found)))
            if found.state != "running":
                return FAILED if found.state == "failed" else 0
            before = now, found
            time.sleep(given.interval)


@tasks.command("failed", *_JOB)
def _show_failed(invocation: Invocation, given: Namespace) -> None:
    """List the tasks that failed for good, with their reasons.

    Example: fsabs tasks failed sqlite:///job.db
    """
    columns = ("task", "type", "epoch", "shard", "start", "end", "records", "failures", "reason")
    with _opened(given) as dispatcher:
        rows = [(one.task_id, one.type.name, *one[2:]) for one in dispatcher.failed()]
    invocation.output.table(columns, rows)


@tasks.command("retry", *_JOB)
def _retry(invocation: Invocation, given: Namespace) -> None:
    """Put the failed tasks back; a job that has failed continues.

    Example: fsabs tasks retry sqlite:///job.db
    """
    with _opened(given) as dispatcher:
        count = dispatcher.retry_failed()
    invocation.output.record({"retried": count}, f"{count} tasks put back")


@tasks.command("reset", *_JOB, flag("--yes", help="Do not ask."))
def _reset(invocation: Invocation, given: Namespace) -> None:
    """Forget all that was done: the job begins again with its first epoch.

    Example: fsabs tasks reset sqlite:///job.db --yes
    """
    with _opened(given) as dispatcher:
        done = dispatcher.status()
        records = f"{done.tasks.records} records of epoch {done.epoch}"
        question = f"Forget what job {given.job!r} has done ({records}, and all epochs before)?"
        if not given.yes and not confirmed(question):
            raise ValueError("nothing was changed")
        dispatcher.reset()
    invocation.output.record({"job": given.job, "state": "running", "epoch": 0}, f"job {given.job!r} begins again")


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
    lines += [f"task {name} may end its workers: dispatched {count} times" for name, count in status.suspects.items()]
    return "\n".join(lines)


def _counted(name: str, counters: Counters) -> str:
    parts = ", ".join(f"{value} {state}" for state, value in zip(counters._fields[:4], counters[:4], strict=True))
    return f"{name}: {parts}; {counters.records} records accounted for"
