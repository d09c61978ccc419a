"""What a cache has to know of the FS that it is around."""

from __future__ import annotations

from ..backends.memory import Memory
from ..containers.base import Container
from ..fs import FS
from ..layers import LayerFS


def backend_of(fs: FS) -> FS:
    """What is undermost, below layers and containers."""
    while isinstance(fs, LayerFS | Container):
        fs = fs.inner if isinstance(fs, LayerFS) else fs._parent
    return fs


def has_slow_clock(fs: FS) -> bool:
    """Whether two contents that are written within a tick of a clock may have one version.

    Where versions are made of times, as they are on filesystems; S3's are made of the content.
    """
    return not isinstance(backend_of(fs), Memory) and fs.scheme != "s3"


def is_asked_by_request(fs: FS) -> bool:
    """Whether to ask what a file is takes a request, which could as well bring the file's start along.

    Not so where one has to know how old a file is.
    """
    return fs.default_concurrency > 1 and not knows_its_members(fs) and not has_slow_clock(fs)


def knows_its_members(fs: FS) -> bool:
    """Whether it is a container, whose list tells what its members are: nothing has to be asked for that."""
    while isinstance(fs, LayerFS):
        fs = fs.inner
    return isinstance(fs, Container)
