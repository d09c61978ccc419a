"""PFIO's filesystems: `from_url`, `open_url`, `Local`, `Hdfs`, `S3`, `Zip`, `HTTPCachedFS`, `Path`, and `local`."""

from __future__ import annotations

from . import config as config
from .fs import from_url as from_url
from .fs import lazify as lazify
from .fs import open_url as open_url
from .hdfs import Hdfs as Hdfs
from .hdfs import HdfsFileStat as HdfsFileStat
from .http_cache import HTTPCachedFS as HTTPCachedFS
from .local import Local as Local
from .local import LocalFileStat as LocalFileStat
from .pathlib import Path as Path
from .s3 import S3 as S3
from .zip import Zip as Zip
from .zip import ZipFileStat as ZipFileStat

local = Local()  # as in PFIO, the object hides the module
