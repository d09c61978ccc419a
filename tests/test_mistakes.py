"""Mistakes that people make, and what they are told: one line, with the URL, the operation and what to do."""

from __future__ import annotations

import errno
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import trace
from fsabs.dispatch import TaskDispatcher
from fsabs.readers import RecordReader, RecordWriter, convert
from fsabs.readers.sharded import convert_lines
from tests.servers.moto import MotoServer
from tests.servers.shared import unique

pytestmark = pytest.mark.timeout(120)
Mistake = Callable[["Place"], object]


class Place:
    """What the mistakes are made with: a folder with some files, and a store with one."""

    def __init__(self, folder: Path, server: MotoServer) -> None:
        self.folder, self.server, self.bucket = folder, server, unique("mistakes")
        server.create_bucket(self.bucket)
        self.local, self.store = fsabs.from_url(folder), self.s3()
        self.local.write_many(
            {"f": b"x", "bad.zip": b"PK not", "empty.zip": b"", "bad.tar": b"x" * 1000, "bad.h5": b"no"}
        )
        self.local.mkdir("dir")
        with zipfile.ZipFile(folder / "ok.zip", "w") as archive:
            archive.writestr("a", "1" * 1000)
        whole = bytearray((folder / "ok.zip").read_bytes())
        self.local.write_bytes("cut.zip", bytes(whole[:200]))
        whole[60] ^= 1
        self.local.write_bytes("crc.zip", bytes(whole))
        self.archive = fsabs.from_url(folder / "ok.zip")

    def s3(self, bucket: str = "", **options: Any) -> fsabs.FS:
        """Return a bucket of the server, that of the tests by default; options replace those that reach it."""
        server = self.server
        keys = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
        usual: dict[str, Any] = {"endpoint": server.endpoint, "region": server.region, **keys, "max_attempts": 1}
        found: fsabs.FS = fsabs.from_url(f"s3://{bucket or self.bucket}", **{**usual, **options})
        return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, moto: MotoServer) -> Place:
    return Place(tmp_path_factory.mktemp("mistakes"), moto)


FILES: dict[str, tuple[Mistake, type[OSError], int, str]] = {  # what is called, the error, its errno and text
    "no bucket of that name": (
        lambda at: at.s3("nosuch").read_bytes("x"),
        FileNotFoundError,
        errno.ENOENT,
        "bucket does not exist",
    ),
    "written to no bucket": (
        lambda at: at.s3("nosuch").write_bytes("x", b""),
        FileNotFoundError,
        errno.ENOENT,
        "bucket does not exist",
    ),
    "a bucket's name": (lambda at: at.s3("Bad_Bucket!").read_bytes("f"), OSError, errno.EINVAL, "Invalid bucket name"),
    "another port": (
        lambda at: at.s3(endpoint="http://127.0.0.1:9").read_bytes("f"),
        ConnectionRefusedError,
        errno.ECONNREFUSED,
        "endpoint http://127.0.0.1:9",
    ),
    "https to http": (
        lambda at: at.s3(endpoint=at.server.endpoint.replace("http:", "https:")).read_bytes("f"),
        ConnectionAbortedError,
        errno.ECONNABORTED,
        "may be one of http://",
    ),
    "a key on the store": (lambda at: at.store.read_bytes("nosuch"), FileNotFoundError, errno.ENOENT, "No such file"),
    "appending to the store": (
        lambda at: at.store.open("f", "ab"),
        OSError,
        errno.EOPNOTSUPP,
        "can't open for appending",
    ),
    "updating on the store": (
        lambda at: at.store.open("f", "r+b"),
        OSError,
        errno.EOPNOTSUPP,
        "can't open for updating",
    ),
    "a folder": (lambda at: fsabs.from_url(at.folder / "nosuch"), FileNotFoundError, errno.ENOENT, "No such file"),
    "a file as a folder": (
        lambda at: fsabs.from_url(at.folder / "f"),
        NotADirectoryError,
        errno.ENOTDIR,
        "Not a directory",
    ),
    "a file": (lambda at: at.local.read_bytes("nosuch"), FileNotFoundError, errno.ENOENT, "No such file"),
    "a folder as a file": (lambda at: at.local.read_bytes("dir"), IsADirectoryError, errno.EISDIR, "Is a directory"),
    "no path": (lambda at: at.local.read_bytes(""), IsADirectoryError, errno.EISDIR, "Is a directory"),
    "x for a file that is there": (lambda at: at.local.open("f", "x"), FileExistsError, errno.EEXIST, "File exists"),
    "out by ..": (lambda at: at.local.read_bytes("../x"), PermissionError, errno.EACCES, "outside of this FS's root"),
    "out from /": (
        lambda at: at.local.read_bytes("/etc/passwd"),
        PermissionError,
        errno.EACCES,
        "outside of this FS's root",
    ),
    "one of many": (
        lambda at: list(at.local.read_many(["f", "nosuch"])),
        FileNotFoundError,
        errno.ENOENT,
        "No such file",
    ),
    "removing a folder": (lambda at: at.local.remove("dir"), IsADirectoryError, errno.EISDIR, "Is a directory"),
    "listing a file": (lambda at: list(at.local.list("f")), NotADirectoryError, errno.ENOTDIR, "Not a directory"),
    "a name of 300": (
        lambda at: at.local.write_bytes("x" * 300, b""),
        OSError,
        errno.ENAMETOOLONG,
        "File name too long",
    ),
    "no zip": (
        lambda at: fsabs.from_url(at.folder / "bad.zip"),
        fsabs.CorruptFileError,
        errno.EBADMSG,
        "not a zip file",
    ),
    "an empty zip": (
        lambda at: fsabs.from_url(at.folder / "empty.zip"),
        fsabs.CorruptFileError,
        errno.EBADMSG,
        "the file is empty",
    ),
    "a zip that is cut": (
        lambda at: fsabs.from_url(at.folder / "cut.zip"),
        fsabs.CorruptFileError,
        errno.EBADMSG,
        "was cut",
    ),
    "a flipped bit": (
        lambda at: fsabs.from_url(at.folder / "crc.zip").read_bytes("a"),
        fsabs.CorruptFileError,
        errno.EBADMSG,
        "CRC-32",
    ),
    "no tar": (lambda at: fsabs.from_url(at.folder / "bad.tar"), fsabs.CorruptFileError, errno.EBADMSG, "not a tar"),
    "no HDF5": (lambda at: fsabs.from_url(at.folder / "bad.h5"), fsabs.CorruptFileError, errno.EBADMSG, "HDF5"),
    "no member": (lambda at: at.archive.read_bytes("b"), FileNotFoundError, errno.ENOENT, "No such file"),
    "below a member": (lambda at: at.archive.read_bytes("a/b"), NotADirectoryError, errno.ENOTDIR, "Not a directory"),
    "writing to what is read": (
        lambda at: at.archive.write_bytes("b", b""),
        OSError,
        errno.EOPNOTSUPP,
        "can't open for writing",
    ),
    "writing into a zip's URL": (
        lambda at: fsabs.open_url(at.folder / "ok.zip/n", "w").__enter__(),
        OSError,
        errno.EOPNOTSUPP,
        'mode="a"',
    ),
    "a zip that isn't there": (
        lambda at: fsabs.from_url(at.folder / "nosuch.zip"),
        FileNotFoundError,
        errno.ENOENT,
        "No such file",
    ),
    "no RecordIO": (
        lambda at: RecordReader(at.local, "bad.tar").read_many([0]),
        fsabs.CorruptFileError,
        errno.EBADMSG,
        "no RecordIO file",
    ),
    "a job's database": (
        lambda at: TaskDispatcher(f"sqlite:///{at.folder}/no/x.db"),
        FileNotFoundError,
        errno.ENOENT,
        "no job was created",
    ),
    "no trace": (
        lambda at: trace.analyze(at.folder / "dir"),
        FileNotFoundError,
        errno.ENOENT,
        "there is no trace here",
    ),
    "a trace that isn't there": (
        lambda at: trace.analyze(at.folder / "nosuch"),
        FileNotFoundError,
        errno.ENOENT,
        "No such file",
    ),
    "a checkpoint that isn't there": (
        lambda at: _checkpoint(at.folder / "nosuch.pt"),
        FileNotFoundError,
        errno.ENOENT,
        "No such file",
    ),
    "a folder as a checkpoint": (
        lambda at: _checkpoint(at.folder / "dir"),
        IsADirectoryError,
        errno.EISDIR,
        "Is a directory",
    ),
}


def _checkpoint(path: Path) -> object:
    torch = pytest.importorskip("fsabs.adapters.torch")
    return torch.load_checkpoint(path)


@pytest.mark.parametrize("mistake", FILES)
def test_an_error_of_a_file_names_it_the_operation_and_the_reason(place: Place, mistake: str) -> None:
    call, kind, code, reason = FILES[mistake]
    with pytest.raises(OSError) as caught:
        call(place)
    error = caught.value
    assert isinstance(error, kind)
    assert error.errno == code
    assert "://" in str(error.filename)
    assert error.operation  # type: ignore[attr-defined]
    assert reason in str(error)
    assert "\n" not in str(error)


ARGUMENTS: dict[str, tuple[Mistake, type[Exception], str]] = {  # what is called, the error, and its text
    "a scheme": (lambda at: fsabs.from_url("s4://b/x"), fsabs.UnknownSchemeError, "unknown scheme 's4'"),
    "one slash": (lambda at: fsabs.from_url("s3:/b/x"), ValueError, "names a bucket: s3://bucket/key"),
    "a scheme alone": (lambda at: fsabs.from_url("s3"), ValueError, "s3:///path"),
    "None as a URL": (lambda at: fsabs.from_url(None), TypeError, "a URL or a path is a str"),  # type: ignore[call-overload]
    "bytes as a URL": (lambda at: fsabs.from_url(b"x"), TypeError, "not bytes"),  # type: ignore[call-overload]
    "an option": (lambda at: at.s3(endpiont="x"), TypeError, "did you mean 'endpoint'?"),
    "an endpoint without a scheme": (
        lambda at: at.s3(endpoint="127.0.0.1:9").read_bytes("f"),
        ValueError,
        "it is http://HOST:PORT or https://HOST",
    ),
    "attempts as text": (lambda at: at.s3(max_attempts="5"), TypeError, "max_attempts is an int"),
    "no attempts": (lambda at: at.s3(max_attempts=0), ValueError, "max_attempts is at least 1"),
    "a timeout as text": (lambda at: at.s3(read_timeout="5"), TypeError, "read_timeout is a number of seconds"),
    "a timeout below 0": (
        lambda at: at.s3(connect_timeout=-1),
        ValueError,
        "connect_timeout is a number of seconds above 0",
    ),
    "a timeout without an end": (
        lambda at: at.s3(read_timeout=float("inf")),
        ValueError,
        "read_timeout is a number of seconds above 0, and at most 1,000,000, not inf",
    ),
    "a timeout of another store": (
        lambda at: fsabs.from_url("gs://b", anonymous=True, read_timeout=0),
        ValueError,
        "read_timeout is a number of seconds above 0",
    ),
    "a query": (lambda at: fsabs.from_url("file:///tmp?x=1"), ValueError, "'?' in a path is written as %3F"),
    "a fragment": (lambda at: fsabs.from_url("s3://b/x#y"), ValueError, "'#' in a path is written as %23"),
    "a mode of from_url": (lambda at: fsabs.from_url(at.folder, mode="rw"), ValueError, "r, w, x or a, not 'rw'"),
    "a mode without a container": (lambda at: fsabs.from_url(at.folder, mode="w"), TypeError, "is for a container"),
    "a number as a cache": (lambda at: fsabs.from_url(at.folder, cache=3), ValueError, "cache={'max_bytes': 3}"),
    "an option of the cache": (
        lambda at: fsabs.from_url(at.folder, cache={"dirr": "x"}),
        TypeError,
        "did you mean 'dir'?",
    ),
    "a size": (lambda at: fsabs.from_url(at.folder, cache={"dir": "c", "max_bytes": "5XB"}), ValueError, "as '50GB'"),
    "a container's name": (
        lambda at: fsabs.from_url(at.folder / "ok.zip", force_type="rar"),
        ValueError,
        "hdf5, tar, zip",
    ),
    "a mode": (lambda at: at.local.open("f", "rw"), ValueError, "invalid mode: 'rw'"),
    "text and binary": (lambda at: at.local.open("f", "rbt"), ValueError, "text and binary mode at once"),
    "text as content": (lambda at: at.local.write_bytes("f", "text"), TypeError, "bytes-like object, not str"),  # type: ignore[arg-type]
    "bytes as text": (lambda at: at.local.write_text("f", b"x"), TypeError, "must be str, not bytes"),  # type: ignore[arg-type]
    "a NUL": (lambda at: at.local.read_bytes("a\0b"), ValueError, "can't hold a NUL"),
    "a URL as a target": (lambda at: at.local.copy("f", "b", dst_fs="s3://x"), TypeError, "fsabs.from_url('s3://x')"),  # type: ignore[arg-type]
    "one path for many": (lambda at: list(at.local.read_many("f")), TypeError, "read_many(['f'])"),
    "no concurrency": (lambda at: list(at.local.read_many(["f"], concurrency=0)), ValueError, "at least 1, not 0"),
    "no suffix": (lambda at: at.local.open_container("f"), ValueError, "force_type="),
    "open_url without with": (
        lambda at: getattr(fsabs.open_url(at.folder / "f"), "read"),  # noqa: B009
        AttributeError,
        "`with open_url(...) as file:`",
    ),
    "no shards": (lambda at: convert(at.folder / "o", lambda: iter([1]), 0, "x"), ValueError, "num_shards must be 1"),
    "shards as text": (
        lambda at: convert(at.folder / "o", lambda: iter([1]), "2", "x"),  # type: ignore[arg-type]
        TypeError,
        "num_shards is an int, not str",
    ),
    "a list as a reader": (
        lambda at: convert(at.folder / "o", [1], 2, "x"),  # type: ignore[arg-type]
        TypeError,
        "a reader is a function that returns the instances, as lambda: iter(items), not list",
    ),
    "lines as text": (
        lambda at: convert_lines(at.folder / "o", lambda: iter([1]), "2", "x"),  # type: ignore[arg-type]
        TypeError,
        "line_count is an int, not str",
    ),
    "a job's URL": (lambda at: TaskDispatcher("nosuch://x"), ValueError, "SQLite or PostgreSQL"),
    "a scheme to register": (lambda at: fsabs.register_backend("S3://", fsabs.Memory), ValueError, "can't be a scheme"),
    "a URL to lazify": (lambda at: fsabs.lazify("s3://b"), TypeError, "takes a function"),  # type: ignore[arg-type]
    "a module to patch": (lambda at: fsabs.patch("nmupy"), ValueError, "'nmupy' can't be patched; there are"),
    "a hub's repository": (lambda at: fsabs.from_url("hf://"), ValueError, "names no repository"),
    "an account": (lambda at: fsabs.from_url("az://c"), ValueError, "no account: give account_name="),
    "a record": (lambda at: _record(at.local), IndexError, "record 99 of 1: file://"),
    "a batch of nothing": (lambda at: _loader(at.local, batch_size=0), ValueError, "batch_size is at least 1"),
    "one path of a data set": (lambda at: _data_set(at.local, "f"), TypeError, "fs.glob('f')"),
}


def _record(fs: fsabs.FS) -> object:
    with RecordWriter(fs, "one.recordio") as writer:
        writer.write(b"1")
    return RecordReader(fs, "one.recordio")[99]


def _data_set(fs: fsabs.FS, paths: Any) -> Any:
    torch = pytest.importorskip("fsabs.adapters.torch")
    return torch.FileDataset(fs, paths)


def _loader(fs: fsabs.FS, **options: Any) -> object:
    torch = pytest.importorskip("fsabs.adapters.torch")
    return torch.Loader(_data_set(fs, ["f"]), **options)


@pytest.mark.parametrize("mistake", ARGUMENTS)
def test_an_error_of_an_argument_says_what_is_right(
    place: Place, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    call, kind, reason = ARGUMENTS[mistake]
    with pytest.raises(kind) as caught:
        call(place)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
