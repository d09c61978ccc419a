"""S3 in the process itself: moto's mocks answer boto3's requests by an event handler, and so they have to reach it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto import mock_aws

import fsabs
from fsabs.testing.children import Child
from tests.backends.s3_clients import use_everything

pytestmark = pytest.mark.quick


@pytest.fixture
def fs() -> Iterator[fsabs.S3]:
    with mock_aws():
        yield fsabs.S3("mocked", create_bucket=True)


def test_all_operations(fs: fsabs.S3) -> None:
    use_everything(fs)
    with fs.open_zip("z.zip", "w") as archive:
        archive.write_bytes("x", b"y")
    with fsabs.from_url("s3://mocked/z.zip") as archive:
        assert archive.read_bytes("x") == b"y"
    with pytest.raises(FileNotFoundError):
        fs.open("none")
    with pytest.raises(FileExistsError):
        fs.open("z.zip", "x").close()


def test_a_forked_child_sees_the_mock(fs: fsabs.S3) -> None:
    fs.write_bytes("a", b"x")
    assert Child("a child", lambda: fs.read_bytes("a"), 20).result() == b"x"


def test_a_signed_url_is_signed_where_boto3_carries_the_requests(fs: fsabs.S3) -> None:
    url = fs.signed_url("a/b")
    assert url.startswith("https://mocked.s3.amazonaws.com/a/b?X-Amz-Algorithm=AWS4-HMAC-SHA256&")
    assert len(url.rpartition("&X-Amz-Signature=")[2]) == 64
    assert "?" not in fsabs.S3("mocked", anonymous=True).signed_url("a/b")
