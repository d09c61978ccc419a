"""PFIO 2.10's modules, names and signatures on fsabs: `import fsabs.compat.pfio as pfio` is the whole migration.

The modules are laid out as PFIO's are: `v2` (filesystems, paths, custom schemes), `cache` (item caches) and `testing`.
Where a class behaves in another way on purpose, docs/from-pfio.md says why. The FS that an object of `v2` works on is
its attribute `fsabs`, for a step by step move to this library's own interface.
"""

from __future__ import annotations

from . import cache as cache
from . import v2 as v2
from .version import __version__ as __version__
