"""The stores that the adapters are tested on: a URL of an empty directory on each, opened by environment alone."""

from __future__ import annotations

import configparser
import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec

import fsabs
from fsabs.core import hooks
from fsabs.urls import roots

ROOT = Path(__file__).parent.parent.parent
_numbers = itertools.count()


def register_entry_points() -> None:
    """Register the protocols of setup.cfg with fsspec, as the installed package does."""
    for name, target in entry_points().items():
        if name not in fsspec.registry:
            fsspec.register_implementation(name, target.replace(":", "."), clobber=True)


def entry_points() -> dict[str, str]:
    """The fsspec protocols of setup.cfg."""
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read(ROOT / "setup.cfg")
    lines = parser["options.entry_points"]["fsspec.specs"].strip().splitlines()
    return dict(line.replace(" ", "").split("=") for line in lines)


def environment(server: Any) -> dict[str, str]:
    """What makes `s3://` the server's."""
    return {
        "S3_ENDPOINT": server.endpoint,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_DEFAULT_REGION": server.region,
    }


READ_ONLY = ("zip on s3",)
"""Filled once, and then read."""


class Requests(hooks.Instrument):
    """Counts the requests that read from S3, and their bytes."""

    count = total = 0

    def record_span(self, kind: str, name: str, begin: int, size: int = 0, *rest: Any, **more: Any) -> None:
        """Count a request that has ended."""
        if kind == "request" and name.startswith("s3.get"):
            self.count += 1
            self.total += size


@contextlib.contextmanager
def opened(kind: str, request: Any, folder: Path) -> Iterator[str]:
    """The URL of a directory of this kind of store, which is empty or missing; `S3_ENDPOINT` and so on are set."""
    before = dict(os.environ)
    roots.clear()
    name = f"adapters{os.getpid()}-{next(_numbers)}"
    try:
        if kind in ("s3", "ceph", "zip on s3", "corp"):
            server = request.getfixturevalue("ceph" if kind == "ceph" else "moto")
            server.create_bucket("adapters")
            os.environ.update(environment(server))
        if kind == "corp":
            (folder / "pfio.ini").write_text(f"[corp]\nscheme = s3\nprefix = adapters/{name}\n")
            os.environ["PFIO_CONFIG_PATH"] = str(folder / "pfio.ini")
        yield {
            "local": f"file://{folder}/{name}",
            "memory": f"memory://{name}/tree",
            "hdfs": f"{request.getfixturevalue('hdfs').url}/{name}" if kind == "hdfs" else "",
            "zip on s3": f"s3://adapters/{name}.zip",
            "corp": "",
        }.get(kind, f"s3://adapters/{name}") or f"corp://adapters/{name}"
    finally:
        os.environ.clear()
        os.environ.update(before)
        roots.clear()


def fill(url: str, files: dict[str, bytes]) -> None:
    """Write files through an FS."""
    with fsabs.from_url(url, create=True) as fs:
        for name, data in files.items():
            if "/" in name and fs.capabilities.mkdir:
                fs.makedirs(name.rpartition("/")[0], exist_ok=True)
            fs.write_bytes(name, data)
