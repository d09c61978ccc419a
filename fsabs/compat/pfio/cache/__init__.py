"""PFIO's item caches, on those of `fsabs.cache`, which have more: see docs/caching.md."""

from __future__ import annotations

from ....cache import Cache as Cache
from .file_cache import FileCache as FileCache
from .http_cache import HTTPCache as HTTPCache
from .http_cache import HTTPConnector as HTTPConnector
from .mmap_file_cache import ReadOnlyFileCache as ReadOnlyFileCache
from .multiprocess_file_cache import MultiprocessFileCache as MultiprocessFileCache
from .naive import NaiveCache as NaiveCache
