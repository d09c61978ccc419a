"""Item caches: hits of `count` items of `size` bytes in a random order, puts of two processes.

What a contestant stores lies in the folder of the race's `$FSABS_CACHE_DIR`, and goes when the process ends.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from typing import Any

from . import Run, library, whole

_folders: list[tempfile.TemporaryDirectory[str]] = []


def new_folder() -> str:
    """Return a folder that goes when the process ends."""
    home = os.environ["FSABS_CACHE_DIR"]
    os.makedirs(home, exist_ok=True)
    _folders.append(tempfile.TemporaryDirectory(dir=home))
    return _folders[-1].name


def _hits(get: Callable[[int], Any], count: int, size: int) -> Run:
    order = random.Random(5).sample(range(count), count)

    def run() -> None:
        data = None
        for number in order:
            data = get(number)
        whole(data, size)

    return run


def _filled(cache: Any, count: int, size: int) -> Any:
    for number in range(count):
        if not cache.put(number, os.urandom(size)):
            raise RuntimeError(f"item {number} was not stored")
    return cache


def fsabs_file(count: int, size: int) -> Run:
    """`FileCache.get`."""
    return _hits(_filled(library("fsabs.cache").FileCache(count, dir=new_folder()), count, size).get, count, size)


def fsabs_views(count: int, size: int) -> Run:
    """`get` of a frozen cache with codec="memoryview"."""
    cache = _filled(library("fsabs.cache").FileCache(count, dir=new_folder(), codec="memoryview"), count, size)
    cache.preserve("kept")
    return _hits(cache.get, count, size)


def pfio_file(count: int, size: int) -> Run:
    """PFIO's `FileCache`."""
    return _hits(_filled(library("pfio.cache").FileCache(count, dir=new_folder()), count, size).get, count, size)


def pfio_read_only(count: int, size: int) -> Run:
    """PFIO's `ReadOnlyFileCache`."""
    caches, folder = library("pfio.cache"), new_folder()
    _filled(caches.FileCache(count, dir=folder), count, size).preserve("kept")
    cache = caches.ReadOnlyFileCache(count, dir=folder)
    cache.preload("kept")
    return _hits(cache.get, count, size)


def _two_processes(make: Callable[[], Any], count: int, size: int) -> Run:
    data = os.urandom(size)

    def run() -> dict[str, float]:
        cache = make()
        ready, go = os.pipe()
        children = []
        for first in (0, 1):
            if not (pid := os.fork()):
                os.read(ready, 1)
                os._exit(0 if all(cache.put(number, data) for number in range(first, count, 2)) else 1)
            children.append(pid)
        start = time.perf_counter()
        os.write(go, b"xx")
        statuses = [os.waitpid(pid, 0)[1] for pid in children]
        seconds = time.perf_counter() - start
        os.close(ready)
        os.close(go)
        cache.close()
        if any(statuses):
            raise RuntimeError("a put was refused")
        return {"seconds": seconds}

    return run


def fsabs_puts(count: int, size: int) -> Run:
    """Two forked processes put into a new `MultiprocessFileCache`."""
    return _two_processes(lambda: library("fsabs.cache").MultiprocessFileCache(count, dir=new_folder()), count, size)


def pfio_puts(count: int, size: int) -> Run:
    """Two forked processes put into a new one of PFIO's."""
    return _two_processes(lambda: library("pfio.cache").MultiprocessFileCache(count, dir=new_folder()), count, size)
