"""A real Spark: in local mode, and a standalone master and two workers, of which executors and drivers are killed."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.prepare.inputs import InputRoot
from fsabs.prepare.model import ModelSource
from fsabs.prepare.output import OutputDirectory
from fsabs.prepare.plan import OutputFormat, PrepareJob
from fsabs.prepare.spark import SparkRunner
from fsabs.readers import RecordWriter
from tests import soak
from tests.prepare import test_tokens
from tests.prepare.data import digest, plain_loop, raw_files, records_below, visible, write_tree, zipped
from tests.prepare.drivers import SLOW, Driver, s3_variables
from tests.servers import spark
from tests.servers.fixtures import require
from tests.servers.hdfs import HdfsCluster
from tests.servers.moto import MotoServer
from tests.servers.spark import SparkCluster

pytestmark = pytest.mark.timeout(240)

FILES = raw_files(48)


@pytest.fixture(scope="module")
def variables(moto: MotoServer) -> dict[str, str]:
    moto.create_bucket("spark")
    return s3_variables(moto)


@pytest.fixture(scope="module")
def cluster(variables: dict[str, str]) -> Iterator[SparkCluster]:
    require(spark.missing)
    with SparkCluster("4", variables=variables) as running:
        yield running


@pytest.fixture
def s3(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`model.py`, which is slow, and `raw`."""
    (tmp_path / "model.py").write_text(SLOW.replace("SECONDS", "0.05"))
    write_tree(fsabs.from_url(tmp_path / "raw", create=True), FILES)
    return tmp_path


SESSION = """
import json, sys
from fsabs import prepare
from fsabs.prepare import PrepareError
from pyspark.sql import SparkSession
session = SparkSession.builder.master(sys.argv[1]).config("spark.speculation", "true").config(
    "spark.speculation.interval", "50ms").config("spark.speculation.multiplier", "1.1").config(
    "spark.speculation.quantile", "0.3").config("spark.speculation.efficiency.enabled", "false").getOrCreate()
for *paths, options in json.loads(sys.argv[2]):
    try:
        print(json.dumps(prepare.run(*paths, "cluster", **options).to_json()))
    except PrepareError as exc:
        print("PrepareError", exc)
assert session.sparkContext.parallelize([1]).count() == 1  # it is the user's, and was not stopped
"""


@pytest.mark.nightly
def test_jobs_in_the_session_of_a_program(folder: Path, cluster: SparkCluster, hdfs: HdfsCluster) -> None:
    """From HDFS to HDFS; with two attempts at one unit that both end; with a file that fails; documents of tokens."""
    model = SLOW.replace("SECONDS", "0")
    log = folder / "log"
    waiting = f"""
    if "0047" in filename:
        with open({str(log)!r}, "a") as opened:
            opened.write("attempt\\n")
        end = time.monotonic() + 30
        while open({str(log)!r}).read().count("attempt") < 2 and time.monotonic() < end:
            time.sleep(0.02)
    return"""
    (folder / "plain.py").write_text(model)
    (folder / "twice.py").write_text(model.replace("\n    return", waiting))
    (folder / "fails.py").write_text(
        model.replace("\n    return", "\n    assert '0010' not in filename, 'no label'\n    return")
    )
    for path, data in FILES.items():
        hdfs.put(f"/spark/raw/{path}", data)
    raw, out = str(folder / "raw"), str(folder / "out")
    test_tokens.write(folder / "tokens")
    documents = [str(folder / "tokens" / name) for name in ("model.py", "raw", "out")]
    records: dict[str, Any] = {"records_per_file": 6}
    jobs = [
        [str(folder / "plain.py"), f"{hdfs.url}/spark/raw", f"{hdfs.url}/spark/out", records],
        [str(folder / "twice.py"), raw, out, records],
        [str(folder / "fails.py"), raw, out, records],
        [*documents, {"records_per_file": 25, "tokens": "uint16", "num_workers": 2, "validate": True}],
    ]
    with Driver("4", cluster.conf, folder, "-c", SESSION, cluster.master, json.dumps(jobs)) as driver:
        status, text = driver.wait()
    assert status == 0, text
    reports = [json.loads(line) for line in text.splitlines() if line.startswith('{"output"')]
    assert [(one["files"], one["records"], len(one["shards"])) for one in reports[:2]] == [(48, 48, 8)] * 2, text
    test_tokens.check(folder / "tokens", reports[2]["records"], [shard["name"] for shard in reports[2]["shards"]])
    assert digest(records_below(f"{hdfs.url}/spark/out")) == digest(plain_loop(FILES))
    assert [path for path, _, _ in hdfs.ls("/spark")] == ["/spark/out", "/spark/raw"]
    assert log.read_text().count("attempt") == 2
    assert digest(records_below(out)) == digest(plain_loop(FILES))
    raised = "prepare_data_for_a_single_file raised AssertionError: no label"
    assert f"PrepareError {raw}/3/0010.jpg: {raised}" in text


@pytest.mark.nightly
@pytest.mark.soak
@pytest.mark.timeout(60 * soak.rounds(4))
def test_a_zip_on_s3_with_executors_killed(folder: Path, cluster: SparkCluster, s3: None) -> None:
    rng, kills = random.Random(soak.seed(1)), soak.rounds(1)
    run_with_kills(folder, cluster, rng, ["executor", *rng.choices(["executor", "driver"], k=kills - 1)])
    soak.count("kills of Spark's executors and drivers", kills)


LOCAL = """
import json, sys
from fsabs import prepare
from fsabs.adapters.spark import register
from pyspark.sql import SparkSession
folder = sys.argv[1]
report = prepare.run(f"{folder}/model.py", f"{folder}/raw", f"{folder}/out", master="local[2]")
session = SparkSession.builder.master("local[2]").getOrCreate()
register(session)
read = session.read.format("fsabs").option("split_bytes", "30000")
records, files = read.load(f"{folder}/out"), read.load(f"{folder}/raw.zip")
found = {"report": report.to_json(), "columns": [records.dtypes, files.dtypes]}
found["records"] = [bytes(row.record).hex() for row in sorted(records.collect(), key=lambda row: row.number)]
found["files"] = {row.path.rpartition("raw.zip/")[2]: bytes(row.content).hex() for row in files.collect()}
found["modified"] = {row.path.rpartition("raw.zip/")[2]: row.modificationTime.timestamp() for row in files.collect()}
pruned = read.load(f"{folder}/damaged").filter("shard = 'good'")
found["pruned"] = [bytes(row.record).decode() for row in pruned.collect()]
try:
    read.option("shard", "x").load(f"{folder}/out")
except Exception as exc:
    found["error"] = "unknown option 'shard'" in str(exc)
print(json.dumps(found))
"""


def test_spark_here_prepares_in_spite_of_a_killed_worker_and_reads_what_was_prepared(folder: Path) -> None:
    """Spark gives the tasks of `local[2]` one attempt; here they have three."""
    require(spark.missing)
    spark.write_defaults(folder / "conf")
    killed_once = f"""
    if "0020" in filename and not os.path.exists({str(folder / "flag")!r}):
        open({str(folder / "flag")!r}, "w").close()
        os.kill(os.getpid(), 9)
    return"""
    model = SLOW.replace("SECONDS", "0").replace("\n    return", killed_once)
    (folder / "model.py").write_text(model.replace("import time", "import os\nimport time"))
    (folder / "raw.zip").write_bytes(zipped(FILES))
    with RecordWriter(fsabs.from_url(folder / "damaged", create=True), "good") as writer:
        writer.write(b"good")
    (folder / "damaged" / "zzz").write_bytes(b"\x04\x03\x02\x01 damaged")
    with Driver("4", folder / "conf", folder, "-c", LOCAL, str(folder)) as driver:
        status, text = driver.wait()
    assert status == 0, text
    found = json.loads(text.splitlines()[-1])
    assert (folder / "flag").exists()
    assert found["report"]["records"] == 48
    assert found["records"] == [record.hex() for record in plain_loop(FILES)]
    assert found["columns"] == [
        [["shard", "string"], ["number", "bigint"], ["record", "binary"]],
        [["path", "string"], ["modificationTime", "timestamp"], ["length", "bigint"], ["content", "binary"]],
    ]
    assert found["files"] == {path: FILES[path].hex() for path in visible(FILES)}
    with fsabs.from_url(folder / "raw.zip") as archive:
        assert found["modified"] == {path: archive.stat(path).last_modified for path in visible(FILES)}
    assert found["pruned"] == ["good"]
    assert found["error"] is True


@pytest.mark.nightly
def test_pyspark_3_5_with_a_driver_killed(folder: Path, variables: dict[str, str], s3: None) -> None:
    require(spark.missing)
    with SparkCluster("3.5", variables=variables) as old:
        run_with_kills(folder, old, random.Random(2), ["driver"])


def run_with_kills(folder: Path, cluster: SparkCluster, rng: random.Random, kills: list[str]) -> None:
    """Prepare a zip on S3 on a cluster whose executors and drivers are killed; compare with a plain loop."""
    files = raw_files(48 + 8 * (len(kills) - 1))
    where = f"s3://spark/{rng.random()}"
    arguments = [str(folder / "model.py"), f"{where}/raw.zip", f"{where}/out", "cluster", "--validate"]
    arguments += ["--master", cluster.master, "--records-per-file", "4"]
    resumed = 0
    with fsabs.from_url(where) as fs, contextlib.ExitStack() as stack:
        fs.write_bytes("raw.zip", zipped(files))
        driver = stack.enter_context(Driver(cluster.version, cluster.conf, folder, *arguments))
        for kind in kills:
            before = staged_units(fs)
            driver.until(lambda before=before: staged_units(fs) > before)  # type: ignore[misc]
            time.sleep(rng.random() * 0.3)
            if kind == "executor":
                driver.until(cluster.kill_executor)
            else:
                driver.kill()
                assert sorted(fs.list("out")) == [".fsabs-prepare/", ".fsabs-publishing"]
                resumed = staged_units(fs)
                driver = stack.enter_context(Driver(cluster.version, cluster.conf, folder, *arguments))
        report = driver.report()
        assert (report["files"], report["records"]) == (len(visible(files)), len(visible(files)))
        assert 4 * resumed <= report["resumed_files"] <= report["files"]
        assert digest(records_below(f"{where}/out")) == digest(plain_loop(files))
        last = len(visible(files)) // 4 - 1
        names = [f"data-{number:05}-of-{last:05}" for number in range(last + 1)]
        assert sorted(fs.list("out", recursive=True)) == [".fsabs-prepare.json", *names]


def staged_units(fs: fsabs.FS) -> int:
    try:
        return sum("/done/" in name for name in fs.list("out/.fsabs-prepare", recursive=True) if name[-1] != "/")
    except FileNotFoundError:
        return 0


def test_credentials_in_a_url_do_not_travel(folder: Path) -> None:
    """They are refused before anything of Spark is started."""
    job = PrepareJob(
        ModelSource("", "m.py"),
        (InputRoot("s3://key:hunter2@bucket/raw"),),
        "/out",
        "s",
        OutputFormat("d", 1, "none", 1),
        False,
    )
    output = OutputDirectory(folder / "out")
    with contextlib.closing(output), pytest.raises(ValueError, match="would be seen in Spark's plan") as caught:
        next(SparkRunner(output, "local[1]", None).run(job, []))
    assert "hunter2" not in str(caught.value)
