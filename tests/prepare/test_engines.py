"""The readers of PySpark and Ray Data, each in a program of its own on the real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fsabs
from fsabs.readers import RecordWriter
from tests.prepare.data import digest, visible
from tests.prepare.drivers import ROOT
from tests.prepare.test_splits import EXPECTED, FILES
from tests.prepare.test_splits import folder as folder
from tests.servers import spark
from tests.servers.fixtures import require

pytestmark = pytest.mark.timeout(240)


def run(program: str, folder: Path, env: dict[str, str] | None = None) -> dict[str, object]:
    """Run a program in `folder`; return the JSON of its last line."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


DIGESTS = """
import hashlib, json, sys
def digest(records):
    sha = hashlib.sha256()
    for record in records:
        sha.update(len(record).to_bytes(4, "little") + bytes(record))
    return sha.hexdigest()
folder = sys.argv[1]
"""

PYSPARK = f"""{DIGESTS}
from pyspark.sql import SparkSession
from fsabs.adapters.spark import register
spark = SparkSession.builder.master("local[2]").getOrCreate()
register(spark)
read = spark.read.format("fsabs").option("split_bytes", "30000")
records = read.load(folder + "/shards")
files = read.load(folder + "/raw.zip")
found = dict(columns=[records.dtypes, files.dtypes])
rows = sorted(records.collect(), key=lambda row: (row.shard, row.number))
found["records"] = digest(row.record for row in rows)
files = sorted(files.collect(), key=lambda row: row.path)
found["files"] = digest(row.content for row in files)
found["modified"] = [row.modificationTime.timestamp() for row in files]
pruned = read.load(folder + "/damaged").filter("shard = 'good'")
found["pruned"] = [row.record.decode() for row in pruned.collect()]
try:
    read.option("shard", "x").load(folder + "/shards")
except Exception as exc:
    found["error"] = "unknown option 'shard'" in str(exc)
spark.stop()
print(json.dumps(found))
"""


def test_pyspark_data_source(folder: Path) -> None:
    require(spark.missing)
    with RecordWriter(fsabs.from_url(folder / "damaged", create=True), "good") as writer:
        writer.write(b"good")
    (folder / "damaged" / "zzz").write_bytes(b"\x04\x03\x02\x01 damaged")
    spark.write_defaults(folder / "conf")
    found = run(PYSPARK, folder, spark.environment("4", folder / "conf", str(ROOT)))
    assert found["columns"] == [
        [["shard", "string"], ["number", "bigint"], ["record", "binary"]],
        [["path", "string"], ["modificationTime", "timestamp"], ["length", "bigint"], ["content", "binary"]],
    ]
    assert found["records"] == digest(one for _, _, one in EXPECTED)
    assert found["files"] == digest(FILES[path] for path in visible(FILES))
    with fsabs.from_url(folder / "raw.zip") as archive:
        assert found["modified"] == [archive.stat(path).last_modified for path in visible(FILES)]
    assert found["pruned"] == ["good"]
    assert found["error"] is True


RAY_ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_agent_register_timeout_ms": "100000",
}
RAY = f"""{DIGESTS}
import ray
from fsabs.adapters.ray import read_fsabs
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False,
         configure_logging=False)
records = read_fsabs(folder + "/shards", split_bytes=20000).take_all()
records.sort(key=lambda row: (row["shard"], row["number"]))
files = read_fsabs(folder + "/raw.zip", kind="files", shards="[0-3]/*", split_bytes=5000).take_all()
files.sort(key=lambda row: row["path"])
found = dict(records=digest(row["record"] for row in records), files=digest(row["content"] for row in files))
ray.shutdown()
print(json.dumps(found))
"""


def test_ray_data(folder: Path) -> None:
    found = run(RAY, folder, {**os.environ, **RAY_ENVIRONMENT})
    assert found["records"] == digest(one for _, _, one in EXPECTED)
    assert found["files"] == digest(FILES[path] for path in visible(FILES) if path[0] in "0123")
