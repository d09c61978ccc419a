"""Statements of the documentation that no code of a page checks: each was false once, or would be the first to be."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import re
import socket
from pathlib import Path

import pytest

import fsabs
from fsabs.dispatch import TaskDispatcher
from fsabs.readers import RecordReader, RecordWriter
from tests.cli.commands import fsabs as command
from tests.servers.scripted import Asked, ScriptedStore, message

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def page(name: str) -> str:
    """Return the text of a page, each run of white space as one blank."""
    return " ".join((ROOT / name).read_text().split())


@pytest.mark.quick
def test_a_local_copy_that_is_read_cannot_be_written_to_and_one_that_is_written_is_committed() -> None:
    assert "that of a temporary copy, which can't be written to" in page("docs/faq.md")
    with fsabs.from_url("memory://statements-as-local", create=True) as fs:
        fs.write_bytes("model.bin", b"first")
        with fs.as_local("model.bin") as path:
            assert Path(path).read_bytes() == b"first"
            assert os.stat(path).st_mode & 0o222 == 0
        with fs.as_local("model.bin", "r+") as path, open(path, "ab") as file:
            file.write(b" and second")
        assert fs.read_bytes("model.bin") == b"first and second"


@pytest.mark.quick
def test_the_section_of_the_page_on_caching_opens_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs/caching.md").read_text()
    section = re.search(r"```ini\n(.*?)```", text, re.DOTALL)
    assert section is not None
    (tmp_path / "pfio.ini").write_text(section[1].replace("http_cache", ";http_cache"))
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "pfio.ini"))
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "eu-1"}.items():
        monkeypatch.setenv(name, value)
    with ScriptedStore({"train/cats.txt": b"cats"}) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", store.endpoint)
        with fsabs.from_url("data://bucket") as fs:
            assert isinstance(fs, fsabs.CachedFS)
            assert fs.url("cats.txt") == "s3://bucket/train/cats.txt"
            assert fs.read_bytes("cats.txt") == b"cats"
        with fsabs.open_url("data://bucket/cats.txt", "rb") as file:
            assert file.read() == b"cats"
    assert "`data://bucket` is then `s3://bucket/train`, cached, and `data://bucket/cats.zip` is" in text


@pytest.mark.quick
def test_a_second_report_is_true_and_one_with_an_error_is_a_failure(tmp_path: Path) -> None:
    assert "A report that is made a second time returns True" in page("docs/dispatch.md")
    with TaskDispatcher.create(
        f"sqlite:///{tmp_path}/job.db", training={"a": 4}, records_per_task=2, max_failures=0
    ) as job:
        task, lease = job.get("w")
        assert job.report(task, lease)
        assert job.report(task, lease)
        task, lease = job.get("w")
        assert job.report(task, lease, error="no such file")
        assert [failed.reason for failed in job.failed()] == ["no such file"]
        assert job.status().tasks[:4] == (0, 0, 1, 1)


@pytest.mark.quick
@pytest.mark.parametrize("name", ["cat", "head", "tail"])
def test_commands_that_write_contents_have_no_json(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    assert command(name, "a.txt", cwd=tmp_path).out == "a\n"
    assert "No such option" in command(name, "--json", "a.txt", cwd=tmp_path, code=2).err
    assert "(`cat`, `head` and `tail`, which write contents, don't have it)" in page("docs/command.md")


@pytest.mark.quick
def test_prepare_has_the_option_of_chunks_that_its_page_names() -> None:
    from fsabs import prepare
    from fsabs.cli.prepare import command as cli

    default = next(parameter.default for parameter in cli.params if parameter.name == "max_chunk_bytes")
    assert default == inspect.signature(prepare.run).parameters["max_chunk_bytes"].default == 1 << 20
    assert "Chunks of 1 MiB (`--max-chunk-bytes`, the default)" in page("docs/prepare.md")


@pytest.mark.quick
def test_prepare_writes_chunks_of_the_size_that_the_command_was_given(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def prepare_data_for_a_single_file(file, name):\n    return file.read()\n")
    raw = tmp_path / "raw"
    raw.mkdir()
    for number in range(4):
        (raw / f"{number}.bin").write_bytes(os.urandom(3000))
    options = ["--num-workers", "1", "--compressor", "none", "--max-chunk-bytes", "2000", "--progress", "none"]
    command("prepare", "model.py", "raw", "out", "local", *options, cwd=tmp_path)
    with fsabs.from_url(str(tmp_path / "out")) as fs:
        assert len(RecordReader(fs, "data-00000-of-00000").index) == 4


@pytest.mark.quick
def test_members_in_zstandard_are_read_and_not_written(tmp_path: Path) -> None:
    assert "zstd is read, not written" in page("README.md")
    with pytest.raises(ValueError, match="zstd"):
        fsabs.from_url(str(tmp_path / "a.zip"), mode="w", compression="zstd")


@pytest.mark.quick
def test_attempts_that_are_given_are_all_that_a_store_is_asked() -> None:
    assert "or as many attempts as were configured" in page("docs/guide.md")

    def refuses(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        connection.sendall(message(503, {"Content-Length": "0"}, b""))

    with ScriptedStore({}, refuses) as store:
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region": "eu-1"}
        with (
            fsabs.S3("bucket", endpoint=store.endpoint, max_attempts=5, **keys) as fs,
            pytest.raises(OSError, match="503"),
        ):
            fs.read_bytes("k")
        assert len(store.requests) == 5


@pytest.mark.quick
def test_a_record_is_read_alone_once_its_chunk_was_read_and_a_second_one_in_a_row_with_its_chunk() -> None:
    stated = "reads a record of it alone, and a second one of the same chunk, in a row, fetches the chunk again"
    assert stated in page("docs/readers.md")
    with fsabs.from_url("memory://statements-records", create=True) as memory:
        with RecordWriter(memory, "a.recordio", compressor="none", max_chunk_bytes=200_000) as writer:
            for number in range(100):
                writer.write(b"%05d" % number * 2000)
        data = memory.read_bytes("a.recordio")
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region": "eu-1"}
    with ScriptedStore({"a.recordio": data}) as store, fsabs.S3("bucket", endpoint=store.endpoint, **keys) as fs:
        reader = RecordReader(fs, "a.recordio", cache_bytes=1)  # one chunk
        read = []
        for number in (30, 99, 31, 32):
            before = len(store.requests)
            assert reader[number] == b"%05d" % number * 2000
            ranges = [asked.range for asked in store.requests[before:]]
            read.append(sum(end - start + 1 for start, end in filter(None, ranges)))
    assert read[2] == 10_000
    assert read[3] > 190_000


@pytest.mark.quick
def test_the_installation_has_about_the_size_that_the_page_says() -> None:
    text = page("docs/faq.md")
    stated = re.search(r"About (\d+) MB, of which the package itself is some (\d+) MB", text)
    assert stated is not None
    names = ["boto3", "botocore", "s3transfer", "fsspec", "google-crc32c", "h5py", "numpy", "pyarrow"]
    sizes = {name: _size(name) for name in names}
    package = sum(path.stat().st_size for path in (ROOT / "fsabs").rglob("*") if path.suffix != ".pyc")
    assert 0.6 < sum(sizes.values()) / (int(stated[1]) * 1e6) < 1.6
    assert package < int(stated[2]) * 1e6
    assert sizes["pyarrow"] > sum(sizes.values()) / 2


def _size(name: str) -> int:
    files = importlib.metadata.files(name) or []
    paths = [Path(str(file.locate())) for file in files]
    return sum(path.stat().st_size for path in paths if path.suffix != ".pyc" and path.is_file())
