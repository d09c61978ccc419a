"""Dask's tests of bytes on S3, where `s3://` is registered for this library, on a server of our tests.

Its own fixture starts `moto_server s3`, which moto 5 refuses, and s3fs, which it imports, isn't asked for.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types

import boto3
import pytest

import fsabs
from fsabs.adapters.fsspec import filesystem_class

fsabs.register_fsspec("s3")
sys.modules["s3fs"] = types.SimpleNamespace(S3FileSystem=filesystem_class("s3"))

test_s3 = importlib.import_module("dask.bytes.tests.test_s3")
globals().update({name: found for name, found in vars(test_s3).items() if not name.startswith("__")})
del globals()["test_get_s3"]  # the names of s3fs's own options


class Names(filesystem_class("s3")):
    """What the tests look at the store with, behind the back of Dask: its `ls` gives names, as that of s3fs."""

    def ls(self, path, detail=False):
        return super().ls(path, detail)


@contextlib.contextmanager
def s3_context(bucket=test_s3.test_bucket_name, files=test_s3.files):
    """A bucket with these files, which anyone may read."""
    client = test_s3.boto3.client("s3")
    client.create_bucket(Bucket=bucket, ACL="public-read-write")
    for name, data in files.items():
        client.put_object(Bucket=bucket, Key=name, Body=data)
    yield Names(skip_instance_cache=True)
    for found in client.list_objects_v2(Bucket=bucket)["Contents"]:
        client.delete_object(Bucket=bucket, Key=found["Key"])


test_s3.s3_context = s3_context


@pytest.fixture
def s3_base(judged_url, moto, monkeypatch):
    """The server, to which the environment leads ours, and a client of boto3 that the tests make."""
    client = boto3.client("s3", endpoint_url=moto.endpoint)
    monkeypatch.setattr(test_s3, "boto3", types.SimpleNamespace(client=lambda *_, **__: client))


@pytest.fixture
def s3so():
    """No options: the environment has them."""
    return {}
