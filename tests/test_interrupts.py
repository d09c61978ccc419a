"""An exception that a signal handler raises at any moment leaves no lock held, nothing half-changed, nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import soak
from tests.servers.hdfs import HdfsCluster
from tests.servers.moto import MotoServer
from tests.servers.shared import unique

_ROOT = Path(__file__).parents[1]
SECONDS = 120.0
"""The time that a case may take, on a machine that is busy with others, before it counts as hung."""
TIMEOUT = 180 + soak.rounds(60)
"""The start of a server is in it."""


def cases(each_change: str, nightly: str) -> list[Any]:
    """Return the cases that are interrupted with each change, and those of the nightly tests."""
    marked = [pytest.param(name, marks=pytest.mark.nightly) for name in nightly.split()]
    return [*map(pytest.param, each_change.split()), *marked]


LOCAL = cases(
    "local-write reader copy-tree as-local cached-cold items-processes recordio-write prefetch mapped sharded-write "
    "a.zip pack-a.zip a.tar.gz pack-a.h5",
    "local memory-write cached items-file recordio sharded open-a.zip open-a.tar.gz pack-a.tar.gz a.h5 open-a.h5",
)
S3 = cases("store store-write store-upload", "store-open store-reader store-list store-cached store-zip")
HDFS = cases("store store-write", "store-open store-upload store-reader store-list store-cached store-zip")


@pytest.mark.soak
@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("case", LOCAL)
def test_an_interrupted_operation_leaves_all_as_it_was(case: str) -> None:
    interrupted(case, 20)


@pytest.mark.soak
@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("case", S3)
def test_an_interrupted_operation_on_s3(case: str, moto: MotoServer) -> None:
    bucket = unique("interrupts")
    moto.create_bucket(bucket)
    interrupted(case, 8, f"s3://{bucket}/files", moto.options)


@pytest.mark.soak
@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("case", HDFS)
def test_an_interrupted_operation_on_hdfs(case: str, hdfs: HdfsCluster) -> None:
    interrupted(case, 8, f"{hdfs.url}/{unique('interrupts')}", {"create": True}, pooled=32)


def interrupted(case: str, short: int, *store: Any, pooled: int = 1) -> None:
    """Interrupt a case in a process of its own, and check what is left afterwards.

    hdfs-native keeps the connections of reads that ended early, some 20 of them: `pooled` descriptors may be more.
    """
    times, seed = soak.rounds(short), soak.seed(1)
    arguments = [case, str(times), str(seed)]
    if store:
        arguments += [store[0], json.dumps(store[1])]
    command = [sys.executable, "-m", "tests.interrupts", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + times / 2, cwd=_ROOT)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    hits, descriptors, folders = map(int, done.stdout.split())
    soak.count("interrupts", hits)
    assert hits > times // 10, "the interrupts came too late"
    # Between two bytecodes an interrupt may lose the one descriptor that nothing owns yet; more is a leak.
    assert descriptors <= pooled + hits, f"seed {seed}: {descriptors} descriptors lost: {done.stderr}"
    # An interrupt in the middle of its removal leaves a temporary folder, to the system's own cleaning.
    assert folders <= hits // 2, f"seed {seed}: {folders} temporary folders are left of {hits} interrupts"
