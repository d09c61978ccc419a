"""Statements of the documentation that no code of a page checks: each was false once, or would be the first to be."""

from __future__ import annotations

import ast
import errno
import importlib
import importlib.metadata
import inspect
import io
import os
import random
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

import pytest

import fsabs
from fsabs.dispatch import TaskDispatcher
from fsabs.readers import RecordReader, RecordWriter
from tests import test_docs
from tests.cli.commands import fsabs as command
from tests.servers.moto import MotoServer
from tests.servers.scripted import Asked, ScriptedStore, message
from tests.servers.shared import unique

ROOT = Path(__file__).parent.parent
KEYS: dict[str, Any] = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region": "eu-1"}


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
    assert "unrecognized arguments: --json" in command(name, "--json", "a.txt", cwd=tmp_path, code=2).err
    assert "(`cat`, `head` and `tail`, which write contents, don't have it)" in page("docs/command.md")


@pytest.mark.quick
def test_prepare_has_the_option_of_chunks_that_its_page_names() -> None:
    from fsabs import prepare
    from fsabs.cli import datasets

    parser = datasets.prepare.parser("fsabs prepare")
    default = inspect.signature(prepare.run).parameters["max_chunk_bytes"].default
    assert parser.get_default("max_chunk_bytes") == default == 1 << 20
    assert "Chunks of 1 MiB (`--max-chunk-bytes`, the default)" in page("docs/prepare.md")


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
    assert "or as many attempts as were configured" in page("docs/s3.md")

    def refuses(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        connection.sendall(message(503, {"Content-Length": "0"}, b""))

    with ScriptedStore({}, refuses) as store:
        with (
            fsabs.S3("bucket", endpoint=store.endpoint, max_attempts=5, **KEYS) as fs,
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
    with ScriptedStore({"a.recordio": data}) as store, fsabs.S3("bucket", endpoint=store.endpoint, **KEYS) as fs:
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


@pytest.mark.quick
def test_errors_are_those_that_their_page_has(tmp_path: Path) -> None:
    text = page("docs/errors.md")

    def refuses(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        body = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
        connection.sendall(message(503, {"Content-Length": str(len(body))}, body))

    with (
        ScriptedStore({}, refuses) as store,
        fsabs.S3("bucket", endpoint=store.endpoint, max_attempts=1, **KEYS) as fs,
        pytest.raises(OSError, match=re.escape("SlowDown (503)")) as refused,
    ):
        fs.read_bytes("k")
    assert refused.value.errno == errno.EBUSY
    assert "| `OSError` with `EBUSY`, such as `SlowDown (503)`" in text
    with fsabs.from_url(str(tmp_path)) as local, pytest.raises(PermissionError, match="is outside of this FS's root"):
        local.read_bytes("../secret")
    with fsabs.from_url(str(tmp_path / "zeros.zip"), mode="w", compression="deflated") as archive:
        archive.write_bytes("zeros", bytes(64 << 20))
    with (
        fsabs.from_url(str(tmp_path / "zeros.zip"), limits=fsabs.Limits(max_ratio=10)) as small,
        pytest.raises(OSError, match="max_ratio") as too_large,
    ):
        small.read_bytes("zeros")
    assert too_large.value.errno == errno.EFBIG
    with pytest.raises(TypeError, match="did you mean 'endpoint'"):
        fsabs.from_url("s3://bucket", endpont="x")
    for stated in (
        "is outside of this FS's root",
        "`OSError` with `EFBIG` or `ELOOP`",
        "the error names the nearest one",
    ):
        assert stated in text


# ---- settings, stores, promises


def test_settings_name_every_variable_of_ours() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "fsabs").rglob("*.py"))
    read = set(re.findall(r"\b(FSABS_[A-Z_]+|PFIO_CONFIG_PATH|S3_ENDPOINT)\b", code)) - {"FSABS_COMPLETE"}
    read.discard("FSABS_CACHE_")
    stated = re.findall(r"^\| `([A-Z0-9_]+)`", (ROOT / "docs/settings.md").read_text(), re.MULTILINE)
    assert read <= set(stated)
    assert {name for name in stated if name.startswith("FSABS_")} <= read


def test_settings_name_every_option_of_the_stores() -> None:
    from fsabs.core import registry
    from fsabs.urls.opening import SETTINGS, known_options

    text = (ROOT / "docs/settings.md").read_text()
    rows = re.findall(r"^\| ((?:`[a-z0-9]+`(?:, )?)+) \| (.*) \|$", text.partition("its options |")[2], re.MULTILINE)
    stated = {
        scheme: re.findall(r"`(\w+)`", options) for names, options in rows for scheme in re.findall(r"\w+", names)
    }
    assert stated.keys() == set(registry.BUILTIN_SCHEMES)
    for scheme in registry.BUILTIN_SCHEMES:
        backend = registry.backend(scheme)
        assert backend is not None
        assert stated[scheme] == sorted(known_options(backend) or ()), scheme
    assert all(f"`{name}`" in text for name in SETTINGS)


def test_defaults_are_those_that_the_page_of_settings_has() -> None:
    from fsabs.adapters.torch import FileDataset, ImageFolder, Mixture, RecordIODataset
    from fsabs.backends.objects import failures
    from fsabs.backends.s3.options import CONNECT_TIMEOUT, READ_TIMEOUT
    from fsabs.cache import CachedFS, HTTPCachedFS

    def default(function: object, name: str) -> object:
        return inspect.signature(function).parameters[name].default  # type: ignore[arg-type]

    text = page("docs/settings.md")
    for data_set in (FileDataset, ImageFolder, RecordIODataset):
        assert default(data_set, "max_bytes") == 256 << 20
    assert default(Mixture, "max_bytes") == 64 << 20
    assert default(CachedFS, "memory_bytes") == 64 << 20
    assert default(RecordReader, "cache_bytes") == 64 << 20
    assert (CONNECT_TIMEOUT, READ_TIMEOUT, failures.DEFAULT_ATTEMPTS, failures.THROTTLE_SECONDS) == (10, 60, 5, 60)
    assert default(fsabs.Hdfs, "timeout") == 60
    assert default(HTTPCachedFS, "timeout") == 3
    assert default(CachedFS, "check_interval") == 60
    assert default(TaskDispatcher.create, "lease_seconds") == 300
    for stated in (
        "256 MiB a worker | `max_bytes=` of `FileDataset`, `ImageFolder`, `RecordIODataset`",
        "all sources together | 64 MiB a worker",
        "(`cache=`) | 64 MiB a process",
        "`RecordReader` | 64 MiB a file",
        "| `connect_timeout` | 10 s |",
        "| `read_timeout` | 60 s without a byte |",
        "| `max_attempts` | 5,",
        "| `timeout` | 60 s a call | HDFS |",
        "| `timeout` | 3 s, and a second for each MiB | `http_cache` |",
        "| `check_interval` | 60 s",
        "| `lease_seconds` | 300 s |",
    ):
        assert stated in text, stated


def test_the_table_of_stores_is_that_of_their_capabilities() -> None:
    from fsabs.backends.hub import Hub
    from fsabs.backends.web import Https

    names = {
        "files are written (`w`)": "write",
        "`x` is safe against other writers": "exclusive",
        "`w` replaces a file": "replace",
        "files are added to (`a`)": "append",
        "files are updated (`r+`)": "update",
        "`mkdir`": "mkdir",
        "`rename`": "rename",
        "`remove`": "remove",
        "a directory is there because a file is in it": "implied_directories",
        "listings are sorted": "ordered",
        "files have versions": "versions",
        "a version is that of a content": "content_versions",
        "a stat is a request": "stat_is_request",
        "symbolic links": "links",
        "permissions": "modes",
        "a copy keeps the time": "settable_times",
    }
    stores = (fsabs.Local, fsabs.Memory, fsabs.S3, fsabs.GCS, fsabs.Azure, fsabs.Hdfs, Hub, Https)
    rows = re.findall(r"^\| (.+?) \| ((?:(?:yes|-) \| ){7}(?:yes|-)) \|$", (ROOT / "docs/stores.md").read_text(), re.M)
    assert [name for name, _ in rows] == list(names)
    for name, cells in rows:
        found = ["yes" if getattr(store.capabilities, names[name]) else "-" for store in stores]
        assert cells.split(" | ") == found, name


def test_the_tests_that_hold_the_promises_are_there() -> None:
    text = (ROOT / "docs/promises.md").read_text()
    rows = re.findall(r"^\| (?!what happens|---)(.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    assert len(rows) == 10
    for _, _, tests in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
        assert named
        for path, name in named:
            functions = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if _is_function(node)}
            assert name in functions, f"{path}::{name}"


def _is_function(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef)


def test_sizes_of_the_cache_are_those_that_its_page_has() -> None:
    from fsabs.cache.cachedfs import SmallArchives

    defaults = inspect.signature(fsabs.CachedFS).parameters
    assert (defaults["whole_file_size"].default, defaults["block_size"].default) == (4 << 20, 1 << 20)
    assert SmallArchives.LARGEST == 64 << 20
    text = page("docs/caching.md")
    assert "up to `whole_file_size` (4 MiB)" in text
    assert "blocks of `block_size` (1 MiB)" in text
    assert "archives of up to 64 MiB (and half of `max_bytes`)" in text


@pytest.mark.timeout(120)
def test_the_picture_of_the_readme_has_the_figures_that_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moto: MotoServer
) -> None:
    picture = (ROOT / "docs/picture.svg").read_text()
    for stated in ("2,000 pictures, 40 MB", "the 100 pictures", ">96<", ">2.1 MB<", "of 40 MB are fetched"):
        assert stated in picture
    assert "takes 96 requests and 2.1 MB" in page("README.md")
    names = [f"{number % 10}/{number:04}.jpg" for number in range(2000)]
    monkeypatch.setenv("FSABS_CACHE_DIR", "")
    bucket = unique("picture")
    moto.create_bucket(bucket)
    options: dict[str, Any] = {
        "endpoint": moto.endpoint,
        "aws_access_key_id": moto.access_key,
        "aws_secret_access_key": moto.secret_key,
        "region": moto.region,
    }
    url = f"s3://{bucket}/pictures.zip"
    with fsabs.from_url(url, mode="w", **options) as archive:
        for number, name in enumerate(names):
            archive.write_bytes(name, random.Random(number).randbytes(20_000))
    with fsabs.trace.record(tmp_path / "trace"), fsabs.from_url(url, **options) as pictures:
        assert sum(map(len, pictures.read_many(random.Random(0).sample(names, 100)))) == 2_000_000
    found = fsabs.trace.analyze(tmp_path / "trace")
    assert sum(row.calls for row in found.operations if row.kind == "request") == 96
    fetched = found.amplification.fetched
    assert fetched is not None
    assert round(fetched / 1e6, 1) == 2.1


# ---- the reference


MODULES: dict[str, str | None] = {
    "fsabs": None,
    "fsabs.spi": None,
    "fsabs.cache": None,
    "fsabs.manifest": None,
    "fsabs.trace": None,
    "fsabs.readers": None,
    "fsabs.readers.data": None,
    "fsabs.readers.sharded": None,
    "fsabs.readers.paddle": None,
    "fsabs.readers.prefetch": "prefetch",
    "fsabs.dispatch": None,
    "fsabs.dispatch.arguments": None,
    "fsabs.prepare": None,
    "fsabs.adapters.torch": None,
    "fsabs.adapters.torch.distributed": None,
    "fsabs.adapters.torch.lightning": None,
    "fsabs.adapters.torch.transformers": None,
    "fsabs.adapters.arrow": "ArrowHandler",
    "fsabs.adapters.fsspec": "FsabsFileSystem register_fsspec",
    "fsabs.adapters.grain": None,
    "fsabs.adapters.patch": None,
    "fsabs.adapters.ray": "FsabsDatasource read_fsabs",
    "fsabs.adapters.spark": "FsabsDataSource register",
    "fsabs.backends.hub": None,
    "fsabs.backends.web": None,
    "fsabs.core.errors": None,
    "fsabs.core.hooks": None,
    "fsabs.testing": None,
}
"""The public modules, each with its public names; None stands for its `__all__`, else for its classes and functions."""


def public(module: str) -> Iterator[tuple[str, object]]:
    """Yield the public names of a module and what they are."""
    found = importlib.import_module(module)
    own = [
        name
        for name, value in vars(found).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module
    ]
    for name in (MODULES[module] or "").split() or getattr(found, "__all__", own):
        value = getattr(found, name)
        if not name.startswith("_") and not inspect.ismodule(value):
            yield name, value


@pytest.mark.timeout(180)  # it imports Lightning, Ray, Spark and others
def test_every_public_name_of_every_module_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference.md").read_text()
    stated = {id(_named(name)) for name in re.findall(r"auto(?:class|function|exception|data)::\s+(fsabs[\w.]+)", text)}
    for module, members in re.findall(r"automodule::\s+(fsabs[\w.]*)\n   :members:((?: .*\n)(?:      .*\n)*)", text):
        stated |= {id(_named(f"{module}.{name}")) for name in re.findall(r"\w+", members)}
    stated |= {id(value) for _, value in public("fsabs.testing") if "automodule:: fsabs.testing\n" in text}
    missing = [f"{module}.{name}" for module in MODULES for name, value in public(module) if id(value) not in stated]
    assert missing == []


def test_every_method_of_a_filesystem_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference.md").read_text()
    members = re.search(r"autoclass:: fsabs\.FS\n   :members:(.*?)\n   :", text, re.DOTALL)
    assert members is not None
    stated = {*re.findall(r"\w+", members[1]), *re.findall(r"automethod:: fsabs\.FS\.(\w+)", text)}
    assert [name for name in vars(fsabs.FS) if name[0] != "_" and name not in stated] == []
    for store in ("S3", "GCS", "Azure"):
        own = {name for kind in getattr(fsabs, store).__mro__ if hasattr(kind, "write_if") for name in vars(kind)}
        shown = re.search(rf"autoclass:: fsabs\.{store}\n   :members: (.*)", text)
        assert shown is not None
        assert {"write_if", "abort_uploads", "signed_url"} & own == set(shown[1].split(", "))


@pytest.mark.timeout(180)
def test_every_public_class_and_function_stands_in_code_that_a_page_runs() -> None:
    used = {id(value) for path in test_docs.PAGES for value in _used_in(test_docs.program(path.read_text()))}
    missing = [
        f"{module}.{name}"
        for module in MODULES
        for name, value in public(module)
        if callable(value) and id(value) not in used
    ]
    assert missing == [], "docs/examples.md, or one of the pages beside it, has a short example of each"


@pytest.mark.quick
def test_a_name_counts_where_code_uses_what_it_stands_for() -> None:
    program = """
import fsabs
from fsabs import trace as ours, errors
from fsabs.trace import merge
from other import patch

ours.start("run")
fsabs.open_url("merge").stop(unpack=patch)  # unpatch
"""
    assert list(_used_in(program)) == [fsabs.trace.start, fsabs.open_url]


def _used_in(program: str) -> Iterator[object]:
    """Yield the public objects of this package that a program uses, by names that it imports; an import is no use."""
    tree = ast.parse(program)
    imported: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots = {alias.name.partition(".")[0] for alias in node.names}
            imported |= {"fsabs": fsabs} if "fsabs" in roots else {}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fsabs":
            imported |= {alias.asname or alias.name: _named(f"{node.module}.{alias.name}") for alias in node.names}
    for node in ast.walk(tree):
        names = ast.unparse(node).split(".") if isinstance(node, ast.Attribute | ast.Name) else []
        value = imported.get(names[0]) if names else None
        for name in names[1:]:
            value = getattr(value, name, None)
        if callable(value):
            yield value


def test_no_package_with_public_names_is_left_out() -> None:
    inner = {"backends", "containers", "core", "disk", "transfer", "urls"}  # their public names are those of fsabs
    found = set()
    for path in (ROOT / "fsabs").rglob("__init__.py"):
        parts = path.parent.relative_to(ROOT).parts
        if len(parts) > 1 and parts[1] not in inner | {"cli", "compat"} and "__all__" in path.read_text():
            found.add(".".join(parts))
    assert found <= MODULES.keys() | {"fsabs.readers.recordio"}  # that is in fsabs.readers


def _named(path: str) -> object:
    """Return what a dotted name stands for."""
    module, _, name = path.rpartition(".")
    found = importlib.import_module(module)
    return getattr(found, name) if hasattr(found, name) else importlib.import_module(path)


@pytest.mark.quick
def test_the_guides_table_of_limits_has_their_defaults() -> None:
    units = {"MiB": 1024**2, "GiB": 1024**3}
    rows = re.findall(r"^\| `(max_\w+)` \| ([\d,]+|none)(?: (\wiB))? \|", (ROOT / "docs/guide.md").read_text(), re.M)
    stated = {
        name: None if number == "none" else int(number.replace(",", "")) * units.get(unit, 1)
        for name, number, unit in rows
    }
    assert stated == fsabs.Limits()._asdict()


@pytest.mark.quick
def test_unbuffered_files_are_raw_and_show_nothing_before_they_are_closed(tmp_path: Path) -> None:
    assert "a file is raw, as there, but `w` and `x` show nothing before `close()`" in page("docs/semantics.md")
    with fsabs.from_url(tmp_path) as fs:
        for mode in ("wb", "xb"):
            with fs.open(mode, mode, 0) as file:
                assert isinstance(file, io.RawIOBase)
                file.write(b"abc")
                assert not (tmp_path / mode).exists()
            with fs.open(mode, "ab", 0) as file, fs.open(mode, "rb", 0) as reader:
                assert isinstance(file, io.RawIOBase)
                assert isinstance(reader, io.RawIOBase)
                file.write(b"d")
                assert (tmp_path / mode).read_bytes() == b"abcd"
