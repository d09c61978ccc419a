"""`fsabs unpack` of 50,000 members against unzip, `du` of a zip of a million entries, and the start of the command."""

from __future__ import annotations

from .frame import data
from .frame.measure import at_least, at_most
from .frame.race import Bench

MEMBERS = 50_000
SIZE = 2_000  # bytes
ENTRIES = 1_000_000


def run(bench: Bench) -> None:
    """Unpacking, then what takes milliseconds."""
    archive, out = bench.folder / "many.zip", str(bench.folder / "out")
    data.deflated_zip(archive, MEMBERS, SIZE)
    with bench.race("unpack of 50,000 members", "member", rounds=5) as race:
        command = ["fsabs", "unpack", str(archive), out]
        ours = race.ours("fsabs", "commands.running", MEMBERS, command=command, removed=out)
        command = ["unzip", "-q", "-d", out, str(archive)]
        unzip = race.beside("unzip", "commands.running", MEMBERS, command=command, removed=out)
        race.run("us/member", "seconds", "cpu")
        race.faster(ours, unzip, at_least(1.5))
    huge = bench.folder / "huge.zip"
    data.zip_of_many(huge, ENTRIES)
    data.objects(bench.folder / "folder", 100, 1)
    with bench.race("commands as processes", "command", rounds=10) as race:
        entered = [
            (race.ours(name, "commands.running", 1, command=["fsabs", *arguments]), target)
            for name, arguments, target in (
                ("fsabs --help", ["--help"], at_most(120, "ms")),
                ("fsabs ls of a local folder", ["ls", str(bench.folder / "folder")], at_most(150, "ms")),
                ("fsabs du of a zip of 1,000,000 entries", ["du", f"{huge}/"], at_most(1000, "ms")),
            )
        ]
        race.beside("python -c pass", "commands.running", 1, command=["python", "-c", "pass"])
        race.run("ms")
        for entrant, target in entered:
            race.claim(entrant, "ms", target, entrant.name)
    bench.note("`du` reads the zip's index in each round; the cached index of an earlier one is used, as by a user.")
