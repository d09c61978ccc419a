"""The files of datacenters, by their paths: `/pfs/<datacenter>/home/<user>/...`, without a mount."""

from __future__ import annotations

import errno
import itertools
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import config, roots
from fsabs.errors import ConfigError, ConfigWarning
from fsabs.readers import convert, paddle
from tests.servers.ceph import CephGateway
from tests.servers.hdfs import HdfsCluster

FILES = {"home/wuyi/data/a.txt": b"mine", "home/bob/b.txt": b"bob's", "common/c.txt": b"for all"}
_number = itertools.count(1)
Configure = Callable[..., None]


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Return the function that writes a datacenter to the configuration."""
    path = tmp_path / "pfio.ini"
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(path))
    roots.clear()  # of the datacenters of other tests

    def write(name: str, **keys: str) -> None:
        with open(path, "a") as file:
            file.write("\n".join([f"[{name}]", *(f"{key} = {value}" for key, value in keys.items()), "", ""]))

    return write


@pytest.fixture
def local(configure: Configure, tmp_path: Path) -> Path:
    """The directory of the datacenter `datacenter_1`, on the local disk."""
    base = tmp_path / "srv"
    for name, data in FILES.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(data)
    configure("datacenter_1", pfs=str(base), username="wuyi")
    return base


@pytest.fixture(params=["local", "s3", "hdfs"])
def center(request: pytest.FixtureRequest, configure: Configure, tmp_path: Path) -> str:
    """A datacenter on each kind of store, as `/pfs/<name>`."""
    if request.param == "local":
        request.getfixturevalue("local")
        return "/pfs/datacenter_1"
    options: dict[str, Any] = {}
    if request.param == "s3":
        gateway: CephGateway = request.getfixturevalue("ceph")
        bucket = f"pfs{next(_number)}"
        gateway.create_bucket(bucket)
        options = {
            "endpoint": gateway.endpoint,
            "aws_access_key_id": gateway.access_key,
            "aws_secret_access_key": gateway.secret_key,
            "region": gateway.region,
        }
        url = f"s3://{bucket}/files"
    else:
        cluster: HdfsCluster = request.getfixturevalue("hdfs")
        url = f"{cluster.url}/pfs{next(_number)}"
    with fsabs.from_url(url, create=True, **options) as fs:
        for name, data in FILES.items():
            if not fs.capabilities.implied_directories:
                fs.makedirs(os.path.dirname(name), exist_ok=True)
            fs.write_bytes(name, data)
    configure("dc-2", pfs=url, username="wuyi", **options)
    return "/pfs/dc-2"


@pytest.mark.timeout(200)  # the start of a server
def test_files_are_read_and_written_by_their_paths(center: str) -> None:
    with fsabs.open_url(f"{center}/home/wuyi/data/a.txt", "rb") as file:
        assert file.read() == b"mine"
    with fsabs.open_url(f"{center}/home/wuyi/new.txt", "w") as text:
        text.write("new")
    with fsabs.from_url(f"{center}/home/wuyi") as fs:
        assert fs.url("new.txt") == f"pfs:/{center.removeprefix('/pfs')}/home/wuyi/new.txt"
        assert sorted(fs.list("", recursive=True)) == ["data/", "data/a.txt", "new.txt"]
        copied = pickle.loads(pickle.dumps(fs))
        assert list(copied.read_many(["data/a.txt", "new.txt"])) == [b"mine", b"new"]
        fs.makedirs("deep/er")
        assert fs.write_many([("deep/1", b"1"), ("deep/er/2", b"2")]) == 2
        fs.rename("deep/1", "deep/3")
        fs.copy("deep/3", "deep/4")
        fs.remove("deep", recursive=True)
        with fs.open_container("a.zip", "w") as packed:
            packed.write_bytes("in/x", b"packed")
    assert fsabs.from_url(f"{center}/home/wuyi/a.zip/in").read_bytes("x") == b"packed"
    with fsabs.open_url(f"{center}/common/c.txt") as common:
        assert common.read() == "for all"
    assert fsabs.from_url(f"{center}/home/bob").read_bytes("b.txt") == b"bob's"
    assert fsabs.Path(f"{center}/home/wuyi/new.txt").read_bytes() == b"new"
    assert fsabs.from_url(f"pfs:/{center.removeprefix('/pfs')}/home").read_bytes("wuyi/new.txt") == b"new"


Change = Callable[[fsabs.FS, str], object]
REMOVALS: list[Change] = [
    lambda fs, path: fs.rename(path, "moved"),
    lambda fs, path: fs.remove(path, recursive=fs.isdir(path)),
]
CHANGES: list[Change] = [
    lambda fs, path: fs.write_bytes(path, b"x"),
    lambda fs, path: fs.write_many([(path, b"x")]),
    lambda fs, path: fs.open(path, "xb").close(),
    lambda fs, path: fs.mkdir(f"{path}/new") if path != "home/wuyi" else fs.remove(path, recursive=True),
    lambda fs, path: fs.copy("home/wuyi/data/a.txt", path),
    lambda fs, path: fs.copy("home/wuyi/data/a.txt", path, fs),
    lambda fs, path: fs.rename("home/wuyi/data/a.txt", path),
    lambda fs, path: (
        fs.open_container(path + ".zip", "w").write_bytes("x", b"x")
        if path != "home/wuyi"
        else fs.remove(path, recursive=True)
    ),
]


@pytest.mark.timeout(200)
def test_only_the_own_home_is_written_to(center: str) -> None:
    with fsabs.from_url(center) as fs:
        for path, reason in (
            ("common/new", f"{center}/common is read by all and written by none"),
            ("common/c.txt", "common is read by all and written by none"),
            ("home/bob/b.txt", f"the home of bob: wuyi writes to {center}/home/wuyi"),
            ("home/wuyi2/x", "the home of wuyi2"),
            ("home/wuyi", "is a home: it can't be replaced or removed"),
            ("other/x", "no home: wuyi writes to"),
        ):
            for change in CHANGES + (REMOVALS if fs.exists(path) else []):
                with pytest.raises(PermissionError) as caught:
                    change(fs, path)
                assert (caught.value.errno, reason in str(caught.value)) == (errno.EACCES, True), str(caught.value)
                assert str(caught.value.filename).startswith("pfs://")
        with pytest.raises(PermissionError, match="the home of bob"):
            fs.copy_tree("home/wuyi/data", "home/bob/data")
        everything = {name: fs.read_bytes(name) for name in fs.list("", recursive=True) if not name.endswith("/")}
    assert everything == FILES
    for target in (f"{center}/common/new", f"{center}/home/bob/new", f"{center}/home/wuyi/../bob/new"):
        with pytest.raises(PermissionError), fsabs.open_url(target, "w") as file:
            file.write("x")


@pytest.mark.quick
def test_no_path_leads_out(local: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (local / "home/wuyi/%2e%2e").mkdir()
    (local / "home/wuyi/%2e%2e/plain").write_bytes(b"a name as it stands")
    home = fsabs.from_url("/pfs/datacenter_1/home/wuyi")
    for path in ("../bob/b.txt", "/home/bob/b.txt", "data/../../bob/b.txt", str(local / "home/bob/b.txt")):
        uses: list[Callable[[str], object]] = [
            home.read_bytes,
            home.exists,
            lambda path: list(home.list(path)),
            lambda path: home.write_bytes(path, b"x"),
        ]
        for use in uses:
            with pytest.raises(PermissionError):
                use(path)
    for url in (
        "/pfs/datacenter_1/../../secret",
        "/pfs/datacenter_1/home/../../../secret",
        "pfs://datacenter_1/%2e%2e/%2e%2e/secret",
        "pfs://datacenter_1/home/%2E%2E/../../secret",
        "//pfs///datacenter_1/../x",
    ):
        with pytest.raises(PermissionError, match="climbs above the root"), fsabs.open_url(url) as file:
            file.read()
        with pytest.raises(PermissionError):
            fsabs.from_url(url)
    for written in ("//pfs//datacenter_1/./home/wuyi/data", "/x/../pfs/datacenter_1/home/wuyi/data"):
        assert fsabs.from_url(written).read_bytes("a.txt") == b"mine"
    assert home.read_bytes("%2e%2e/plain") == b"a name as it stands"
    with (
        pytest.raises(PermissionError, match="home of bob"),
        fsabs.open_url("pfs://datacenter_1/home/wuyi/%2e%2e/bob/x", "w"),
    ):
        pass


@pytest.mark.quick
def test_links_of_a_local_home_stay_in_it(local: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    for name, target in (("bob", "../bob"), ("c", "../../common/c.txt"), ("out", str(tmp_path)), ("in", "data")):
        (local / "home/wuyi" / name).symlink_to(target)
    fs = fsabs.from_url("/pfs/datacenter_1")
    for path in ("home/wuyi/bob/new", "home/wuyi/c", "home/wuyi/out/new", "home/wuyi/bob/b.txt"):
        with pytest.raises(PermissionError, match="a link leads out"):
            fs.write_bytes(path, b"x")
    with pytest.raises(PermissionError, match="a link leads out"):
        fs.read_bytes("home/wuyi/out/secret")
    home = fsabs.from_url("/pfs/datacenter_1/home/wuyi")
    with pytest.raises(PermissionError, match="a link leads out"):
        home.read_bytes("bob/b.txt")
    home.write_bytes("in/b", b"b")
    assert (local / "home/wuyi/data/b").read_bytes() == b"b"
    home.remove("bob", recursive=True)
    home.remove("c")
    assert (local / "home/bob/b.txt").read_bytes() == b"bob's"
    assert (local / "common/c.txt").read_bytes() == b"for all"


@pytest.mark.quick
def test_the_section_decides_what_a_path_is(configure: Configure, tmp_path: Path) -> None:
    from fsabs.locations import parse

    assert parse("/pfs/dc/home/wuyi/x")[:3] == ("file", "", "/pfs/dc/home/wuyi/x")
    configure("dc", pfs=str(tmp_path), username="wuyi")
    assert parse("/pfs/dc/home/wuyi/x")[:3] == ("pfs", "dc", "/home/wuyi/x")
    assert parse("/pfs/dc")[:3] == ("pfs", "dc", "")
    assert parse("/pfs/other/x")[0] == "file"
    assert parse("/pfs/dcx/x")[0] == "file"
    assert parse("file:///pfs/dc/home/wuyi/x")[:3] == ("file", "", "/pfs/dc/home/wuyi/x")
    assert parse("pfs/dc/home")[:3] == ("file", "", os.path.abspath("pfs/dc/home"))
    assert parse("/pfs/dc/home/wuyi/50%25?#")[2] == "/home/wuyi/50%25?#"
    with pytest.raises(ConfigError, match="no datacenter 'other': .* known: dc$"):
        fsabs.from_url("pfs://other/home")
    with pytest.raises(ConfigError, match=r"\[dc\] is a datacenter and no scheme: its paths are /pfs/dc/"):
        fsabs.from_url("dc://bucket/x")


@pytest.mark.quick
def test_what_is_wrong_with_a_section_is_named(configure: Configure, tmp_path: Path) -> None:
    configure("nobody", pfs=str(tmp_path))
    configure("nowhere", pfs="", username="wuyi")
    configure("climber", pfs=str(tmp_path), username="../bob")
    configure("circle", pfs="/pfs/nobody/home", username="wuyi")
    configure("web", pfs="http://host/x", username="wuyi")
    configure("typo", pfs=str(tmp_path), username="wuyi", fsinc="yes")
    configure("pfs", scheme="file")
    with pytest.warns(ConfigWarning, match="built-in scheme"):
        assert "pfs" not in config.sections()
    for name, reason in (
        ("nobody", "needs username="),
        ("nowhere", "needs a URL as pfs="),
        ("climber", "a name without /"),
        ("circle", "can't be at /pfs/nobody/home"),
        ("web", "can't be at http://host/x"),
    ):
        with pytest.raises(ConfigError, match=reason):
            fsabs.from_url(f"/pfs/{name}/home")
    with pytest.warns(ConfigWarning, match=r"line \d+: \[typo\]: Local has no option 'fsinc'.*the key is ignored"):
        fsabs.from_url("/pfs/typo")


@pytest.mark.quick
def test_the_keys_of_the_first_datacenters(configure: Configure) -> None:
    configure(
        "datacenter_1",
        username="wuyi",
        usercert="wuyi.pem",
        userkey="wuyi-key.pem",
        endpoint="https://datacenter1.example.org",
        pfs="s3://bucket",
    )
    center = config.datacenter("datacenter_1")
    assert center.options == {
        "endpoint": "https://datacenter1.example.org",
        "client_certificate": "wuyi.pem, wuyi-key.pem",
    }
    from fsabs import schemes
    from fsabs.locations import parse

    _, location, options, _ = schemes.backend(parse("/pfs/datacenter_1/home/wuyi/x"), {}, strict=True)
    assert (location.authority, location.path) == ("bucket", "/home/wuyi/x")
    assert options["client_certificate"] == ("wuyi.pem", "wuyi-key.pem")


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore:a cache around local files")
def test_a_custom_scheme_and_layers(configure: Configure, local: Path, tmp_path: Path) -> None:
    configure("disk", scheme="file", prefix=str(local))
    configure("dc", pfs="disk:///", username="bob", cache=str(tmp_path / "cache"))
    with fsabs.from_url("/pfs/dc/home/bob") as fs:
        assert fs.read_bytes("b.txt") == b"bob's"
        fs.write_bytes("new", b"1")
        assert fs.url("new") == "pfs://dc/home/bob/new"
        assert "CachedFS" in repr(fs)
    assert (local / "home/bob/new").read_bytes() == b"1"


@pytest.mark.quick
def test_two_stores_of_one_name_share_nothing(configure: Configure, local: Path, tmp_path: Path) -> None:
    one = fsabs.from_url("/pfs/datacenter_1")._resolved_store()
    (tmp_path / "pfio.ini").write_text("")
    configure("datacenter_1", pfs=str(tmp_path), username="wuyi")
    assert fsabs.from_url("/pfs/datacenter_1")._resolved_store() != one


@pytest.mark.quick
def test_readers_and_patched_functions(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert("/pfs/datacenter_1/home/wuyi", lambda: iter(range(10)), 2, "images")
    assert sorted(name for name in os.listdir(local / "home/wuyi") if name.startswith("images")) == [
        "images-00000-of-00001",
        "images-00001-of-00001",
    ]
    reader = paddle.creator.RecordIO("/pfs/datacenter_1/home/wuyi/images-*-of-*")
    assert sorted(reader()) == list(range(10))
    np = pytest.importorskip("numpy")
    with fsabs.Path("/pfs/datacenter_1/home/wuyi/x.npy").open("wb") as file:
        np.save(file, np.arange(3))
    with fsabs.from_url("/pfs/datacenter_1/home/wuyi").as_local("x.npy") as path:
        assert list(np.load(path)) == [0, 1, 2]
