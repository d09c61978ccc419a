"""Where the files of an FS lie on HDFS, for the side channel and for hdfs-native's own client."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import hdfs_native

import fsabs


def path_of(fs: fsabs.FS, name: str = "") -> str:
    """Return the absolute path of a file on HDFS."""
    return unquote(urlsplit(fs.url(name)).path)


def client_of(fs: fsabs.FS) -> hdfs_native.Client:
    """Return a client that does what an FS does not: owners, replication, leases."""
    return hdfs_native.Client(f"hdfs://{urlsplit(fs.url()).netloc}")


def status_of(fs: fsabs.FS, name: str) -> hdfs_native.FileStatus:
    """Return what the NameNode knows of a file."""
    return client_of(fs).get_file_info(path_of(fs, name))
