"""Whose a multipart upload is: what killed processes leave is continued or aborted, and what belongs to others is left
alone.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.backends.objects import upload_records
from fsabs.backends.objects.upload_records import UploadRecord, parts_of, sweep, uploads_of
from fsabs.backends.s3 import S3
from fsabs.core import owners
from fsabs.transfer import files
from tests.servers.ceph import CephGateway
from tests.servers.network import FaultProxy

pytestmark = pytest.mark.timeout(120)
MIB = 1 << 20
PART = 5 * MIB
SIZE = 4 * PART + 12345
CHILD = """
import os, sys
import fsabs
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
    files.copy_file(source, source._key("large", "copy"), target, "to", count)
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
    monkeypatch.setattr(upload_records, "_swept", {})
    ceph.create_bucket(bucket)
    keys = {"aws_access_key_id": ceph.access_key, "aws_secret_access_key": ceph.secret_key, "region": ceph.region}
    return S3(bucket, **{"endpoint": ceph.endpoint, "mpu_chunksize": PART, **keys, **changes})


def ids(fs: S3, key: str = "to") -> list[str]:
    return [upload.name for upload in uploads_of(fs, key)]


def records() -> list[str]:
    folder = upload_records._folder()
    return os.listdir(folder) if folder and os.path.isdir(folder) else []


def copied(source: fsabs.Local, target: S3) -> int:
    """Copy the file, and return how many bytes had been there."""
    counts: list[int] = []
    assert files.copy_file(source, source._key("large", "copy"), target, "to", counts.append) == SIZE
    assert target.read_bytes("to") == source.read_bytes("large")
    return counts[0]


class Child:
    """Another process that has sent some parts of an upload, and waits."""

    def __init__(self, how: str, source: fsabs.Local, target: S3, ceph: CephGateway) -> None:
        where = [source._root and f"/{source._root}", target.bucket, ceph.endpoint]
        keys = [ceph.access_key, ceph.secret_key, ceph.region]
        command = [sys.executable, "-c", CHILD, how, *where, *keys]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "sent\n"
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not parts(target, "to"):
            time.sleep(0.05)
        assert parts(target, "to")

    def end(self, number: int) -> None:
        """Kill it. It stays a zombie for a while, as the child of a shell or an init that is busy does."""
        self.process.send_signal(number)
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)

    def finish(self) -> None:
        output, _ = self.process.communicate("\n" * 10, timeout=60)
        assert output.endswith("done\n")


def parts(fs: S3, key: str) -> int:
    return sum(1 for upload in ids(fs, key) for _ in parts_of(fs, key, upload))


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
    assert ids(target) == records() == []


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
    assert ids(target) == records() == []


@pytest.mark.parametrize("child", ["file"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_file_whose_writer_was_killed_is_swept_by_the_next_writer(child: Child, target: S3, number: int) -> None:
    target.write_bytes("other", bytes(PART + 1))
    assert len(ids(target)) == 1  # its writer is alive
    child.end(number)
    upload_records._swept.clear()  # an hour later
    target.write_bytes("other", bytes(PART + 1))
    assert ids(target) == records() == []


@pytest.mark.parametrize("child", ["file"], indirect=True)
def test_an_upload_of_another_machine_waits_for_a_week(child: Child, target: S3) -> None:
    child.end(signal.SIGKILL)
    (name,) = records()
    path = f"{upload_records._folder()}/{name}"
    elsewhere = path.replace(f".{owners.namespace()}-", ".0123456789ab-")
    os.rename(path, elsewhere)
    for age, left in ((upload_records.KEPT_SECONDS - 60, 1), (upload_records.KEPT_SECONDS + 60, 0)):
        os.utime(elsewhere, (time.time() - age,) * 2)
        upload_records._swept.clear()
        sweep(target)
        assert len(ids(target)) == len(records()) == left


@pytest.mark.parametrize("child", ["copy"], indirect=True)
def test_a_copy_that_nothing_continues_is_swept_after_a_week(child: Child, target: S3) -> None:
    child.end(signal.SIGKILL)
    (name,) = records()
    os.utime(f"{upload_records._folder()}/{name}", (time.time() - upload_records.KEPT_SECONDS - 60,) * 2)
    sweep(target)
    assert ids(target) == records() == []


@pytest.mark.parametrize("child", ["copy"], indirect=True)
def test_an_upload_with_other_options_is_not_continued(
    child: Child, source: fsabs.Local, target: S3, ceph: CephGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    child.end(signal.SIGKILL)
    other = opened(ceph, target.bucket, monkeypatch, metadata={"colour": "blue"})
    assert copied(source, other) == 0
    assert other.client.head_object(Bucket=other.bucket, Key="to")["Metadata"]["colour"] == "blue"


@pytest.mark.parametrize("child", ["copy"], indirect=True)
def test_only_one_process_takes_an_upload_over(child: Child, target: S3) -> None:
    child.end(signal.SIGKILL)
    (found,) = upload_records._records(upload_records._store(target))
    assert [upload_records._take_over(*found) is not None for _ in range(2)] == [True, False]
    assert list(upload_records.taken_over(target, "to")) == []  # it is this process's, which is alive


@pytest.mark.parametrize("child", ["copy"], indirect=True)
def test_the_response_to_the_completion_of_a_continued_upload_may_be_lost(
    child: Child, source: fsabs.Local, target: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    child.end(signal.SIGKILL)
    with FaultProxy.before(str(target.options.endpoint)) as proxy:
        slow = S3(target.bucket, mpu_chunksize=PART, **{**target.options._asdict(), "endpoint": proxy.endpoint})
        store = upload_records._store(target)
        monkeypatch.setattr(upload_records, "_store", lambda fs: store)  # the same one behind the proxy
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
        upload_records._swept.clear()
        sweep(fs)
        assert sorted(ids(fs)) == sorted([lost, used])
        monkeypatch.setattr(upload_records, "UNANSWERED_SECONDS", 0.0)
        upload_records._swept.clear()
        sweep(fs)
        assert ids(fs) == [used]
        assert records() == []


def test_a_process_that_is_killed_before_the_answer_leaves_nothing_for_ever(
    target: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    owner = f"{owners.namespace()}-{ended.pid:x}-1"
    UploadRecord.create(target, "to", "mark", kept=True, owner=owner)
    target.client.create_multipart_upload(Bucket=target.bucket, Key="to")
    assert list(upload_records.taken_over(target, "to")) == []  # it has no id to be continued by
    sweep(target)
    assert len(ids(target)) == 1
    monkeypatch.setattr(upload_records, "UNANSWERED_SECONDS", 0.0)
    upload_records._swept.clear()
    sweep(target)
    assert ids(target) == records() == []


def test_an_upload_that_is_refused_is_not_recorded(target: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = S3(target.bucket, mpu_chunksize=PART, **{**target.options._asdict(), "aws_secret_access_key": "wrong"})
    with pytest.raises(PermissionError):
        wrong.write_bytes("to", bytes(PART + 1))
    assert records() == []


@pytest.mark.quick
def test_an_owner_whose_start_could_not_be_found_out_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no file can be opened, neither /proc/PID/stat can."""
    known = owners.this_process()
    assert owners.has_ended(known) is False
    assert owners.has_ended(known.rpartition("-")[0] + "-1") is True  # another process had this id
    with monkeypatch.context() as context:
        context.setattr(owners, "_state_and_start", lambda pid: ("", 0))
        unknown = owners.this_process()
        assert owners.has_ended(known) is False
    assert unknown != known
    assert owners.has_ended(unknown) is False
    assert owners.has_ended("0123456789ab-1-1") is None


def test_a_record_that_is_damaged_aborts_nothing(target: S3) -> None:
    other = target.client.create_multipart_upload(Bucket=target.bucket, Key="to")["UploadId"]
    record = UploadRecord.create(target, "to", "mark", kept=False, owner=upload_records.FREE)
    for content in (b"", b"{", b"[]\n", b'{"key": "to", "mark": "", "begun": 0}', b'{"key": "to"}\n', b"\0" * 100):
        path = Path(str(record._path))
        path.write_bytes(content)
        upload_records._swept.clear()
        sweep(target)
        assert ids(target) == [other]
    os.utime(path, (0, 0))
    upload_records._swept.clear()
    sweep(target)
    assert records() == []


def test_without_a_cache_directory_uploads_are_not_recorded(
    source: fsabs.Local, target: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in ("", str(tmp_path / "file")):
        monkeypatch.setenv("FSABS_CACHE_DIR", folder)
        assert copied(source, target) == 0
        assert ids(target) == []
