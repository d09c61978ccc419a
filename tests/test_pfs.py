"""The files of datacenters, by their paths: `/pfs/<datacenter>/home/<user>/...`, without a mount."""

from __future__ import annotations

import datetime
import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

import fsabs
from fsabs.backends.local import Local
from fsabs.core.errors import ConfigError, ConfigWarning
from fsabs.readers import convert, paddle
from fsabs.spi import BytesBlob
from fsabs.urls import config, opening, roots
from fsabs.urls.locations import parse
from tests.servers.ceph import CephGateway
from tests.servers.hdfs import HdfsCluster
from tests.servers.shared import unique

FILES = {"home/wuyi/data/a.txt": b"mine", "home/bob/b.txt": b"bob's", "common/c.txt": b"for all"}
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


def certificate(cert: Path, key: Path, der: Path | None = None, locked: Path | None = None) -> None:
    """Write a certificate and its key; in the binary form, and encrypted, where that is wanted."""
    now, name = datetime.datetime.now(datetime.UTC), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "wuyi")])
    private = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder(name, name, private.public_key(), 1, now, now + datetime.timedelta(days=1))
    signed = builder.sign(private, hashes.SHA256())
    cert.write_bytes(signed.public_bytes(Encoding.PEM))
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    if der is not None:
        der.write_bytes(signed.public_bytes(Encoding.DER))
    if locked is not None:
        form = PrivateFormat.PKCS8
        locked.write_bytes(private.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"secret")))


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
        bucket = unique("pfs")
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
        url = f"{cluster.url}/{unique('pfs')}"
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


def test_a_method_of_the_store_has_the_paths_of_the_datacenter(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that only some stores have: `signed_url` of S3, `status` of HDFS, and `write_if`, which writes."""
    monkeypatch.setattr(Local, "signed_url", lambda fs, path: "signed:" + fs._key(path, "signed_url"), raising=False)
    home: Any = fsabs.from_url("/pfs/datacenter_1/home/wuyi")
    assert home.signed_url("data/a.txt") == f"signed:{str(local)[1:]}/home/wuyi/data/a.txt"
    everything: Any = fsabs.from_url("/pfs/datacenter_1")
    with pytest.raises(PermissionError, match="the home of bob"):
        everything.write_if("home/bob/b.txt", b"x", "version")


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
def test_the_section_decides_what_a_path_is(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parse("/pfs/dc/home/wuyi/x")[:3] == ("file", "", "/pfs/dc/home/wuyi/x")
    configure("dc", pfs=str(tmp_path), username="wuyi")
    assert parse("/pfs/dc/home/wuyi/x")[:3] == ("pfs", "dc", "/home/wuyi/x")
    assert parse("/pfs/dc")[:3] == ("pfs", "dc", "")
    for path in ("/pfs/other/x", "/pfs/dcx/x"):
        with pytest.raises(ConfigError, match="no datacenter '.*known: dc$"):
            parse(path)
        with monkeypatch.context() as patch:  # a mount stays itself
            patch.setattr(os.path, "lexists", lambda path: path == "/pfs")
            assert parse(path)[0] == "file"
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
def test_the_keys_of_the_first_datacenters(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # the files are relative to the configuration
    certificate(tmp_path / "wuyi.pem", tmp_path / "wuyi-key.pem")
    keys = {"username": "wuyi", "usercert": "wuyi.pem", "userkey": "wuyi-key.pem"}
    configure("datacenter_1", **keys, endpoint="datacenter1.example.org")
    configure("datacenter_2", **keys, endpoint="https://datacenter2.example.org:8443", pfs="s3://bucket/files")
    files = (f"{tmp_path}/wuyi.pem", f"{tmp_path}/wuyi-key.pem")
    for name, endpoint, bucket, path in (
        ("datacenter_1", "https://datacenter1.example.org", "pfs", "/datacenter_1/home/wuyi/x"),
        ("datacenter_2", "https://datacenter2.example.org:8443", "bucket", "/files/home/wuyi/x"),
    ):
        center = config.datacenter(name)
        assert center.options == {"endpoint": endpoint, "client_certificate": ", ".join(files)}
        _, location, options, _ = opening.find_backend(parse(f"/pfs/{name}/home/wuyi/x"), {}, strict=True)
        assert (location.authority, location.path) == (bucket, path)
        assert options["client_certificate"] == files


WRONG_SECTIONS = {  # what is wrong: the section, and a part of the error
    "no certificate": (
        "username=wuyi\nusercert=nosuch.pem\nuserkey=key.pem\nendpoint=h",
        "usercert=nosuch.pem can't be",
    ),
    "no key": ("username=wuyi\nusercert=cert.pem\nuserkey=nosuch.pem\nendpoint=h", "userkey=nosuch.pem can't be read"),
    "key alone": ("username=wuyi\nuserkey=key.pem\nendpoint=h", "has userkey= and no usercert="),
    "certificate alone": ("username=wuyi\nusercert=cert.pem\nendpoint=h", "needs userkey="),
    "key of another": ("username=wuyi\nusercert=cert.pem\nuserkey=key2.pem\nendpoint=h", "key values mismatch"),
    "exchanged": ("username=wuyi\nusercert=key.pem\nuserkey=cert.pem\nendpoint=h", "are no certificate and its"),
    "encrypted key": ("username=wuyi\nusercert=cert.pem\nuserkey=locked.pem\nendpoint=h", "unencrypted key"),
    "DER": ("username=wuyi\nusercert=cert.der\nuserkey=key.pem\nendpoint=h", "cert.der is no PEM file"),
    "empty certificate": ("username=wuyi\nusercert=\nuserkey=key.pem\nendpoint=h", "names no file"),
    "empty file": ("username=wuyi\nusercert=empty.pem\nuserkey=key.pem\nendpoint=h", "is no PEM file"),
    "directory": ("username=wuyi\nusercert=.\nuserkey=key.pem\nendpoint=h", "names no file"),
    "plain http": (
        "username=wuyi\nusercert=cert.pem\nuserkey=key.pem\nendpoint=http://h",
        "over https, and it is http",
    ),
    "variable in the path": ("username=wuyi\nusercert=$NOSUCH/c.pem\nuserkey=key.pem\nendpoint=h", "variable NOSUCH"),
    "no user": ("endpoint=h\npfs=s3://b", "needs username="),
    "empty user": ("username=\nendpoint=h", "needs username="),
    "user with a slash": ("username=a/b\nendpoint=h", "a name without /"),
    "user above": ("username=..\nendpoint=h", "a name without /"),
    "no endpoint": ("username=wuyi", "needs endpoint=, its host, or pfs=, a URL"),
    "empty endpoint": ("username=wuyi\nendpoint=", "needs endpoint="),
    "endpoint of another protocol": ("username=wuyi\nendpoint=ftp://h", "its endpoint is HOST"),
    "endpoint without a host": ("username=wuyi\nendpoint=https://", "its endpoint is HOST"),
    "endpoint with a space": ("username=wuyi\nendpoint=my host", "its endpoint is HOST"),
    "empty pfs": ("username=wuyi\npfs=", "needs a URL as pfs="),
    "pfs of the web": ("username=wuyi\npfs=https://h/x", "can't be at https://h/x"),
    "pfs in a datacenter": ("username=wuyi\npfs=/pfs/dc/home", "can't be at /pfs/dc/home"),
    "pfs of no scheme": ("username=wuyi\npfs=nosuch://b", "unknown scheme 'nosuch'"),
    "region that is no option": ("username=wuyi\nendpoint=h\nregoin=x", "did you mean 'region'?"),
    "timeout that is no number": ("username=wuyi\nendpoint=h\nconnect_timeout=soon", "connect_timeout must be"),
    "a line that is none": ("username=wuyi\nendpoint", "neither a [section] nor key = value in line"),
    "twice": ("username=wuyi\nusername=bob\nendpoint=h", "username is there twice"),
    "cut certificate": ("username=wuyi\nusercert=cut.pem\nuserkey=key.pem\nendpoint=h", "a file is cut or damaged"),
    "cut key": ("username=wuyi\nusercert=cert.pem\nuserkey=cut-key.pem\nendpoint=h", "a file is cut or damaged"),
    "key that is binary": ("username=wuyi\nusercert=cert.pem\nuserkey=cert.der\nendpoint=h", "cert.der is no PEM file"),
    "certificate as its key": (
        "username=wuyi\nusercert=cert.pem\nuserkey=cert.pem\nendpoint=h",
        "cut or damaged, or has the other one's content",
    ),
    "certificate below a file": (
        "username=wuyi\nusercert=cert.pem/x\nuserkey=key.pem\nendpoint=h",
        "can't be read: Not a directory",
    ),
    "certificate with a NUL": (
        "username=wuyi\nusercert=a\0b\nuserkey=key.pem\nendpoint=h",
        "can't be read: embedded null byte",
    ),
    "certificate of a home": (
        "username=wuyi\nusercert=~/nosuch.pem\nuserkey=key.pem\nendpoint=h",
        "usercert=~/nosuch.pem can't be read",
    ),
    "certificate in quotes": (
        'username=wuyi\nusercert="cert.pem"\nuserkey=key.pem\nendpoint=h',
        "usercert= is written without quotes",
    ),
    "user in quotes": ('username="wuyi"\nendpoint=h', "username= is written without quotes"),
    "endpoint in quotes": ("username=wuyi\nendpoint='h'", "endpoint= is written without quotes"),
    "misspelt user": ("usrename=wuyi\nendpoint=h", "[bad] is without both"),
    "nothing": ("", "[bad] is without both"),
    "scheme and user": ("scheme=s3\nusername=wuyi\nendpoint=h", "[bad] is a custom scheme"),
    "misspelt endpoint": ("username=wuyi\nendpint=h", "needs endpoint=, its host"),
    "misspelt certificate": ("username=wuyi\nusercrt=cert.pem\nuserkey=key.pem\nendpoint=h", "no usercert="),
    "variable of the user": ("username=$NOSUCH\nendpoint=h", "variable NOSUCH"),
    "variable of the endpoint": ("username=wuyi\nendpoint=${NOSUCH}", "variable NOSUCH"),
    "port that is no number": ("username=wuyi\nendpoint=h:port", "its endpoint is HOST"),
    "port that is too large": ("username=wuyi\nendpoint=h:65536", "its endpoint is HOST"),
    "password in the endpoint": ("username=wuyi\nendpoint=https://u:p@h", "its endpoint is HOST"),
    "query in the endpoint": ("username=wuyi\nendpoint=h?x=1", "its endpoint is HOST"),
    "endpoint with one slash": ("username=wuyi\nendpoint=https:/h", "its endpoint is HOST"),
    "misspelt https": ("username=wuyi\nendpoint=htps://h", "its endpoint is HOST"),
    "pfs that is relative": ("username=wuyi\npfs=some/dir", "a URL as pfs=, or a path from /, not 'some/dir'"),
    "pfs of a home": ("username=wuyi\npfs=~/pfs", "a URL as pfs=, or a path from /"),
    "pfs without slashes": ("username=wuyi\npfs=s3:bucket\nendpoint=h", "a URL as pfs="),
    "pfs that isn't there": ("username=wuyi\npfs=/nosuch/dir", "pfs=/nosuch/dir is no directory, or not mounted"),
    "pfs that is a file": ("username=wuyi\npfs={folder}/cert.pem", "is no directory, or not mounted"),
    "pfs in no archive": ("username=wuyi\npfs={folder}/nosuch.zip", "is no directory, or not mounted"),
    "pfs without a bucket": ("username=wuyi\npfs=s3://\nendpoint=h", "an S3 URL names a bucket"),
    "pfs of itself": ("username=wuyi\npfs=/pfs/bad/home/wuyi", "can't be at /pfs/bad/home/wuyi"),
    "pfs with a fragment": ("username=wuyi\npfs=s3://b/x#y\nendpoint=h", "'#' in a path"),
    "a section above": ("username=wuyi\npfs=/\n[bad]\nusername=bob", "there is a section [bad] above"),
    "a switch that is none": ("username=wuyi\nendpoint=h\npath_style=maybe", "path_style must be bool, not 'maybe'"),
    "attempts that are no number": ("username=wuyi\nendpoint=h\nmax_attempts=many", "max_attempts must be int"),
}


@pytest.mark.quick
def test_certificates_of_a_custom_scheme(configure: Configure, tmp_path: Path) -> None:
    certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    configure("corp", scheme="s3", endpoint="https://h", client_certificate="cert.pem, key.pem")
    configure("bad", scheme="s3", endpoint="https://h", client_certificate="cert.pem, nosuch.pem")
    _, _, options, _ = opening.find_backend(parse("corp://bucket/x"), {}, strict=True)
    assert options["client_certificate"] == (f"{tmp_path}/cert.pem", f"{tmp_path}/key.pem")
    with pytest.raises(ConfigError, match=r"\[bad\]: client_certificate=nosuch.pem can't be read: No such file"):
        fsabs.from_url("bad://bucket/x").exists("y")


WRONG_PATHS = {
    "/pfs/dcc/home/wuyi/x": "no datacenter 'dcc': .*did you mean 'dc'",
    "/pfs/nosuch/home/wuyi/x": "no datacenter 'nosuch': .*known: dc",
    "/pfs//home/wuyi/x": "no datacenter 'home'",
    "pfs://dcc/home/wuyi/x": "no datacenter 'dcc'",
    "pfs:///home/wuyi/x": "no datacenter ''",
    "dc://home/wuyi/x": r"\[dc\] is a datacenter and no scheme: its paths are /pfs/dc/",
}
OPERATIONS: list[Callable[[str], object]] = [
    lambda path: fsabs.from_url(path).exists("x"),
    lambda path: fsabs.open_url(path).__enter__(),
    lambda path: fsabs.Path(path).exists(),
]


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore::fsabs.core.errors.ConfigWarning")
@pytest.mark.parametrize("wrong", WRONG_SECTIONS)
def test_a_section_that_is_wrong_is_named_in_a_line(tmp_path: Path, configure: Configure, wrong: str) -> None:
    certificate(tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "cert.der", tmp_path / "locked.pem")
    certificate(tmp_path / "cert2.pem", tmp_path / "key2.pem")
    (tmp_path / "empty.pem").touch()
    for name, cut in (("cert.pem", "cut.pem"), ("key.pem", "cut-key.pem")):
        (tmp_path / cut).write_bytes((tmp_path / name).read_bytes()[:120])
    text, reason = WRONG_SECTIONS[wrong]
    configure("dc", pfs=str(tmp_path), username="wuyi")
    with open(tmp_path / "pfio.ini", "a") as file:
        file.write(f"\n[bad]\n{text.replace('{folder}', str(tmp_path))}\n")
    for operation in OPERATIONS:
        with pytest.raises(ValueError) as caught:
            operation("/pfs/bad/home/wuyi/x") if "option" not in wrong else fsabs.from_url("/pfs/bad", strict=True)
        message = str(caught.value)
        assert reason in message
        assert str(tmp_path / "pfio.ini") in message
        assert "bad" in message or "line" in message
        assert "\n" not in message


@pytest.mark.quick
@pytest.mark.parametrize("path", WRONG_PATHS)
def test_a_path_that_is_wrong_is_never_a_missing_file(tmp_path: Path, configure: Configure, path: str) -> None:
    configure("dc", pfs=str(tmp_path), username="wuyi")
    for operation in OPERATIONS:
        with pytest.raises(ConfigError, match=WRONG_PATHS[path]) as caught:
            operation(path)
        assert str(tmp_path / "pfio.ini") in str(caught.value)
        assert "\n" not in str(caught.value)


WRONG_FILES = {  # what the file has, which no datacenter stands in beside it, and a part of the error
    "[bad\nusername=wuyi\npfs=/": "neither a |stands before the first",
    "username=wuyi\npfs=/": "line 1 stands before the first",
    "[ bad ]\nusername=wuyi\npfs=/": "' bad ' can't be a datacenter",
    "[b/d]\nusername=wuyi\npfs=/": "'b/d' can't be a datacenter",
    "[bad]\nusrename=wuyi\npfz=/": r"\[bad\] is without both",
    "[bad]\nscheme=s3": r"\[bad\] is a custom scheme",
    "[Bad]\nusername=wuyi\npfs=/": "did you mean 'Bad'",
}


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore::fsabs.core.errors.ConfigWarning")
@pytest.mark.parametrize("text", WRONG_FILES)
def test_a_file_that_is_wrong_is_never_a_missing_one(tmp_path: Path, configure: Configure, text: str) -> None:
    (tmp_path / "pfio.ini").write_text(text)
    for operation in OPERATIONS:
        with pytest.raises(ConfigError, match=WRONG_FILES[text]) as caught:
            operation("/pfs/bad/home/wuyi/x")
        assert str(tmp_path / "pfio.ini") in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.quick
@pytest.mark.parametrize("base", ["/pfs/dc", "pfs://dc"])
def test_paths_of_a_datacenter_under_the_patches(tmp_path: Path, configure: Configure, base: str) -> None:
    import glob

    import numpy as np

    home = tmp_path / "home/wuyi"
    home.mkdir(parents=True)
    name = "a%41 b.txt"
    (home / name).write_text("hi")
    configure("dc", pfs=str(tmp_path), username="wuyi")
    written = name if base.startswith("/") else "a%2541 b.txt"
    listed = name if base.startswith("/") else "a%2541 b.txt"
    with fsabs.patch("builtins", "os", "glob", "numpy", "pathlib"):
        for leads_there in (written, listed):
            assert open(f"{base}/home/wuyi/{leads_there}").read() == "hi"  # noqa: SIM115
        assert os.listdir(f"{base}/home/wuyi") == [listed]
        assert list(os.walk(f"{base}/home")) == [(f"{base}/home", ["wuyi"], []), (f"{base}/home/wuyi", [], [listed])]
        assert os.path.isfile(f"{base}/home/wuyi/{written}")
        assert os.path.getsize(f"{base}/home/wuyi/{written}") == 2
        assert glob.glob(f"{base}/home/*/a*") == [f"{base}/home/wuyi/{written}"]
        assert [open(entry.path).read() for entry in os.scandir(f"{base}/home/wuyi")] == ["hi"]  # noqa: SIM115
        np.save(f"{base}/home/wuyi/x.npy", np.arange(3))
        assert np.load(f"{base}/home/wuyi/x.npy").tolist() == [0, 1, 2]
        assert Path(f"{base}/home/wuyi/{written}").read_text() == "hi"
    assert sorted(os.listdir(home)) == [name, "x.npy"]


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
    one = BytesBlob(fsabs.from_url("/pfs/datacenter_1"), "x", b"1", "version")
    before = one.identity
    (tmp_path / "pfio.ini").write_text("")
    configure("datacenter_1", pfs=str(tmp_path), username="wuyi")
    other = BytesBlob(fsabs.from_url("/pfs/datacenter_1"), "x", b"1", "version")
    assert other.identity is not None
    assert other.identity != before


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


@pytest.mark.parametrize("base", ["/pfs/dc/home/wuyi", "pfs://dc/home/wuyi"])
def test_libraries_that_are_patched_take_the_paths(tmp_path: Path, configure: Configure, base: str) -> None:
    import cv2
    import h5py
    import imageio
    import numpy as np
    import pandas as pd
    import torch
    from PIL import Image

    (tmp_path / "home/wuyi").mkdir(parents=True)
    configure("dc", pfs=str(tmp_path), username="wuyi")
    picture = np.zeros((3, 4, 3), "u1")
    with fsabs.patch("pandas", "PIL", "cv2", "torch", "h5py", "imageio"):
        pd.DataFrame({"a": [1]}).to_csv(f"{base}/a.csv", index=False)
        assert pd.read_csv(f"{base}/a.csv").a.tolist() == [1]
        pd.DataFrame({"a": [1]}).to_csv(f"{base}/a.csv.gz", index=False)
        assert pd.read_csv(f"{base}/a.csv.gz").a.tolist() == [1]
        pd.DataFrame({"a": [1]}).to_parquet(f"{base}/a.parquet")
        assert pd.read_parquet(f"{base}/a.parquet").a.tolist() == [1]
        Image.fromarray(picture).save(f"{base}/a.png")
        assert Image.open(f"{base}/a.png").size == (4, 3)
        assert cv2.imwrite(f"{base}/b.png", picture)
        assert np.asarray(cv2.imread(f"{base}/b.png")).shape == (3, 4, 3)
        torch.save({"a": 1}, f"{base}/a.pt")
        assert torch.load(f"{base}/a.pt") == {"a": 1}
        h5py.File(f"{base}/a.h5", "w").close()
        assert list(h5py.File(f"{base}/a.h5", "r")) == []
        imageio.v3.imwrite(f"{base}/c.png", picture)
        assert imageio.v3.imread(f"{base}/c.png").shape == (3, 4, 3)
    assert len(os.listdir(tmp_path / "home/wuyi")) == 8


def test_the_operating_system_gets_no_path_of_a_datacenter(local: Path) -> None:
    with fsabs.from_url("/pfs/datacenter_1/home/wuyi") as fs:
        path = fsabs.Path("data/a.txt", fs=fs)
        with pytest.raises(TypeError, match="as_local"):
            os.fspath(path)  # it was /home/wuyi/data/a.txt, of another disk
        with path.as_local() as there:
            assert Path(there).read_bytes() == b"mine"
