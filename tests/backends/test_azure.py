"""Azure Blob Storage: accounts and credentials, requests and what comes of their responses, and real directories."""

from __future__ import annotations

import os
import pickle
import re
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import trace
from fsabs.backends.azure import Azure
from fsabs.backends.azure.access import AzureOptions, account_of
from fsabs.backends.fsspec import Fsspec
from fsabs.backends.objects import bodies, checksums
from fsabs.cli.explain import facts_of
from fsabs.core import identity
from fsabs.core.fs import LAST_NAME
from fsabs.urls import locations
from tests.servers import azure_store, azurite
from tests.servers.azure_store import ACCOUNT, KEY, AzureStore, Refused
from tests.servers.hostile_store import Answer, Request

pytestmark = [pytest.mark.quick, pytest.mark.timeout(60)]
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AZURE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def store() -> Iterator[AzureStore]:
    with AzureStore(listed=False) as store:
        yield store


def opened(store: AzureStore, url: str = "az://bucket", **options: Any) -> Azure:
    given = {"account_name": ACCOUNT, "account_key": KEY, "endpoint": store.endpoint, "max_attempts": 2}
    fs = fsabs.from_url(url, **{**given, **options})
    assert isinstance(fs, Azure)
    return fs


# ---- accounts


URL = "https://mine.blob.core.windows.net"
CONNECTION = "AccountName=mine;AccountKey=k"


@pytest.mark.parametrize(
    ("host", "options", "environment", "expected"),
    [
        ("mine.dfs.core.windows.net", {}, {}, ("mine", URL, None, None)),
        ("mine", {}, {}, ("mine", URL, None, None)),
        ("", {"account_name": "mine", "account_key": "k"}, {}, ("mine", URL, "k", None)),
        ("", {"account_name": "mine", "sas_token": "?sig=s\n"}, {}, ("mine", URL, None, "sig=s")),
        ("mine.dfs.core.usgovcloudapi.net", {}, {}, ("mine", URL.replace("windows", "usgovcloudapi"), None, None)),
        ("mine.dfs.example.com", {"endpoint": "https://h:1"}, {}, ("mine", "https://h:1", None, None)),
        (
            "mine.dfs.example.com",
            {},
            {"AZURE_STORAGE_CONNECTION_STRING": f"{CONNECTION};EndpointSuffix=example.com"},
            ("mine", "https://mine.blob.example.com", "k", None),
        ),
        ("", {}, {"AZURE_STORAGE_ACCOUNT_NAME": "mine", "AZURE_STORAGE_ACCOUNT_KEY": "k"}, ("mine", URL, "k", None)),
        ("", {}, {"AZURE_STORAGE_ACCOUNT": "mine", "AZURE_STORAGE_KEY": "k"}, ("mine", URL, "k", None)),
        ("", {}, {"AZURE_STORAGE_ACCOUNT": "mine", "AZURE_STORAGE_SAS_TOKEN": "sig=s"}, ("mine", URL, None, "sig=s")),
        ("mine", {}, {"AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_KEY": "k"}, ("mine", URL, None, None)),
        ("", {"account_name": "mine", "anonymous": True}, {"AZURE_STORAGE_KEY": "k"}, ("mine", URL, None, None)),
        ("", {"connection_string": "AccountName=mine;AccountKey=a=="}, {}, ("mine", URL, "a==", None)),
        ("", {}, {"AZURE_STORAGE_CONNECTION_STRING": CONNECTION}, ("mine", URL, "k", None)),
        (
            "",
            {"connection_string": "BlobEndpoint=https://mine.blob.core.windows.net/;SharedAccessSignature=sig=s"},
            {},
            ("mine", URL, None, "sig=s"),
        ),
        ("", {"endpoint": "http://10.0.0.1:10000/mine"}, {}, ("mine", "http://10.0.0.1:10000/mine", None, None)),
        (
            "",
            {},
            {"AZURE_STORAGE_ACCOUNT_NAME": "mine", "AZURE_STORAGE_ENDPOINT": "http://h:1/mine"},
            ("mine", "http://h:1/mine", None, None),
        ),
        ("mine", {}, {"AZURE_STORAGE_CONNECTION_STRING": CONNECTION}, ("mine", URL, "k", None)),
        (
            "mine",
            {},
            {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=another;AccountKey=k"},
            ("mine", URL, None, None),
        ),
        ("", {"anonymous": True}, {"AZURE_STORAGE_CONNECTION_STRING": CONNECTION}, ("mine", URL, None, None)),
    ],
)
def test_the_account_of_a_container(
    host: str,
    options: dict[str, Any],
    environment: dict[str, str],
    expected: tuple[Any, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert account_of(host, AzureOptions(**options))[:4] == expected


def test_an_emulator_by_its_connection_string() -> None:
    found = account_of("", AzureOptions(connection_string="UseDevelopmentStorage=true"))
    assert (found.name, found.url) == ("devstoreaccount1", "http://127.0.0.1:10000/devstoreaccount1")
    assert found.key == azurite.KEY
    assert found.key not in repr(found)


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("az://c", {}, "no account"),
        ("az://c", {"account_name": "No-Name"}, "no name of an account"),
        ("abfss://c@mine.dfs.core.windows.net", {"account_name": "yours"}, "two accounts are named: mine and yours"),
        ("az://c", {"connection_string": "secret"}, "neither AccountName= nor BlobEndpoint="),
        ("abfss://c@mine.dfs.example.com/x", {}, "'mine.dfs.example.com' is none: to trust it, give endpoint="),
        ("abfss://c@mine.example.com:80.core.windows.net/x", {"account_key": KEY}, "is none"),
        ("abfss://c@core.windows.net.example.com/x", {"anonymous": True}, "is none"),
        (
            "az://c",
            {"account_name": "mine", "sas_token": "sig=secret HTTP/1.1\r\nHost: h\r\n\r\nDELETE /c/x"},
            "signature (option sas_token) has a character",
        ),
        (
            "az://c",
            {"account_name": "mine", "account_key": "k", "sas_token": "s"},
            "account_key= goes without sas_token=",
        ),
        ("az://c", {"account_name": "mine", "client_secret": "s"}, "needs tenant_id= and client_id="),
        ("az:///path", {"account_name": "mine"}, "names a container"),
        ("az://c", {"account_name": "mine", "mpu_chunksize": 1}, "at least 1 MiB"),
        ("abfss://c@mine.dfs.core.windows.net/x?versionId=1", {}, "only a shared access signature"),
    ],
)
def test_what_can_not_be_is_said(url: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        fsabs.from_url(url, **options)
    assert "secret" not in str(caught.value).replace("client_secret", "")


def test_urls_lead_back_to_the_account() -> None:
    fs = fsabs.from_url("abfss://c@mine.dfs.core.windows.net/d", account_key=KEY)
    assert fs.url("x y") == "abfss://c@mine.dfs.core.windows.net/d/x%20y"
    assert fs.scheme == "abfss"
    assert fs.subfs("e").url() == "abfss://c@mine.dfs.core.windows.net/d/e"
    assert fs.http.endpoint.host == "mine.blob.core.windows.net"  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(fs)).url("x") == "abfss://c@mine.dfs.core.windows.net/d/x"
    same = fsabs.from_url("az://c/d", account_name="mine", account_key=KEY)
    assert identity.same(same, "d/x", fs, "d/x")


def test_addresses_of_the_web_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("mine.blob.core.windows.net", "mine.dfs.core.windows.net"):
        found = locations.parse(f"https://{host}/c/a%20b/x")
        assert (found.scheme, found.authority, found.path) == ("abfss", f"c@{host}", "/a b/x")
    signed = "https://mine.blob.core.windows.net/c/x?sv=1&sig=a%2Bb%3D"
    fs = fsabs.from_url(signed.replace("/x?", "/?"))
    assert isinstance(fs, Azure)
    assert fs.dialect.account.sas == "sv=1&sig=a%2Bb%3D"
    assert "a%2Bb" not in repr(fs) + fs.url() + str(locations.parse(signed))
    assert (
        locations.parse_without_query(signed).scheme == "https"
    )  # where only an address is known, it is one of the web
    for other in (
        "http://mine.blob.core.windows.net/c",
        "https://mine.blob.core.windows.net/",
        "https://example.org/c",
    ):
        assert locations.parse(other).scheme == other.partition(":")[0]


def test_a_container_in_an_address_is_no_user() -> None:
    text = "abfss://c@mine.dfs.core.windows.net/x"
    assert fsabs.errors.without_secrets(text) == text
    assert "word" not in fsabs.errors.without_secrets("abfss://user:word@mine.dfs.core.windows.net/x")
    assert "word" not in fsabs.errors.without_secrets("https://user:word@host/x")


def test_adlfs_names_of_options() -> None:
    given = {
        "account_name": "mine",
        "anon": True,
        "account_host": "mine.blob.core.cn",
        "socket_timeout": 3,
    }
    expected = {"account_name": "mine", "anonymous": True, "endpoint": "https://mine.blob.core.cn"}
    assert Azure.options_of_fsspec(given) == expected


def test_adlfs_serves_the_scheme_if_asked_to() -> None:
    assert isinstance(fsabs.from_url("az://c", fsspec=True, force_type="az"), Fsspec)


# ---- requests


def test_a_file_is_read_in_the_version_that_was_opened(store: AzureStore) -> None:
    fs = opened(store)
    fs.write_bytes("d/a b", b"first" * 100)
    with fs.open_blob("d/a b") as blob:
        assert blob.version == store.blobs["d/a b"].etag == fs.stat("d/a b").version
        assert blob.pread(5, 0) == b"first"
        assert store.seen[-1].headers["if-match"] == f'"{blob.version}"'
        fs.write_bytes("d/a b", b"other" * 100)
        with pytest.raises(fsabs.StaleFileError):
            blob.pread(5, 0)


def test_what_is_written_carries_a_checksum_if_a_library_has_it(
    store: AzureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(1000)
    crcs: dict[str, Callable[[bytes, int], int]] = {}
    monkeypatch.setattr(checksums, "function_of", crcs.get)
    without = opened(store, mpu_chunksize=MIB)
    assert not without.checks_writes
    without.write_bytes("x", bytes(2 * MIB))
    assert not any("x-ms-content-crc64" in request.headers for request in store.seen)
    crcs["CRC64NVME"] = azure_store.crc64nvme
    fs = opened(store, content_type="auto", metadata={"Owner": "me"}, access_tier="Cool", mpu_chunksize=MIB)
    assert fs.checks_writes
    fs.write_bytes("a.png", data)
    asked = store.seen[-1].headers
    assert asked["x-ms-content-crc64"] == azure_store.crc64(data)
    assert (asked["x-ms-blob-content-type"], asked["x-ms-access-tier"]) == ("image/png", "Cool")
    assert store.blobs["a.png"].metadata == {"owner": "me"}
    crcs["CRC64NVME"] = zlib.crc32  # in time: the store looks at small ones
    fs.write_bytes("b.png", os.urandom(3 * MIB))
    crcs["CRC64NVME"] = azure_store.crc64nvme
    assert store.blobs["b.png"].metadata.keys() == {"owner", "fsabs_write"}
    store.intercept(lambda request, answer: answer(request._replace(body=bytes(len(request.body)))))
    with pytest.raises(OSError, match="Crc64Mismatch"):
        fs.write_bytes("c.png", data)


@pytest.mark.parametrize("size", [10, 2 * MIB])
def test_of_two_writers_in_mode_x_one_wins(store: AzureStore, size: int) -> None:
    fs = opened(store, mpu_chunksize=MIB)
    first, second = fs.open("new", "xb"), fs.open("new", "xb")
    first.write(b"1" * size)
    first.close()
    second.write(b"2" * size)
    with pytest.raises(FileExistsError):
        second.close()
    assert fs.read_bytes("new") == b"1" * size
    with pytest.raises(FileExistsError):
        fs.open("new", "xb")


@pytest.mark.parametrize("mode", ["xb", "wb"])
def test_a_writer_whose_response_was_lost_knows_its_blob(store: AzureStore, mode: str) -> None:
    fs = opened(store, mpu_chunksize=MIB)
    for size in (10, 3 * MIB):
        store.lose_response(lambda request: request.method == "PUT" and request.query.get("comp") != "block")
        with fs.open(f"new{size}", mode) as file:
            file.write(b"m" * size)
        assert len(store.blobs[f"new{size}"].content) == size


def test_blocks_that_another_writer_has_dropped_are_an_error(store: AzureStore) -> None:
    fs = opened(store, mpu_chunksize=MIB)
    file = fs.open("x", "wb")
    file.write(bytes(3 * MIB))
    while len(store.blocks.get("x", ())) < 2:
        time.sleep(0.01)
    fs.write_bytes("x", b"other")  # by which the store drops the blocks of all uploads
    with pytest.raises(OSError, match="blocks of the upload are gone"):
        file.close()
    assert fs.read_bytes("x") == b"other"


def test_a_file_is_replaced_if_it_has_still_its_version(store: AzureStore) -> None:
    fs = opened(store)
    fs.write_bytes("x", b"1")
    version = fs.stat("x").version or ""
    fs.write_if("x", b"2", version)
    for path in ("x", "nothing"):
        with pytest.raises(fsabs.StaleFileError):
            fs.write_if(path, b"3", version)
    with pytest.raises(IsADirectoryError):
        fs.write_if("", b"3", version)
    assert fs.read_bytes("x") == b"2"
    store.lose_response(lambda request: request.method == "PUT")
    fs.write_if("x", b"4", fs.stat("x").version or "")
    assert fs.read_bytes("x") == b"4"


def test_a_page_of_a_proxy_removes_nothing(store: AzureStore) -> None:
    fs = opened(store)
    fs.write_bytes("x", b"1")
    page = Answer(200, {}, b"sign in", 7)
    store.intercept(lambda request, answer: page if request.method == "DELETE" else answer(request))
    with pytest.raises(fsabs.CorruptFileError, match="nothing shows that anything was removed"):
        fs.remove("x")


def test_a_copy_is_in_the_access_tier_of_new_blobs(store: AzureStore) -> None:
    fs = opened(store, access_tier="Cool", metadata={"name": "value"})
    fs.write_bytes("x", b"1")
    fs.copy("x", "y")
    made = [request for request in store.seen if request.method == "PUT"]
    assert [request.headers.get("x-ms-access-tier") for request in made] == ["Cool", "Cool"]
    assert store.blobs["y"].metadata == {"name": "value"}  # which it has from its original


def test_a_large_file_is_seen_whole_or_not_at_all(store: AzureStore) -> None:
    fs = opened(store, mpu_chunksize=MIB)
    data = os.urandom(5 * MIB)
    with pytest.raises(RuntimeError), fs.open("large", "wb") as file:
        file.write(data)
        raise RuntimeError
    assert store.blobs == {}
    with fs.open("large", "wb") as file:
        file.write(data)
        assert "large" not in store.blobs
    assert store.blobs["large"].content == data
    assert fs.abort_uploads(24 * 3600) == 0


def test_copies_are_the_stores(store: AzureStore) -> None:
    fs = opened(store)
    fs.write_bytes("a ü", b"x" * 1000)
    store.pending = 3
    fs.copy("a ü", "d/b")
    assert store.blobs["d/b"].content == b"x" * 1000
    assert [request.method for request in store.seen[-3:]] == ["PUT", "HEAD", "HEAD"]
    fs.rename("d", "e")
    assert sorted(store.blobs) == ["a ü", "e/b"]
    with pytest.raises(FileNotFoundError):
        fs.copy("nothing", "b")
    assert opened(store, "az://other").dialect.can_copy_from(fs.dialect)
    signed = opened(store, account_key=None, sas_token="sv=1&sig=signature")
    signed.copy("a ü", "c")
    source = next(request.headers["x-ms-copy-source"] for request in reversed(store.seen) if request.method == "PUT")
    assert source == f"{store.endpoint}/bucket/a%20%C3%BC?sv=1&sig=signature"


@pytest.mark.parametrize(
    "credentials", [{"account_key": KEY}, {"account_key": None, "sas_token": "sv=1&sig=signature"}]
)
def test_trees_are_removed_in_batches(store: AzureStore, credentials: dict[str, Any]) -> None:
    fs = opened(store, **credentials)
    for number in range(600):
        store.put(f"d/{number} ü", b"")
    fs.remove("d", recursive=True)
    assert store.blobs == {}
    batches = [request for request in store.seen if request.query.get("comp") == "batch"]
    assert len(batches) == 3


def test_what_is_no_answer_of_a_batch_removes_nothing() -> None:
    refused = b"HTTP/1.1 403 Forbidden\r\nDate: x\r\n\r\nno access to bucket/HTTP/1.1 204 No Content\r\n"
    parts = (
        b"--x\r\nContent-Type: application/http\r\nContent-ID: <response-%d>\r\n\r\n%s" % (n, refused) for n in (0, 1)
    )
    assert bodies.not_removed(["a", "b"], b"".join(parts)) == ["a", "b"]
    begin = time.process_time()
    assert bodies.not_removed(["a"], b"Content-ID: 0\n" + 100_000 * b"a:b:c:d:e:f:g:h\n") == ["a"]
    assert time.process_time() - begin < 5


def test_what_a_batch_does_not_remove_is_removed_alone_or_named(store: AzureStore) -> None:
    fs = opened(store)
    for number in range(10):
        store.put(f"d/{number}", b"")
    store.kept = {"d/3": 1, "d/5": 100}
    with pytest.raises(OSError, match="it is held") as caught:
        fs.remove("d", recursive=True)
    assert caught.value.filename == "az://bucket/d/5"
    assert sorted(store.blobs) == ["d/5"]


# ---- listings


def test_listings(store: AzureStore) -> None:
    fs = opened(store)
    for name in ("a/1", "a/2", "b", "c/d/e", "c/", "ü&<>", "z\uffff", "z\U0001f600", "t\x01"):
        store.put(name, b"123")
    assert list(fs.list("")) == ["a/", "b", "c/", "t\x01", "z\uffff", "z\U0001f600", "ü&<>"]
    found = ["a/", "a/1", "a/2", "b", "c/", "c/d/", "c/d/e", "t\x01", "z\uffff", "z\U0001f600", "ü&<>"]
    assert list(fs.list("", recursive=True)) == found
    stat = next(iter(fs.list("a", detail=True)))
    assert stat == fs.stat("a/1")._replace(filename="1")
    store.page = 2
    assert list(fs.list("")) == ["a/", "b", "c/", "t\x01", "z\uffff", "z\U0001f600", "ü&<>"]


def test_pages_go_on_at_names_that_look_quoted(store: AzureStore) -> None:
    fs = opened(store)
    store.page = 2
    names = ["%41", "%42", "%43", "%44"]
    fs.write_many(dict.fromkeys(names, b""))
    assert list(fs.list("")) == names


def test_pages_of_files_at_any_depth_follow_one_another(store: AzureStore) -> None:
    fs = opened(store)
    for name in ("a", "b/1", "b/2", "c", "d/1", "e"):
        store.put(name, b"")
    for name in ("c/x", "c/y", "c/z"):
        store.put(name, b"", {"hdi_isfolder": "true"})
    store.page = 2
    found, after = [], ""
    while after != LAST_NAME:
        page = fs._list_page("", after)
        assert page is not None
        found += [stat.filename for stat in page.files]
        after = page.last
    assert found == ["a", "b/1", "b/2", "c", "d/1", "e"]
    assert {request.headers["x-ms-version"] for request in store.seen} == {"2021-12-02", "2026-02-06"}


def test_the_mark_of_a_directory_is_one_on_flat_accounts_too(store: AzureStore) -> None:
    fs = opened(store)
    store.put("d", b"", {"hdi_isfolder": "true"})
    store.put("d/x", b"1")
    store.put("e", b"", {"hdi_isfolder": "true"})
    assert list(fs.list("")) == ["d/", "e/"]
    assert fs.isdir("d")
    assert fs.isdir("e")
    assert list(fs.list("e")) == []
    with pytest.raises(IsADirectoryError):
        fs.read_bytes("e")
    fs.remove("e", recursive=True)
    fs.rename("d", "f")
    assert list(fs.list("", recursive=True)) == ["f/", "f/x"]
    fs.remove("f", recursive=True)
    assert store.blobs == {}


def test_marks_of_directories_are_renamed_with_what_is_in_them(store: AzureStore) -> None:
    fs = opened(store)
    mark = {"hdi_isfolder": "true"}
    for name in ("d", "d/empty", "d/full"):
        store.put(name, b"", mark)
    store.put("d/full/x", b"1")
    fs.rename("d", "e")
    assert list(fs.list("e")) == ["empty/", "full/"]
    fs.rename("e/empty", "f")
    assert list(fs.list("")) == ["e/", "f/"]
    assert {name: blob.metadata for name, blob in store.blobs.items()} == {
        **dict.fromkeys(("e", "e/full", "f"), mark),
        "e/full/x": {},
    }


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Welcome</html>",
        b"<EnumerationResults><Blobs>",
        b"<EnumerationResults><Blobs><Blob><Name>x</Name></Blob></Blobs></EnumerationResults>",
        b"<EnumerationResults><Prefix>other</Prefix><Blobs></Blobs></EnumerationResults>",
    ],
)
def test_what_is_no_page_is_an_error(store: AzureStore, body: bytes) -> None:
    store.intercept(lambda request, answer: answer(request)._replace(body=body, length=len(body)))
    with pytest.raises(fsabs.CorruptFileError):
        list(opened(store).list(""))


def test_a_backslash_is_refused(store: AzureStore, tmp_path: Path) -> None:
    for fs in (opened(store), fsabs.CachedFS(opened(store), str(tmp_path))):
        for operation in ("read_bytes", "stat", "remove"):
            with pytest.raises(OSError, match="backslash"):
                getattr(fs, operation)("a\\b")


# ---- refusals


@pytest.mark.parametrize(
    ("status", "code", "kind", "said"),
    [
        (404, "ContainerNotFound", FileNotFoundError, "the container 'bucket' does not exist"),
        (403, "AuthorizationPermissionMismatch", PermissionError, "Storage Blob Data Reader"),
        (403, "AuthenticationFailed", PermissionError, "clock"),
        (403, "AuthorizationFailure", PermissionError, "network rules"),
        (409, "PublicAccessNotPermitted", PermissionError, "PublicAccessNotPermitted"),
        (503, "ServerBusy", OSError, "ServerBusy"),
        (412, "LeaseIdMissing", OSError, "LeaseIdMissing"),
        (409, "BlobArchived", OSError, "BlobArchived"),
        (412, "ConditionNotMet", fsabs.StaleFileError, "version"),
        (400, "InvalidHeaderValue", OSError, "InvalidHeaderValue"),
    ],
)
def test_refusals_say_what_to_do(store: AzureStore, status: int, code: str, kind: type[OSError], said: str) -> None:
    fs = opened(store, max_attempts=1)
    store.intercept(lambda request, answer: store.refusal(request, Refused(status, code)))
    for operation in (lambda: fs.read_bytes("x"), lambda: list(fs.list("")), lambda: fs.write_bytes("x", b"")):
        with pytest.raises(kind, match=re.escape(said)) as caught:
            operation()
        assert "\n" not in str(caught.value)
        assert "RequestId" not in str(caught.value)
        assert caught.value.errno
        assert str(caught.value.filename).startswith("az://bucket")


def test_an_account_that_is_not_there() -> None:
    fs = fsabs.from_url("az://c", account_name="nosuchaccount", account_key=KEY, max_attempts=1)
    with pytest.raises(OSError, match="endpoint https://nosuchaccount.blob.core.windows.net"):
        fs.read_bytes("x")


def test_public_data_of_an_address_need_no_credentials(store: AzureStore, monkeypatch: pytest.MonkeyPatch) -> None:
    host = "account.blob.core.windows.net"
    fs = Azure(f"bucket@{host}", endpoint=store.endpoint, max_attempts=2)
    store.put("x", b"1")
    store.public = True
    assert fs.read_bytes("x") == b"1"
    assert list(fs.list("")) == ["x"]
    store.public = False
    store.token = "mine"
    monkeypatch.setattr("fsabs.backends.azure.access.credential_of", lambda options: _Static("mine"))
    assert fs.read_bytes("x") == b"1"
    store.token = "other"
    with pytest.raises(PermissionError, match="InvalidAuthenticationInfo"):
        fs.read_bytes("x")


class _Static:
    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *scopes: str) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken(self._token, 1 << 40)


def test_its_requests_are_named_in_traces_without_secrets(store: AzureStore, tmp_path: Path) -> None:
    with trace.record(tmp_path):
        fs = opened(store, account_key=None, sas_token="sv=1&sig=signature")
        fs.write_bytes("a", b"1")
        fs.read_bytes("a")
        list(fs.list(""))
        fs.stat("a")
    rows = {f"{row.kind} {row.layer}.{row.operation}" for row in trace.analyze(tmp_path).operations}
    assert rows >= {f"request azure.{name}" for name in ("get", "put", "list", "head")} | {"fs azure.read_bytes"}
    assert not any(b"=signature" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert "=signature" not in repr(fs) + repr(fs.options) + repr(fs.dialect.account) + str(list(facts_of(fs)))


# ---- accounts with directories


@pytest.fixture
def tree() -> Iterator[AzureStore]:
    with AzureStore(listed=False, hierarchical=True) as store:
        yield store


def test_directories_stay_and_the_account_is_asked_once_for_them(tree: AzureStore) -> None:
    fs = opened(tree)
    fs.write_bytes("a/b/x", b"1")
    fs.mkdir("a/empty")
    fs.write_bytes("a-b", b"2")
    assert list(fs.list("", recursive=True)) == ["a-b", "a/", "a/b/", "a/b/x", "a/empty/"]
    fs.remove("a/b/x")
    assert fs.isdir("a/b")
    assert [request.query.get("restype") for request in tree.seen].count("account") == 1


def test_directories_are_renamed_in_one_step(tree: AzureStore) -> None:
    fs = opened(tree)
    fs.write_many({f"a/{number}": b"1" for number in range(20)})
    before = tree.requests
    fs.rename("a", "new/place")
    assert tree.requests - before <= 7
    assert sorted(tree.blobs) == ["new", "new/place", *sorted(f"new/place/{number}" for number in range(20))]
    fs.write_bytes("x", b"2")
    fs.rename("x", "new/place/3")
    assert fs.read_bytes("new/place/3") == b"2"
    fs.mkdir("empty")
    fs.rename("new/place", "empty")
    assert fs.read_bytes("empty/3") == b"2"
    fs.write_bytes("full/x", b"")
    with pytest.raises(OSError, match="not empty|non-empty|Not empty|Directory not empty"):
        fs.rename("empty", "full")
    with pytest.raises(IsADirectoryError):
        fs.rename("full/x", "empty")


def test_what_was_renamed_or_made_is_known_when_the_response_was_lost(tree: AzureStore) -> None:
    fs = opened(tree)
    fs.write_bytes("a/x", b"1")
    fs.write_bytes("old", b"0")
    for src, dst in (("a", "b"), ("b/x", "y"), ("b", "new/place"), ("y", "old")):
        tree.lose_response(lambda request: "mode" in request.query)
        fs.rename(src, dst)
    assert {name: blob.content for name, blob in tree.blobs.items() if blob.kind == "file"} == {"old": b"1"}
    assert sorted(tree.blobs) == ["new", "new/place", "old"]
    tree.lose_response(lambda request: "resource" in request.query)
    fs.mkdir("made")
    with pytest.raises(FileExistsError):
        fs.mkdir("made")


@pytest.mark.parametrize("target", [False, True])
def test_what_another_process_has_moved_away_was_not_renamed(tree: AzureStore, target: bool) -> None:
    fs = opened(tree)
    fs.write_bytes("x", b"1")
    if target:
        fs.write_bytes("y", b"2")

    def too_late(request: Request, answer: Callable[[Request], Answer]) -> Answer:
        if "mode" in request.query:
            tree.blobs.pop("x", None)
        return answer(request)

    tree.intercept(too_late)
    with pytest.raises(FileNotFoundError):
        fs.rename("x", "y")
    assert "y" not in tree.blobs or tree.blobs["y"].content == b"2"


def test_a_root_is_emptied_of_directories_in_directories(tree: AzureStore) -> None:
    fs = opened(tree)
    tree.page = 4
    fs.write_many({f"r/{name}/{number}": b"1" for name in ("a", "a/b", "a/b/c/d", "e") for number in range(5)})
    fs.write_many({f"r/{number}": b"1" for number in range(5)})
    fs.subfs("r").remove(".", recursive=True)
    assert sorted(tree.blobs) == ["r"]
    fs.makedirs("s/t/u")
    fs.remove("/", recursive=True)
    assert tree.blobs == {}


def test_an_account_that_does_not_tell_has_no_directories(store: AzureStore) -> None:
    def refusing(request: Request, answer: Callable[[Request], Answer]) -> Answer:
        if request.query.get("restype") == "account":
            return store.refusal(request, Refused(403, "AuthorizationFailure"))
        return answer(request)

    fs = opened(store)
    store.intercept(refusing)
    fs.mkdir("d")
    assert list(store.blobs) == ["d/"]
    assert list(fs.list("", recursive=True)) == ["d/"]
