"""What an import adds to an interpreter that has started, each time in a new one."""

from __future__ import annotations

from .frame.measure import at_most
from .frame.race import Bench


def run(bench: Bench) -> None:
    """Ours, and what else a training script may import."""
    with bench.race("imports", "import", rounds=15) as race:
        ours = race.ours("import fsabs", "starts.importing", 1, code="import fsabs")
        race.ours("fsabs.from_url of a directory", "starts.importing", 1, code="import fsabs; fsabs.from_url('.')")
        race.beside("import zipfile", "starts.importing", 1, code="import zipfile")
        pfio = race.peer("import pfio.v2", "pfio", "starts.importing", 1, code="import pfio.v2")
        race.peer("import fsspec", "fsspec", "starts.importing", 1, code="import fsspec")
        race.peer("import s3fs", "s3fs", "starts.importing", 1, code="import s3fs")
        race.peer("import boto3", "boto3", "starts.importing", 1, code="import boto3")
        race.peer("import obstore", "obstore", "starts.importing", 1, code="import obstore")
        race.run("ms")
        race.claim(ours, "ms", at_most(40, "ms"), ours.name)
        race.cheaper(ours, pfio, at_most(0.1), "seconds", "time")
