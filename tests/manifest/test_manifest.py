"""Manifests in each format: what they hold, that they are deterministic, merged, and refused where they are damaged."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsabs
from fsabs import CorruptFileError, Local, Memory, StaleFileError, manifest
from fsabs.manifest import Manifest, ManifestEntry, ManifestSummary
from fsabs.manifest.entries import in_order

pytestmark = pytest.mark.quick

FILES = {
    "a.txt": b"1",
    "a/1": b"22",
    "a/b/2": b"333",
    "a/b.c": b"",
    "émile/ü 100%?#.jpg": b"4444",
    'quote"back\\slash': b"5",
    "new\nline": b"6",
    "z\U0001f600": b"7",
    "z\uffff": b"8",
    "large": bytes(range(256)) * 8192,
}
SUFFIXES = [".jsonl", ".parquet"]


def tree(fs: fsabs.FS, files: dict[str, bytes] | None = None) -> fsabs.FS:
    for name, content in (FILES if files is None else files).items():
        if "/" in name:
            fs.makedirs(name.rpartition("/")[0], exist_ok=True)
        fs.write_bytes(name, content)
    return fs


@pytest.fixture
def data(tmp_path: Path) -> fsabs.FS:
    (tmp_path / "data").mkdir()
    return tree(Local(tmp_path / "data"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_manifest_has_every_file(data: fsabs.FS, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"m{suffix}"
    summary = manifest.create(data, path)
    assert summary == ManifestSummary(len(FILES), sum(map(len, FILES.values())))
    with Manifest(path) as found:
        assert (len(found), found.bytes) == summary
        entries = list(found)
        assert [entry.name for entry in entries] == sorted(FILES)
        for entry in entries:
            digest = manifest.entries.digest_of("sha256", [FILES[entry.name]])
            assert entry == ManifestEntry(entry.name, len(FILES[entry.name]), data.stat(entry.name).version, digest)
            assert found.find(entry.name) == entry
            assert next(found.scan(entry.name)) == entry
        assert found.find("a") is None
        assert found.find("a/b") is None
        assert found.find("zz") is None
        assert [entry.name for entry in found.scan("new")] == sorted(name for name in FILES if name >= "new")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_names_are_found_in_a_long_manifest(tmp_path: Path, suffix: str) -> None:
    entries = sorted(ManifestEntry(f"d{at // 100:04}/{at % 100:02}" + "x" * (at % 300), at) for at in range(6000))
    names = {entry.name for entry in entries}
    with open(tmp_path / f"m{suffix}", "wb") as file:
        manifest.formats.write(file, suffix, entries)
    with Manifest(tmp_path / f"m{suffix}") as found:
        assert list(found) == entries
        for entry in random.Random(1).sample(entries, 200):
            assert found.find(entry.name) == entry
            assert found.find(entry.name + "\x01") is None
            assert found.find(entry.name[:-1]) is None or entry.name[:-1] in names
        assert next(found.scan("zz"), None) is None


def test_names_that_are_no_text(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.jpg")).write_bytes(b"1")
    fs = Local(folder)
    manifest.create(fs, tmp_path / "m.jsonl")
    assert [entry.name for entry in Manifest(tmp_path / "m.jsonl")] == ["\udcff.jpg"]
    assert fsabs.from_url(folder, manifest=tmp_path / "m.jsonl").read_bytes("\udcff.jpg") == b"1"
    with pytest.raises(ValueError, match="Parquet has no name that is not UTF-8"):
        manifest.create(fs, tmp_path / "m.parquet")
    assert not (tmp_path / "m.parquet").exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_data_set_gives_the_same_bytes(data: fsabs.FS, tmp_path: Path, suffix: str) -> None:
    copy = tree(Memory("data"), dict(sorted(FILES.items(), reverse=True)))
    for fs, name in ((data, "one"), (data, "two"), (copy, "three")):
        manifest.create(fs, tmp_path / f"{name}{suffix}", versions=False)
    one, two, three = ((tmp_path / f"{name}{suffix}").read_bytes() for name in ("one", "two", "three"))
    assert one == two == three


def test_a_manifest_in_the_data_set_is_not_part_of_it(data: fsabs.FS) -> None:
    url = f"{data.url()}/a/m.jsonl"
    for _ in range(2):
        assert manifest.create(data, url).entries == len(FILES)
    with Manifest(url) as found:
        assert list(manifest.check(data, found, digests=True)) == []


def test_a_pipe_is_no_part_of_a_data_set_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/empty").touch()
    os.mkfifo(tmp_path / "data/pipe")
    with pytest.raises(OSError, match="a pipe, a socket or a device is not read") as caught:
        manifest.create(Local(tmp_path / "data"), tmp_path / "m.jsonl")
    assert caught.value.filename == (tmp_path / "data/pipe").as_uri()
    assert manifest.create(Local(tmp_path / "data"), tmp_path / "m.jsonl", digest=None).entries == 2


def test_empty_directories_are_entries(data: fsabs.FS, tmp_path: Path) -> None:
    data.makedirs("nothing/here")
    manifest.create(data, tmp_path / "m.jsonl")
    with Manifest(tmp_path / "m.jsonl") as found:
        assert [entry for entry in found if entry.directory] == [ManifestEntry("nothing/here/", 0)]
    fs = fsabs.from_url(data.url(), manifest=tmp_path / "m.jsonl")
    assert sorted(fs.list(recursive=True)) == sorted(data.list(recursive=True))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_parts_are_merged_to_the_whole(data: fsabs.FS, tmp_path: Path, suffix: str) -> None:
    manifest.create(data, tmp_path / f"whole{suffix}")
    for name, only in (("a.jsonl", ["a"]), ("é.parquet", ["émile"]), ("both.jsonl", ["émile", "a", "a/b"])):
        manifest.create(data, tmp_path / name, only=only)
    with Manifest(tmp_path / "both.jsonl") as both:
        assert [entry.name for entry in both] == sorted(name for name in FILES if name.startswith(("a/", "é")))
    manifest.create(data, tmp_path / "all.jsonl")
    names = [tmp_path / name for name in ("a.jsonl", "all.jsonl", "é.parquet")]
    assert manifest.merge(names, tmp_path / f"merged{suffix}").entries == len(FILES)
    whole, merged = (list(Manifest(tmp_path / f"{name}{suffix}")) for name in ("whole", "merged"))
    assert whole == merged
    data.write_bytes("a/1", b"new")
    manifest.create(data, tmp_path / "later.jsonl")
    with pytest.raises(ValueError, match="the entries of 'a/1' differ"):
        manifest.merge([tmp_path / "all.jsonl", tmp_path / "later.jsonl"], tmp_path / "two.jsonl")
    assert not (tmp_path / "two.jsonl").exists()


def test_parts_of_a_store_that_lists_in_order(tmp_path: Path) -> None:
    """Parts that overlap, and that come in another order than what is in them."""
    with tree(fsabs.Memory("ordered"), {"a/x": b"1", "a/b/y": b"2", "a-b/z": b"3", "c": b"4"}) as fs:
        for only in (["a", "a-b"], ["a/b", "a-b", "a"]):
            manifest.create(fs, tmp_path / "m.jsonl", only=only)
            with Manifest(tmp_path / "m.jsonl") as found:
                assert [entry.name for entry in found] == ["a-b/z", "a/b/y", "a/x"]
        manifest.create(fs, tmp_path / "m.jsonl", only=["a", "", "c/.."])
        with Manifest(tmp_path / "m.jsonl") as found:
            assert len(found) == 4


def test_names_count_from_the_root_wherever_an_fs_stands(data: fsabs.FS, tmp_path: Path) -> None:
    manifest.create(data, tmp_path / "m.jsonl")
    data.cwd = "/" + data.cwd.strip("/") + "/a"
    with Manifest(tmp_path / "m.jsonl") as pinned:
        assert list(manifest.check(data, pinned, digests=True)) == []
    manifest.create(data, data.url("here.jsonl"))
    manifest.create(data, data.url("here.jsonl"))
    with Manifest(data.url("here.jsonl")) as found:
        assert [entry.name for entry in found] == sorted(name for name in FILES if name.startswith("a/"))


def test_more_entries_than_fit_into_memory_are_sorted() -> None:
    names = [f"{at:x}/\U0001f600é" for at in range(1000)]
    random.Random(1).shuffle(names)
    found = in_order((ManifestEntry(name, len(name), '"v"') for name in names), in_memory=64)
    assert list(found) == [ManifestEntry(name, len(name), '"v"') for name in sorted(names)]


def test_a_manifest_is_the_same_one_after_pickling(data: fsabs.FS, tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    manifest.create(data, path)
    with Manifest(path) as found:
        pickled = pickle.dumps(found)
        assert list(pickle.loads(pickled)) == list(found)
    data.write_bytes("new", b"")
    manifest.create(data, path)
    with pytest.raises(StaleFileError, match="changed since it was pickled"):
        pickle.loads(pickled)


def test_other_suffixes_are_refused(data: fsabs.FS, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a manifest's name ends in .jsonl \(JSON lines\), .parquet"):
        manifest.create(data, tmp_path / "m.json")
    with pytest.raises(ValueError, match="digest must be sha256 or md5 or None, not 'crc'"):
        manifest.create(data, tmp_path / "m.jsonl", digest="crc")


# ---- damaged manifests

HEADING = b'{"manifest":"fsabs","format":1}\n'


def jsonl(*entries: bytes, count: int | None = None, total: int = 0) -> bytes:
    lines = b"".join(entry + b"\n" for entry in entries)
    return HEADING + lines + b'{"entries":%d,"bytes":%d}\n' % (len(entries) if count is None else count, total)


ONE = b'{"name":"a","size":0}'
DAMAGES = {
    b"": "does not begin as a manifest",
    b'{"manifest":"fsabs","format":2}\n{"entries":0,"bytes":0}\n': "a manifest of format 2",
    HEADING: "it was cut off",
    jsonl(ONE)[:-1]: "it was cut off",
    jsonl(ONE)[:-24]: "it was cut off",
    jsonl(ONE, count=2): "1 entries of 0 bytes, where its last line has 2 of 0",
    jsonl(b'{"name":"a","size":1}'): "1 entries of 1 bytes, where its last line has 1 of 0",
    jsonl(b'{"name":"../a","size":0}'): "'../a' is no path in a data set",
    jsonl(b'{"name":"/etc/passwd","size":0}'): "'/etc/passwd' is no path",
    jsonl(b'{"name":"a//b","size":0}'): "is no path",
    jsonl(b'{"name":"a\\u0000","size":0}'): "is no path",
    jsonl(b'{"name":7,"size":0}'): "7 is no path",
    jsonl(b'{"name":"a","size":-1}'): "'a' has the size -1",
    jsonl(b'{"name":"a","size":true}'): "'a' has the size True",
    jsonl(b'{"name":"a/","size":1}'): "'a/' has the size 1",
    jsonl(b'{"name":"a"}'): "an entry lacks fields",
    jsonl(b'{"name":"a","size":0,"more":1}'): "a line has no entry",
    jsonl(b'{"name":"a","size":0,"version":1}'): "'a' has the version 1",
    jsonl(b'{"name":"a","size":0,"digest":"sha256:00"}'): "'a' has the digest",
    jsonl(b"[]"): "a line has no entry",
    jsonl(b'{"name":"a"'): "at offset 32",
    jsonl(b'{"name":"b","size":0}', ONE): "'a' stands after 'b'",
    jsonl(ONE, ONE): "'a' stands after 'a'",
    jsonl(b'{"name":"' + b"a" * 3_000_000 + b'","size":0}'): "a line without an end",
}


@pytest.mark.parametrize("content", DAMAGES, ids=DAMAGES.values())
def test_damaged_json_lines(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.jsonl").write_bytes(content)
    with pytest.raises(CorruptFileError) as caught:
        list(Manifest(tmp_path / "m.jsonl"))
    assert DAMAGES[content] in str(caught.value)
    assert str(tmp_path) in caught.value.filename


def test_damaged_parquet(data: fsabs.FS, tmp_path: Path) -> None:
    path = tmp_path / "m.parquet"
    manifest.create(data, path)
    whole = path.read_bytes()
    for damaged in (b"", b"PAR1", whole[:-20], whole[: len(whole) // 2], b"PAR1" + whole[4:-4] + b"PARX"):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match="no manifest in Parquet"):
            Manifest(path)
    pq.write_table(pa.table({"name": ["a"], "size": [1]}), path)
    with pytest.raises(CorruptFileError, match="no manifest in Parquet"):
        Manifest(path)
    for name in ("../up", "b"):
        table = pa.table({"name": [name, "a"], "size": [1, 1], "version": pa.nulls(2, "string")})
        table = table.append_column("digest", pa.nulls(2, "string"))
        counts = {"manifest": "fsabs", "entries": "2", "bytes": "2"}
        pq.write_table(table.replace_schema_metadata(counts), path)
        with pytest.raises(CorruptFileError, match="is no path in a data set|'a' stands after 'b'"):
            list(Manifest(path))
