"""Jobs that are killed and continued under every loader, with other workers and ranks: samples lost and repeated.

A run of the full size takes about an hour. Cases that were run with the same code are kept, so that a run that was
stopped goes on where it ended.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from .contestants import resuming
from .frame import peers
from .frame.measure import at_most
from .frame.race import Bench

SEED = 13
CASES = 40
FULL = 2000
FULL_ROWS = 1000
SAMPLES = 102
A_ROUND = 10
"""Cases that a round runs, at least: it is stopped after `resuming.SECONDS`."""
FIGURES = {
    "lost": "samples lost",
    "repeated": "samples repeated",
    "orders": "epochs in a wrong order",
    "ledger": "steps that were not as the ledger says",
}


def run(bench: Bench) -> None:
    """Run the cases, and claim that no sample is lost or repeated."""
    for kind, rows, full in (("records", False, FULL), ("rows, tokens and mixtures", True, FULL_ROWS)):
        cases = full if bench.full else CASES
        log = peers.cache_directory() / f"resume_matrix-{digest()}-{rows:d}.jsonl"
        log.parent.mkdir(parents=True, exist_ok=True)
        title = f"{cases:,} jobs over {kind}, killed and continued"
        with bench.race(title, "epoch", rounds=2 + cases // A_ROUND) as race:
            options = {"seed": SEED, "cases": cases, "total": SAMPLES, "log": str(log), "rows": rows}
            ours = race.ours("fsabs", "resuming.matrix", 1, **options)
            race.run(warming=0)
            for figure, name in FIGURES.items():
                bench.claim(f"{title}: {name}", race.counts(ours, figure)[-1:], "", at_most(0))
            for figure in ("cases", "epochs"):
                bench.claim(f"{title}: {figure}", race.counts(ours, figure)[-1:], figure)
            race.table("epochs", "epochs", 1, whole_round=True)
        bench.note(f"Cases 0 to {cases - 1} of seed {SEED}, over {SAMPLES} samples.")
    bench.note("With `drop_last`, each worker of each rank may drop less than a batch.")


def digest() -> str:
    """Return a digest of the code that is tested."""
    root = Path(__file__).parents[1]
    files = [Path(resuming.__file__), *sorted((root / "fsabs").rglob("*.py"))]
    return hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=6).hexdigest()
