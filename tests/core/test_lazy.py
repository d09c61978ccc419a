"""A fork and the imports of other threads: the child can import whatever another thread was importing."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import pytest

from fsabs.core.lazy import cached_property
from fsabs.testing.children import Child

pytestmark = pytest.mark.quick

SLOW = """
import time
from builtins import started
started.set()
time.sleep(0.3)
done = True
"""
FORKING = """
import os, threading, time
from importlib import _bootstrap
thread = threading.Thread(target=__import__, args=("fsabs_importing",))
thread.start()
while not _bootstrap._blocking_on.get(thread.ident):
    time.sleep(0.001)
sleep, waited = time.sleep, []
time.sleep = waited.append
if not (pid := os.fork()):
    os._exit(0)
time.sleep = sleep
os.waitpid(pid, 0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that modules are imported from."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_child_imports_what_another_thread_was_importing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "fsabs_slow.py").write_text(SLOW)
    started = threading.Event()
    monkeypatch.setattr("builtins.started", started, raising=False)
    thread = threading.Thread(target=importlib.import_module, args=("fsabs_slow",))
    thread.start()
    assert started.wait(20)
    assert Child("a child", lambda: importlib.import_module("fsabs_slow").done, 20).result()
    thread.join()


def test_a_fork_within_an_import_does_not_wait_for_what_waits_for_it(folder: Path) -> None:
    (folder / "fsabs_forking.py").write_text(FORKING)
    (folder / "fsabs_importing.py").write_text("import fsabs_forking\n")
    forking = importlib.import_module("fsabs_forking")
    forking.thread.join()
    assert forking.waited == []


class Squares:
    def __init__(self, number: int) -> None:
        self._number = number
        self.under_way, self.go_on = threading.Event(), threading.Event()
        self.computed = 0

    @cached_property
    def square(self) -> int:
        """The square."""
        self.under_way.set()
        assert self.go_on.wait(20)
        self.computed += 1
        return self._number**2


def test_an_attribute_is_computed_once_and_by_a_child_while_another_thread_computes_it() -> None:
    first, other = Squares(3), Squares(4)
    thread = threading.Thread(target=lambda: first.square)
    thread.start()
    assert first.under_way.wait(20)
    other.go_on.set()
    assert Child("a child", lambda: other.square, 20).result() == 16
    first.go_on.set()
    thread.join()
    assert (first.square, first.square, first.computed) == (9, 9, 1)
    assert Squares.square.__doc__ == "The square."
