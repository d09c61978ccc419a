"""Copies of large files that were interrupted: continued where they ended, of this content and of no other."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fsabs
from fsabs.backends.objects.writing import uploads_below
from fsabs.backends.s3 import S3
from fsabs.core.fs import FS, keys_of
from fsabs.disk.files import ResumedReplacement
from fsabs.transfer.files import RESUMED_FROM, copy_file, write_behind
from tests.servers.hdfs import HdfsCluster
from tests.servers.moto import MotoServer

SIZE = RESUMED_FROM + 12345
pytestmark = pytest.mark.timeout(200)


class GivenUp(Exception):
    """Ends a copy in the middle."""


@pytest.fixture
def source(tmp_path: Path) -> fsabs.Local:
    (tmp_path / "large").write_bytes(random.Random(1).randbytes(SIZE))
    time.sleep(0.1)  # a clock's tick: only then the file's version stands for its content
    return fsabs.Local(str(tmp_path))


def copied(source: FS, target: FS, stop_at: int | None = None) -> list[int]:
    """Copy the file, or as much of it; return what was counted: first the bytes that were there."""
    counts: list[int] = []

    def count(size: int) -> None:
        counts.append(size)
        if stop_at is not None and sum(counts) >= stop_at:
            raise GivenUp

    (src,), (dst,) = keys_of(source, ["large"], "copy"), keys_of(target, ["copy"], "copy")
    if stop_at is None:
        assert copy_file(source, src, target, dst, count) == SIZE
    else:
        with pytest.raises(GivenUp):
            copy_file(source, src, target, dst, count)
    return counts


def hidden(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]


def test_a_local_copy_goes_on_where_it_ended(source: fsabs.Local, tmp_path: Path) -> None:
    target = fsabs.Local(str(tmp_path / "to"), create=True)
    assert copied(source, target, 30 << 20)[0] == 0
    assert list(target.list()) == []
    assert len(hidden(tmp_path / "to")) == 1
    went_on = copied(source, target)[0]
    assert went_on >= 24 << 20
    assert went_on % (8 << 20) == 0
    assert target.read_bytes("copy") == source.read_bytes("large")
    assert hidden(tmp_path / "to") == []


def test_what_a_network_filesystem_reports_at_close_comes_before_the_copy_is_visible(
    source: fsabs.Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = fsabs.Local(str(tmp_path / "to"), create=True)
    target.write_bytes("copy", b"old")

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        patch.setattr(os, "close", full)
        copied(source, target)
    assert target.read_bytes("copy") == b"old"
    copied(source, target)
    assert target.read_bytes("copy") == source.read_bytes("large")


@pytest.mark.parametrize("kind", ["s3", "hdfs"])
def test_a_download_goes_on_where_it_ended(
    kind: str, source: fsabs.Local, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "s3":
        moto: MotoServer = request.getfixturevalue("moto")
        moto.create_bucket("downloads")
        store: FS = S3(
            "downloads",
            endpoint=moto.endpoint,
            aws_access_key_id=moto.access_key,
            aws_secret_access_key=moto.secret_key,
            region=moto.region,
        )
    else:
        cluster: HdfsCluster = request.getfixturevalue("hdfs")
        store = fsabs.from_url(f"{cluster.url}/downloads-{tmp_path.name}", create=True)
    source.copy("large", "large", store)
    time.sleep(1.1)  # a tick of the store's clock
    target = fsabs.Local(str(tmp_path / "to"), create=True)
    assert copied(store, target, 40 << 20)[0] == 0
    assert list(target.list()) == []
    assert copied(store, target)[0] >= 32 << 20
    assert target.read_bytes("copy") == source.read_bytes("large")


def test_nothing_is_written_after_a_write_that_failed() -> None:
    written: list[bytes] = []

    def write(piece: bytes) -> None:
        written.append(piece)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="space"):
        list(write_behind(iter([b"1", b"2", b"3", b"4"]), write))
    assert written == [b"1", b"2"]


def test_another_content_does_not_go_on(source: fsabs.Local, tmp_path: Path) -> None:
    target = fsabs.Local(str(tmp_path / "to"), create=True)
    copied(source, target, 30 << 20)
    status = os.stat(tmp_path / "large")
    with open(tmp_path / "large", "r+b") as file:
        file.write(b"changed")
    os.utime(tmp_path / "large", ns=(status.st_atime_ns, status.st_mtime_ns))  # size and time as they were
    time.sleep(0.1)
    assert copied(source, target)[0] == 0
    assert target.read_bytes("copy") == source.read_bytes("large")


def test_a_file_that_another_process_writes_is_left_to_it(source: fsabs.Local, tmp_path: Path) -> None:
    target = fsabs.Local(str(tmp_path / "to"), create=True)
    with source.open_blob("large") as blob:
        identity = blob.strong_identity
    assert identity is not None
    code = (
        "import sys; from fsabs.disk.files import ResumedReplacement as R; "
        "out = R.of(sys.argv[1], sys.argv[2], 64 << 20); print(out is not None, flush=True); input(); out.leave()"
    )
    path = str(tmp_path / "to" / "copy")
    command = [sys.executable, "-c", code, path, identity.digest()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"True\n"
        assert ResumedReplacement.of(path, identity.digest(), 64 << 20) is None
        assert copied(source, target)[0] == 0
        assert target.read_bytes("copy") == source.read_bytes("large")
        (partial,) = [name for name in os.listdir(tmp_path / "to") if name != "copy"]
        assert os.path.getsize(tmp_path / "to" / partial) == 0
        other.communicate(b"\n", timeout=30)


def test_an_upload_goes_on_with_the_parts_that_the_store_has(
    source: fsabs.Local, tmp_path: Path, moto: MotoServer
) -> None:
    moto.create_bucket("resuming")
    target = S3(
        "resuming",
        mpu_chunksize=8 << 20,
        endpoint=moto.endpoint,
        aws_access_key_id=moto.access_key,
        aws_secret_access_key=moto.secret_key,
        region=moto.region,
    )
    assert copied(source, target, 40 << 20)[0] == 0
    assert not target.exists("copy")
    assert len(list(uploads_below(target, "copy"))) == 1
    begun = copied(source, target)[0]
    assert begun >= 16 << 20
    assert begun % (8 << 20) == 0
    assert target.read_bytes("copy") == source.read_bytes("large")
    assert list(uploads_below(target, "copy")) == []

    copied(source, target, 40 << 20)
    with open(tmp_path / "large", "r+b") as file:
        file.seek(9 << 20)
        file.write(b"changed")  # in the second part
    assert copied(source, target)[0] == 8 << 20
    assert target.read_bytes("copy") == source.read_bytes("large")
