"""`fsabs unpack` of 50,000 members against unzip, `du` of a zip of a million entries, and the start of the command."""

from __future__ import annotations

from .frame import data
from .frame.measure import at_least, at_most
from .frame.race import Bench

MEMBERS = 50_000
SIZE = 2_000  # bytes
ENTRIES = 1_000_000
ROUNDS = 5


def run(bench: Bench) -> None:
    """Unpacking, then what takes milliseconds."""
    archive, out = bench.folder / "many.zip", str(bench.folder / "out")
    data.deflated_zip(archive, MEMBERS, SIZE)
    with bench.race("unpack of 50,000 members", "member", rounds=ROUNDS) as race:
        command = ["fsabs", "unpack", str(archive), out]
        ours = race.ours("fsabs", "commands.running", MEMBERS, command=command, removed=[out])
        command = ["unzip", "-q", "-d", out, str(archive)]
        unzip = race.beside("unzip", "commands.running", MEMBERS, command=command, removed=[out])
        race.run()
        race.table("seconds", "us/member", 1e6)
        race.table("cpu", "us/member", 1e6, f"{race.title}: CPU time")
        race.faster(ours, unzip, at_least(1.5))
    huge = bench.folder / "huge.zip"
    data.zip_of_many(huge, ENTRIES)
    folder = bench.folder / "folder"
    folder.mkdir()
    for number in range(100):
        (folder / f"{number}.txt").write_text("x")
    with bench.race("commands as processes", "command", rounds=2 * ROUNDS) as race:
        command = ["fsabs", "--help"]
        entered = [(race.ours("fsabs --help", "commands.running", 1, command=command), at_most(120, "ms"))]
        command = ["fsabs", "ls", str(folder)]
        entered.append(
            (race.ours("fsabs ls of a local folder", "commands.running", 1, command=command), at_most(150, "ms"))
        )
        command = ["fsabs", "du", f"{huge}/"]
        title = "fsabs du of a zip of 1,000,000 entries"
        entered.append((race.ours(title, "commands.running", 1, command=command), at_most(1000, "ms")))
        race.beside("python -c pass", "commands.running", 1, command=["python", "-c", "pass"])
        race.run()
        race.table("seconds", "ms", 1e3)
        for entrant, target in entered:
            bench.claim(entrant.name, [seconds * 1e3 for seconds in race.values(entrant, "seconds")], "ms", target)
    bench.note("`du` reads the zip's index in each round; the cached index of an earlier one is used, as by a user.")
