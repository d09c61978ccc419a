"""Buckets of the hub, by its S3 gateway: objects lie elsewhere, and conditions on a GET are ignored."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import fsabs
from fsabs.backends.hub import HubBucket
from tests.servers.hostile_store import Answer, HostileStore, Request, content

URL = "hf://buckets/org/things"
KEYS: dict[str, Any] = {"aws_access_key_id": "HFAK", "aws_secret_access_key": "secret"}


class Edge(HostileStore):
    """Where objects lie: it has ETags of its own, and takes no credentials."""

    def __init__(self, gateway: HostileStore) -> None:
        super().__init__()
        self._gateway = gateway
        self.seen: list[Request] = []
        self.good = "1"

    def answer(self, request: Request) -> Answer:
        """The object, by its address."""
        self.seen.append(request)
        if request.query.get("sig") != self.good or "authorization" in request.headers:
            return Answer(403, {}, b"", 0)
        self.written = self._gateway.written
        answer = super().answer(request._replace(headers={"range": request.headers.get("range", "")}))
        answer.headers["ETag"] = '"of the edge"'
        return answer


class Gateway(HostileStore):
    """The gateway, with the owner in its path."""

    def __init__(self) -> None:
        super().__init__()
        self.edge = Edge(self)
        self.seen: list[Request] = []

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.edge.__exit__(*exc)

    def answer(self, request: Request) -> Answer:
        """The response of S3, or the address of an object."""
        self.seen.append(request)
        owner, _, rest = request.target[1:].partition("?")[0].partition("/")
        bucket, _, key = rest.partition("/")
        if (owner, bucket) != ("org", "things") or "authorization" not in request.headers:
            return Answer(403, {}, b"<Error><Code>AccessDenied</Code></Error>", 41)
        request = request._replace(key=key)
        answer = super().answer(request)
        if request.method == "GET" and key and answer.status < 300:
            headers = {"Location": f"{self.edge.endpoint}/repos/{key}?sig={self.edge.good}"}
            return Answer(302, headers, b"", 0)
        return answer


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with Gateway() as store:
        monkeypatch.setenv("HF_S3_ENDPOINT", store.endpoint)
        yield store


def test_objects_are_read_and_written(gateway: Gateway) -> None:
    fs = fsabs.from_url(URL, **KEYS)
    assert isinstance(fs, HubBucket)
    names = [f"{1_000 + n}-k{n}" for n in range(40)]
    assert fs.read_bytes(names[0]) == content(names[0])
    assert list(fs.read_many(names)) == [content(name) for name in names]
    with fs.open("3000000-big", "rb") as file:
        assert file.read() == content("3000000-big")
    with fs.open_blob("50000-b") as blob:
        assert blob.pread_many([(10, 0), (10, 40_000)]) == [content("50000-b")[:10], content("50000-b")[40_000:40_010]]
    data = os.urandom(70_000)
    fs.write_bytes("new/x", data)
    assert gateway.written["new/x"] == data
    assert pickle.loads(pickle.dumps(fs)).read_bytes("new/x") == data
    assert fs.url("new/x") == f"{URL}/new/x"
    with fsabs.open_url(f"{URL}/{names[1]}", "rb", **KEYS) as file:
        assert file.read() == content(names[1])
    assert sorted(fs.list("listed")) == sorted(f"{100 + n}-listed{n:02}" for n in range(25))
    assert not any("authorization" in request.headers for request in gateway.edge.seen)
    assert not any("x-amz-checksum-crc32c" in request.headers for request in gateway.seen)


def test_an_object_that_changes_while_it_is_read(gateway: Gateway) -> None:
    fs = fsabs.from_url(URL, **KEYS)
    fs.write_bytes("new/x", os.urandom(200_000))
    with fs.open("new/x", "rb", 0) as file:
        file.read(1_000)
        gateway.written["new/x"] = os.urandom(200_000)
        for size in (1_000, -1):
            with pytest.raises(fsabs.StaleFileError):
                file.read(size)


def test_who_has_no_keys_is_told(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(PermissionError, match="no credentials"):
        fsabs.from_url(URL).read_bytes("x")
    with contextlib.suppress(OSError):
        fsabs.from_url("hf://buckets/org/none", **KEYS).read_bytes("x")
    with pytest.raises(ValueError, match="bucket"):
        HubBucket("datasets/org/name")
