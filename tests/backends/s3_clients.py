"""Clients of S3: ours and boto3's, of a real server or of one that answers as a test says."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import boto3
import botocore.session
from botocore.credentials import CredentialProvider, RefreshableCredentials

from fsabs.backends.s3 import S3
from tests.servers.s3_server import S3Server
from tests.servers.shared import unique

MIB = 1 << 20
KEYS: dict[str, Any] = {"aws_access_key_id": "me", "aws_secret_access_key": "a-secret-key", "region": "us-east-1"}
"""For a server that checks no signature."""
SESSION = b"""<CreateSessionResult><Credentials><SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey>
<AccessKeyId>a</AccessKeyId><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></CreateSessionResult>"""
"""The response of a directory bucket that is asked for a session."""

_descriptions = botocore.session.get_session().get_component("data_loader")


def core_session() -> Any:
    """Return a new session of botocore, which shares the descriptions of AWS's services.

    These take 25 MB in each session, and a client that fsabs shares keeps its session.
    """
    session = botocore.session.get_session()
    _descriptions.search_paths[:] = dict.fromkeys(_descriptions.search_paths)  # each session of boto3 adds its own
    session.register_component("data_loader", _descriptions)
    return session


def renewable_session(renew: Callable[[], dict[str, str]], method: str = "custom") -> Any:
    """Return a session of botocore whose credentials are those that `renew` returns, again and again."""

    class Provider(CredentialProvider):
        METHOD = CANONICAL_NAME = method

        def load(self) -> RefreshableCredentials:
            return RefreshableCredentials.create_from_metadata(renew(), renew, method)

    session = core_session()
    session.get_component("credential_provider").insert_before("env", Provider())
    return session


def users_client(**options: Any) -> Any:
    """Return a client of boto3, as a user would make it."""
    return boto3.Session(botocore_session=core_session()).client("s3", **options)


def opened(endpoint: str, **options: Any) -> S3:
    """Return the bucket `bucket` of a server that checks no signature."""
    return S3("bucket", endpoint=endpoint, **{**KEYS, "read_timeout": 5, **options})


def settings(server: S3Server, **changes: Any) -> dict[str, Any]:
    """Return the options for a real server."""
    return {
        "endpoint": server.endpoint,
        "aws_access_key_id": server.access_key,
        "aws_secret_access_key": server.secret_key,
        "region": server.region,
        **changes,
    }


def new_bucket(server: S3Server, **options: Any) -> S3:
    """Return a new bucket of a real server."""
    name = unique("bucket")
    server.create_bucket(name)
    return S3(name, **settings(server, **options))


def client_of(server: S3Server) -> Any:
    """Return the client of boto3 of a real server."""
    keys = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
    return users_client(endpoint_url=server.endpoint, region_name=server.region, **keys)


def contents(count: int, size: int = 3000) -> dict[str, bytes]:
    """Return the contents of so many objects, by key."""
    chance = random.Random(5)
    return {f"k{number:04}": chance.randbytes(size) for number in range(count)}


def use_everything(fs: S3) -> None:
    """Write files of all sizes in all ways, read them, and change the tree."""
    small, large = b"small" * 1000, os.urandom(11 * MIB)
    fs.write_bytes("a/small.bin", small)
    fs.write_many([("a/many.bin", small), ("a/many2.bin", small)], concurrency=4)
    with fs.open("a/new.bin", "xb") as file:
        file.write(small)
    with fs.open("a/large.bin", "wb") as file:
        file.write(large)
    assert fs.read_bytes("a/small.bin") == small
    assert list(fs.read_many(["a/many.bin", "a/many2.bin", "a/new.bin"])) == [small] * 3
    assert fs.stat("a/large.bin").size == len(large)
    assert fs.read_bytes("a/large.bin") == large
    with fs.open("a/large.bin", "rb") as file:
        assert file.read(10) == large[:10]
        file.seek(6 * MIB)
        assert file.read(MIB) == large[6 * MIB : 7 * MIB]
    fs.copy("a/small.bin", "b/copy.bin")
    fs.rename("a", "c")
    assert fs.read_bytes("b/copy.bin") == small
    assert fs.read_bytes("c/large.bin") == large
    assert sorted(fs.list("c")) == ["large.bin", "many.bin", "many2.bin", "new.bin", "small.bin"]
    fs.remove("c", recursive=True)
    assert not fs.exists("c")
