"""Whose a multipart upload is: what killed processes leave is continued or aborted, and what belongs to others is left
alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fsabs
from fsabs.backends.objects import writing
from fsabs.backends.objects.writing import UploadRecord, parts_of, sweep, uploads_below
from fsabs.backends.s3 import S3
from fsabs.core.fs import keys_of
from fsabs.transfer import files
from tests.containers.forks import living_child
from tests.servers.ceph import CephGateway
from tests.servers.network import FaultProxy

pytestmark = pytest.mark.timeout(120)
MIB = 1 << 20
PART = 5 * MIB
SIZE = 4 * PART + 12345
CHILD = """
import os, sys
import fsabs
from fsabs.core.fs import keys_of
from fsabs.transfer import files
files.RESUMED_FROM = 1
how, folder, bucket, endpoint, access, secret, region = sys.argv[1:]
target = fsabs.from_url(f"s3://{bucket}", endpoint=endpoint, aws_access_key_id=access, aws_secret_access_key=secret,
                        region=region, mpu_chunksize=5 << 20)
sent = 0
def count(size):
    global sent
    sent += size
    if sent >= 18 << 20:
        print("sent", flush=True)
        sys.stdin.readline()
if how == "copy":
    source = fsabs.Local(folder)
    files.copy_file(source, *keys_of(source, ["large"], "copy"), target, "to", count)
else:
    with target.open("to", "wb") as file:
        for _ in range(20):
            file.write(os.urandom(1 << 20))
            count(1 << 20)
print("done", flush=True)
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fsabs.Local:
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "RESUMED_FROM", 1)
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "large").write_bytes(random.Random(1).randbytes(SIZE))
    time.sleep(0.1)
    return fsabs.Local(str(folder))


@pytest.fixture
def target(ceph: CephGateway, source: fsabs.Local, monkeypatch: pytest.MonkeyPatch) -> S3:
    return opened(ceph, f"uploads-{time.monotonic_ns() % 10**12}", monkeypatch)


def opened(ceph: CephGateway, bucket: str, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> S3:
    monkeypatch.setattr(writing, "SWEEP_EVERY", 0.0)
    ceph.create_bucket(bucket)
    keys = {"aws_access_key_id": ceph.access_key, "aws_secret_access_key": ceph.secret_key, "region": ceph.region}
    return S3(bucket, **{"endpoint": ceph.endpoint, "mpu_chunksize": PART, **keys, **changes})


def ids(fs: S3, key: str = "to") -> list[str]:
    return [upload.name for upload in uploads_below(fs, key) if upload.key == key]


def records() -> list[Path]:
    return sorted(Path(os.environ["FSABS_CACHE_DIR"]).glob("uploads/*"))


def age(seconds: float) -> None:
    """Make the records look as if nobody had touched them for so long."""
    for path in records():
        os.utime(path, (time.time() - seconds,) * 2)


def copied(source: fsabs.Local, target: S3) -> int:
    """Copy the file, and return how many bytes had been there."""
    counts: list[int] = []
    (src,) = keys_of(source, ["large"], "copy")
    assert files.copy_file(source, src, target, "to", counts.append) == SIZE
    assert target.read_bytes("to") == source.read_bytes("large")
    return counts[0]


class Child:
    """Another process that has sent some parts of an upload, and waits."""

    def __init__(self, how: str, source: fsabs.Local, target: S3, ceph: CephGateway) -> None:
        where = [source.url().removeprefix("file://"), target.bucket, ceph.endpoint]
        keys = [ceph.access_key, ceph.secret_key, ceph.region]
        command = [sys.executable, "-c", CHILD, how, *where, *keys]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "sent\n"
        await_part(target)

    def end(self, number: int) -> None:
        """Kill it. It stays a zombie for a while, as the child of a shell or an init that is busy does."""
        self.process.send_signal(number)
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)

    def finish(self) -> None:
        output, _ = self.process.communicate("\n" * 10, timeout=60)
        assert output.endswith("done\n")


def parts(fs: S3, key: str) -> int:
    return sum(1 for upload in ids(fs, key) for _ in parts_of(fs, key, upload))


def await_part(fs: S3) -> None:
    """Wait until the store has a part of an upload."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not parts(fs, "to"):
        time.sleep(0.05)
    assert parts(fs, "to")


@pytest.fixture
def child(source: fsabs.Local, target: S3, ceph: CephGateway, request: pytest.FixtureRequest) -> Iterator[Child]:
    made = Child(request.param, source, target, ceph)
    yield made
    made.process.kill()
    made.process.communicate()


@pytest.mark.parametrize("child", ["copy"], indirect=True)
def test_an_upload_that_another_process_is_sending_is_left_to_it(child: Child, source: fsabs.Local, target: S3) -> None:
    (other,) = ids(target)
    assert copied(source, target) == 0
    assert ids(target) == [other]
    child.finish()
    assert target.read_bytes("to") == source.read_bytes("large")
    assert not ids(target)
    assert not records()


@pytest.mark.parametrize("child", ["copy"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_copy_that_was_killed_is_continued(child: Child, source: fsabs.Local, target: S3, number: int) -> None:
    child.end(number)
    (left,) = ids(target)
    target.write_bytes("other", bytes(PART + 1))  # another writer sweeps, and leaves it
    assert ids(target) == [left]
    there = copied(source, target)
    assert there >= PART
    assert there % PART == 0
    assert not ids(target)
    assert not records()


DAY = 24 * 3600.0


@pytest.mark.parametrize("child", ["file", "copy"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_writer_left_is_swept_after_a_day(child: Child, target: S3, number: int) -> None:
    age(DAY + 60)
    target.write_bytes("other", bytes(PART + 1))
    assert len(ids(target)) == 1  # its writer is alive
    child.end(number)
    age(DAY - 60)
    target.write_bytes("other", bytes(PART + 1))
    assert len(ids(target)) == 1
    age(DAY + 60)
    target.write_bytes("other", bytes(PART + 1))
    assert not ids(target)
    assert not records()


@pytest.mark.parametrize("child", ["file"], indirect=True)
def test_where_nothing_can_be_locked_a_record_that_was_touched_is_left(
    child: Child, target: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on some cluster filesystems, where a lock is an error, or everybody's."""

    def refused(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    sweep(target)
    assert len(ids(target)) == len(records()) == 1
    child.finish()
    assert not ids(target)
    assert not records()


@pytest.mark.parametrize("child", ["copy"], indirect=True)
def test_an_upload_with_other_options_is_not_continued(
    child: Child, source: fsabs.Local, target: S3, ceph: CephGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    child.end(signal.SIGKILL)
    other = opened(ceph, target.bucket, monkeypatch, metadata={"colour": "blue"})
    assert copied(source, other) == 0
    assert other.client.head_object(Bucket=other.bucket, Key="to")["Metadata"]["colour"] == "blue"


@pytest.mark.parametrize("child", ["copy"], indirect=True)
def test_only_one_takes_an_upload_over(child: Child, source: fsabs.Local, target: S3) -> None:
    child.end(signal.SIGKILL)
    with source.open_blob("large") as blob:
        upload, there = writing.resume(target, "to", blob, PART)
        assert upload is not None
        assert writing.resume(target, "to", blob, PART) == (None, 0)
        upload.leave()
        upload, again = writing.resume(target, "to", blob, PART)
        assert upload is not None
        assert again == there >= PART
        upload.leave()


def test_the_response_to_the_completion_of_a_continued_upload_may_be_lost(source: fsabs.Local, target: S3) -> None:
    counts: list[int] = []

    def stop(size: int) -> None:
        counts.append(size)
        if sum(counts) > 3 * PART:
            await_part(target)
            raise InterruptedError

    with FaultProxy.before(str(target.options.endpoint)) as proxy:
        slow = S3(target.bucket, mpu_chunksize=PART, **{**target.options._asdict(), "endpoint": proxy.endpoint})
        (src,) = keys_of(source, ["large"], "copy")
        with pytest.raises(InterruptedError):
            files.copy_file(source, src, slow, "to", stop)
        proxy.lose_answer(times=1, where=lambda request: request.method == "POST" and "uploadId" in request.target)
        assert copied(source, slow) >= PART
    assert records() == []


def test_an_upload_whose_creation_was_not_answered_is_swept_after_a_day(
    target: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultProxy.before(str(target.options.endpoint)) as proxy:
        fs = S3(target.bucket, mpu_chunksize=PART, **{**target.options._asdict(), "endpoint": proxy.endpoint})
        proxy.lose_answer(times=1, where=lambda request: "uploads" in request.target)
        fs.write_bytes("to", bytes(PART + 1))
        assert len(fs.read_bytes("to")) == PART + 1
        (lost,) = ids(fs)
        used = fs.client.create_multipart_upload(Bucket=fs.bucket, Key="to")["UploadId"]
        fs.client.upload_part(Bucket=fs.bucket, Key="to", UploadId=used, PartNumber=1, Body=b"of another writer")
        age(DAY - 60)
        sweep(fs)
        assert sorted(ids(fs)) == sorted([lost, used])
        age(DAY + 60)
        sweep(fs)
        assert ids(fs) == [used]
        assert records() == []


def test_a_process_that_is_killed_before_the_answer_leaves_nothing_for_ever(source: fsabs.Local, target: S3) -> None:
    UploadRecord.create(target, "to", kept=True).release()
    target.client.create_multipart_upload(Bucket=target.bucket, Key="to")
    assert copied(source, target) == 0  # it has no id to be continued by
    assert len(ids(target)) == 1
    age(DAY + 60)
    sweep(target)
    assert not ids(target)
    assert not records()


def test_an_upload_that_was_left_is_taken_up_whatever_children_there_are(source: fsabs.Local) -> None:
    """They have the descriptor of its record, as the workers of a loader do, which were forked meanwhile."""
    store: Any = SimpleNamespace(
        _resolved_store=str, _principal=str, dialect=SimpleNamespace(like_written=lambda key: ())
    )
    record = UploadRecord.create(store, "key", kept=True)
    with living_child():
        record.release()
        [again] = writing._records(store, "key")
    again.remove()
    assert records() == []


def test_an_upload_that_is_refused_is_not_recorded(target: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = S3(target.bucket, mpu_chunksize=PART, **{**target.options._asdict(), "aws_secret_access_key": "wrong"})
    with pytest.raises(PermissionError):
        wrong.write_bytes("to", bytes(PART + 1))
    assert records() == []


def test_a_record_that_is_damaged_aborts_nothing(target: S3) -> None:
    other = target.client.create_multipart_upload(Bucket=target.bucket, Key="to")["UploadId"]
    UploadRecord.create(target, "to", kept=False).release()
    (path,) = records()
    for content in (b"", b"{", b"[]\n", b'{"key": "to", "mark": "", "begun": 0}', b'{"key": "to"}\n', b"\0" * 100):
        path.write_bytes(content)
        age(DAY - 60)
        sweep(target)
        assert ids(target) == [other]
        assert records() == [path]
    age(DAY + 60)
    sweep(target)
    assert ids(target) == [other]
    assert records() == []


def test_without_a_cache_directory_uploads_are_not_recorded(
    source: fsabs.Local, target: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in ("", str(tmp_path / "file")):
        monkeypatch.setenv("FSABS_CACHE_DIR", folder)
        assert copied(source, target) == 0
        assert ids(target) == []
