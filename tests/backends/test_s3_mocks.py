"""S3 in the process itself: moto's mocks answer boto3's requests by an event handler, and so they have to reach it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto import mock_aws

import fsabs
from fsabs.testing.children import Child

pytestmark = pytest.mark.quick


@pytest.fixture
def fs() -> Iterator[fsabs.S3]:
    with mock_aws():
        yield fsabs.S3("mocked", create_bucket=True)


def test_all_operations(fs: fsabs.S3) -> None:
    fs.write_bytes("a/b", b"content")
    assert fs.read_bytes("a/b") == b"content"
    with fs.open("a/b", "rb") as file:
        assert (file.seek(3), file.read()) == (3, b"tent")
    assert fs.write_many({f"m/{number}": bytes([number]) for number in range(20)}) == 20
    assert list(fs.read_many([f"m/{number}" for number in range(20)])) == [bytes([number]) for number in range(20)]
    assert list(fs.list()) == ["a/", "m/"]
    assert len(list(fs.list(recursive=True))) == 23
    with fs.open("large", "wb") as file:
        for _ in range(5):
            file.write(bytes(8 << 20))
    assert fs.stat("large").size == 40 << 20
    with fs.open_blob("large") as blob:
        assert blob.pread_many([(3, 7), (5, 1 << 20)]) == [bytes(3), bytes(5)]
    fs.rename("large", "moved")
    fs.copy("moved", "copy")
    assert (fs.exists("large"), fs.exists("moved"), fs.exists("copy")) == (False, True, True)
    with fs.open_zip("z.zip", "w") as archive:
        archive.write_bytes("x", b"y")
    with fsabs.from_url("s3://mocked/z.zip") as archive:
        assert archive.read_bytes("x") == b"y"
    with pytest.raises(FileNotFoundError):
        fs.open("none")
    with pytest.raises(FileExistsError):
        fs.open("a/b", "x").close()
    fs.remove("m", recursive=True)
    assert list(fs.list()) == ["a/", "copy", "moved", "z.zip"]


def test_a_forked_child_sees_the_mock(fs: fsabs.S3) -> None:
    fs.write_bytes("a", b"x")
    assert Child("a child", lambda: fs.read_bytes("a"), 20).result() == b"x"


def test_a_signed_url_is_signed_where_boto3_carries_the_requests(fs: fsabs.S3) -> None:
    url = fs.signed_url("a/b")
    assert url.startswith("https://mocked.s3.amazonaws.com/a/b?X-Amz-Algorithm=AWS4-HMAC-SHA256&")
    assert len(url.rpartition("&X-Amz-Signature=")[2]) == 64
    assert "?" not in fsabs.S3("mocked", anonymous=True).signed_url("a/b")
