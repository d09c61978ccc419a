"""What a training script does: an FS that is opened once, before torch's DataLoader starts its workers.

Every backend and nested containers, under fork, spawn and forkserver, three epochs each, every sample right. A worker
that hangs is found by the loader's own time limit.
"""

from __future__ import annotations

import functools
import hashlib
import io
import random
import time
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import fsabs
from fsabs import FS, manifest
from fsabs.backends.fsspec import Fsspec
from tests.servers.hub import TOKEN

FILES = {
    f"class{number % 3}/{number:03d}.bin": random.Random(number).randbytes(200 + 37 * number) for number in range(24)
}
SUMS = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}


def fill(fs: FS) -> FS:
    for name, data in FILES.items():
        if not fs.capabilities.implied_directories:
            fs.makedirs(name.split("/")[0], exist_ok=True)
        fs.write_bytes(name, data)
    return fs


def pack_into(fs: FS, path: str, **options: Any) -> None:
    """Write the files into the container at `path`, which may lead through others."""
    first, _, rest = path.partition("/")
    with fs.open_container(first, "w", **({} if rest else options)) as outer:
        if rest:
            pack_into(outer, rest, **options)
        else:
            fill(outer)


def s3(store: Any) -> tuple[str, dict[str, Any]]:
    bucket = f"loader{time.monotonic_ns()}"
    store.create_bucket(bucket)
    options = {
        "endpoint": store.endpoint,
        "aws_access_key_id": store.access_key,
        "aws_secret_access_key": store.secret_key,
        "region": store.region,
    }
    return f"s3://{bucket}", options


def azure(server: Any) -> tuple[str, dict[str, Any]]:
    container = f"loader{time.monotonic_ns()}"
    server.create_container(container)
    return f"az://{container}", {"endpoint": server.endpoint, "account_key": server.key}


def gcs(server: Any) -> tuple[str, dict[str, Any]]:
    bucket = f"loader{time.monotonic_ns()}"
    server.create_bucket(bucket)
    return f"gs://{bucket}", {"endpoint": server.endpoint, "access_token": "token"}


CLOUDS: dict[str, Callable[[Any], tuple[str, dict[str, Any]]]] = {
    "moto": s3,
    "ceph": s3,
    "azurite": azure,
    "gcs": gcs,
}


def make_local(request: pytest.FixtureRequest) -> FS:
    return fill(fsabs.from_url(request.getfixturevalue("tmp_path") / "files", create=True))


def make_memory(request: pytest.FixtureRequest) -> FS:
    return fill(fsabs.from_url(f"memory://loader{time.monotonic_ns()}/"))


def make_cloud(server: str, request: pytest.FixtureRequest) -> FS:
    url, options = CLOUDS[server](request.getfixturevalue(server))
    return fill(fsabs.from_url(url, **options))


def make_hdfs(request: pytest.FixtureRequest) -> FS:
    return fill(fsabs.from_url(f"{request.getfixturevalue('hdfs').url}/loader{time.monotonic_ns()}", create=True))


def make_fsspec(request: pytest.FixtureRequest) -> FS:
    folder = request.getfixturevalue("tmp_path") / "fsspec"
    folder.mkdir()
    return fill(Fsspec("local", "", str(folder)))


def make_container(path: str, request: pytest.FixtureRequest, **options: Any) -> FS:
    folder = request.getfixturevalue("tmp_path")
    pack_into(fsabs.from_url(folder), path, **options)
    return fsabs.from_url(f"file://{folder}/{path}")


def make_container_on_cloud(server: str, path: str, request: pytest.FixtureRequest) -> FS:
    url, options = CLOUDS[server](request.getfixturevalue(server))
    pack_into(fsabs.from_url(url, **options), path)
    fs: FS = fsabs.from_url(f"{url}/{path}", **options)
    return fs


def make_container_on_hdfs(path: str, request: pytest.FixtureRequest) -> FS:
    url = f"{request.getfixturevalue('hdfs').url}/loader{time.monotonic_ns()}"
    pack_into(fsabs.from_url(url, create=True), path)
    return fsabs.from_url(f"{url}/{path}")


def make_hub(request: pytest.FixtureRequest, path: str = "") -> FS:
    """A repository, read at its last commit; or a container in it."""
    url = f"hf://datasets/loader/made{time.monotonic_ns()}"
    request.getfixturevalue("hub").make(url.partition("datasets/")[2])
    written: Any = fsabs.from_url(url, token=TOKEN)
    with written.commit("the files"):
        if path:
            pack_into(written, path)
        else:
            fill(written)
    return fsabs.from_url(f"{url}/{path}", token=TOKEN)


def make_web(request: pytest.FixtureRequest, path: str = "") -> FS:
    """A folder of a web server, with a manifest; or a container in it."""
    dav = request.getfixturevalue("dav")
    name = f"loader{time.monotonic_ns()}"
    folder: FS = fsabs.from_url(dav.files / name, create=True)
    if path:
        pack_into(folder, path)
        return fsabs.from_url(f"{dav.origin}/{name}/{path}")
    listed = str(request.getfixturevalue("tmp_path") / f"{name}.jsonl")
    manifest.create(fill(folder), listed, versions=False)
    return fsabs.from_url(f"{dav.origin}/{name}", manifest=listed)


def make_lazy(request: pytest.FixtureRequest) -> FS:
    folder = request.getfixturevalue("tmp_path") / "lazy"
    fill(fsabs.from_url(folder, create=True))
    return fsabs.lazify(functools.partial(fsabs.from_url, str(folder)))


def make_outer_deflated(request: pytest.FixtureRequest) -> FS:
    """A zip in a deflated member of a zip, made by the standard library."""
    inner, outer = io.BytesIO(), request.getfixturevalue("tmp_path") / "deflated.zip"
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
    with zipfile.ZipFile(outer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.zip", inner.getvalue())
    return fsabs.from_url(f"file://{outer}/inner.zip")


MAKERS: dict[str, Callable[[pytest.FixtureRequest], FS]] = {
    "local": make_local,
    "memory": make_memory,
    **{server: functools.partial(make_cloud, server) for server in CLOUDS},
    "hdfs": make_hdfs,
    "hub": make_hub,
    "web": make_web,
    "fsspec": make_fsspec,
    "lazify": make_lazy,
    "zip": functools.partial(make_container, "a.zip"),
    "tar.gz": functools.partial(make_container, "a.tar.gz"),
    "hdf5": functools.partial(make_container, "a.h5"),
    "zip in zip": functools.partial(make_container, "a.zip/b.zip", compression="deflated"),
    "zip in deflated zip": make_outer_deflated,
    "tar in zip on S3": functools.partial(make_container_on_cloud, "ceph", "a.zip/b.tar"),
    "zip in zip on S3": functools.partial(make_container_on_cloud, "ceph", "a.zip/b.zip"),
    "hdf5 on S3": functools.partial(make_container_on_cloud, "ceph", "a.h5"),
    "zip in zip on Azure": functools.partial(make_container_on_cloud, "azurite", "a.zip/b.zip"),
    "tar on Azure": functools.partial(make_container_on_cloud, "azurite", "a.tar"),
    "zip in zip on GCS": functools.partial(make_container_on_cloud, "gcs", "a.zip/b.zip"),
    "tar on GCS": functools.partial(make_container_on_cloud, "gcs", "a.tar"),
    "zip on HDFS": functools.partial(make_container_on_hdfs, "a.zip"),
    "tar in zip on the hub": functools.partial(make_hub, path="a.zip/b.tar"),
    "zip in zip on the hub": functools.partial(make_hub, path="a.zip/b.zip"),
    "tar in zip on the web": functools.partial(make_web, path="a.zip/b.tar"),
    "zip in zip on the web": functools.partial(make_web, path="a.zip/b.zip"),
    "tar.xz in zip on HDFS": functools.partial(make_container_on_hdfs, "a.zip/b.tar.xz"),
}


class Samples(Dataset[tuple[str, str, str]]):
    """Every file of several filesystems: name of the FS, path, SHA-256 of what was read."""

    def __init__(self, trees: dict[str, FS]) -> None:
        self._trees = trees
        self._open = {name: fs.open(next(iter(FILES)), "rb") for name, fs in trees.items()}
        for file in self._open.values():
            file.read(100)  # half-used when the workers start
        self._index = [(name, path) for path in FILES for name in trees]

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, number: int) -> tuple[str, str, str]:
        name, path = self._index[number]
        inherited = self._open[name]
        position = inherited.tell()
        rest = inherited.read(20)
        inherited.seek(position)
        return name, path, hashlib.sha256(self._trees[name].read_bytes(path)).hexdigest() + rest.hex()


def run_epochs(trees: dict[str, FS], method: str, workers: int) -> None:
    inherited = FILES[next(iter(FILES))][100:120].hex()
    loader = DataLoader(
        Samples(trees),
        batch_size=4,
        shuffle=True,
        num_workers=workers,
        multiprocessing_context=method,
        persistent_workers=True,
        timeout=50,
    )
    expected = sorted((name, path, SUMS[path] + inherited) for name in trees for path in FILES)
    for _ in range(3):
        seen = sorted(sample for batch in loader for sample in zip(*batch, strict=True))
        assert seen == expected
    for name, fs in trees.items():  # and the parent goes on
        assert fs.read_bytes(next(iter(FILES))) == FILES[next(iter(FILES))], name
    del loader


@pytest.fixture(autouse=True)
def _quiet_torch() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", MAKERS)
def test_forked_workers(name: str, request: pytest.FixtureRequest) -> None:
    run_epochs({name: MAKERS[name](request)}, "fork", 4)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_other_start_methods(method: str, request: pytest.FixtureRequest) -> None:
    """All filesystems in one data set, and two workers, since starting such a worker takes seconds."""
    made: dict[str, FS] = {}
    folder = request.getfixturevalue("tmp_path_factory")
    for name, make in MAKERS.items():
        made[name] = make(_Elsewhere(request, folder.mktemp(method)))  # type: ignore[arg-type]
    run_epochs(made, method, 2)


class _Elsewhere:
    """A fixture request whose `tmp_path` is a new folder."""

    def __init__(self, request: pytest.FixtureRequest, folder: Any) -> None:
        self._request = request
        self._folder = folder

    def getfixturevalue(self, name: str) -> Any:
        return self._folder if name == "tmp_path" else self._request.getfixturevalue(name)
