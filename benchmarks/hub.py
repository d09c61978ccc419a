"""An epoch of 2,000 files of 100 KB on a Hugging Face hub, against HfFileSystem: time, listings, resolve requests."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from .frame import data, hub, servers
from .frame.measure import at_least, at_most
from .frame.race import Bench

FILES = 2000
SIZE = 100_000  # bytes
EPOCHS = {"first": True, "later": False}


def run(bench: Bench) -> None:
    """A first epoch, by a user who is new, and those after it."""
    contents, files = bench.folder / hub.CONTENTS, bench.folder / "files"
    contents.mkdir(parents=True)
    names = data.objects(files, FILES, SIZE)
    for name in names:
        os.link(files / name, contents / hashlib.sha256((files / name).read_bytes()).hexdigest())
    with servers.store(bench.folder) as store, hub.start(files, store.endpoint) as endpoint:
        for which, first in EPOCHS.items():
            epoch(bench, f"{which} epoch of 2,000 files on the hub", endpoint, names, first)
    bench.note(
        "The hub is the server of the tests, in a process of its own, and answers a resolve request in about 0.3 ms of "
        "CPU time; the files' contents are sent by nginx. ours compares the SHA-256 of each file, HfFileSystem none."
    )


def epoch(bench: Bench, title: str, endpoint: str, names: list[str], first: bool) -> None:
    """Ours and theirs."""
    options: dict[str, Any] = {"endpoint": endpoint, "names": names, "size": SIZE, "first": first}
    theirs = {"of": "hub", **options}
    with bench.race(title, "file", rounds=4) as race:
        many = race.ours("fs.read_many", "hub.fsabs_read_many", FILES, **options)
        single = race.ours("fs.read_bytes", "hub.fsabs_read_bytes", FILES, **options)
        function = "hub.hf_file_system"
        peer1 = race.peer("HfFileSystem, 1 thread", "huggingface_hub", function, FILES, **theirs)
        peer8 = race.peer("HfFileSystem, 8 threads", "huggingface_hub", function, FILES, threads=8, **theirs)
        race.run("us/file", "seconds", "cpu")
        race.table("resolves", "resolves", f"{title}: requests for addresses", whole_round=True)
        race.table("pages", "pages", f"{title}: pages of listings", whole_round=True)
        race.faster(many, peer1)
        race.faster(many, peer8, at_least(5))
        race.faster(single, peer1)
        pages, resolves = -(-FILES // 1000), FILES if first else 0
        for entrant in (many, single):
            what = f"{title}, {entrant.name}"
            bench.claim(f"{what}: pages of listings", race.counts(entrant, "pages"), "pages", at_most(pages * first))
            bench.claim(f"{what}: resolve requests", race.counts(entrant, "resolves"), "requests", at_most(resolves))
