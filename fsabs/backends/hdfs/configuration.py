"""Hadoop's configuration as a client reads it: `core-site.xml` and `hdfs-site.xml` of `$HADOOP_CONF_DIR`.

It names the NameNodes of a nameservice and the mount table of a `viewfs://` URL, and sets what files are written with
and how long a client waits.
"""

from __future__ import annotations

import errno
import os
import random
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from xml.etree import ElementTree

from ...core import process

DEFAULT_PORT = 8020
_VARIABLE = re.compile(r"\$\{([^}$\s]+)\}")
_SIZE = re.compile(r"(\d+)([kmgtpe]?)b?", re.IGNORECASE)
_OBSERVERS = "ObserverReadProxyProvider"
_XINCLUDE = "{http://www.w3.org/2001/XInclude}include"


class NameNodeAddress(NamedTuple):
    """One NameNode, and how a client of it alone is configured."""

    url: str
    """The URL for the library: `hdfs://host:port`, or the nameservice, of which `settings` leave this NameNode."""
    host: str
    """Empty if the library chooses among several NameNodes by itself: those of a mount table, and observers."""
    port: int
    settings: tuple[tuple[str, str], ...] = ()


class HadoopConfiguration:
    """The settings of the files, and above them those that the user gives."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings

    @classmethod
    def load(cls, own: Mapping[str, str] | None = None) -> HadoopConfiguration:
        """Read the files of `$HADOOP_CONF_DIR`, else of `$HADOOP_HOME/etc/hadoop`; `own` settings override them."""
        found: dict[str, str] = {}
        if folder := _folder():
            for name in ("core-site.xml", "hdfs-site.xml"):
                found.update(_read(folder / name))
        return cls({**found, **(own or {})})

    def settings(self) -> dict[str, str]:
        """Return all settings, with their variables replaced."""
        return {name: self.get(name) for name in self._settings}

    def get(self, name: str, default: str = "") -> str:
        """Return a setting, with the variables in it replaced by settings or variables of the environment."""
        value = self._settings.get(name, default).strip()
        for _ in range(20):  # Hadoop's own limit
            expanded = _VARIABLE.sub(self._variable, value)
            if expanded == value:
                break
            value = expanded
        return value

    def _variable(self, found: re.Match[str]) -> str:
        name = found[1]
        if name.startswith("env."):
            return os.environ.get(name[4:], found[0])
        return self._settings.get(name, found[0])

    def number(self, name: str, default: int) -> int:
        """Return a setting that is a number."""
        value = self.get(name)
        if not value:
            return default
        try:
            return int(value)
        except ValueError:
            raise _wrong(name, value, "is not a number") from None

    def optional_number(self, name: str) -> int | None:
        """Return a setting that is a number, None if it is not set."""
        return self.number(name, 0) if self.get(name) else None

    def size(self, name: str) -> int | None:
        """Return a number of bytes, which may have a suffix (`128m`); None if it is not set."""
        value = self.get(name)
        if not value:
            return None
        if (found := _SIZE.fullmatch(value)) is None:
            raise _wrong(name, value, "is not a size")
        return int(found[1]) << (10 * (" kmgtpe".index(found[2].lower()) if found[2] else 0))

    def umask(self) -> int:
        """Return the permissions that new files do not get: `fs.permissions.umask-mode`, else the process's umask."""
        value = self.get("fs.permissions.umask-mode")
        return _parse_umask(value) if value else process.umask()

    @property
    def kerberos(self) -> bool:
        """True if the cluster wants more than a user's name."""
        return self.get("hadoop.security.authentication", "simple") != "simple"

    def file_system(self, scheme: str, authority: str) -> tuple[str, str]:
        """Return a scheme and authority; with no authority those of `fs.defaultFS`, else of the only nameservice."""
        if authority:
            return scheme, authority
        url = self._default_url()
        if not url:
            reason = (
                "a URL without a host needs fs.defaultFS, or one name in dfs.nameservices, in the configuration that"
            )
            raise OSError(errno.EINVAL, f"{reason} HADOOP_CONF_DIR names")
        parts = urlsplit(url)
        if parts.scheme not in ("hdfs", "viewfs") or not parts.netloc:
            raise _wrong("fs.defaultFS", url, "is no hdfs:// or viewfs:// URL with a host")
        return parts.scheme, parts.netloc

    def _default_url(self) -> str:
        names = self.get("dfs.nameservices").split(",")
        only = f"hdfs://{names[0].strip()}" if len(names) == 1 and names[0].strip() else ""
        return self.get("fs.defaultFS") or self.get("fs.default.name") or only

    def canonical_store(self, scheme: str, authority: str) -> str:
        """Return the same text for every way to name a file system; the scheme alone if there is no default."""
        if not authority and not self._default_url():
            return scheme
        scheme, authority = self.file_system(scheme, authority)
        if scheme == "viewfs":
            links = ((path, urlsplit(url)) for path, url in sorted(self.mounts(authority).items()))
            return " ".join([scheme, *(f"{path}={self._canonical(url.netloc)}{url.path}" for path, url in links)])
        return f"{scheme} {self._canonical(authority)}"

    def resolve(self, scheme: str, authority: str, key: str) -> tuple[str, str]:
        """Return the nameservice that a key lies in, as `canonical_store` names it, and the key there."""
        if authority or self._default_url():
            scheme, authority = self.file_system(scheme, authority)
        mounts, path = self.mounts(authority) if scheme == "viewfs" else {}, f"/{key}"
        for link in sorted(mounts, key=len, reverse=True):
            if f"{path}/".startswith(f"{link}/"):
                target = urlsplit(mounts[link])
                return self.canonical_store("hdfs", target.netloc), f"{target.path}{path[len(link) :]}".strip("/")
        return self.canonical_store(scheme, authority), key

    def _canonical(self, authority: str) -> str:
        if f"dfs.ha.namenodes.{authority}" in self._settings:
            nodes = self.get(f"dfs.ha.namenodes.{authority}").split(",")
            addresses = [self.get(f"dfs.namenode.rpc-address.{authority}.{node.strip()}") for node in nodes]
            return " ".join([authority, *sorted(addresses)])
        host, port = _host_and_port(self.get(f"dfs.namenode.rpc-address.{authority}") or authority)
        return f"{host}:{port}"

    def describe(self, scheme: str, authority: str) -> dict[str, str]:
        """Return where the configuration is, and the NameNodes of a file system, for people."""
        folder = _folder()
        found = {"configuration": str(folder) if folder else "none: HADOOP_CONF_DIR and HADOOP_HOME are not set"}
        is_default = not authority
        scheme, authority = self.file_system(scheme, authority)
        if is_default:
            found["default"] = f"{scheme}://{authority} (fs.defaultFS, or dfs.nameservices)"
        if scheme == "viewfs":
            mounts = sorted(self.mounts(authority).items())
            return {**found, "mounts": ", ".join(f"{path or '/'} on {url}" for path, url in mounts)}
        nodes = [f"{node.host}:{node.port}" if node.host else node.url for node in self.addresses(scheme, authority)]
        return {**found, "namenodes": ", ".join(nodes)}

    def addresses(self, scheme: str, authority: str) -> list[NameNodeAddress]:
        """Return the NameNodes of a nameservice, or of `host`, `host:port`; of a mount table the library's one."""
        if scheme == "viewfs":
            return [NameNodeAddress(f"viewfs://{authority}", "", 0)]
        if ids := self.get(f"dfs.ha.namenodes.{authority}"):
            return self._of_nameservice(authority, [name.strip() for name in ids.split(",") if name.strip()])
        address = self.get(f"dfs.namenode.rpc-address.{authority}") or authority
        host, port = _host_and_port(address)
        shown = f"[{host}]" if ":" in host else host
        return [NameNodeAddress(f"hdfs://{shown}:{port}", host, port)]

    def _of_nameservice(self, nameservice: str, ids: list[str]) -> list[NameNodeAddress]:
        url = f"hdfs://{nameservice}"
        if self.get(f"dfs.client.failover.proxy.provider.{nameservice}").endswith(_OBSERVERS):
            return [NameNodeAddress(url, "", 0)]  # reads of observers need one client for all
        resolve = self.get(f"dfs.client.failover.resolve-needed.{nameservice}").lower() == "true"
        found = []
        for name in ids:
            key = f"dfs.namenode.rpc-address.{nameservice}.{name}"
            if not (address := self.get(key)):
                raise OSError(errno.EINVAL, f"{key} is not set")
            host, port = _host_and_port(address)
            for each in self._resolved(nameservice, host, port) if resolve else [host]:
                settings = (
                    (f"dfs.ha.namenodes.{nameservice}", name),
                    (key, f"{each}:{port}"),
                    (f"dfs.client.failover.resolve-needed.{nameservice}", "false"),
                )
                found.append(NameNodeAddress(url, each, port, settings))
        if self.get(f"dfs.client.failover.random.order.{nameservice}").lower() == "true":
            random.SystemRandom().shuffle(found)
        return found

    def _resolved(self, nameservice: str, host: str, port: int) -> list[str]:
        """Return the names (or addresses) of all the hosts that a name stands for."""
        by_name = self.get(f"dfs.client.failover.resolver.useFQDN.{nameservice}", "true").lower() == "true"
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)}
        return [socket.getfqdn(address) if by_name else address for address in sorted(addresses)]

    def mounts(self, table: str) -> dict[str, str]:
        """Return the URLs that a mount table leads to, by the paths of its links; that of the fallback is empty."""
        prefix = f"fs.viewfs.mounttable.{table}."
        found = {}
        for name in self._settings:
            if not name.startswith(prefix):
                continue
            kind, _, path = name.removeprefix(prefix).partition(".")
            if kind in ("link", "linkFallback"):
                found[path.rstrip("/")] = self.get(name).rstrip("/")
            elif kind.startswith("link"):  # which the library would not follow, and go to the fallback
                raise OSError(errno.EOPNOTSUPP, f"{name}: only link and linkFallback of a mount table are supported")
        return found


def _folder() -> Path | None:
    if own := os.environ.get("HADOOP_CONF_DIR"):
        return Path(own)
    home = os.environ.get("HADOOP_HOME")
    return Path(home, "etc", "hadoop") if home else None


def _read(path: Path, depth: int = 0) -> dict[str, str]:
    """Return the properties of a file; a file that is not there has none."""
    try:
        root = ElementTree.parse(path).getroot()
    except FileNotFoundError:
        return {}
    except ElementTree.ParseError as exc:
        raise OSError(errno.EINVAL, f"{path} is no configuration of Hadoop: {exc}") from exc
    found: dict[str, str] = {}
    for element in root:
        if element.tag == _XINCLUDE and depth < 10:
            found.update(_read(path.parent / element.get("href", ""), depth + 1))
        name, value = element.findtext("name"), element.findtext("value")
        if element.tag == "property" and name is not None and value is not None:
            found[name.strip()] = value
    return found


def _host_and_port(address: str) -> tuple[str, int]:
    parts = urlsplit(f"//{address}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if not parts.hostname or (port is None and address.rpartition("]")[2].count(":") > 0):
        raise OSError(errno.EINVAL, f"not the address of a NameNode: {address!r}")
    return parts.hostname, port or DEFAULT_PORT


def _parse_umask(value: str) -> int:
    """Return the mask of `022`, or of symbolic permissions, which name the bits that stay."""
    if re.fullmatch(r"[0-7]{1,4}", value):
        return int(value, 8)
    mask = 0o777
    for clause in value.split(","):
        found = re.fullmatch(r"([ugoa]*)([=+])([rwx]*)", clause.strip())
        if found is None:
            raise _wrong("fs.permissions.umask-mode", value, "is no umask")
        bits = sum({"r": 4, "w": 2, "x": 1}[letter] for letter in set(found[3]))
        for group in "ugo" if not found[1] or "a" in found[1] else found[1]:
            mask &= ~(bits << {"u": 6, "g": 3, "o": 0}[group])
    return mask


def _wrong(name: str, value: str, why: str) -> OSError:
    return OSError(errno.EINVAL, f"{name} is {value!r}, which {why}")
