"""A nameservice as files and writers need it: this process's connection, and the hidden files that it has to delete."""

from __future__ import annotations

import errno
import functools
import os
from collections import deque

from ... import process
from ...core import Core
from .configuration import HadoopConfiguration
from .driver import Driver
from .native import HdfsOptions, Native
from .viewfs import MountTable


class HdfsAccess(Core):
    """The access to `nameservice`, with the options of `Hdfs`."""

    def __init__(self, nameservice: str, options: HdfsOptions) -> None:
        self.nameservice = nameservice
        self._options = options
        connect = functools.partial(_connect, self.scheme, nameservice, options)
        self._driver: process.PerProcess[Driver] = process.PerProcess(connect)
        self._leftovers: process.PerProcess[deque[str]] = process.PerProcess(deque)

    @property
    def driver(self) -> Driver:
        """This process's connection."""
        return self._driver.get()

    @property
    def leftovers(self) -> deque[str]:
        """Hidden files of this process that could not be deleted yet."""
        return self._leftovers.get()


def _connect(scheme: str, authority: str, options: HdfsOptions) -> Driver:
    conf = HadoopConfiguration.load(options.configuration)
    if os.environ.get("HADOOP_PROXY_USER") and conf.get("hadoop.security.authentication", "simple") == "simple":
        reason = "HADOOP_PROXY_USER needs Kerberos; on a cluster without it, HADOOP_USER_NAME names the user"
        raise OSError(errno.EOPNOTSUPP, reason)
    for name, path in (("keytab", options.keytab), ("ticket cache", options.ticket_cache)):
        if path and not os.access(path.removeprefix("FILE:"), os.R_OK):
            raise PermissionError(errno.EACCES, f"the Kerberos {name} {path} can't be read")
    if not authority:
        scheme, authority, _ = conf.default_file_system()
    if scheme == "viewfs":
        connect = functools.partial(Native, conf=conf, options=options)
        return MountTable(conf.mounts(authority), connect, options.timeout)
    return Native(authority, conf, options)
