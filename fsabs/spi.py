"""What third parties build backends, containers and layers on.

A backend is a subclass of `FS`, a container one of `Container`, a layer one of `LayerFS`; each opens `Blob`s and gives
`Writer`s, and says what it can do as `Capabilities`. CONTRIBUTING.md has an example of each, and `fsabs.testing` the
tests that each has to pass.

A store writes nine methods: `_url`, `_stat`, `_list`, `_open_blob` and `_close`, and what it can do of `_create`,
`_mkdir`, `_rename` and `_remove`. It may override seven more: `_read_many`, `_walk`, `_write_many`, `_remove_tree`,
`_copy`, `_set` and `_batch`. A layer passes these on, and nothing else: what a store says of itself, such as
`_resolved_store`, is asked of `FS.backing`.
"""

from __future__ import annotations

from .containers.base import Container as Container
from .core import errors as errors
from .core import keys as keys
from .core import process as process
from .core.blobs import Blob as Blob
from .core.blobs import BlobLayer as BlobLayer
from .core.blobs import BlobSlice as BlobSlice
from .core.blobs import BytesBlob as BytesBlob
from .core.blobs import Hint as Hint
from .core.fs import FS as FS
from .core.layers import LayerFS as LayerFS
from .core.process import PerProcess as PerProcess
from .core.stats import Capabilities as Capabilities
from .core.stats import FileStat as FileStat
from .core.writing import LayerWriter as LayerWriter
from .core.writing import UpdateWriter as UpdateWriter
from .core.writing import Writer as Writer

__all__ = [
    "FS",
    "Blob",
    "BlobLayer",
    "BlobSlice",
    "BytesBlob",
    "Capabilities",
    "Container",
    "FileStat",
    "Hint",
    "LayerFS",
    "LayerWriter",
    "PerProcess",
    "UpdateWriter",
    "Writer",
    "errors",
    "keys",
    "process",
]
