"""`from_url(url, manifest=...)`: no request for stats and listings; an error names each file that has changed."""

from __future__ import annotations

import functools
import itertools
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fsabs
from fsabs import FS, CachedFS, CorruptFileError, Local, StaleFileError, manifest
from fsabs.core.blobs import BlobLayer
from fsabs.manifest import Drift, Manifest, ManifestFS
from fsabs.spi import Blob, LayerFS
from fsabs.testing.children import Child
from tests.cache.stores import Store

pytestmark = pytest.mark.quick
FILES = {"a.txt": b"1", "a/1": b"22", "a/b/2": b"333", "z": b"4444", "large": bytes(range(256)) * 8192}


@pytest.fixture
def data(tmp_path: Path) -> Local:
    (tmp_path / "data/a/b").mkdir(parents=True)
    fs = Local(tmp_path / "data")
    for name, content in FILES.items():
        fs.write_bytes(name, content)
    return fs


def test_stats_and_listings_ask_nothing_of_the_store(data: Local, tmp_path: Path) -> None:
    manifest.create(data, tmp_path / "m.jsonl")
    store = Store(data)
    fs = ManifestFS(store, tmp_path / "m.jsonl")
    store.down = True
    assert list(fs.list()) == ["a.txt", "a/", "large", "z"]
    assert list(fs.list("a")) == ["1", "b/"]
    assert list(fs.list("", recursive=True)) == ["a.txt", "a/", "a/1", "a/b/", "a/b/2", "large", "z"]
    assert list(fs.list("a", recursive=True)) == ["1", "b/", "b/2"]
    assert list(fs.glob("**/[0-9]")) == ["a/1", "a/b/2"]
    assert list(fs.subfs("a").list(recursive=True)) == ["1", "b/", "b/2"]
    assert [stat.size for stat in fs.list("a", detail=True)] == [2, 0]
    assert fs.stat("a/b/2")[:3] == ("2", 3, False)
    assert fs.isdir("a/b")
    assert not fs.exists("a/b/3")
    with pytest.raises(FileNotFoundError, match=r"in the manifest file://.*m.jsonl"):
        fs.stat("a/b/3")
    with pytest.raises(NotADirectoryError):
        fs.stat("z/1")
    with pytest.raises(NotADirectoryError):
        fs.list("z")
    with pytest.raises(FileNotFoundError):
        fs.list("none")
    with pytest.raises(FileNotFoundError):
        fs.read_bytes("none")
    with pytest.raises(IsADirectoryError):
        fs.read_bytes("a")
    store.down = False
    assert list(fs.read_many(FILES)) == list(FILES.values())
    assert (store.asked, store.opened) == (0, dict.fromkeys(store.opened, 1)), "files are opened, and nothing else"


def test_it_only_reads(data: Local, tmp_path: Path) -> None:
    manifest.create(data, tmp_path / "m.jsonl")
    fs = fsabs.from_url(data.url(), manifest=tmp_path / "m.jsonl")
    for call in (
        lambda: fs.write_bytes("new", b""),
        lambda: fs.remove("z"),
        lambda: fs.rename("z", "y"),
        lambda: fs.mkdir("new"),
        lambda: fs.open("z", "r+"),
        lambda: fs.write_many({"new": b""}),
    ):
        with pytest.raises(OSError, match="can't") as caught:
            call()
        assert caught.value.filename
    assert repr(fs) == f"ManifestFS({data!r}, 'file://{tmp_path}/m.jsonl')"


@pytest.mark.parametrize("versions", [True, False], ids=["versions", "digests"])
def test_each_way_to_read_a_changed_file_raises_and_names_it(data: Local, tmp_path: Path, versions: bool) -> None:
    manifest.create(data, tmp_path / "m.jsonl", versions=versions)
    data.write_bytes("a/1", b"xx")  # of the same size
    data.write_bytes("z", b"longer")
    data.remove("a.txt")
    fs = fsabs.from_url(data.url(), manifest=tmp_path / "m.jsonl")
    for name in ("a/1", "z"):
        readers: list[Any] = [
            lambda name=name: fs.read_bytes(name),
            lambda name=name: fs.open(name, "rb").read(),
            lambda name=name: fs.open_blob(name).read_all(),
            lambda name=name: list(fs.read_many(["a/b/2", name])),
            lambda name=name: fs.copy(name, str(tmp_path / "copy"), Local("/")),
            lambda name=name: fs.as_local(name).__enter__(),
        ]
        for read in readers:
            with pytest.raises(StaleFileError, match="the file has changed: .* in the manifest file://") as caught:
                read()
            assert caught.value.filename == data.url(name)
    with pytest.raises(FileNotFoundError) as missing:
        fs.read_bytes("a.txt")
    assert missing.value.filename == data.url("a.txt")
    assert fs.read_bytes("a/b/2") == b"333"


class Streaming(LayerFS):
    """A store on which files are read as streams, and that has no paths."""

    def _open_blob(self, key: str, *how: Any) -> Blob:
        inner = self.inner._open_blob(key, *how)
        return StreamingBlob(self, key, inner, inner.size, inner.version)


class StreamingBlob(BlobLayer):
    __slots__ = ()

    if not TYPE_CHECKING:
        streams = True

    def _stream(self, start: int) -> Iterator[memoryview]:
        for offset in range(start, self.size, 2**20):
            yield memoryview(self._inner.pread(2**20, offset))


@pytest.mark.parametrize("store", ["local", "streams", "cached"])
def test_a_file_that_is_read_from_front_to_back_is_compared(data: Local, tmp_path: Path, store: str) -> None:
    """Files above 8 MiB are copied in pieces, of which none is the whole."""
    content = bytes(range(256)) * (36 * 1024)  # 9 MiB
    data.write_bytes("large", content)
    manifest.create(data, tmp_path / "m.jsonl", versions=False)
    (tmp_path / "copies").mkdir()
    copies = Local(tmp_path / "copies")
    fs: FS = ManifestFS(Streaming(data) if store == "streams" else data, tmp_path / "m.jsonl")
    if store == "cached":
        fs = CachedFS(fs, dir=tmp_path / "cache")

    def read_in_parts(size: int) -> bytes:
        with fs.open("large", "rb") as file:
            return b"".join(iter(lambda: file.read(size), b""))

    def read_after_the_header() -> bytes:
        with fs.open("large", "rb") as file:
            return file.read(10) + file.read()  # what the buffer has beyond the header is read again

    def pread_in_parts() -> bytes:
        with fs.open_blob("large") as blob:
            blob.pread(100, 5000)
            return b"".join(blob.pread(2**20, offset) for offset in range(0, blob.size, 2**20))

    def pread_many() -> bytes:
        with fs.open_blob("large") as blob:
            return b"".join(blob.pread_many([(0, 0), (100, 0), (0, 100), (blob.size, 100)]))

    def copied() -> bytes:
        fs.copy("large", "copy", copies)
        return copies.read_bytes("copy")

    def local() -> bytes:
        with fs.as_local("large") as path:
            return Path(path).read_bytes()

    ways: list[Callable[[], bytes]] = [functools.partial(read_in_parts, size) for size in (1000, 2**20)]
    ways += [read_after_the_header, pread_in_parts, pread_many, copied, local]
    for read in ways:
        assert read() == content
    copies.remove("copy")
    for at in (0, len(content) - 1):
        data.write_bytes("large", content[:at] + b"x" + content[at + 1 :])
        for read in ways:
            with pytest.raises(StaleFileError, match="sha256:.* in the manifest") as caught:
                read()
            assert caught.value.filename == data.url("large")
    assert not list(copies.list())


def test_check_finds_all_drift(data: Local, tmp_path: Path) -> None:
    manifest.create(data, tmp_path / "m.jsonl", versions=False)
    with Manifest(tmp_path / "m.jsonl") as found:
        assert list(manifest.check(data, found, digests=True)) == []
        data.write_bytes("a/1", b"xx")
        data.write_bytes("z", b"longer")
        data.remove("a.txt")
        data.makedirs("new/empty")
        data.write_bytes("a/0", b"")
        drifts = [
            Drift("a.txt", "missing", ""),
            Drift("a/0", "added", ""),
            Drift("new/empty/", "added", ""),
            Drift("z", "changed", "6 bytes, 4 in the manifest"),
        ]
        assert list(manifest.check(data, found)) == drifts
        counted: list[int] = []
        with_digests = list(manifest.check(data, found, digests=True, progress=counted.append))
        assert [drift for drift in with_digests if drift.name != "a/1"] == drifts
        changed = next(drift for drift in with_digests if drift.name == "a/1")
        assert changed.kind == "changed"
        assert changed.reason.startswith("sha256:")
        assert counted == list(range(1, 8))


def test_a_manifest_without_versions_is_good_for_a_copy(data: Local, tmp_path: Path) -> None:
    manifest.create(data, tmp_path / "with.jsonl")
    manifest.create(data, tmp_path / "without.jsonl", versions=False)
    (tmp_path / "copy").mkdir()
    copy = Local(tmp_path / "copy")
    data.copy_tree("", "", copy)
    fs = fsabs.from_url(copy.url(), manifest=tmp_path / "without.jsonl")
    assert list(fs.read_many(FILES)) == list(FILES.values())
    with pytest.raises(StaleFileError, match="the file has changed: version"):
        fsabs.from_url(copy.url(), manifest=tmp_path / "with.jsonl").read_bytes("z")


def test_a_file_written_just_before_is_not_taken_for_a_later_one(tmp_path: Path) -> None:
    """A version made of times is written down when its clock has ticked, so that no later content can have it."""
    fs = Local(tmp_path)
    for _ in range(3):
        fs.write_bytes("x", b"old")
        manifest.create(fs, tmp_path / "m.jsonl", digest=None)
        with open(tmp_path / "x", "r+b") as file:
            file.write(b"new")
        with pytest.raises(StaleFileError):
            fsabs.from_url(tmp_path, manifest=tmp_path / "m.jsonl").read_bytes("x")


def test_zip_members_are_pinned(data: Local, tmp_path: Path) -> None:
    fsabs.pack(data, Local(tmp_path), "outer.zip")
    fsabs.pack(Local(tmp_path), Local("/"), f"{tmp_path}/nested.tar", select=lambda stat: stat.filename == "outer.zip")
    url = f"{tmp_path}/nested.tar/outer.zip"
    with fsabs.from_url(url) as fs:
        assert manifest.create(fs, tmp_path / "m.parquet").entries == len(FILES)
    pinned = fsabs.from_url(url, manifest=tmp_path / "m.parquet")
    assert list(pinned.read_many(FILES)) == list(FILES.values())


def seen(fs: FS) -> tuple[list[str], bytes]:
    return list(fs.list(recursive=True)), fs.read_bytes("a/1")


def test_in_forked_and_spawned_processes(data: Local, tmp_path: Path) -> None:
    for suffix, method in ((".jsonl", "fork"), (".parquet", "spawn")):
        manifest.create(data, tmp_path / f"m{suffix}")
        fs = fsabs.from_url(data.url(), manifest=tmp_path / f"m{suffix}")
        expected = list(fs.list(recursive=True)), b"22"
        assert Child("a child", functools.partial(seen, fs), 60, method).result() == expected
        assert seen(pickle.loads(pickle.dumps(fs))) == expected


def test_options_that_are_wrong(data: Local, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="manifest is a URL, a Manifest, or a mapping of url and below, not 7"):
        fsabs.from_url(data.url(), manifest=7)
    with pytest.raises(FileNotFoundError):
        fsabs.from_url(data.url(), manifest=tmp_path / "none.jsonl")
    manifest.create(data, tmp_path / "m.jsonl")
    with pytest.raises(ValueError, match="manifest= pins what is read"):
        fsabs.from_url(tmp_path / "new.zip", mode="w", manifest=tmp_path / "m.jsonl")


def test_a_section_of_the_configuration_pins(data: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest.create(data, tmp_path / "m.jsonl")
    (tmp_path / "pfio.ini").write_text(
        f"[corpus]\nscheme = file\nprefix = {tmp_path}/data\nmanifest = {tmp_path}/m.jsonl\n"
    )
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "pfio.ini"))
    data.write_bytes("z", b"other")
    assert "a/1" in list(fsabs.from_url("corpus:///").list(recursive=True))
    assert list(fsabs.from_url("corpus:///a").list(recursive=True)) == ["1", "b/", "b/2"]
    with fsabs.open_url("corpus:///a/b/2", "rb") as file:
        assert file.read() == b"333"
    with pytest.raises(StaleFileError), fsabs.open_url("corpus:///z", "rb"):
        pass
    fsabs.pack(data, data, "a/b.zip")
    manifest.create(data, tmp_path / "m.jsonl")
    with pytest.raises(ValueError, match="is not the directory 'a/b.zip/a' of"):
        fsabs.from_url("corpus:///a/b.zip/a")


def test_a_directory_of_the_data_set(data: Local, tmp_path: Path) -> None:
    manifest.create(data, tmp_path / "m.jsonl")
    part = fsabs.from_url(data.url("a"), manifest={"url": tmp_path / "m.jsonl", "below": "a"})
    assert list(part.list(recursive=True)) == ["1", "b/", "b/2"]
    assert part.read_bytes("b/2") == b"333"
    with fsabs.from_url(data.url(), manifest=tmp_path / "m.jsonl", cache=tmp_path / "cache") as fs:
        assert (type(fs), type(fs.inner)) == (CachedFS, ManifestFS)
    with pytest.raises(ValueError, match="is not the directory 'b' of"):
        fsabs.from_url(data.url("a"), manifest={"url": tmp_path / "m.jsonl", "below": "b"})
    with pytest.raises(TypeError, match="or a mapping of url and below"):
        fsabs.from_url(data.url("a"), manifest={"url": tmp_path / "m.jsonl", "belwo": "b"})


def test_a_listing_of_names_that_are_not_in_order_ends(data: Local, tmp_path: Path) -> None:
    """A manifest that others have written: from each directory on it was listed anew, for ever."""
    lines = ['{"manifest":"fsabs","format":1}', '{"name":"c","size":0}', '{"name":"a/1","size":2}']
    (tmp_path / "m.jsonl").write_text("\n".join([*lines, '{"entries":2,"bytes":2}', ""]))
    fs = ManifestFS(data, tmp_path / "m.jsonl")
    with pytest.raises(CorruptFileError, match=r"'a/1' is not in its place.*m\.jsonl"):
        list(itertools.islice(fs.list(), 100))
