"""Identities: each part swapped by itself is another one, and nothing that is kept is given for another content.

The tools that put one content over another and leave its size and time as they were are the ones that people use:
`tar -x`, `cp -p`, `rsync -t`, `touch -r`, `git checkout`, a rename, a bind mount, an overlay.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fsabs
from fsabs import Local, Memory
from fsabs.backends.fsspec import Fsspec
from fsabs.backends.hdfs import Hdfs
from fsabs.backends.s3 import S3
from fsabs.core import identity
from fsabs.core.identity import Identity
from fsabs.readers import recordio
from fsabs.spi import BytesBlob

WHEN = 1_600_000_000


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory of one test."""
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


# ---- the parts


def test_each_part_makes_another_identity() -> None:
    one = Identity("store", "url", "version", 7, "namespace")
    others = [one._replace(**{name: 8 if name == "size" else "other"}) for name in one._fields]  # type: ignore[arg-type]
    assert len({one.encode(), one.encode(1), one.encode(1, 2), *(other.encode() for other in others)}) == 8
    assert len({one.digest(), *(other.digest() for other in others)}) == 6


def test_an_identity_has_one_reading() -> None:
    assert identity.encode("a", "bc") != identity.encode("ab", "c")
    assert identity.encode("1:a,", "") != identity.encode("", "1:a,")
    assert identity.encode("a\0b") != identity.encode("a", "b")
    assert identity.encode("\udcff") != identity.encode("\udcfe")


def store_of(fs: fsabs.FS) -> str:
    """The store in the identities of an FS's files."""
    found = BytesBlob(fs, "x", b"1", "version").identity
    assert found is not None
    return found.store


def principal_of(fs: fsabs.FS) -> str:
    """Whom the store knows an FS as: what it said to one is never taken for its response to another."""
    return fs._principal()


def s3(**options: object) -> S3:
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
    return S3("bucket", **{**keys, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "S3_ENDPOINT"])
def test_an_endpoint_of_the_environment_is_another_store(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "S3_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    stores = [store_of(s3())]
    for host in ("one", "two"):
        monkeypatch.setenv(variable, f"http://{host}.example:9000")
        stores.append(store_of(s3()))
        monkeypatch.delenv(variable)
        assert store_of(s3(endpoint=f"http://{host}.example:9000/")) == stores[-1]
    assert len(set(stores)) == 3


def test_a_bucket_and_a_user() -> None:
    one = s3(endpoint="http://user:secret@store.example")
    assert "secret" not in store_of(one) + principal_of(one)
    assert store_of(S3("other", endpoint="http://store.example")) != store_of(one)
    assert principal_of(s3(aws_access_key_id="other")) != principal_of(one)
    assert principal_of(s3(anonymous=True)) == ""


def test_a_nameservice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = "<configuration><property><name>fs.defaultFS</name><value>hdfs://{}/</value></property></configuration>"
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    stores = set()
    for name in ("one", "two"):
        (tmp_path / "core-site.xml").write_text(site.format(name))
        assert store_of(Hdfs()) == store_of(Hdfs(nameservice=name))
        stores.add(store_of(Hdfs()))
    assert len(stores) == 2
    monkeypatch.setenv("HADOOP_USER_NAME", "first")
    before = principal_of(Hdfs())
    monkeypatch.setenv("HADOOP_USER_NAME", "second")
    assert principal_of(Hdfs()) != before


def test_fsspecs_options() -> None:
    def made(**options: object) -> Fsspec:
        return Fsspec("sftp", "host", "", **options)

    plain = made(port=22, password="secret")
    assert store_of(made(port=23, password="secret")) != store_of(plain)
    assert store_of(made(port=22, password="other")) == store_of(plain)
    assert principal_of(made(port=22, password="other")) != principal_of(plain)
    assert store_of(made(client={"endpoint": "a"})) != store_of(made(client={"endpoint": "b"}))
    assert "secret" not in store_of(plain) + principal_of(plain)


def test_two_trees_of_one_name_have_no_version_in_common() -> None:
    one, two = Memory(), Memory()
    for fs in (one, two):
        fs.write_bytes("a", b"1")
    assert one.open("a", "rb").raw.blob.identity != two.open("a", "rb").raw.blob.identity


def test_a_store_of_a_third_party_is_shared_by_copies_of_one_object() -> None:
    class Mine(Local):
        _resolved_store = fsabs.FS._resolved_store

    one, two = Mine(), Mine()
    assert store_of(one) == store_of(one) == store_of(one.subfs("tmp"))
    assert store_of(one) != store_of(two)


def test_the_version_of_a_file_is_strong_when_a_clock_has_ticked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"1")
    os.utime(tmp_path / "a", (WHEN, WHEN))  # as `cp -p` does
    with fsabs.open_url(str(tmp_path / "a"), "rb") as file:
        assert not file.raw.blob.has_strong_version
        assert file.raw.blob.strong_identity is None
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 2 * identity.TICK)
        assert file.raw.blob.has_strong_version
        assert file.raw.blob.strong_identity == file.raw.blob.identity is not None


# ---- what stands on the disk is what is read


def zipped(data: bytes) -> bytes:
    """An archive whose members lie in another order for other data; of long names, so that its index is kept."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(280):
            name = f"{number:0200}" if data[0] & 1 else f"{279 - number:0200}"
            archive.writestr(zipfile.ZipInfo(name), b"%b %b" % (name.encode(), data))
    return out.getvalue()


def tarred(data: bytes) -> bytes:
    """As `zipped`; which member comes first depends on the data."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number in range(600):
            name = f"{number:03}" if data[0] & 1 else f"{599 - number:03}"
            info = tarfile.TarInfo(name)
            info.size = len(data) + 4
            archive.addfile(info, io.BytesIO(b"%b %b" % (name.encode(), data)))
    return out.getvalue()


def compressed(data: bytes) -> bytes:
    """A tar.gz; no compression, so that two have one size."""
    return gzip.compress(tarred(data), 0, mtime=0)


def records(data: bytes) -> bytes:
    """A RecordIO file of many chunks, whose sizes depend on the data."""
    memory = Memory()
    with recordio.RecordWriter(memory, "a", compressor="none", max_chunk_bytes=3000) as writer:
        sizes = [2000 + number for number in range(60)]
        for size in sizes if data[0] & 1 else reversed(sizes):
            writer.write(data * (size // len(data)) + bytes(size % len(data)))
    return memory.read_bytes("a")


def read_plain(path: str) -> bytes:
    with fsabs.from_url(os.path.dirname(path), cache=True) as fs:
        return fs.read_bytes(os.path.basename(path))


def read_member(path: str) -> bytes:
    with fsabs.from_url(path, cache=True) as fs:
        return b"".join(fs.read_many([*fs.list()][::20]))


def read_records(path: str) -> bytes:
    with fsabs.from_url(os.path.dirname(path), cache=True) as fs:
        reader = recordio.RecordReader(fs, os.path.basename(path))
        return b"".join(reader[number] for number in (0, 7, 59)) + b"".join(reader)


KINDS: dict[str, tuple[str, Callable[[bytes], bytes], Callable[[str], bytes]]] = {
    "plain": ("a.bin", lambda data: data * 1000, read_plain),
    "zip": ("a.zip", zipped, read_member),
    "tar": ("a.tar", tarred, read_member),
    "tar.gz": ("a.tar.gz", compressed, read_member),
    "recordio": ("a.rio", records, read_records),
}


def place(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (WHEN, WHEN))


def run(*command: str | Path, cwd: Path | None = None) -> None:
    subprocess.run([str(word) for word in command], cwd=cwd, check=True, capture_output=True, timeout=30)


def by_tar(new: Path, at: Path) -> None:
    run("tar", "-C", new.parent, "-cf", new.parent / "v2.tar~", new.name)
    run("tar", "-C", at.parent, "-xf", new.parent / "v2.tar~")


def by_cp(new: Path, at: Path) -> None:
    run("cp", "-p", new, at)


def by_rsync(new: Path, at: Path) -> None:
    if shutil.which("rsync"):
        run("rsync", "-t", "-I", new, at)
        return
    aside = at.with_name(".a~")  # what it does
    shutil.copyfile(new, aside)
    os.utime(aside, (WHEN, WHEN))
    os.rename(aside, at)


def by_touch(new: Path, at: Path) -> None:
    time_of = at.parent / "reference"
    run("touch", "-r", at, time_of)
    with at.open("r+b") as file:
        file.write(new.read_bytes())
    run("touch", "-r", time_of, at)


def by_git(new: Path, at: Path) -> None:
    work = at.parent
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", work)
    run("git", "init", "-q", work)
    run(*git, "add", at.name)
    run(*git, "commit", "-qm", "1")
    at.write_bytes(new.read_bytes())
    run(*git, "commit", "-qam", "2")
    run(*git, "checkout", "-q", "HEAD~1")
    read_plain(str(at))
    run(*git, "checkout", "-q", "-")
    os.utime(at, (WHEN, WHEN))


def by_rename(new: Path, at: Path) -> None:
    os.rename(new, at)


def by_mount(new: Path, at: Path) -> None:
    if subprocess.run(["mount", "--bind", str(new), str(at)], capture_output=True, timeout=30).returncode:
        by_rename(new, at)  # not root, or no mounts in this container: the nearest thing


def by_overlay(new: Path, at: Path) -> None:
    above, work = new.parent / "above", new.parent / "work"
    for one in (above, work):
        one.mkdir()
    shutil.copy2(new, above / at.name)
    options = f"lowerdir={at.parent},upperdir={above},workdir={work}"
    if subprocess.run(["mount", "-t", "overlay", "o", "-o", options, str(at.parent)], capture_output=True).returncode:
        by_cp(new, at)


SWAPS = [  # each way to put a content in place, and each kind of what is kept, at least once
    ("tar.gz", by_tar),
    ("zip", by_cp),
    ("recordio", by_rsync),
    ("tar", by_touch),
    ("plain", by_git),
    ("zip", by_rename),
    ("plain", by_mount),
    ("recordio", by_overlay),
]


@pytest.fixture
def unmounted(tmp_path: Path) -> Iterator[None]:
    yield
    for mounted in (tmp_path / "data").iterdir() if (tmp_path / "data").is_dir() else ():
        subprocess.run(["umount", str(mounted)], capture_output=True, timeout=30)
    subprocess.run(["umount", str(tmp_path / "data")], capture_output=True, timeout=30)


def in_a_new_process(kind: str, path: Path) -> bytes:
    read = f"KINDS[{kind!r}][2]({str(path)!r})"
    code = f"import sys; from tests.core.test_identity import KINDS; sys.stdout.buffer.write({read})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True).stdout


@pytest.mark.usefixtures("unmounted")
@pytest.mark.parametrize(("kind", "swap"), SWAPS)
def test_what_is_on_the_disk_is_what_is_read(kind: str, swap: Callable[[Path, Path], None], tmp_path: Path) -> None:
    name, make, read = KINDS[kind]
    at, new = tmp_path / "data" / name, tmp_path / "new" / name
    old_data, new_data = make(b"1old content"), make(b"2new content")
    assert len(old_data) == len(new_data)
    place(at, old_data)
    place(tmp_path / "other" / name, new_data)
    time.sleep(2 * identity.TICK)  # or nothing is kept
    wanted = read(str(tmp_path / "other" / name))
    first = read(str(at))
    assert read(str(at)) == first != wanted
    indexes = list((tmp_path / "cache" / "indexes").glob(f"{kind.partition('.')[0]}*"))
    assert indexes or kind == "plain", "without a cached index nothing is tried here"
    place(new, new_data)
    swap(new, at)
    assert at.read_bytes() == new_data
    assert at.stat().st_mtime == WHEN
    assert read(str(at)) == wanted
    if swap is by_tar:
        assert in_a_new_process(kind, at) == wanted
    time.sleep(2 * identity.TICK)
    assert read(str(at)) == wanted
    assert read(str(at)) == wanted
