"""The reader of Ray Data, in a program of its own on the real engine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.prepare.data import visible
from tests.prepare.drivers import ROOT
from tests.prepare.test_splits import EXPECTED, FILES
from tests.prepare.test_splits import folder as folder

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]


RAY_ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_agent_register_timeout_ms": "100000",
}
RAY = """
import hashlib, json, sys
import ray
from fsabs.adapters.ray import read_fsabs
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False,
         configure_logging=False)
folder = sys.argv[1]
records = read_fsabs(folder + "/shards", split_bytes=20000).take_all()
records.sort(key=lambda row: (row["shard"], row["number"]))
files = read_fsabs(folder + "/raw.zip", kind="files", shards="[0-3]/*", split_bytes=5000).take_all()
files.sort(key=lambda row: row["path"])
found = dict(
    records=[[row["shard"], row["number"], bytes(row["record"]).hex()] for row in records],
    files=[[row["path"].rpartition("raw.zip/")[2], hashlib.sha256(row["content"]).hexdigest()] for row in files],
)
ray.shutdown()
print(json.dumps(found))
"""


def test_ray_data(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RAY, str(folder)],
        cwd=folder,
        env={**os.environ, **RAY_ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["records"] == [[path, number, record.hex()] for path, number, record in EXPECTED]
    expected = [[path, hashlib.sha256(FILES[path]).hexdigest()] for path in visible(FILES) if path[0] in "0123"]
    assert found["files"] == expected
