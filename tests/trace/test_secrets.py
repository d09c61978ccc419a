"""What is secret is in no file of a trace: credentials, queries, messages of errors, arguments of the program."""

from __future__ import annotations

import gzip
from pathlib import Path
from time import monotonic_ns

import pytest

from fsabs import trace
from fsabs.core import hooks
from fsabs.trace import chunks


@pytest.mark.quick
@pytest.mark.parametrize(
    ("where", "shown"),
    [
        ("s3://bucket/a%3Fb", "s3://bucket/a%3Fb"),
        ("https://user:SECRET@host/a?X-Amz-Signature=SECRET", "https://host/a"),
        ("https://host/a#SECRET", "https://host/a"),
        ("zip://x.txt::https://user:SECRET@host/a.zip?token=SECRET", "zip://x.txt::https://host/a.zip"),
        ("SECRET@host/path", "host/path"),
        ("file:///home/a%40b/c@d.txt", "file:///home/a%40b/c@d.txt"),
        ("https://user:p@SECRET@host/a", "https://host/a"),
        ("https://us er:SECRET\n@host/a", "https://host/a"),
        ("hdfs://host:9000/a b", "hdfs://host:9000/a b"),
    ],
)
def test_a_url_is_shown_without_secrets(where: str, shown: str) -> None:
    assert chunks.clean_url(where) == shown


def test_no_file_of_a_trace_has_a_secret(tmp_path: Path) -> None:
    with trace.record(tmp_path):
        recorder = hooks.active
        assert recorder is not None
        for where in ("https://u:SECRET@h/a?sig=SECRET", "SECRET@h/a", "a://b::c://SECRET@d/e#SECRET"):
            recorder.record_span("request", "http.get", monotonic_ns(), 1, where, "TimeoutError")
            recorder.record_event("retry", "http.get", 1, where)
    (path,) = tmp_path.iterdir()
    with path.open("rb") as file:
        assert "SECRET" not in "".join(map(repr, chunks.read(file)))
    assert b"SECRET" not in gzip.decompress(Path(trace.merge(tmp_path)).read_bytes())
    assert "SECRET" not in repr(trace.analyze(tmp_path))
