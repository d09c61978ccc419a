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
from fsabs.core.errors import ConfigError
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
        options = gateway.options
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
    assert fsabs.from_url(f"{center}/home/bob").read_bytes("b.txt") == b"bob's"
    assert fsabs.Path(f"{center}/common/c.txt").read_text() == "for all"
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
    for target in (f"{center}/common/new", f"{center}/home/wuyi/../bob/new"):
        with pytest.raises(PermissionError), fsabs.open_url(target, "w") as file:
            file.write("x")


@pytest.mark.quick
def test_a_method_of_one_store_takes_the_paths_of_the_datacenter_and_its_rules(configure: Configure) -> None:
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region": "eu-west-1"}
    configure("dc", pfs="s3://bucket/files", username="wuyi", endpoint="http://127.0.0.1:9", **keys)
    home: Any = fsabs.from_url("/pfs/dc/home/wuyi")
    assert home.signed_url("data/a.txt").startswith("http://127.0.0.1:9/bucket/files/home/wuyi/data/a.txt?")
    with pytest.raises(PermissionError, match="the home of bob"):
        fsabs.from_url("/pfs/dc").write_if("home/bob/b.txt", b"x", "version")  # type: ignore[attr-defined]


@pytest.mark.quick
def test_no_path_leads_out(local: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (local / "home/wuyi/%2e%2e").mkdir()
    (local / "home/wuyi/%2e%2e/plain").write_bytes(b"a name as it stands")
    home = fsabs.from_url("/pfs/datacenter_1/home/wuyi")
    for path in ("../bob/b.txt", "/home/bob/b.txt", "data/../../bob/b.txt", str(local / "home/bob/b.txt")):
        uses: list[Callable[[str], object]] = [home.read_bytes, home.exists, lambda path: home.write_bytes(path, b"x")]
        for use in uses:
            with pytest.raises(PermissionError):
                use(path)
    for url in (
        "/pfs/datacenter_1/../../secret",
        "/pfs/datacenter_1/home/../../../secret",
        "pfs://datacenter_1/%2e%2e/%2e%2e/secret",
        "//pfs///datacenter_1/../x",
    ):
        with pytest.raises(PermissionError, match="climbs above the root"), fsabs.open_url(url) as file:
            file.read()
        with pytest.raises(PermissionError):
            fsabs.from_url(url)
    for written in ("//pfs//datacenter_1/./home/wuyi/data", "/x/../pfs/datacenter_1/home/wuyi/data"):
        assert fsabs.from_url(written).read_bytes("a.txt") == b"mine"
    assert home.read_bytes("%2e%2e/plain") == b"a name as it stands"
    out = fsabs.open_url("pfs://datacenter_1/home/wuyi/%2e%2e/bob/x", "w")
    with pytest.raises(PermissionError, match="home of bob"), out:
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
    home = fsabs.from_url("/pfs/datacenter_1/home/wuyi")
    for tree, path in ((fs, "home/wuyi/out/secret"), (home, "bob/b.txt")):
        with pytest.raises(PermissionError, match="a link leads out"):
            tree.read_bytes(path)
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
    assert parse("/pfs/dc/home/wuyi/50%25?#")[:3] == ("pfs", "dc", "/home/wuyi/50%25?#")
    assert parse("/pfs/dc")[:3] == ("pfs", "dc", "")
    with monkeypatch.context() as patch:  # a mount stays itself
        patch.setattr(os.path, "lexists", lambda path: path == "/pfs")
        assert parse("/pfs/other/x")[0] == "file"
    assert parse("file:///pfs/dc/home/wuyi/x")[:3] == ("file", "", "/pfs/dc/home/wuyi/x")
    assert parse("pfs/dc/home")[:3] == ("file", "", os.path.abspath("pfs/dc/home"))


# ---- the configuration


def certificate(cert: Path, key: Path, der: Path, locked: Path) -> None:
    """Write a certificate and its key: as PEM, in the binary form, and encrypted."""
    now, name = datetime.datetime.now(datetime.UTC), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "wuyi")])
    private = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder(name, name, private.public_key(), 1, now, now + datetime.timedelta(days=1))
    signed = builder.sign(private, hashes.SHA256())
    cert.write_bytes(signed.public_bytes(Encoding.PEM))
    der.write_bytes(signed.public_bytes(Encoding.DER))
    encryption = BestAvailableEncryption(b"secret")
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    locked.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder of good and damaged certificates."""
    for number in ("", "2"):
        names = (f"cert{number}.pem", f"key{number}.pem", f"cert{number}.der", f"locked{number}.pem")
        certificate(*(tmp_path / name for name in names))
    (tmp_path / "empty.pem").touch()
    (tmp_path / "cut.pem").write_bytes((tmp_path / "cert.pem").read_bytes()[:120])
    return tmp_path


@pytest.mark.quick
def test_certificates_are_relative_to_the_configuration(
    configure: Configure, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (certificates / "elsewhere").mkdir()
    monkeypatch.chdir(certificates / "elsewhere")
    keys = {"username": "wuyi", "usercert": "cert.pem", "userkey": "key.pem"}
    configure("datacenter_1", **keys, endpoint="datacenter1.example.org")
    configure("datacenter_2", **keys, endpoint="https://datacenter2.example.org:8443", pfs="s3://bucket/files")
    configure("corp", scheme="s3", endpoint="https://h", client_certificate="cert.pem, key.pem")
    configure("bad", scheme="s3", endpoint="https://h", client_certificate="cert.pem, nosuch.pem")
    files = (f"{certificates}/cert.pem", f"{certificates}/key.pem")
    for name, endpoint, bucket, path in (
        ("datacenter_1", "https://datacenter1.example.org", "pfs", "/datacenter_1/home/wuyi/x"),
        ("datacenter_2", "https://datacenter2.example.org:8443", "bucket", "/files/home/wuyi/x"),
    ):
        assert config.datacenter(name).options == {"endpoint": endpoint, "client_certificate": ", ".join(files)}
        _, location, options, _ = opening.find_backend(parse(f"/pfs/{name}/home/wuyi/x"), {}, strict=True)
        assert (location.authority, location.path, options["client_certificate"]) == (bucket, path, files)
    _, _, options, _ = opening.find_backend(parse("corp://bucket/x"), {}, strict=True)
    assert options["client_certificate"] == files
    with pytest.raises(ConfigError, match=r"\[bad\]: client_certificate=nosuch.pem can't be read: No such file"):
        fsabs.from_url("bad://bucket/x").exists("y")


def section(*lines: str) -> str:
    return "\n".join(["[bad]", *lines])


def keys(cert: str, key: str, endpoint: str = "h") -> str:
    """A section with a certificate and its key."""
    return section("username=wuyi", f"usercert={cert}", f"userkey={key}", f"endpoint={endpoint}")


def at(endpoint: str) -> str:
    """A section with an endpoint."""
    return section("username=wuyi", f"endpoint={endpoint}")


def below(pfs: str, *lines: str) -> str:
    """A section with a directory."""
    return section("username=wuyi", f"pfs={pfs}", *lines)


ENDPOINT = "its endpoint is HOST"
WRONG_SECTIONS = {  # what is wrong: the file, and a part of the error
    "no certificate": (keys("nosuch.pem", "key.pem"), "usercert=nosuch.pem can't be read: No such file"),
    "key alone": (section("username=wuyi", "userkey=key.pem", "endpoint=h"), "has userkey= and no usercert="),
    "certificate alone": (section("username=wuyi", "usercert=cert.pem", "endpoint=h"), "needs userkey="),
    "key of another": (keys("cert.pem", "key2.pem"), "key values mismatch"),
    "encrypted key": (keys("cert.pem", "locked.pem"), "unencrypted key"),
    "binary": (keys("cert.der", "key.pem"), "cert.der is no PEM file"),
    "empty file": (keys("empty.pem", "key.pem"), "is no PEM file"),
    "no file": (keys("", "key.pem"), "names no file"),
    "directory": (keys(".", "key.pem"), "names no file"),
    "cut certificate": (keys("cut.pem", "key.pem"), "a file is cut or damaged"),
    "certificate with a NUL": (keys("a\0b", "key.pem"), "can't be read: embedded null byte"),
    "certificate of a home": (keys("~/nosuch.pem", "key.pem"), "usercert=~/nosuch.pem can't be read"),
    "certificate without TLS": (keys("cert.pem", "key.pem", "http://h"), "over https, and it is http"),
    "variable": (keys("$NOSUCH/c.pem", "key.pem"), "variable NOSUCH"),
    "no user": (section("endpoint=h", "pfs=s3://b"), "needs username="),
    "user with a slash": (section("username=a/b", "endpoint=h"), "a name without /"),
    "user above": (section("username=..", "endpoint=h"), "a name without /"),
    "user in quotes": (section('username="wuyi"', "endpoint=h"), "username= is written without quotes"),
    "no endpoint": (section("username=wuyi"), "needs endpoint=, its host, or pfs=, a URL"),
    "endpoint of another protocol": (at("ftp://h"), ENDPOINT),
    "endpoint with a space": (at("my host"), ENDPOINT),
    "port that is no number": (at("h:port"), ENDPOINT),
    "port that is too large": (at("h:65536"), ENDPOINT),
    "password in the endpoint": (at("https://u:p@h"), ENDPOINT),
    "query in the endpoint": (at("h/p?x=1"), ENDPOINT),
    "empty pfs": (below(""), "needs a URL as pfs="),
    "pfs that is relative": (below("some/dir"), "a URL as pfs=, or a path from /, not 'some/dir'"),
    "pfs of the web": (below("https://h/x"), "can't be at https://h/x"),
    "pfs of itself": (below("/pfs/bad/home/wuyi"), "can't be at /pfs/bad/home/wuyi"),
    "pfs of no scheme": (below("nosuch://b"), "unknown scheme 'nosuch'"),
    "pfs that isn't there": (below("/nosuch/dir"), "pfs=/nosuch/dir is no directory, or not mounted"),
    "pfs that is a file": (below("{folder}/cert.pem"), "is no directory, or not mounted"),
    "pfs in no archive": (below("{folder}/nosuch.zip"), "is no directory, or not mounted"),
    "pfs without a bucket": (below("s3://", "endpoint=h"), "an S3 URL names a bucket"),
    "pfs with a fragment": (below("s3://b/x#y", "endpoint=h"), "'#' in a path"),
    "neither": (section(), "[bad] is without both"),
    "scheme and user": (section("scheme=s3", "username=wuyi", "endpoint=h"), "[bad] is a custom scheme"),
    "a line that is none": (section("username=wuyi", "endpoint"), "neither a [section] nor key = value in line"),
    "a key twice": (section("username=wuyi", "username=bob", "endpoint=h"), "username is there twice"),
    "a section twice": (below("/", "[bad]", "username=bob"), "there is a section [bad] above"),
    "no section": ("username=wuyi\npfs=/", "stands before the first"),
    "a name that is no name": ("[b/d]\nusername=wuyi\npfs=/", "'b/d' can't be a datacenter"),
    "a name that is taken": ("[pfs]\nscheme=file", "[pfs] is a built-in scheme"),
    "another case": ("[Bad]\nusername=wuyi\npfs=/", "did you mean 'Bad'"),
}
WRONG_OPTIONS = {
    "misspelt": (section("username=wuyi", "endpoint=h", "regoin=x"), "did you mean 'region'?"),
    "no number": (section("username=wuyi", "endpoint=h", "connect_timeout=soon"), "connect_timeout must be"),
    "no switch": (section("username=wuyi", "endpoint=h", "path_style=maybe"), "path_style must be bool, not 'maybe'"),
}
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
@pytest.mark.parametrize("wrong", [*WRONG_SECTIONS, *WRONG_OPTIONS])
def test_a_section_that_is_wrong_is_named_in_a_line(certificates: Path, configure: Configure, wrong: str) -> None:
    """It is never taken for a missing file."""
    text, reason = {**WRONG_SECTIONS, **WRONG_OPTIONS}[wrong]
    (certificates / "pfio.ini").write_text(text.replace("{folder}", str(certificates)) + "\n")
    strict: list[Callable[[str], object]] = [lambda path: fsabs.from_url(path, strict=True)]
    for operation in strict if wrong in WRONG_OPTIONS else OPERATIONS:
        with pytest.raises(ValueError) as caught:
            operation("/pfs/bad/home/wuyi/x")
        message = str(caught.value)
        assert reason in message
        assert str(certificates / "pfio.ini") in message
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


# ---- layers, libraries, the operating system


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
    before = BytesBlob(fsabs.from_url("/pfs/datacenter_1"), "x", b"1", "version").identity
    (tmp_path / "pfio.ini").write_text("")
    configure("datacenter_1", pfs=str(tmp_path), username="wuyi")
    other = BytesBlob(fsabs.from_url("/pfs/datacenter_1"), "x", b"1", "version").identity
    assert None is not other != before


@pytest.mark.quick
@pytest.mark.parametrize("base", ["/pfs/datacenter_1", "pfs://datacenter_1"])
def test_patched_functions_and_readers_take_the_paths(local: Path, base: str) -> None:
    import glob

    import numpy as np

    name = "a%41 b.txt"
    (local / "home/wuyi/named").mkdir()
    (local / "home/wuyi/named" / name).write_text("hi")
    listed = name if base.startswith("/") else "a%2541 b.txt"
    folder = f"{base}/home/wuyi/named"
    with fsabs.patch("builtins", "os", "glob", "numpy", "pathlib"):
        assert open(f"{folder}/{listed}").read() == "hi"  # noqa: SIM115
        assert os.listdir(folder) == [listed]
        assert list(os.walk(folder)) == [(folder, [], [listed])]
        assert os.path.isfile(f"{folder}/{listed}")
        assert glob.glob(f"{base}/home/*/named/a*") == [f"{folder}/{listed}"]
        assert [open(entry.path).read() for entry in os.scandir(folder)] == ["hi"]  # noqa: SIM115
        np.save(f"{folder}/x.npy", np.arange(3))
        assert np.load(f"{folder}/x.npy").tolist() == [0, 1, 2]
        assert Path(f"{folder}/{listed}").read_text() == "hi"
    assert sorted(os.listdir(local / "home/wuyi/named")) == [name, "x.npy"]
    convert(folder, lambda: iter(range(10)), 2, "images")
    assert sorted(paddle.creator.RecordIO(f"{folder}/images-*-of-*")()) == list(range(10))


@pytest.mark.quick
def test_the_operating_system_gets_no_path_of_a_datacenter(local: Path) -> None:
    with fsabs.from_url("/pfs/datacenter_1/home/wuyi") as fs:
        path = fsabs.Path("data/a.txt", fs=fs)
        with pytest.raises(TypeError, match="as_local"):
            os.fspath(path)  # it was /home/wuyi/data/a.txt, of another disk
        with path.as_local() as there:
            assert Path(there).read_bytes() == b"mine"
