"""The documentation does what it says: its Python blocks are run.

All ```python blocks of a page are one program, run in order in an empty folder, with an S3 server that has an empty
bucket called `bucket`; a page that opens other clouds has theirs, and one with Spark has its configuration. A line
`expression  # -> value` states what `repr(expression)` is, and is checked.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import preloaded
from tests.servers import spark
from tests.servers.azurite import AzuriteServer
from tests.servers.fixtures import require
from tests.servers.gcs_emulator import GcsEmulator
from tests.servers.hub import HubServer
from tests.servers.moto import MotoServer, missing

ROOT = Path(__file__).parent.parent
CENTRAL = {"README.md", "first-steps.md", "guide.md", "caching.md"}
"""What is run with each change; the other pages are nightly."""
FENCE = re.compile(r"```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STATEMENT = re.compile(r"^( *)(\S.*?)  +# -> (.+)$", re.MULTILINE)

BEFORE = """
import fsabs.cache.cachedfs
fsabs.cache.cachedfs.LARGEST_FLOOR = 0  # caches are used also where the disk is nearly full
def _is(value, stated): assert repr(value) == stated, f'{value!r}, not {stated}'
"""
PRELUDE = f"exec({BEFORE!r})"
SLOW = {"torch": preloaded.TORCH, "pytorch_lightning": ("pytorch_lightning",)}
"""What takes seconds to import, and is imported once for all pages that do."""


def program(page: str) -> str:
    """The code of a page, every line at the number that it has in the page; the first, its title, is ours."""
    lines = [PRELUDE] + [""] * page.count("\n")
    for block in FENCE.finditer(page):
        start = page.count("\n", 0, block.start(1))
        code = STATEMENT.sub(lambda match: f"{match[1]}_is(({match[2]}), {match[3]!r})", block[1]).splitlines()
        lines[start : start + len(code)] = code
    return "\n".join(lines)


def run(page: str, folder: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the code of a page in `folder`, as an interactive session does: no process that it spawns imports it."""
    path = folder / "page.py"
    path.write_text(program(page))
    session = f"with open({str(path)!r}) as _page: exec(compile(_page.read(), {str(path)!r}, 'exec'))"
    work = folder / "work"
    work.mkdir()
    env = {**os.environ, "PFIO_CONFIG_PATH": str(folder / "none.ini"), **(env or {})}
    code = path.read_text()
    imported = [names for name, names in SLOW.items() if re.search(rf"^ *(import|from) {name}\b", code, re.MULTILINE)]
    libraries = tuple(itertools.chain.from_iterable(imported))
    return preloaded.run(libraries, ["-W", "error", "-c", session], cwd=work, env=env, timeout=150)


@pytest.fixture(scope="module")
def s3() -> Iterator[MotoServer]:
    """A server of our own, which is emptied for each page."""
    require(missing)
    with MotoServer() as server:
        yield server


@pytest.fixture
def s3_env(s3: MotoServer) -> dict[str, str]:
    """The environment in which `s3://bucket/` is an empty bucket, and the only one."""
    status, _ = s3.request("POST", "/moto-api/reset")
    assert status == 200
    s3.create_bucket("bucket")
    return s3.environment


def page_env(page: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of `s3://bucket/`, `gs://bucket/` and `az://container/`, which are empty, of
    `hf://datasets/org/name`, and of Spark.
    """
    env: dict[str, str] = {}
    code = "".join(FENCE.findall(page))
    if "s3" in code.lower() or "bucket" in code:
        env |= request.getfixturevalue("s3_env")
    if "gs://" in code:
        gcs: GcsEmulator = request.getfixturevalue("gcs")
        gcs.create_bucket("bucket")
        env["STORAGE_EMULATOR_HOST"] = gcs.endpoint
    if "az://" in code:
        azurite: AzuriteServer = request.getfixturevalue("azurite")
        azurite.create_container("container")
        account = f"AccountName={azurite.account};AccountKey={azurite.key};BlobEndpoint={azurite.endpoint}"
        env["AZURE_STORAGE_CONNECTION_STRING"] = account
    if "hf://" in code:
        hub: HubServer = request.getfixturevalue("hub")
        hub.make("org/name", {f"train/{number:03}.bin": bytes([number]) * 500 for number in range(100)})
    if "pyspark" in code:
        require(spark.missing)
        conf: Path = request.getfixturevalue("tmp_path") / "conf"
        spark.write_defaults(conf)
        env |= spark.environment("4", conf, str(ROOT))
    return env


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]  # the kit tests CONTRIBUTING.md
PAGES.remove(ROOT / "docs/index.md")  # which shows a bucket that is somebody's
CODE = [
    pytest.param(path, id=str(path.relative_to(ROOT)), marks=() if path.name in CENTRAL else pytest.mark.nightly)
    for path in PAGES
    if FENCE.search(path.read_text())
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("path", CODE)
def test_the_code_of_a_page_runs(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    page = path.read_text()
    done = run(page, tmp_path, page_env(page, request))
    assert done.returncode == 0, f"{path}\n{done.stderr}"


@pytest.mark.quick
def test_a_page_that_is_wrong_fails(tmp_path: Path) -> None:
    done = run("# Title\n\n```python\nx = 1\n```\nText.\n```python\nx + 1  # -> 3\n```\n", tmp_path)
    assert done.returncode == 1
    assert "line 8" in done.stderr
    assert "2, not 3" in done.stderr
