"""Tar, read: every format that others write, names, links, sparse files; against tarfile and the tar command."""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from fsabs import CorruptFileError, Limits, Local, Memory
from fsabs.containers.tar import Tar

from .stores import CountingFS
from .tarballs import COMPRESS, contents, entry, opened, tarball

pytestmark = pytest.mark.quick

TREE = {"a.txt": b"alpha", "dir/b.bin": bytes(range(256)) * 10, "dir/sub/c": b"", "ü/ñ €.txt": b"unicode"}


@pytest.mark.parametrize("kind", COMPRESS)
def test_reads_what_tarfile_writes(kind: str) -> None:
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        tar = opened(COMPRESS[kind](tarball(TREE, form)))
        assert contents(tar) == TREE
        assert tar.compression == kind
        assert tar.verify() == []
        assert list(tar.read_many(TREE)) == list(TREE.values())


def test_the_content_tells_the_compression_and_not_the_name() -> None:
    assert opened(COMPRESS["xz"](tarball(TREE)), "a.tar.gz").compression == "xz"
    assert opened(tarball(TREE), "a.tgz").compression == "none"
    assert contents(opened(tarball({"BZh91AY&SY": b"1"}))) == {"BZh91AY&SY": b"1"}


@pytest.mark.parametrize("form", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_reads_what_the_tar_command_writes(form: str, tmp_path: Path) -> None:
    names = {"short": b"1", "d/two": b"22"}
    if form != "v7":
        names["d/" + "deep/" * 25 + "x"] = b"333"  # over 100 bytes, in a prefix where there is one
    if form in ("gnu", "oldgnu", "posix"):
        names["n" * 180 + "/" + "m" * 200] = b"4444"
    for name, data in names.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    subprocess.run(["tar", "-C", tmp_path / "in", f"--format={form}", "-cf", tmp_path / "a.tar", "."], check=True)
    tar = Tar(Local(tmp_path), "a.tar")
    assert contents(tar) == names
    assert tar.verify() == []
    assert tar.isdir("d")
    assert tar.stat("short").last_modified == pytest.approx((tmp_path / "in/short").stat().st_mtime, abs=1)


def test_reads_what_the_commands_compress(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 100_000)
    for compress in ("gzip", "bzip2", "xz", "zstd"):
        options = (f"--use-compress-program={compress}", "-cf", tmp_path / "a")
        subprocess.run(["tar", "-C", tmp_path, *options, "x"], check=True)
        assert Tar(Local(tmp_path), "a").read_bytes("x") == b"x" * 100_000


def test_metadata() -> None:
    when = 1_700_000_000.25
    tar = opened(tarball([(entry("f", mode=0o640, mtime=when), b"12"), (entry("d", tarfile.DIRTYPE, mode=0o700), b"")]))
    found = tar.stat("f")
    assert (found.size, found.mode, found.last_modified) == (2, stat.S_IFREG | 0o640, when)
    assert found.version == tar.parent.stat("a.tar").version
    directory = tar.stat("d")
    assert (directory.mode, directory.directory, directory.last_modified) == (stat.S_IFDIR | 0o700, True, 0)
    assert tar.info()["entries"] == 2


def test_big_numbers_and_negative_times() -> None:
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        tar = opened(tarball([(entry("old", mtime=-5), b"1"), (entry("late", mtime=2**40), b"2")], form))
        assert tar.stat("old").last_modified == -5
        assert tar.stat("late").last_modified == 2**40


# ---- names


def test_names_are_normalised() -> None:
    names = ["./a/b", "./a//c", "a/./d", "e/"]
    tar = opened(tarball([(entry(n, tarfile.DIRTYPE if n.endswith("/") else tarfile.REGTYPE), b"") for n in names]))
    assert list(tar.list(recursive=True)) == ["a/", "a/b", "a/c", "a/d", "e/"]
    old = opened(tarball([(entry("d/", tarfile.AREGTYPE), b""), (entry("d/x", tarfile.AREGTYPE), b"1")]))
    assert list(old.list(recursive=True)) == ["d/", "d/x"]  # a directory is a file with a slash
    root = opened(tarball([(entry("./", tarfile.DIRTYPE), b""), (entry("."), b""), (entry("x"), b"1")]))
    assert list(root.list()) == ["x"]
    assert [p.kind for p in root.verify()] == ["unsafe name"]


def test_names_that_are_no_utf8_are_kept() -> None:
    raw = tarball({"AB": b"x"}, tarfile.USTAR_FORMAT)
    header = bytearray(raw[:512])
    header[:2] = b"\xff\xe9"
    tar = opened(resum(bytes(header)) + raw[512:])
    (name,) = tar.list()
    assert os.fsencode(name) == b"\xff\xe9"
    assert tar.read_bytes(name) == b"x"
    assert tar.url(name).endswith("/%FF%E9")


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a/../x", ".."])
def test_a_hostile_name_is_unreachable_and_hurts_no_other(name: str) -> None:
    for kind in (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE):
        tar = opened(tarball([(entry("good"), b"1"), (entry(name, kind, linkname="good"), b""), (entry("also"), b"2")]))
        assert contents(tar) == {"good": b"1", "also": b"2"}
        with pytest.raises(PermissionError) as caught:
            tar.open(name, "rb")
        assert caught.value.errno == errno.EACCES
        assert caught.value.filename.startswith("memory:///a.tar")
        assert [(p.path.rstrip("/"), p.kind) for p in tar.verify()] == [(name, "unsafe name")]
    assert opened(tarball([(entry("x"), b"good"), (entry("/x"), b"evil")])).read_bytes("/x") == b"good"


@pytest.mark.parametrize(
    ("entries", "found", "problems"),
    [
        ([("x", b"first"), ("y", b""), ("./x", b"second")], {"x": b"second", "y": b""}, [("./x", "duplicate")]),
        ([("x", b"file"), ("x/y", b"inside")], {"x": b"file", "x/y": b"inside"}, [("x", "conflict")]),
        ([(entry("d", tarfile.CHRTYPE), b""), (entry("d", tarfile.FIFOTYPE), b"")], {}, [("d", "special file")] * 2),
        ([(entry("label of a volume", b"V"), b""), (entry("unknown", b"Z"), b"1")], {"unknown": b"1"}, []),
    ],
)
def test_odd_entries_are_told_by_verify(
    entries: list[tuple[str | tarfile.TarInfo, bytes]], found: dict[str, bytes], problems: list[tuple[str, str]]
) -> None:
    tar = opened(tarball(entries))
    assert contents(tar) == found
    assert [(one.path, one.kind) for one in tar.verify()] == problems


def test_a_part_of_several_volumes_is_refused() -> None:
    with pytest.raises(CorruptFileError, match="another volume"):
        opened(tarball([(entry("x", b"M"), b"12")]))


# ---- pax


def test_global_headers_and_their_exceptions() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"mtime": "77"}) as archive:
        archive.addfile(entry("a"))
        own = entry("b")
        own.pax_headers = {"mtime": "88"}
        archive.addfile(own)
    tar = opened(out.getvalue())
    assert (tar.stat("a").last_modified, tar.stat("b").last_modified) == (77, 88)


def test_a_pax_size_counts_and_not_the_headers() -> None:
    data = tarball([(entry("x", pax_headers={"size": "3", "comment": "c"}), b"123")])
    at = data.rindex(b"x\0\0\0\0", 0, 2000)
    tar = opened(
        data[:at] + resum(data[at : at + 124] + b"00000000000\0" + data[at + 136 : at + 512]) + data[at + 512 :]
    )
    assert tar.read_bytes("x") == b"123"


def test_an_empty_pax_value_takes_the_record_back() -> None:
    tar = opened(tarball([(entry("short", pax_headers={"path": "", "mtime": "nan"}, mtime=5), b"1")]))
    assert contents(tar) == {"short": b"1"}
    assert tar.stat("short").last_modified == 5


def test_a_time_that_no_file_can_be_given_is_none() -> None:
    for time in ("1e30", "-1e30", "inf"):
        tar = opened(tarball([(entry("late", pax_headers={"mtime": time}, mtime=5), b"1")]))
        assert tar.stat("late").last_modified == 5
    tar = opened(tarball([(entry("late", mtime=2**65), b"1")], tarfile.GNU_FORMAT))
    assert tar.stat("late").last_modified is None


@pytest.mark.parametrize("record", [b"9 path=x", b"99 path=x\n", b"path=x\n", b"7 path\n", b"0 a=b\n", b"-5 a=b\n"])
def test_a_bad_pax_record_is_an_error(record: bytes) -> None:
    with pytest.raises(CorruptFileError, match="pax record.*offset 0"):
        opened(tarball([(entry("h", tarfile.XHDTYPE), record), (entry("x"), b"")], tarfile.USTAR_FORMAT))


@pytest.mark.parametrize(
    ("field", "message"),
    [(b"00000000008\0", "no octal number"), (b"\xff" * 12, "negative size"), (b"0x10\0" + bytes(7), "no octal")],
)
def test_a_size_that_is_none(field: bytes, message: str) -> None:
    data = tarball({"a": b"", "x": b"1"}, tarfile.USTAR_FORMAT)
    with pytest.raises(CorruptFileError, match=f"{message}.*offset 512"):
        opened(data[:512] + resum(data[512:636] + field + data[648:1024]) + data[1024:])


def test_a_mode_or_a_time_that_is_none_is_no_reason_to_lose_a_file() -> None:
    data = tarball({"x": b"1"}, tarfile.USTAR_FORMAT)
    tar = opened(resum(data[:100] + b"garbage\0" + data[108:136] + b"whenever.." + data[146:512]) + data[512:])
    found = tar.stat("x")
    assert (tar.read_bytes("x"), found.mode, found.last_modified) == (b"1", stat.S_IFREG | 0o644, None)


def test_signed_checksums_of_old_writers() -> None:
    header = bytearray(tarball({"AB": b"x"}, tarfile.USTAR_FORMAT)[:512])
    header[:2] = b"\xc3\xbc"
    signed = sum(byte - 256 * (byte > 127) for at, byte in enumerate(header) if not 148 <= at < 156) + 256
    header[148:156] = b"%06o\0 " % signed
    assert contents(opened(bytes(header) + b"x" + bytes(511 + 1024))) == {"ü": b"x"}


def test_long_links_of_gnu_and_pax() -> None:
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        target = "long/" * 50 + "target"
        link = entry("link/" * 50 + "l", tarfile.LNKTYPE, linkname=target)
        assert set(contents(opened(tarball([(entry(target), b"1"), (link, b"")], form))).values()) == {b"1"}


def test_an_extended_header_with_nothing_behind_it_is_an_error() -> None:
    with pytest.raises(CorruptFileError, match="no member behind"):
        opened(tarball([(entry("x"), b""), (entry("h", tarfile.XHDTYPE), b"9 path=x\n")], tarfile.USTAR_FORMAT))


def test_an_extended_header_of_gigabytes_is_a_lie() -> None:
    lie = tarball([(entry("x", pax_headers={"comment": "c"}), b"")])
    with pytest.raises(OSError, match="extended headers.*8589935103 bytes.*max_header_bytes"):
        opened(resum(lie[:124] + b"77777777777\0" + lie[136:512]) + lie[512:])


# ---- links


def test_links_inside_the_archive() -> None:
    tar = opened(
        tarball(
            [
                (entry("d/real"), b"data"),
                (entry("hard", tarfile.LNKTYPE, linkname="./d/real"), b""),
                (entry("soft", tarfile.SYMTYPE, linkname="d/real"), b""),
                (entry("d/up", tarfile.SYMTYPE, linkname="../soft"), b""),
                (entry("dir", tarfile.SYMTYPE, linkname="d/"), b""),
                (entry("both", tarfile.LNKTYPE, linkname="soft"), b""),
            ]
        )
    )
    assert {n: tar.read_bytes(n) for n in ("hard", "soft", "d/up", "both", "dir/real", "dir/up")} == dict.fromkeys(
        ("hard", "soft", "d/up", "both", "dir/real", "dir/up"), b"data"
    )
    assert tar.stat("soft").size == 4
    assert list(tar.list()) == ["both", "d/", "dir/", "hard", "soft"]
    assert list(tar.list("dir")) == ["real", "up"]
    assert list(tar.list(recursive=True)) == [
        *("both", "d/", "d/real", "d/up", "dir/", "dir/real", "dir/up", "hard", "soft")
    ]
    assert tar.verify() == []
    assert tar.subfs("dir").read_bytes("real") == b"data"


def test_a_hard_link_keeps_what_was_there_when_it_was_made() -> None:
    link = entry("link", tarfile.LNKTYPE, linkname="x")
    tar = opened(tarball([(entry("x"), b"old"), (link, b""), (entry("x"), b"new")]))
    assert (tar.read_bytes("link"), tar.read_bytes("x")) == (b"old", b"new")


def test_hard_links_before_their_target() -> None:
    links = [(entry(f"l{i}", tarfile.LNKTYPE, linkname=f"l{i + 1}"), b"") for i in range(3)]
    tar = opened(tarball([*links, (entry("l3"), b"end")]))
    assert set(contents(tar).values()) == {b"end"}
    circle = opened(tarball([(entry(f"c{i}", tarfile.LNKTYPE, linkname=f"c{1 - i}"), b"") for i in range(2)]))
    assert [p.kind for p in circle.verify()] == ["lost link"] * 2


@pytest.mark.parametrize("target", ["a", "nothing", "l"])
def test_a_link_gives_way_to_a_directory_of_its_name(target: str) -> None:
    """Else it would be listed twice, as the one and the other."""
    link = entry("l", tarfile.SYMTYPE, linkname=target), b""
    tar = opened(tarball([("a/b", b"b"), link, ("l/x", b"x"), ("z", b"z")]))
    assert list(tar.list(recursive=True)) == ["a/", "a/b", "l/", "l/x", "z"]
    assert contents(tar) == {"a/b": b"b", "l/x": b"x", "z": b"z"}
    assert [(one.path, one.kind) for one in tar.verify()] == [("l", "lost link")]
    copied = Memory()
    tar.copy_tree("", "", copied)
    assert contents(copied) == contents(tar)


@pytest.mark.parametrize("target", ["nothing", "/etc/passwd", "../../x", "x/deeper"])
def test_a_lost_link_is_listed_and_not_found(target: str) -> None:
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        tar = opened(tarball([(entry("x"), b"1"), (entry("lost", kind, linkname=target), b"")]))
        (listed, _) = tar.list(detail=True)
        assert (listed.filename, listed.size, stat.S_ISLNK(listed.mode)) == ("lost", 0, True)
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            tar.open("lost")
        assert not tar.exists("lost")
        assert [(p.path, p.kind) for p in tar.verify()] == [("lost", "lost link")]


def test_links_in_a_circle_end() -> None:
    tar = opened(
        tarball(
            [
                (entry("a", tarfile.SYMTYPE, linkname="b"), b""),
                (entry("b", tarfile.SYMTYPE, linkname="a"), b""),
                (entry("d/self", tarfile.SYMTYPE, linkname="."), b""),
                (entry("d/top", tarfile.SYMTYPE, linkname=".."), b""),
                (entry("d/x"), b"1"),
            ]
        )
    )
    with pytest.raises(OSError) as caught:
        tar.read_bytes("a")
    assert caught.value.errno == errno.ELOOP
    assert list(tar.list("d", recursive=True)) == ["self/", "top/", "top/a", "top/b", "top/d/", "x"]
    assert tar.read_bytes("d/self/self/top/d/x") == b"1"


# ---- sparse files


def _with_holes(path: Path, data: bytes) -> None:
    """Write a file of which the blocks of zeros are holes."""
    with path.open("wb") as file:
        for at in range(0, len(data), 4096):
            file.seek(at)
            if data[at : at + 4096].count(0) < 4096:
                file.write(data[at : at + 4096])
        file.truncate(len(data))


def _sparse_file(path: Path) -> bytes:
    data = bytearray(8192 * 150 + 17)
    for at in (0, 3, 20, 21, 40, 60, 99, 120):
        data[8192 * at : 8192 * at + 4096] = os.urandom(4096)
    _with_holes(path, bytes(data))
    return bytes(data)


def packed(folder: Path, *names: str, options: tuple[str, ...] = ()) -> bytes:
    """The bytes of a tar that the command makes of sparse files."""
    sparse = ("--sparse", "--hole-detection=raw")
    subprocess.run(["tar", "-C", folder, *sparse, *options, "-cf", folder / "a.tar", *names], check=True)
    return (folder / "a.tar").read_bytes()


@pytest.mark.parametrize(
    "options", [("--format=gnu",), *(("--format=posix", f"--sparse-version={v}") for v in ("0.0", "0.1", "1.0"))]
)
def test_sparse_files_as_the_tar_command_writes_them(options: tuple[str, ...], tmp_path: Path) -> None:
    data = _sparse_file(tmp_path / "sparse")
    (tmp_path / "after").write_bytes(b"after")
    archive = packed(tmp_path, "sparse", "after", options=options)
    assert len(archive) < len(data) // 2
    for kind in ("none", "gz"):
        tar = opened(COMPRESS[kind](archive))
        assert tar.stat("sparse").size == len(data)
        assert contents(tar) == {"sparse": data, "after": b"after"}
        with tar.open("sparse", "rb") as file:
            for at in range(0, len(data), 7919):
                file.seek(at)
                assert file.read(9000) == data[at : at + 9000]
        blob = tar.open_blob("sparse")
        wanted = [(5000, 20_000), (0, 3), (10, len(data) - 4)]
        assert blob.pread_many(wanted) == [data[20_000:25_000], b"", data[-4:]]


def test_a_sparse_file_takes_one_read_of_the_store(tmp_path: Path) -> None:
    expected = b"".join([b"x" * 4096 + bytes(4096)] * 500)
    _with_holes(tmp_path / "sparse", expected)
    packed(tmp_path, "sparse")
    store = CountingFS(Local(tmp_path))
    with Tar(store, "a.tar") as tar, tar.open_blob("sparse") as blob:
        store.taken()
        assert blob.read_all() == expected
        assert len(store.taken()) == 1


def test_an_archive_in_a_sparse_file(tmp_path: Path) -> None:
    expected = {"zeros": bytes(1_000_000), "data": os.urandom(1000) * 1000}
    _with_holes(tmp_path / "inner", tarball(expected))
    assert len(packed(tmp_path, "inner")) < 1_200_000
    assert contents(Tar(Tar(Local(tmp_path), "a.tar"), "inner")) == expected


@pytest.mark.parametrize(
    ("records", "payload"),
    [
        ({"GNU.sparse.major": "2", "GNU.sparse.realsize": "9"}, b"1"),
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}, b"0\n".ljust(512, b"\0")),
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}, b"x\n".ljust(512, b"\0")),
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}, b"9\n1\n".ljust(512, b"\0")),
        ({"GNU.sparse.map": "", "GNU.sparse.size": "x"}, b""),
    ],
)
def test_sparse_records_that_cant_be(records: dict[str, str], payload: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"sparse.*offset \d+"):
        opened(tarball([(entry("x", pax_headers=records), payload)]))


@pytest.mark.parametrize("wrong", ["0,4,2,4", "0,99", "0,4", "0", "x,1", "8,4,0,4"])
def test_a_sparse_map_that_cant_be_is_an_error(wrong: str) -> None:
    records = {"GNU.sparse.map": wrong, "GNU.sparse.size": "20", "GNU.sparse.name": "x"}
    with pytest.raises(CorruptFileError, match=r"sparse map.*offset \d+"):
        opened(tarball([(entry("x", pax_headers=records), b"12345678")]))


def test_a_sparse_file_of_a_size_that_none_has() -> None:
    for size in (2**63, 2**64):
        told = {"GNU.sparse.map": "", "GNU.sparse.realsize": str(size)}
        # as many members as make it worthwhile to keep the index, which has 64 bits for a size
        members = [(f"{n:02}", b"") for n in range(40)] + [(entry("sparse", pax_headers=told), b"")]
        with pytest.raises(CorruptFileError, match=str(size)) as caught:
            opened(tarball(members))
        assert caught.value.filename == "memory:///a.tar"
    head = entry("sparse", b"S").tobuf(tarfile.GNU_FORMAT)
    old = resum(head[:483] + b"\x80" + (2**64).to_bytes(11, "big") + head[495:])
    with pytest.raises(CorruptFileError, match="one that no file has"):
        opened(old + bytes(1024))
    told = {"GNU.sparse.map": "0,1", "GNU.sparse.realsize": str(2**63 - 1)}
    tar = opened(tarball([(entry("sparse", pax_headers=told), b"x")]), limits=Limits(max_ratio=None))
    assert tar.stat("sparse").size == 2**63 - 1
    with tar.open("sparse", "rb") as file:
        assert file.read(3) == b"x\0\0"
        file.seek(2**63 - 3)
        assert file.read(10) == b"\0\0"


# ---- ends


def test_an_empty_tar() -> None:
    for data in (tarball({}), bytes(1024), COMPRESS["gz"](tarball({}))):
        tar = opened(data)
        assert list(tar.list()) == []
        assert tar.verify() == []


def test_padding_is_fine_and_other_data_behind_the_end_is_told() -> None:
    data = tarball(TREE)
    assert opened(data + bytes(100_003)).verify() == []
    for archive in (data + b"more", COMPRESS["gz"](data + b"more")):
        tar = opened(archive)
        assert contents(tar) == TREE
        assert [p.kind for p in tar.verify()] == ["trailing data"]


def test_options_of_writing_are_refused_when_reading() -> None:
    parent = Memory()
    parent.write_bytes("a.tar", tarball(TREE))
    for options in ({"compression": "gz"}, {"compresslevel": 3}, {"timestamp": 5.0}):
        with pytest.raises(ValueError, match="for a tar that is written"):
            parent.open_container("a.tar", **options)


def resum(block: bytes) -> bytes:
    """A header with its checksum made right."""
    assert len(block) == 512
    total = sum(block[:148]) + 256 + sum(block[156:])
    return block[:148] + b"%06o\0 " % total + block[156:]
