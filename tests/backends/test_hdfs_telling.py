"""Errors of HDFS say what is wrong: that of the NameNode that tells the most, and those of this machine by errno."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from fsabs.backends.hdfs import Hdfs, client
from tests.servers.network import HOST, Blackhole, Refused

pytestmark = pytest.mark.quick
STANDBY = 'RPCError("org.apache.hadoop.ipc.StandbyException", "Operation category READ is not supported")'
SAFE = 'RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Cannot delete /x: in safe mode")'


class Refusing:
    """A client of a NameNode that refuses each call."""

    def __init__(self, says: str) -> None:
        self._says = says

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def refuse(*_: Any) -> None:
            raise RuntimeError(self._says)

        return refuse


def opened(monkeypatch: pytest.MonkeyPatch, says: dict[int, str]) -> Hdfs:
    """Return an FS of NameNodes on these ports, which say so."""

    class Library:
        def RawClient(self, url: str, settings: dict[str, str], *_: Any) -> Any:  # noqa: N802 - the library's name
            ids = settings["dfs.ha.namenodes.two"]
            port = settings[f"dfs.namenode.rpc-address.two.{ids}"].rpartition(":")[2]
            return Refusing(says[int(port)])

    monkeypatch.setattr(client, "library", Library)
    settings = {"dfs.ha.namenodes.two": ",".join(f"n{port}" for port in says)}
    settings |= {f"dfs.namenode.rpc-address.two.n{port}": f"{HOST}:{port}" for port in says}
    return Hdfs("/", "two", timeout=60, configuration={**settings, "dfs.client.failover.max.attempts": "2"})


@pytest.mark.parametrize("order", [("safe", "standby"), ("standby", "safe")], ids="-".join)
def test_safe_mode_is_not_hidden_by_what_a_standby_says(
    order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Blackhole() as one, Blackhole() as two:  # what is connected to before the first call
        says = {"safe": SAFE, "standby": STANDBY}
        fs = opened(monkeypatch, {server.port: says[name] for server, name in zip((one, two), order, strict=True)})
        with pytest.raises(OSError, match="safe mode") as caught:
            fs.remove("x", recursive=True)
    assert caught.value.errno == errno.EROFS


@pytest.mark.parametrize("first", [True, False])
def test_a_namenode_that_is_off_is_not_hidden_by_what_a_standby_says(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Refused() as off, Blackhole() as standby:
        ports = {off.port: "", standby.port: STANDBY}
        fs = opened(monkeypatch, ports if first else dict(reversed(ports.items())))
        with pytest.raises(ConnectionRefusedError):
            fs.stat("x")


@pytest.mark.parametrize(
    ("says", "code"),
    [
        ("Too many open files (os error 24)", errno.EMFILE),
        (f"Cannot assign requested address (os error {errno.EADDRNOTAVAIL})", errno.EADDRNOTAVAIL),
        ("No such file or directory (os error 2)", errno.EINVAL),
    ],
)
def test_an_error_of_this_machine_has_its_errno(says: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not there on this machine is not the one that was asked for."""
    with Blackhole() as one, Blackhole() as two:
        fs = opened(monkeypatch, dict.fromkeys((one.port, two.port), says))
        with pytest.raises(OSError, match="os error") as caught:
            fs.exists("x")
    assert caught.value.errno == code
