"""What all tests share: the servers, a cache directory that is nobody's, and a process that stays small."""

import ctypes
import gc
import itertools
import multiprocessing
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import large_pages, loops, macos, nightly, temporary

if os.environ.get("FSABS_TESTS_HIDE"):
    macos.hide()

from fsabs.urls import config

pytest_plugins = ["tests.escaped", "tests.failures", "tests.servers.fixtures"]

# A machine under load makes any input slowly.
settings.register_profile("loaded", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loaded")

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's threads wait busily after each of a thousand imports

FORK_SERVERS = ("torch.utils.data", "pytest", "boto3", "h5py", "pyarrow")
"""What fork servers import of others, where the tests do: once, and not in each of their processes."""


_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
_ended = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def _spread(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Spread the folders of tests over the disk, too.

    A pytest that a test starts has its folders below them: else it would remove those of earlier runs, for a minute.
    """
    temporary.spread(tmp_path_factory.getbasetemp())
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(tmp_path_factory.getbasetemp())


def pytest_configure() -> None:
    """Use folders of the run, which has begun."""
    os.environ["FSABS_CACHE_DIR"] = str(temporary.use() / "cache")  # for the children of tests, too


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses a slice of the nightly tests."""
    parser.addoption("--slice", type=int, help="run the tests of one slice of tests/nightly.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files without a chosen test: to import them takes longer than to look here.

    Such a test is marked in its file, or a class of the kit there says that it needs no server.
    """
    if not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text("utf-8")
    chosen = {
        "quick": "mark.quick" in text or "in_process = True" in text,
        "nightly": "mark.nightly" in text,
        "not nightly": "\npytestmark = pytest.mark.nightly\n" not in text,
    }
    return None if chosen.get(config.option.markexpr, True) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the slice, if one is chosen."""
    if (number := config.option.slice) is not None:
        kept = [item for item in items if nightly.slice_of(item.nodeid) == number]
        config.hook.pytest_deselected(items=[item for item in items if nightly.slice_of(item.nodeid) != number])
        items[:] = kept


def pytest_collection_finish() -> None:
    """Keep the garbage collector away from the tests themselves, in each of the processes that are forked, too.

    What there is by now stays until the end, in large pages: a fork takes a third of the time.
    """
    gc.freeze()
    large_pages.use()
    loops.watch()
    multiprocessing.set_forkserver_preload([name for name in FORK_SERVERS if name.partition(".")[0] in sys.modules])


def pytest_unconfigure() -> None:
    """Let what was kept from the garbage collector be freed when the process ends: libraries count what they leak."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Give back what earlier tests took: a fork takes as long as the process is large, and thousands of tests fork.

    Custom schemes go with the test that added them. What is left at the end of a file stays, and is kept away from the
    garbage collector, too: after thousands of tests it would look at millions of objects.
    """
    loops.end()
    yield
    config._added.clear()
    module_ends = nextitem is not None and nextitem.path != item.path
    if module_ends:
        gc.collect()
        gc.freeze()
    if _trim is not None and (module_ends or next(_ended) % 50 == 0):
        _trim(0)
