"""Secrets without a name that is known: in a query, in a path, quoted more than once, and in what others say."""

from __future__ import annotations

import errno
import time

import pytest

from fsabs.backends.objects.messages import Request
from fsabs.core import errors, redaction

pytestmark = pytest.mark.quick

SECRET = "hunter-2_secret"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
TEXTS = [
    *(f"{scheme}://h/x?{SECRET}" for scheme in ("http", "https", "s3", "gs", "abfs", "hdfs", "other")),
    f"http://h/x?{SECRET}==",
    f"http://h/x?part=1&{SECRET}",
    f"http://h/x?{SECRET}&part=1",
    f"http://h/x#{SECRET}",
    f"http://h/x/{SECRET.upper()}?{SECRET}",
    f"http://h/a;token={SECRET}/x",
    f"http://h/a;jsessionid={SECRET}?part=1",
    f"http://h/x?url=http%253A%252F%252Fme%253A{SECRET}%2540host",
    f"http://h/x?url=http%25253A%25252F%25252Fme%25253A{SECRET}%252540host",
    f"http://h/x?path=a%253Fsig%253D{SECRET}",
    f"http://proxy/http%3A%2F%2Fme%3A{SECRET}%40host/x",
    f"http://proxy/http%253A%252F%252Fme%253A{SECRET}%2540host/x",
    f"Authorization: Bearer {SECRET}",
    f"the header 'authorization: {SECRET}' was refused",
    f"{{'Authorization': 'Bearer {SECRET}', 'Range': 'bytes=0-0'}}",
    f"{{'Proxy-Authorization': b'Basic {SECRET}'}}",
    f"Authorization: AWS4-HMAC-SHA256 Credential=AKID/20260101/x/s3/aws4_request, Signature={SECRET}",
    f"a request with Bearer {SECRET}.{SECRET} was refused",
    f"DefaultEndpointsProtocol=https;AccountName=me;AccountKey={KEY};EndpointSuffix=core.windows.net",
    f"the client was made with AccountKey={KEY}",
    f"token='{SECRET}-{SECRET}' is no token",
]


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_on_no_list_is_hidden(text: str) -> None:
    for said in (text, f"can't open '{text}': refused", f"({text})", repr([text, "z"])):
        shown = redaction.without_secrets(said)
        assert SECRET not in shown
        assert KEY not in shown
        assert KEY[:40] not in shown
        assert "***" in shown
        assert redaction.without_secrets(shown) == shown
    shown = str(errors.error(errno.EIO, "read", "http://h/x", text))
    assert SECRET not in shown
    assert KEY not in shown


def test_the_request_of_a_file_of_the_web() -> None:
    shown = repr(Request("GET", "data/x", query=SECRET))
    assert SECRET not in shown
    assert "data/x?***" in shown


@pytest.mark.parametrize(
    "text",
    [
        "file:///data/date=2024-01-01/part-00000-aaaaaaaaaaaaaaaaaaaa.parquet",
        "s3://bucket/run/epoch=3-val_loss=0.2500000000000000000001.ckpt",
        "s3://bucket/a;b.txt",
        "http://h/x?versionId=3&partNumber=1",
        "s3://bucket?region=eu-central-1&endpoint=http://127.0.0.1:9000",
        "max_ratio=12.5 is the limit; force_type='zip' says what it is",
        "Basic authentication, or the authorization of a bearer, is refused",
    ],
)
def test_names_of_files_and_options_are_shown(text: str) -> None:
    assert redaction.without_secrets(text) == text


@pytest.mark.parametrize("part", ["%2f", "%2f%2fa%", "a=", "a.", "=a", "Basic ", "authorization:", ";a=b", "://", "?a"])
def test_texts_of_strangers_take_a_time_in_proportion(part: str) -> None:
    for start in ("", "http://h/", "http://h?"):
        begin = time.process_time()
        redaction.without_secrets(start + part * 30_000 + "z")
        assert time.process_time() - begin < 5
