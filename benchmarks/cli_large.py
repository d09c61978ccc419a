"""`fsabs cp` of one object of 2 GiB, from S3 and to it, against s5cmd."""

from __future__ import annotations

from collections.abc import Sequence

from .frame import data, servers, sink
from .frame.measure import at_least
from .frame.race import Bench, Entrant, Race

MIB = 2048


def environment(endpoint: str) -> dict[str, str]:
    """Return the variables by which commands find the store."""
    return {"S3_ENDPOINT": endpoint, "S3_ENDPOINT_URL": endpoint}


def commands(
    race: Race, each: int, ours: Sequence[str], theirs: Sequence[str], removed: str = "", extra: int = 0
) -> tuple[Entrant, Entrant]:
    """Enter a command of ours and one of s5cmd.

    Args:
        race: of the commands.
        each: how many things a command does.
        ours: the arguments of `fsabs`.
        theirs: the arguments of `s5cmd`.
        removed: what they write, and an earlier round has written.
        extra: where they write a line for each thing, the number of ours beyond that.
    """
    one = {"command": ["fsabs", *ours], "removed": removed, "lines": each + extra if extra else 0}
    other = {"command": ["s5cmd", *theirs], "removed": removed, "lines": each if extra else 0}
    return (
        race.ours("fsabs", "commands.running", each, **one),
        race.peer("s5cmd", "s5cmd", "commands.running", each, of="shell", **other),
    )


def run(bench: Bench) -> None:
    """From nginx, then to a store that keeps nothing."""
    source, out = bench.folder / "files" / "bucket" / "large", str(bench.folder / "large")
    data.large(source, MIB << 20)
    with (
        servers.store(bench.folder / "files") as store,
        bench.race("cp of 2 GiB from S3", "MiB", rounds=5, environment=environment(store.endpoint)) as race,
    ):
        contest(race, ["s3://bucket/large", out], ["s3://bucket/large", out], out)
    with (
        sink.start() as endpoint,
        bench.race("cp of 2 GiB to S3", "MiB", rounds=5, environment=environment(endpoint)) as race,
    ):
        contest(race, ["-f", str(source), "s3://bucket/ours"], [str(source), "s3://bucket/theirs"])
    bench.note("The server that is written to keeps nothing; nginx reads from the page cache.")
    bench.note("fsabs compares checksums of each part with the store's; s5cmd has a Content-MD5 or none.")


def contest(race: Race, ours: Sequence[str], theirs: Sequence[str], removed: str = "") -> None:
    """Copy by both."""
    fsabs, s5cmd = commands(race, MIB, ["cp", *ours], ["cp", *theirs], removed)
    race.run("us/MiB", "seconds", "cpu")
    race.faster(fsabs, s5cmd, at_least(0.9))
