"""Jobs of litData, MosaicML streaming, datasets and grain that are killed and continued: samples lost and repeated."""

from __future__ import annotations

from .contestants.resuming_peers import KINDS
from .frame.race import Bench

SEED = 13
CASES = 6
SAMPLES = 102
FIGURES = {
    "cases": "cases",
    "refused": "states that are refused",
    "inexact": "epochs with lost or repeated samples",
    "lost": "samples lost",
    "repeated": "samples repeated",
    "next epoch": "next epochs that are not whole",
}
CHANGES = {
    "same": "the same workers and batches",
    "workers": "another number of workers",
    "batch": "another batch size",
}


def run(bench: Bench) -> None:
    """The same random cases for each peer."""
    with bench.race("jobs killed and continued", "case", rounds=1) as race:
        options = {"cases": CASES, "total": SAMPLES, "seed": SEED}
        entrants = [
            race.peer(
                name, package, "resuming_peers.matrix", 1, of=of, peer=peer,
                folder=str(bench.folder / peer), **options,
            )
            for name, package, peer, of in (
                ("litData", "litdata", "litdata", "rows"),
                ("MosaicML streaming", "mosaicml-streaming", "streaming", "training"),
                ("datasets", "datasets", "datasets", "rows"),
                ("grain", "grain", "grain", "rows"),
            )
        ]  # fmt: skip
        race.run(warming=0)
        for entrant in entrants:
            for kind in KINDS:
                for figure, what in FIGURES.items():
                    bench.claim(
                        f"{entrant.name}, {CHANGES[kind]}: {what}", race.counts(entrant, f"{kind} {figure}"), ""
                    )
    bench.note(f"{SAMPLES} samples, shuffled, one rank, 0 to 3 workers, batches of 1, 4, 10 and 51; no drop_last.")
