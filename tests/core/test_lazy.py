"""A fork and the imports of other threads: the child can import whatever another thread was importing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from fsabs.core.lazy import cached_property
from tests.test_process import in_child

pytestmark = pytest.mark.quick

SLOW = """
import threading, time
started.set()
time.sleep(0.3)
done = True
"""


def run(folder: Path, code: str) -> str:
    """Run a program that can import `slow`, whose import takes 0.3 s; return what it prints."""
    (folder / "slow.py").write_text("from builtins import started\n" + SLOW)
    program = "import builtins, os, sys, threading, time\nimport fsabs.core.lazy\n" + textwrap.dedent(code)
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-c", program], env=settings, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_child_imports_what_another_thread_was_importing(tmp_path: Path) -> None:
    code = """
    builtins.started = threading.Event()
    thread = threading.Thread(target=__import__, args=("slow",))
    thread.start()
    builtins.started.wait()
    if not (pid := os.fork()):
        import slow
        os._exit(0 if slow.done else 1)
    for _ in range(200):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    else:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    thread.join()
    print(bool(ended) and status)
    """
    assert run(tmp_path, code) == "0\n"


def test_a_fork_within_an_import_does_not_wait_for_what_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "forking.py").write_text(
        textwrap.dedent(
            """
            import os, threading, time
            from importlib import _bootstrap
            thread = threading.Thread(target=__import__, args=("outer",))
            thread.start()
            while not _bootstrap._blocking_on.get(thread.ident):
                time.sleep(0.001)
            began = time.monotonic()
            if not (pid := os.fork()):
                os._exit(0)
            seconds = time.monotonic() - began
            os.waitpid(pid, 0)
            """
        )
    )
    (tmp_path / "outer.py").write_text("import forking\n")
    code = """
    import forking
    forking.thread.join()
    print(forking.seconds < fsabs.core.lazy.MAX_WAIT / 2)
    """
    assert run(tmp_path, code) == "True\n"


class Squares:
    def __init__(self, number: int, under_way: threading.Event | None = None) -> None:
        self._number = number
        self._under_way = under_way
        self.computed = 0

    @cached_property
    def square(self) -> int:
        """The square."""
        if self._under_way is not None:
            self._under_way.set()
            time.sleep(0.3)
        self.computed += 1
        return self._number**2


def test_an_attribute_is_computed_once() -> None:
    squares = Squares(3)
    assert (squares.square, squares.square, squares.computed) == (9, 9, 1)
    assert Squares.square.__doc__ == "The square."


def test_a_child_computes_the_attribute_that_another_thread_was_computing() -> None:
    under_way = threading.Event()
    thread = threading.Thread(target=lambda: Squares(3, under_way).square)
    thread.start()
    assert under_way.wait(10)
    assert in_child(lambda: Squares(4).square == 16, 5)
    thread.join()
