"""What the image runs: `fsabs prepare ARGUMENTS`, or an executor where Spark's Kubernetes scheduler starts the image.

Spark starts it with the argument `executor` and describes the executor by environment variables.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_OPTION = "SPARK_JAVA_OPT_"


def command(arguments: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return the program to run and its arguments."""
    if list(arguments[:1]) != ["executor"]:
        return [sys.executable, "-m", "fsabs", "prepare", *arguments]
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        sys.exit("the image has no pyspark")
    missing = [name for name in [*_ARGUMENTS.values(), "SPARK_EXECUTOR_MEMORY"] if name not in variables]
    if missing:
        sys.exit(f"Spark has not set {', '.join(missing)}")
    options = sorted(
        (name for name in variables if name.startswith(_OPTION)), key=lambda name: int(name[len(_OPTION) :])
    )
    memory = variables["SPARK_EXECUTOR_MEMORY"]
    jars = Path(spec.origin).parent / "jars" / "*"
    java = ["java", *(variables[name] for name in options), f"-Xms{memory}", f"-Xmx{memory}"]
    described = [word for option, name in _ARGUMENTS.items() for word in (option, variables[name])]
    return [*java, "-cp", f"{variables.get('SPARK_CONF_DIR', '/opt/spark/conf')}:{jars}", _BACKEND, *described]


if __name__ == "__main__":
    program = command(sys.argv[1:], os.environ)
    os.execvp(program[0], program)
