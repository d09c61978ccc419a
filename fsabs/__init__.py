"""One filesystem API for training data.

`fs = fsabs.from_url("s3://bucket/imagenet.zip")` gives an `FS` to read, list and write through, whatever the bytes
live in (local disk, S3, Google Cloud Storage, Azure, HDFS, the Hugging Face hub, a custom scheme of `pfio.ini`,
anything that fsspec knows) and however deep zip, tar and HDF5 files nest. Importing this package loads no store's
library; each is imported where it is first used.
"""

from __future__ import annotations

import os

from .core.lazy import exports

TYPE_CHECKING = False  # as typing's, whose import takes longer than this one
if TYPE_CHECKING:
    from . import adapters as adapters
    from . import cache as cache
    from . import compat as compat
    from . import dispatch as dispatch
    from . import manifest as manifest
    from . import prepare as prepare
    from . import readers as readers
    from . import spi as spi
    from . import testing as testing
    from . import trace as trace
    from .adapters.fsspec import register_fsspec
    from .adapters.patch import patch, unpatch
    from .backends.azure import Azure
    from .backends.gcs import GCS
    from .backends.hdfs import Hdfs
    from .backends.local import Local
    from .backends.memory import Memory
    from .backends.s3 import S3
    from .cache import CachedFS, HTTPCachedFS
    from .containers.hdf5 import Hdf5
    from .containers.tar import Tar
    from .containers.zip import Zip
    from .core import errors as errors
    from .core import hooks as hooks
    from .core.errors import (
        ConfigError,
        CorruptFileError,
        MissingDependencyError,
        StaleFileError,
        UnknownSchemeError,
    )
    from .core.fs import FS, FileStat, TreeCounts
    from .core.layers import lazify
    from .core.limits import Limits
    from .core.registry import register_backend, register_container
    from .paths import Path
    from .transfer.pack import pack
    from .transfer.unpack import unpack
    from .urls.config import add_custom_scheme, get_custom_scheme
    from .urls.opening import from_url, open_url

__version__ = "0.2.0"

_HOMES = {
    "FS": "core.fs",
    "Azure": "backends.azure",
    "CachedFS": "cache",
    "ConfigError": "core.errors",
    "CorruptFileError": "core.errors",
    "FileStat": "core.fs",
    "GCS": "backends.gcs",
    "HTTPCachedFS": "cache",
    "Hdf5": "containers.hdf5",
    "Hdfs": "backends.hdfs",
    "Limits": "core.limits",
    "Local": "backends.local",
    "Memory": "backends.memory",
    "MissingDependencyError": "core.errors",
    "Path": "paths",
    "S3": "backends.s3",
    "StaleFileError": "core.errors",
    "Tar": "containers.tar",
    "TreeCounts": "core.fs",
    "UnknownSchemeError": "core.errors",
    "Zip": "containers.zip",
    "add_custom_scheme": "urls.config",
    "from_url": "urls.opening",
    "get_custom_scheme": "urls.config",
    "lazify": "core.layers",
    "open_url": "urls.opening",
    "pack": "transfer.pack",
    "patch": "adapters.patch",
    "register_backend": "core.registry",
    "register_container": "core.registry",
    "register_fsspec": "adapters.fsspec",
    "unpack": "transfer.unpack",
    "unpatch": "adapters.patch",
}

__all__ = [
    "FS",
    "GCS",
    "S3",
    "Azure",
    "CachedFS",
    "ConfigError",
    "CorruptFileError",
    "FileStat",
    "HTTPCachedFS",
    "Hdf5",
    "Hdfs",
    "Limits",
    "Local",
    "Memory",
    "MissingDependencyError",
    "Path",
    "StaleFileError",
    "Tar",
    "TreeCounts",
    "UnknownSchemeError",
    "Zip",
    "add_custom_scheme",
    "from_url",
    "get_custom_scheme",
    "lazify",
    "open_url",
    "pack",
    "patch",
    "register_backend",
    "register_container",
    "register_fsspec",
    "unpack",
    "unpatch",
]

_MODULES = {
    "adapters": "adapters",
    "cache": "cache",
    "compat": "compat",
    "dispatch": "dispatch",
    "errors": "core.errors",
    "hooks": "core.hooks",
    "manifest": "manifest",
    "prepare": "prepare",
    "readers": "readers",
    "spi": "spi",
    "testing": "testing",
    "trace": "trace",
}

_PFIO_V1 = {  # names that PFIO's first version has, and its second one does not
    "open": "open_url(url) opens a file",
    "set_root": "there is no global root: from_url(url) gives an FS, whose paths are relative to it",
    "create_handler": "from_url(url) gives an FS",
    "open_as_container": "from_url(url) opens the container at a URL, fs.open_container(path) one of an FS",
}

__getattr__, __dir__ = exports(__name__, _HOMES, _MODULES, _PFIO_V1)

if os.environ.get("FSABS_PATCH"):
    from .adapters.patch import from_environment

    from_environment()

if os.environ.get("FSABS_TRACE"):
    from .trace.session import start_from_environment

    start_from_environment()
