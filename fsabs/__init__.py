"""One filesystem API for training data.

`fs = fsabs.from_url("s3://bucket/imagenet.zip")` gives an `FS` to read, list and write through, whatever the bytes
live in (local disk, HDFS, S3, a custom scheme of `pfio.ini`, anything that fsspec knows) and however deep zip, tar and
HDF5 files nest. Importing this package loads no store's library; each is imported where it is first used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .lazy import exports

if TYPE_CHECKING:
    from . import adapters as adapters
    from . import cache as cache
    from . import errors as errors
    from . import hooks as hooks
    from . import keys as keys
    from . import manifest as manifest
    from . import process as process
    from . import readers as readers
    from . import testing as testing
    from . import trace as trace
    from .adapters.fsspec import register_fsspec
    from .adapters.patch import patch, unpatch
    from .backends.hdfs import Hdfs
    from .backends.local import Local
    from .backends.memory import Memory
    from .backends.s3 import S3
    from .blobs import Blob
    from .cache import CachedFS, HTTPCachedFS
    from .config import add_custom_scheme, get_custom_scheme
    from .containers.base import Container
    from .containers.hdf5 import Hdf5
    from .containers.pack import pack
    from .containers.tar import Tar
    from .containers.unpack import unpack
    from .containers.zip import Zip
    from .errors import (
        ConfigError,
        CorruptFileError,
        MissingDependencyError,
        StaleFileError,
        UnknownSchemeError,
    )
    from .files import Writer
    from .fs import FS, Capabilities, FileStat
    from .layers import LayerFS, lazify
    from .limits import Limits
    from .paths import Path
    from .registry import register_backend, register_container
    from .trace import TracedFS
    from .urls import from_url, open_url

__version__ = "0.2.0"

_HOMES = {
    "FS": "fs",
    "Blob": "blobs",
    "CachedFS": "cache",
    "Capabilities": "fs",
    "ConfigError": "errors",
    "Container": "containers.base",
    "CorruptFileError": "errors",
    "FileStat": "fs",
    "HTTPCachedFS": "cache",
    "Hdf5": "containers.hdf5",
    "Hdfs": "backends.hdfs",
    "LayerFS": "layers",
    "Limits": "limits",
    "Local": "backends.local",
    "Memory": "backends.memory",
    "MissingDependencyError": "errors",
    "Path": "paths",
    "S3": "backends.s3",
    "StaleFileError": "errors",
    "Tar": "containers.tar",
    "TracedFS": "trace",
    "UnknownSchemeError": "errors",
    "Writer": "files",
    "Zip": "containers.zip",
    "add_custom_scheme": "config",
    "from_url": "urls",
    "get_custom_scheme": "config",
    "lazify": "layers",
    "open_url": "urls",
    "pack": "containers.pack",
    "patch": "adapters.patch",
    "register_backend": "registry",
    "register_container": "registry",
    "register_fsspec": "adapters.fsspec",
    "unpack": "containers.unpack",
    "unpatch": "adapters.patch",
}

__all__ = [
    "FS",
    "S3",
    "Blob",
    "CachedFS",
    "Capabilities",
    "ConfigError",
    "Container",
    "CorruptFileError",
    "FileStat",
    "HTTPCachedFS",
    "Hdf5",
    "Hdfs",
    "LayerFS",
    "Limits",
    "Local",
    "Memory",
    "MissingDependencyError",
    "Path",
    "StaleFileError",
    "Tar",
    "TracedFS",
    "UnknownSchemeError",
    "Writer",
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

_MODULES = ("adapters", "cache", "errors", "hooks", "keys", "manifest", "process", "readers", "testing", "trace")

__getattr__, __dir__ = exports(__name__, _HOMES, _MODULES)

if os.environ.get("FSABS_PATCH"):
    from .adapters.patch import from_environment

    from_environment()
