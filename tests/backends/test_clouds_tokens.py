"""Tokens of clouds: fetched by google-auth and azure-identity, renewed before they end, by each process for itself."""

from __future__ import annotations

import functools
import json
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import fsabs
from fsabs.backends.gcs import access as gcs_access
from fsabs.backends.objects import ObjectStore
from fsabs.backends.objects.access import Token, TokenAccess
from fsabs.cli.explain import facts_of
from fsabs.testing.children import Child
from tests.servers.azure_store import AzureStore
from tests.servers.gcs_store import GcsStore
from tests.servers.token_server import TokenServer

pytestmark = [pytest.mark.quick, pytest.mark.timeout(60)]
SECRET = "planted-secret"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of this machine."""
    for name in list(os.environ):
        if name.startswith(("GOOGLE_", "CLOUDSDK_", "AZURE_", "GCE_", "IDENTITY_", "MSI_", "STORAGE_EMULATOR")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer() as server:
        yield server


def key_file(folder: Path, server: TokenServer) -> str:
    """The key of a service account, whose tokens the server gives."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    email = "me@project.iam.gserviceaccount.com"
    fields = {"type": "service_account", "client_email": email, "private_key": pem, "project_id": "project"}
    fields["token_uri"] = f"http://{server.address}/token"
    path = folder / "key.json"
    path.write_text(json.dumps(fields))
    return str(path)


# ---- by which tokens are fetched


def by_key(server: TokenServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"credentials": key_file(folder, server)}


def by_mapping(server: TokenServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    fields = json.loads(Path(key_file(folder, server)).read_text())
    return {"credentials": {**fields, "credential_source": {"format": {"type": "json"}}}}  # as workloads' have it


def by_object(server: TokenServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    from google.oauth2 import service_account

    kind: Any = service_account.Credentials
    return {"credentials": kind.from_service_account_file(key_file(folder, server))}


def by_variable(server: TokenServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", key_file(folder, server))
    return {}


def by_metadata(server: TokenServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.delenv("NO_GCE_CHECK")
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"):
        monkeypatch.setenv(name, server.address)
    import google.auth.compute_engine._metadata as metadata

    for name in ("_METADATA_ROOT", "_METADATA_IP_ROOT"):
        monkeypatch.setattr(metadata, name, f"http://{server.address}/computeMetadata/v1/", raising=False)
    return {}


GOOGLE = [by_key, by_mapping, by_object, by_variable, by_metadata]


@pytest.mark.parametrize("how", GOOGLE)
def test_google_auth_finds_credentials(
    how: Callable[..., dict[str, Any]], server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = how(server, tmp_path, monkeypatch)
    with GcsStore() as store:
        store.token = "token-1"
        fs = fsabs.from_url("gs://bucket", endpoint=store.endpoint, max_attempts=1, **options)
        assert fs.read_bytes("700-x") == fs.read_bytes("700-x")
        assert server.given == ["token-1"]
        other = fsabs.from_url("gs://other", endpoint=store.endpoint, max_attempts=1, **options)
        other.read_bytes("1-x")
        assert server.given == ["token-1"]  # of the same credentials
        assert "none found" not in credentials_shown(fs)
        text = repr(fs) + repr(fs.options) + str(fs.info())
        assert "PRIVATE KEY" not in text
        assert "token-1" not in text
        assert gcs_access.principal(fs.options)


def managed_identity(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://{server.address}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", SECRET)


def test_azure_identity_finds_credentials(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    managed_identity(server, monkeypatch)
    with AzureStore() as store:
        store.token = "token-1"
        fs = fsabs.from_url("az://bucket", account_name="account", endpoint=store.endpoint, max_attempts=1)
        assert len(fs.read_bytes("700-x")) == 700
        assert server.given == ["token-1"]
        assert SECRET not in repr(fs) + str(list(facts_of(fs)))


class Static:
    """A credential of azure-identity's kind."""

    def __init__(self, *given: str, ends: float = 3600.0) -> None:
        self.given = list(given)
        self.ends = ends

    def get_token(self, *scopes: str, **options: Any) -> Any:
        from azure.core.credentials import AccessToken

        assert scopes == ("https://storage.azure.com/.default",)
        return AccessToken(self.given.pop(0) if len(self.given) > 1 else self.given[0], int(time.time() + self.ends))


def test_a_credential_is_used_as_it_is_and_pickles() -> None:
    with AzureStore() as store:
        store.token = "mine"
        fs = fsabs.from_url("az://bucket", account_name="account", endpoint=store.endpoint, credential=Static("mine"))
        assert len(pickle.loads(pickle.dumps(fs)).read_bytes("700-x")) == 700


def credentials_shown(fs: fsabs.FS) -> str:
    """Where `fsabs explain` says that the credentials come from."""
    return next(f"{fact.value} {fact.source}" for fact in facts_of(fs) if fact.name == "credentials")


# ---- renewed


def _opened(cloud: str, store: Any, server: TokenServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    if cloud == "gcs":
        options: dict[str, Any] = {"credentials": key_file(folder, server)}
        found = fsabs.from_url("gs://bucket", endpoint=store.endpoint, max_attempts=1, **options)
    else:
        managed_identity(server, monkeypatch)
        found = fsabs.from_url("az://bucket", account_name="account", endpoint=store.endpoint, max_attempts=1)
    assert isinstance(found, ObjectStore)
    return found


STORES = {"gcs": GcsStore, "azure": AzureStore}


@pytest.mark.parametrize("cloud", STORES)
def test_a_token_that_is_refused_is_renewed_once(
    cloud: str, server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with STORES[cloud]() as store:
        fs = _opened(cloud, store, server, tmp_path, monkeypatch)
        store.token = "token-1"
        fs.read_bytes("700-x")
        store.token = "token-2"  # the other one is revoked
        assert [len(data) for data in fs.read_many([f"{n}-x" for n in range(1, 30)])] == list(range(1, 30))
        assert server.given == ["token-1", "token-2"]
        store.token = "none of them"
        with pytest.raises(PermissionError) as caught:
            fs.read_bytes("700-x")
        assert "token-" not in str(caught.value)
        assert len(server.given) <= 2 + 3


@pytest.mark.parametrize("cloud", STORES)
def test_a_token_is_renewed_before_it_ends(
    cloud: str, server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with STORES[cloud]() as store:
        fs = _opened(cloud, store, server, tmp_path, monkeypatch)
        store.token = "token-1"
        fs.read_bytes("700-x")
        store.token = "token-2"
        later, requests = time.time() + 3400, store.requests
        monkeypatch.setattr(time, "time", lambda: later)
        fs.read_bytes("701-x")
        assert (server.given, store.requests) == (["token-1", "token-2"], requests + 1)


def test_threads_renew_a_token_once_and_a_failure_is_none_while_the_token_is_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, given = [1e9], []
    monkeypatch.setattr(time, "time", lambda: now[0])
    slow = threading.Event()

    def fetch() -> Token:
        given.append(now[0])
        if len(given) > 2:
            raise PermissionError(13, "no token")
        slow.wait(0.2 if len(given) > 1 else 0)
        return Token(f"t{len(given)}", now[0] + 1000)

    access = TokenAccess(None, fetch)  # type: ignore[arg-type]
    now[0] += 900
    threads = [threading.Thread(target=access.authorise, args=("GET", "/", "", (), b"")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == 2
    now[0] += 900
    assert access.authorise("GET", "/", "", ("a:b",), b"") == "a:b\r\nauthorization:Bearer t2\r\n"
    assert len(given) == 3
    access.authorise("GET", "/", "", (), b"")
    assert len(given) == 3  # it is not asked again at once
    now[0] += 101
    with pytest.raises(PermissionError, match="no token"):
        access.authorise("GET", "/", "", (), b"")


def _size(fs: ObjectStore) -> int:
    return len(fs.read_bytes("700-x"))


@pytest.mark.parametrize(("cloud", "method"), [("gcs", "fork"), ("azure", "spawn")])
def test_each_process_fetches_a_token_for_itself(
    cloud: str, method: str, server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with STORES[cloud]() as store:
        fs = _opened(cloud, store, server, tmp_path, monkeypatch)
        store.token = "any"
        assert _size(fs) == 700
        assert Child("a process", functools.partial(_size, fs), 50, method).result() == 700
        assert _size(fs) == 700


# ---- none


def told(function: Callable[[], object]) -> str:
    """The error of a function, which is one line."""
    with pytest.raises((OSError, fsabs.ConfigError)) as caught:
        function()
    text = str(caught.value)
    assert "\n" not in text
    assert SECRET not in text
    assert len(text) < 500
    return text


def test_no_credentials_of_google(tmp_path: Path, server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with GcsStore() as store:
        store.token = "right"
        options: dict[str, Any] = {"endpoint": store.endpoint, "max_attempts": 1}
        found = told(lambda: fsabs.from_url("gs://bucket", **options).read_bytes("1-x"))
        assert "gcloud auth application-default login" in found
        assert "anonymous=True" in found
        anonymous = fsabs.from_url("gs://bucket", anonymous=True, **options)
        assert "give credentials" in told(lambda: anonymous.read_bytes("1-x"))
        wrong = fsabs.from_url("gs://bucket", access_token=SECRET, **options)
        assert "(401): Invalid Credentials" in told(lambda: wrong.read_bytes("1-x"))
        missing = fsabs.from_url("gs://bucket", credentials=str(tmp_path / "no.json"), **options)
        assert "no.json" in told(lambda: missing.read_bytes("1-x"))
        (tmp_path / "odd.json").write_text(f'{{"type": "odd", "private_key": "{SECRET}"}}')
        odd = fsabs.from_url("gs://bucket", credentials=str(tmp_path / "odd.json"), **options)
        assert "no credentials" in told(lambda: odd.read_bytes("1-x"))
        server.refusing = (400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        revoked = fsabs.from_url("gs://bucket", credentials=key_file(tmp_path, server), **options)
        assert "invalid_grant" in told(lambda: revoked.read_bytes("1-x"))
        assert "none found" in credentials_shown(fsabs.from_url("gs://bucket", **options))


def test_no_credentials_of_azure(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    managed_identity(server, monkeypatch)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    server.refusing = (400, {"error": "invalid_request", "error_description": "Identity not found"})
    with AzureStore() as store:
        options: dict[str, Any] = {"endpoint": store.endpoint, "account_name": "account", "max_attempts": 1}
        found = told(lambda: fsabs.from_url("az://bucket", **options).read_bytes("1-x"))
        assert "az login" in found
        assert "anonymous=True" in found
        key = fsabs.from_url("az://bucket", account_key="bm90IHRoZSBrZXk=", **options)
        assert "AuthenticationFailed (403)" in told(lambda: key.read_bytes("1-x"))
        assert "not base64" in told(lambda: fsabs.from_url("az://b", account_key=SECRET, **options).read_bytes("1-x"))
        anonymous = fsabs.from_url("az://bucket", anonymous=True, **options)
        assert "give credentials" in told(lambda: anonymous.read_bytes("1-x"))
        assert "give credentials" in told(lambda: list(anonymous.list("")))
        sas = fsabs.from_url("az://bucket", sas_token=f"sv=1&sig={SECRET}", **options)
        assert "NoAuthenticationInformation (401)" in told(lambda: list(sas.list("")))
    assert "no account" in told(lambda: fsabs.from_url("az://bucket"))
