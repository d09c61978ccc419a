"""Loops over a torch DataLoader that a test leaves end with it.

An error that is raised out of such a loop keeps it alive until the garbage collector comes, and that ends the queues to
the workers before torch asks them to end: it then waits 5 s for each worker.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any

_begun: weakref.WeakSet[Any] = weakref.WeakSet()


def watch() -> None:
    """Note the loops that begin from now on, where tests use torch."""
    if "torch" not in sys.modules:
        return
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    begin = _BaseDataLoaderIter.__init__

    @functools.wraps(begin)
    def noted(loop: Any, *arguments: Any) -> None:
        begin(loop, *arguments)
        if hasattr(loop, "_shutdown_workers"):
            _begun.add(loop)

    _BaseDataLoaderIter.__init__ = noted  # type: ignore[method-assign, assignment]


def end() -> None:
    """End the loops that were left."""
    while _begun:
        loop = _begun.pop()
        if hasattr(loop, "_workers_done_event"):  # else its workers were never started
            loop._shutdown_workers()
