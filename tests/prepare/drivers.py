"""Drivers of Spark jobs, each a program of its own: started, watched and killed by tests."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.servers.moto import MotoServer
from tests.servers.process import spawn, stop
from tests.servers.spark import environment

ROOT = Path(__file__).parents[2]
SLOW = """\
import time
import fsabs
import numpy as np

feature_columns = {"image": ("uint8", (None,)), "label": "int64"}


def prepare_data_for_a_single_file(file, filename):
    assert ".zip" in fsabs.__file__, f"the package did not travel: {fsabs.__file__}"
    time.sleep(SECONDS)
    return np.frombuffer(file.read(), np.uint8), np.int64(filename.split("/")[-2])
"""


def s3_variables(moto: MotoServer) -> dict[str, str]:
    """Return the environment in which `s3://` is a server."""
    return {
        "S3_ENDPOINT": moto.endpoint,
        "AWS_ACCESS_KEY_ID": moto.access_key,
        "AWS_SECRET_ACCESS_KEY": moto.secret_key,
        "AWS_DEFAULT_REGION": moto.region,
    }


COMMAND = ("-m", "fsabs", "prepare")


class Driver:
    """`fsabs prepare`, or another program (`-c ...`), in a process of its own; a context manager that ends it."""

    def __init__(
        self, version: str, conf: Path, folder: Path, *arguments: str, variables: Mapping[str, str] | None = None
    ) -> None:
        self._output = folder / f"driver-{len(list(folder.glob('driver-*')))}"
        command = [sys.executable, *(arguments if arguments[0] == "-c" else (*COMMAND, *arguments, "--json"))]
        self.process = spawn(command, self._output, environment(version, conf, str(ROOT), variables))

    def wait(self, timeout: float = 120) -> tuple[int, str]:
        """Return the exit status and the output."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver takes too long:\n{self._text()}") from None
        return status, self._text()

    def report(self, timeout: float = 120) -> dict[str, Any]:
        """Wait for the end; return the report."""
        status, text = self.wait(timeout)
        assert status == 0, text
        lines = [line for line in text.splitlines() if line.startswith('{"output"')]
        report: dict[str, Any] = json.loads(lines[-1])
        return report

    def until(self, condition: Callable[[], bool], timeout: float = 120) -> None:
        """Wait for a condition while the driver runs."""
        end = time.monotonic() + timeout
        while not condition():
            assert self.process.poll() is None, self._text()
            assert time.monotonic() < end, self._text()
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the driver, and not its JVM: that has to notice."""
        self.process.kill()
        self.process.wait()

    def _text(self) -> str:
        return self._output.read_text(errors="replace")

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *exc: object) -> None:
        stop(self.process)
