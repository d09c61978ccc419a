"""PFIO 2.10's modules, names and signatures on fsabs: `import fsabs.compat.pfio as pfio` is the whole migration.

The modules are laid out as PFIO's are: `v2` (filesystems, paths, custom schemes), `cache` (item caches) and `testing`.
Where a class behaves in another way on purpose, docs/coming-from.md says why. The FS that an object of `v2` works on is
its attribute `fsabs`, for a step by step move to this library's own interface.
"""

from __future__ import annotations

from ...core.lazy import exports
from . import cache as cache
from . import v2 as v2
from .version import __version__ as __version__

_V1 = {
    "open": "v2.open_url(url) opens a file",
    "set_root": "there is no global root: v2.from_url(url) gives an FS, whose paths are relative to it",
    "create_handler": "v2.from_url(url) gives an FS",
    "open_as_container": "v2.from_url(url) opens the container at a URL, fs.open_zip(path) one of an FS",
}

__getattr__, _ = exports(__name__, {}, {}, _V1)
