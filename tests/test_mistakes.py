"""Mistakes that people make, beyond those of the kit, and what they are told: one line that says what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.readers import convert
from fsabs.readers.sharded import convert_lines
from tests.servers.moto import MotoServer
from tests.servers.shared import unique

pytestmark = pytest.mark.timeout(120)
Mistake = Callable[["Place"], object]


class Place:
    """What the mistakes are made with: a folder, and a store."""

    def __init__(self, folder: Path, server: MotoServer) -> None:
        self.folder, self.server, self.bucket = folder, server, unique("mistakes")
        server.create_bucket(self.bucket)
        self.local = fsabs.from_url(folder)

    def s3(self, bucket: str = "", **options: Any) -> fsabs.FS:
        """Return a bucket of the server, that of the tests by default; options replace those that reach it."""
        usual: dict[str, Any] = {**self.server.options, "max_attempts": 1}
        return fsabs.from_url(f"s3://{bucket or self.bucket}", **{**usual, **options})  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, moto: MotoServer) -> Place:
    return Place(tmp_path_factory.mktemp("mistakes"), moto)


FILES: dict[str, tuple[Mistake, type[OSError], int, str]] = {  # what is called, the error, its errno and text
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
}


@pytest.mark.parametrize("mistake", FILES)
def test_an_error_of_a_file_names_it_the_operation_and_the_reason(place: Place, mistake: str) -> None:
    call, kind, code, reason = FILES[mistake]
    with pytest.raises(kind) as caught:
        call(place)
    assert caught.value.errno == code
    assert "://" in str(caught.value.filename)
    assert caught.value.operation  # type: ignore[attr-defined]
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


ARGUMENTS: dict[str, tuple[Mistake, type[Exception], str]] = {  # what is called, the error, and its text
    "one slash": (lambda at: fsabs.from_url("s3:/b/x"), ValueError, "names a bucket: s3://bucket/key"),
    "a scheme alone": (lambda at: fsabs.from_url("s3"), ValueError, "s3:///path"),
    "None as a URL": (lambda at: fsabs.from_url(None), TypeError, "a URL or a path is a str"),  # type: ignore[call-overload]
    "an endpoint without a scheme": (
        lambda at: at.s3(endpoint="127.0.0.1:9").read_bytes("f"),
        ValueError,
        "it is http://HOST:PORT or https://HOST",
    ),
    "attempts as text": (lambda at: at.s3(max_attempts="5"), TypeError, "max_attempts is an int"),
    "no attempts": (lambda at: at.s3(max_attempts=0), ValueError, "max_attempts is at least 1"),
    "a timeout as text": (lambda at: at.s3(read_timeout="5"), TypeError, "read_timeout is a number of seconds"),
    "a timeout below 0": (lambda at: at.s3(connect_timeout=-1), ValueError, "connect_timeout is a number of seconds"),
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
    "a number as a cache": (lambda at: fsabs.from_url(at.folder, cache=3), ValueError, "cache={'max_bytes': 3}"),
    "a size": (lambda at: fsabs.from_url(at.folder, cache={"dir": "c", "max_bytes": "5XB"}), ValueError, "as '50GB'"),
    "text as content": (lambda at: at.local.write_bytes("f", "text"), TypeError, "bytes-like object, not str"),  # type: ignore[arg-type]
    "no suffix": (lambda at: at.local.open_container("f"), ValueError, "force_type="),
    "no shards": (lambda at: convert(at.folder / "o", lambda: iter([1]), 0, "x"), ValueError, "num_shards must be 1"),
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
    "a scheme to register": (lambda at: fsabs.register_backend("S3://", fsabs.Memory), ValueError, "can't be a scheme"),
    "a URL to lazify": (lambda at: fsabs.lazify("s3://b"), TypeError, "takes a function"),  # type: ignore[arg-type]
    "a hub's repository": (lambda at: fsabs.from_url("hf://"), ValueError, "names no repository"),
    "one path of a data set": (lambda at: _data_set(at.local, "f"), TypeError, "fs.glob('f')"),
}


def _data_set(fs: fsabs.FS, paths: Any) -> Any:
    from fsabs.adapters import torch

    return torch.FileDataset(fs, paths)


@pytest.mark.parametrize("mistake", ARGUMENTS)
def test_an_error_of_an_argument_says_what_is_right(place: Place, mistake: str) -> None:
    call, kind, reason = ARGUMENTS[mistake]
    with pytest.raises(kind, match=re.escape(reason)) as caught:
        call(place)
    assert "\n" not in str(caught.value)
