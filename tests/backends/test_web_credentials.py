"""Whom a user's password of `~/.netrc` is sent to, and which hosts are asked without the proxy."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

import fsabs
from tests.cache.web import Reply, serving

pytestmark = pytest.mark.quick

SENT = base64.b64encode(b"me:secret").decode()


@pytest.mark.parametrize(("entry", "sent"), [("machine 127.0.0.1", True), ("default", False)])
def test_the_default_of_netrc_is_not_sent_in_the_clear(
    entry: str, sent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text(f"{entry} login me password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with serving(lambda request: Reply(404)) as web:
        with pytest.raises(OSError):
            fsabs.from_url(web.url, max_attempts=1).read_bytes("a")
        assert [request.token for request in web.requests][:1] == [f"Basic {SENT}" if sent else None]


@pytest.mark.parametrize(
    ("networks", "direct"),
    [("127.0.0.0/8", True), ("10.0.0.0/8, 127.0.0.1/32", True), ("10.0.0.0/8", False), ("::/0,what/ever", False)],
)
def test_networks_without_a_proxy(networks: str, direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(lambda request: Reply(404)) as web:
        monkeypatch.setenv("no_proxy", networks)
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # where nothing answers
        with pytest.raises(OSError):
            fsabs.from_url(web.url, max_attempts=1).read_bytes("a")
        assert bool(web.requests) is direct
