"""Which tests share a worker process of pytest-xdist, and in which order these groups begin.

The tests of a server run in one process, so that one of each server is started; so do those of a class of the kit, and
those of a file, whose fixtures are made once. xdist's own `--dist loadgroup` distributes each test by itself under
pytest 9.2, and says nothing (pytest-xdist, issue 1386): it renames items by an attribute that pytest no longer reads.
So the workers write the group of each test to a file, which the scheduler of the controlling process reads.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

LONGEST = (
    "spark",
    "hdfs",
    "ceph",
    "tests/test_interrupts.py",
    "tests/test_demo.py",
    "tests/test_docs.py",
    "tests/backends/test_hdfs_pair.py",
    "tests/adapters/test_torch_tasks.py",
    "tests/test_dataloader.py",
    "tests/cache/test_chaos.py",
    "tests/dispatch/test_elastic.py",
)
"""The groups that take longest, which begin first: no process works on one of them when the others have ended."""
_FOLDER = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Give each worker whole groups of tests, in the order in which the tests were collected."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._groups: dict[str, str] = {}

    def schedule(self) -> None:
        """Distribute the tests, which all workers have collected."""
        path = _path(self.config)
        if not path.exists():  # no worker has collected anything, and none says why
            pytest.exit(f"no tests in: {' '.join(map(str, self.config.args))}", pytest.ExitCode.USAGE_ERROR)
        self._groups = json.loads(path.read_text())
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]


def _path(config: pytest.Config) -> Path:
    """Return the file of a run's groups; it is removed with the configuration of the controlling process."""
    if _FOLDER not in config.stash:
        folder = config.stash[_FOLDER] = tempfile.TemporaryDirectory(prefix="fsabs-groups-")
        config.add_cleanup(folder.cleanup)
    return Path(config.stash[_FOLDER].name) / "groups.json"


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a path that does not exist: workers end without a word then, and the controlling process fails."""
    folder = config.invocation_params.dir
    for argument in config.args if getattr(config.option, "numprocesses", None) else ():
        if not (folder / argument.partition("::")[0]).exists():
            raise pytest.UsageError(f"file or directory not found: {argument}")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Send a worker the path of the file."""
    node.workerinput["groups"] = str(_path(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    """Return the scheduler of groups, in place of xdist's."""
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests: the longest groups first, then the kit's own tests; in a worker, write the group of each.

    The kit's tests fork most, and a fork takes three times as long at the end of the others.
    """
    items.sort(key=_turn)
    if hasattr(config, "workerinput"):
        _write(items, Path(config.workerinput["groups"]))


def _turn(item: pytest.Item) -> tuple[int, bool]:
    group = group_of(item)
    return LONGEST.index(group) if group in LONGEST else len(LONGEST), "testing" not in item.path.parts


def _write(items: Iterable[pytest.Item], path: Path) -> None:
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps({item.nodeid: group_of(item) for item in items}))
    partial.replace(path)  # each worker writes the same


def group_of(item: pytest.Item) -> str:
    """Return the mark `xdist_group` of a test, else the server that it needs, else its class (kit) or file."""
    if (mark := item.get_closest_marker("xdist_group")) is not None:
        return str(mark.args[0])
    over = getattr(getattr(item, "cls", None), "over", None)  # of the kit's containers
    for server in ("hdfs", "ceph"):  # the others start in a moment
        if server in getattr(item, "fixturenames", ()) or server == over or f"[{server}" in item.name:
            return server
    if item.parent is not None and "conformance" in item.path.parts:
        return item.parent.nodeid
    return item.nodeid.partition("::")[0]
