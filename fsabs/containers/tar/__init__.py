"""Tar archives as filesystems: plain and compressed, read and written."""

from .container import Tar

__all__ = ["Tar"]
