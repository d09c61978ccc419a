"""`fsabs samples`: where the samples of a training step came from, by the state of a loader."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

import click

from ..readers.definitions import module_from
from ..urls import opening
from .program import Invocation, common


@click.command()
@click.argument("states", metavar="[STATE]...", nargs=-1)
@click.argument("step", type=click.IntRange(min=0))
@click.option("--loader", "definition", required=True, help="FILE.py:FUNCTION that returns the Loader of the job.")
@click.option("--ranks", type=click.IntRange(min=1), help="Ranks of the job; by default, those of the states.")
@click.option("--key", help="The name of the loader's state in a checkpoint.")
@common
def command(
    invocation: Invocation, states: tuple[str, ...], step: int, definition: str, ranks: int | None, key: str | None
) -> int:
    """Show what each rank reads in a step: source, shard and record, from seed and counts alone.

    A STATE is a file, or several of the ranks, that holds a loader's state_dict(): JSON, or what torch.save writes. The
    step is the number of a batch of the state's epoch, and not before it; without a STATE, of the first one. FUNCTION
    takes no arguments and makes the data set and the Loader as the job does; its rank is that of the environment.

    \b
    Example: fsabs samples step-300.json 340 --loader train.py:make_loader
    """
    path, colon, name = definition.rpartition(":")
    if not colon or not name.isidentifier():
        raise click.UsageError(f"--loader is FILE.py:FUNCTION, not {definition!r}")
    make = getattr(module_from(_read(path).decode(), path), name, None)
    if not callable(make):
        raise click.UsageError(f"{path} has no function {name}")
    loaded = [_state(path, key) for path in states]
    count = ranks or _ranks_of(loaded)
    rows = []
    for rank in range(count):
        with _rank(rank, count):
            loader = make()
            if loaded:
                loader.load_state_dict(loaded)
            try:
                places = loader.samples(step)[rank]
            except LookupError as exc:
                raise click.UsageError(str(exc)) from None
            finally:
                loader.dataset.close()
        rows += [(rank, *place) for place in places]
    invocation.output.table(("rank", "source", "shard", "record", "offset"), rows)
    return 0


def _read(path: str) -> bytes:
    with opening.open_url(path, "rb") as file:
        data: bytes = file.read()
        return data


def _state(path: str, key: str | None) -> Any:
    """Return the state in a file."""
    data = _read(path)
    try:
        value = json.loads(data)
    except ValueError:
        from ..adapters.torch import load_checkpoint

        value = load_checkpoint(path)
    for name in key.split(".") if key else ():
        if not isinstance(value, dict) or name not in value:
            raise click.UsageError(f"{path} has no {key!r}")
        value = value[name]
    return value


def _ranks_of(states: list[Any]) -> int:
    if not states:
        return 1
    from ..adapters.torch.states import first_of

    first = first_of(states)
    if not isinstance(first, dict) or "rank" not in first:
        raise click.UsageError("no state of a loader: give the name of it in the checkpoint by --key")
    return int(first["rank"][1])


@contextlib.contextmanager
def _rank(rank: int, ranks: int) -> Iterator[None]:
    """Be a rank, for the loader that is made."""
    names = {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
