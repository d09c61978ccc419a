"""The image and the Kubernetes job: checked by Kubernetes' schemas, and true to the command and to Spark."""

from __future__ import annotations

import importlib.util
import re
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fsabs.cli.datasets import prepare
from tests.prepare.drivers import ROOT
from tests.servers import spark
from tests.servers.fixtures import require
from tests.servers.process import spawn, stop

IMAGE = ROOT / "docker" / "prepare"
JOB = ROOT / "examples" / "prepare" / "kubernetes.yaml"


def test_what_the_dockerfile_copies_is_there() -> None:
    text = (IMAGE / "Dockerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for name in line.split()]
    assert "fsabs" in copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    extras = re.search(r"'\.\[(.*)\]'", text)
    assert extras is not None
    config = (ROOT / "setup.cfg").read_text()
    assert [extra for extra in extras[1].split(",") if f"\n{extra} =\n" not in config] == []


def job_documents() -> list[dict[str, Any]]:
    import yaml

    return list(yaml.safe_load_all(JOB.read_text()))


def test_the_job_fits_the_schemas_of_kubernetes() -> None:
    import kubernetes_validate

    for document in job_documents():
        kubernetes_validate.validate(document, "1.30", strict=True)


def test_the_job_calls_the_command_as_it_is() -> None:
    documents = {document["kind"]: document for document in job_documents()}
    (container,) = documents["Job"]["spec"]["template"]["spec"]["containers"]
    given = prepare.parser("prepare").parse(container["args"])
    assert (given.mode, given.num_workers) == ("cluster", 8)
    settings = dict(line.split() for line in documents["ConfigMap"]["data"]["spark-defaults.conf"].splitlines())
    ports = {port["port"] for port in documents["Service"]["spec"]["ports"]}
    assert ports == {int(settings["spark.driver.port"]), int(settings["spark.driver.blockManager.port"])}
    assert settings["spark.kubernetes.container.image"] == container["image"]
    service = documents["Service"]["metadata"]
    assert settings["spark.driver.host"] == f"{service['name']}.{service['namespace']}.svc"


def entrypoint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("entrypoint", IMAGE / "entrypoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_entrypoint_runs_the_command() -> None:
    assert entrypoint().command(["m.py", "raw"], {}) == [sys.executable, "-m", "fsabs", "prepare", "m.py", "raw"]
    with pytest.raises(SystemExit, match="SPARK_DRIVER_URL, SPARK_EXECUTOR_ID"):
        entrypoint().command(["executor"], {})


@pytest.mark.nightly
def test_the_entrypoint_starts_an_executor_of_spark(tmp_path: Path) -> None:
    """The real executor accepts all of its arguments, and connects to the driver."""
    require(spark.missing)
    spark.write_defaults(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as driver:
        variables = {
            **spark.environment("4", tmp_path, ""),
            "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{driver.getsockname()[1]}",
            "SPARK_EXECUTOR_ID": "1",
            "SPARK_EXECUTOR_CORES": "1",
            "SPARK_EXECUTOR_MEMORY": "200m",
            "SPARK_APPLICATION_ID": "spark-1",
            "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
            "SPARK_EXECUTOR_POD_NAME": "prepare-exec-1",
            "SPARK_RESOURCE_PROFILE_ID": "0",
            "SPARK_JAVA_OPT_0": "-XX:+UseSerialGC",
            "SPARK_JAVA_OPT_1": "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "SPARK_JAVA_OPT_10": "-Dspark.network.timeout=60s",
        }
        log = tmp_path / "executor"
        executor = spawn([sys.executable, str(IMAGE / "entrypoint.py"), "executor"], log, variables)
        try:
            driver.settimeout(50)
            connection, _ = driver.accept()
            connection.close()
        except TimeoutError:
            pytest.fail(log.read_text())
        finally:
            stop(executor, 0.1)
    assert "Usage:" not in log.read_text()
