"""What an installed fsabs can do with its required packages alone, and with each extra.

Run as a program with the name of an extra (or `required`), in an empty folder and in isolated mode, so that nothing but
what is installed can be imported. It imports nothing of the tests.
"""

from __future__ import annotations

import contextlib
import http.server
import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsabs

FILES = {"a.txt": b"one", "images/0.bin": bytes(1000), "images/1.bin": b"1" * 1000}
NO_SERVER = "http://127.0.0.1:1"
APART = ("fsabs.cli.", "fsabs.testing.asserts", "fsabs.testing.checks_", "fsabs.testing.kit", "fsabs.testing.model")
"""Modules that need an extra, and that others import."""


@contextlib.contextmanager
def _raises(kind: type[Exception], message: str) -> Iterator[None]:
    """Check that an exception is raised, and says something; pytest is not installed here."""
    found = "nothing was raised"
    try:
        yield
    except kind as exc:
        found = str(exc)
    assert message in found, found


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


def _container(url: str) -> None:
    """Write a container and read it again."""
    with fsabs.from_url(url, mode="w") as fs:
        for name, content in FILES.items():
            fs.write_bytes(name, content)
    with fsabs.from_url(url) as fs:
        assert {name: fs.read_bytes(name) for name in FILES} == FILES, url


def required() -> None:
    """Containers, RecordIO, S3 that is not there, pyarrow and fsspec; and a clear error for whatever needs an extra."""
    import pyarrow.csv

    from fsabs import manifest
    from fsabs.readers import RecordReader, RecordWriter

    for url in ("memory://m/a.zip", "b.zip", "c.tar", "d.tar.gz", "e.h5", "memory://m/f.tar.xz"):
        _container(url)
    with fsabs.from_url("outer.zip", mode="w") as outer, outer.open_container("inner.zip", "w") as inner:
        inner.write_bytes("a.csv", b"x,y\n1,2\n")
    with fsabs.from_url("outer.zip/inner.zip") as fs:
        with fs.arrow().open_input_stream("a.csv") as stream:
            assert pyarrow.csv.read_csv(stream).to_pydict() == {"x": [1], "y": [2]}
        assert fs.fsspec().cat_file("a.csv") == b"x,y\n1,2\n"
    with RecordWriter(fsabs.from_url("."), "r.recordio") as writer:
        writer.write(b"record")
    assert list(RecordReader(fsabs.from_url("."), "r.recordio")) == [b"record"]
    manifest.create(fsabs.from_url("b.zip"), "b.parquet")
    assert fsabs.from_url("b.zip", manifest="b.parquet").read_bytes("a.txt") == FILES["a.txt"]
    with _raises(ConnectionError, "s3://bucket/a"):
        fsabs.from_url("s3://bucket", endpoint=NO_SERVER, max_attempts=1, anonymous=True).read_bytes("a")
    _each_module()
    done = _run(str(Path(sys.executable).with_name("fsabs")), "ls", "b.zip/")
    assert (done.returncode, done.stdout) == (0, "a.txt\nimages/\n"), done


def _each_module() -> None:
    """Import each module; one that needs an extra raises the error that names it, and no other."""
    for module in pkgutil.walk_packages(fsabs.__path__, "fsabs.", onerror=lambda name: None):
        if not module.name.startswith(APART):
            with contextlib.suppress(fsabs.MissingDependencyError):
                importlib.import_module(module.name)
    with _raises(fsabs.MissingDependencyError, "pip install 'fsabs[torch]'"):
        importlib.import_module("fsabs.adapters.torch")


def azure() -> None:
    """A credential of azure-identity, whose service is not there."""
    options: dict[str, Any] = {"tenant_id": "t", "client_id": "i", "client_secret": "s"}
    with _raises(OSError, "az://container/a"):
        fsabs.from_url("az://container", endpoint=f"{NO_SERVER}/account", max_attempts=1, **options).read_bytes("a")


def cli() -> None:
    """The command."""
    program = (sys.executable, "-I", "-m", "fsabs")
    assert _run(*program, "--version").stdout == f"fsabs {fsabs.__version__}\n"
    _container("a.zip")
    assert _run(*program, "ls", "a.zip/").stdout == "a.txt\nimages/\n"


def crc64() -> None:
    """The checksum that S3 gives each object."""
    fs = fsabs.from_url("s3://bucket", endpoint=NO_SERVER, max_attempts=1, checksum_algorithm="CRC64NVME")
    with _raises(OSError, "s3://bucket/a"):
        fs.write_bytes("a", b"")


def gcs() -> None:
    """A credential of google-auth, whose service is not there."""
    credentials = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"}
    with _raises(OSError, "gs://bucket/a"):
        fsabs.from_url("gs://bucket", endpoint=NO_SERVER, max_attempts=1, credentials=credentials).read_bytes("a")


def hdfs() -> None:
    """A NameNode that is not there."""
    with _raises(OSError, "hdfs://127.0.0.1:1/"):
        fsabs.from_url("hdfs://127.0.0.1:1/", timeout=2)


class _EmptyHub(http.server.BaseHTTPRequestHandler):
    """A hub that has one commit of every repository, and takes none."""

    def do_GET(self) -> None:
        found = b'{"sha": "%s"}' % (b"0" * 40) if "/revision/" in self.path else b"[]"
        self.send_response(200)
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)


def hub() -> None:
    """A commit by huggingface_hub, which the hub refuses."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _EmptyHub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        fs = fsabs.from_url("hf://datasets/me/data", endpoint=endpoint, max_attempts=1, token="t")
        with _raises(OSError, "hf://datasets/me/data/a"):
            fs.write_bytes("a", b"1")
        server.shutdown()


def odps() -> None:
    """A table of a service that is not there."""
    from fsabs.readers.data import ODPSDataReader

    with _raises(OSError, "odps://p/t"):
        ODPSDataReader("t", project="p", access_id="i", access_key="k", endpoint=NO_SERVER).create_shards()


def otel() -> None:
    """A trace as spans."""
    from opentelemetry.sdk.trace import TracerProvider

    from fsabs import trace
    from fsabs.trace.exporters import otel as exporter

    with trace.record("trace"):
        _container("a.zip")
    assert exporter.spans(trace.events("trace"), trace.analyze("trace").processes, TracerProvider()) > 0


def pandas() -> None:
    """pandas with the URLs of fsabs."""
    import pandas

    with tempfile.TemporaryDirectory() as folder:
        with fsabs.from_url(f"{folder}/a.zip", mode="w") as archive:
            archive.write_bytes("a.csv", b"x,y\n1,2\n")
        with fsabs.patch("pandas"):
            assert pandas.read_csv(f"file://{folder}/a.zip/a.csv")["y"].tolist() == [2]


def ray() -> None:
    """The data source for Ray Data."""
    from fsabs.adapters.ray import read_fsabs

    assert callable(read_fsabs)


def spark() -> None:
    """The data source for Spark 4; starting Spark takes Java, which pip does not install."""
    import pyspark

    if pyspark.__version__.startswith("3."):  # which is enough to prepare data with
        with _raises(fsabs.MissingDependencyError, "pyspark 4"):
            importlib.import_module("fsabs.adapters.spark")
        return
    from fsabs.adapters.spark import FsabsDataSource

    assert FsabsDataSource.name() == "fsabs"


def speed() -> None:
    """Deflated members, by isal."""
    import isal

    assert isal.__version__
    _container("a.zip")
    _container("a.tar.gz")


def sql() -> None:
    """A job whose tasks are dispatched from SQLite, and the driver of PostgreSQL."""
    import psycopg

    from fsabs.dispatch import TaskDataService, TaskDispatcher
    from fsabs.readers import RecordWriter
    from fsabs.readers.data import RecordIODataReader

    assert psycopg.__version__
    with RecordWriter(fsabs.from_url("records", create=True), "0.recordio") as writer:
        for number in range(100):
            writer.write(b"%d" % number)
    reader = RecordIODataReader("records")
    TaskDispatcher.create("sqlite:///job.db", training=reader, records_per_task=40).close()
    with TaskDataService("sqlite:///job.db", reader, worker_id="0") as service:
        assert sum(map(len, service.batches(32))) == 100


def testing() -> None:
    """The conformance kit."""
    Path("test_kit.py").write_text(
        "from fsabs.testing import FSConformance, MemorySubject\n"
        "class TestMemory(FSConformance):\n"
        "    capabilities = MemorySubject().capabilities\n"
        "    factory = MemorySubject\n"
    )
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "read"], check=True)


def torch() -> None:
    """A data set in two workers."""
    from fsabs.adapters.torch import FileDataset, Loader

    _container("a.zip")
    loader = Loader(FileDataset("a.zip"), batch_size=2, num_workers=2)
    assert sum(map(len, loader)) == len(FILES)


def gz() -> None:
    """A member behind much of a compressed tar, read by a process that has not decoded it before."""
    import indexed_gzip

    assert indexed_gzip.__version__
    fs = fsabs.from_url(".")
    with fs.open_container("long.tar.gz", "w") as archive:
        for number in range(3):
            archive.write_bytes(f"{number}", os.urandom(4_000_000))
        archive.write_bytes("last", b"the last member")
    for _ in range(2):
        script = "import fsabs; print(fsabs.from_url('long.tar.gz').read_bytes('last'))"
        done = _run(sys.executable, "-c", script)
        assert done.stdout == "b'the last member'\n", done.stderr


def zstd() -> None:
    """Archives that are compressed by Zstandard."""
    _container("a.tar.zst")


_EXTRAS = [azure, cli, crc64, gcs, gz, hdfs, hub, odps, otel, pandas, ray, spark, speed, sql, testing, torch, zstd]
CHECKS: dict[str, Callable[[], None]] = {check.__name__: check for check in (required, *_EXTRAS)}

if __name__ == "__main__":
    CHECKS[sys.argv[1]]()
