"""The hub's quotas are kept by all processes of a user, and what it refuses is waited for."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.backends.hub.access import HubQuotas
from fsabs.backends.objects.addresses import Addresses
from fsabs.backends.objects.http1 import parse_head
from fsabs.backends.objects.messages import Request
from fsabs.testing.children import forked
from tests.servers.hostile_store import Answer
from tests.servers.hub import HubServer

RESOLVE, API = Request("GET", "x", path="/datasets/o/n/resolve/c/x"), Request("GET", path="/api/datasets/o/n")


def told(left: int, seconds: int, kind: str = "resolvers", policy: str = "") -> Any:
    fields = f'RateLimit: "{kind}";r={left};t={seconds}'
    return parse_head(f"HTTP/1.1 200 OK\r\n{fields}{policy and chr(13) + chr(10) + policy}".encode(), "HEAD")


def test_what_is_left_is_counted_down(tmp_path: Path) -> None:
    quotas = HubQuotas("http://hub", str(tmp_path / "q"), "quotas")
    assert [quotas.delay(RESOLVE) for _ in range(5)] == [0.0] * 5  # nothing is known
    quotas.learn(RESOLVE, told(3, 100))
    other = HubQuotas("http://hub", str(tmp_path / "q"), "quotas")  # of another process
    assert [one.delay(RESOLVE) for one in (quotas, other, quotas)] == [0.0] * 3
    with pytest.warns(RuntimeWarning, match="quota of requests to http://hub is used up"):
        assert 98 < other.delay(RESOLVE) <= 101
    assert 98 < quotas.delay(RESOLVE) <= 101
    assert quotas.delay(API) == 0.0
    quotas.learn(RESOLVE, told(2, 99))  # the response to a request of before: it says no more than is known
    assert quotas.delay(RESOLVE) > 0
    quotas.learn(RESOLVE, told(7, 300))  # another window
    assert quotas.delay(RESOLVE) == 0.0
    quotas.learn(Request("GET", "x", location="http://elsewhere/x"), told(0, 100, "api"))
    assert quotas.delay(API) == 0.0


def test_windows_follow_one_another(tmp_path: Path) -> None:
    quotas = HubQuotas("http://hub", None, "")
    quotas.learn(RESOLVE, told(0, 1, policy='RateLimit-Policy: "fixed window";"resolvers";q=5;w=300'))
    wait = quotas.delay(RESOLVE)
    assert 0 < wait <= 1
    time.sleep(wait)
    assert [quotas.delay(RESOLVE) for _ in range(5)] == [0.0] * 5
    with pytest.warns(RuntimeWarning):
        assert 290 < quotas.delay(RESOLVE) <= 300
    quotas.learn(RESOLVE, told(0, 10_000))  # no window is that long
    assert quotas.delay(RESOLVE) == 0.0


def test_a_file_that_is_damaged_or_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "quotas").write_bytes(b"\xff" * 40)
    quotas = HubQuotas("http://hub", str(tmp_path), "quotas")
    assert quotas.delay(RESOLVE) == 0.0
    quotas.learn(RESOLVE, told(1, 100))
    assert quotas.delay(RESOLVE) == 0.0
    (tmp_path / "file").write_bytes(b"")
    quotas = HubQuotas("http://hub", str(tmp_path / "file"), "quotas")
    quotas.learn(RESOLVE, told(0, 2))
    assert quotas.delay(RESOLVE) > 0


def test_accounts_that_are_not_used_any_more_hold_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(100):
        HubQuotas("http://hub", str(tmp_path), f"quotas-{number}").learn(RESOLVE, told(1, 100))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_daemon_that_has_closed_its_descriptors_writes_into_no_other_file(tmp_path: Path) -> None:
    """The numbers of the files of quotas and addresses are used again, for the daemon's own files."""
    quotas = HubQuotas("http://hub", str(tmp_path / "kept"), "quotas")
    quotas.learn(RESOLVE, told(3, 100))
    addresses = Addresses(str(tmp_path / "kept"), "hub")
    addresses.put("x", "http://cdn/x", time.time() + 100)

    def daemon() -> tuple[bytes, str, float]:
        for number in list(map(int, os.listdir("/proc/self/fd"))):
            with contextlib.suppress(OSError):
                if "kept" in os.readlink(f"/proc/self/fd/{number}"):
                    os.close(number)
        own = [os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT) for _ in range(4)]  # by whatever numbers are free now
        os.write(own[0], b"log" * 100)
        quotas.learn(RESOLVE, told(0, 100))
        addresses.put("y", "http://cdn/y", time.time() + 100)
        return (tmp_path / "log").read_bytes(), addresses.get("x") + addresses.get("y"), quotas.delay(RESOLVE)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        [(log, known, delay)] = forked("a daemon", [daemon], 60)
    assert log == b"log" * 100
    assert known == "http://cdn/xhttp://cdn/y"
    assert 90 < delay <= 101


def test_a_child_takes_no_address_from_another_file_of_the_same_name(tmp_path: Path) -> None:
    """The folder was emptied, and another process has begun the file anew, with other addresses at the same places."""
    folder, until = str(tmp_path / "kept"), time.time() + 100
    addresses = Addresses(folder, "hub")
    for name in "xy":
        addresses.put(name, f"http://cdn/{name}", until)
    shutil.rmtree(folder)
    others = Addresses(folder, "hub")
    for name in "yx":
        others.put(name, f"http://cdn/{name}", until)
    [found] = forked("a child", [lambda: [addresses.get(name) for name in "xy"]], 60)
    assert found == ["", ""]
    assert [others.get(name) for name in "xy"] == ["http://cdn/x", "http://cdn/y"]


def _read(names: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fs = fsabs.from_url("hf://datasets/o/n")
        assert [len(content) for content in fs.read_many(names, concurrency=8)] == [15_000] * len(names)


def test_no_request_is_refused_of_many_processes(hub: HubServer) -> None:
    names = [f"{n:03}" for n in range(150)]
    hub.make("o/n", {name: os.urandom(15_000) for name in names})
    hub.quotas, hub.window = {"resolvers": 40, "api": 1000}, 2.0
    _read(names[:1])  # by which the quota is known
    begin, context = time.monotonic(), multiprocessing.get_context("fork")
    workers = [context.Process(target=_read, args=(names[n::3],)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    seconds = time.monotonic() - begin
    assert hub.refused == 0
    assert hub.counts["resolve"] == 150
    assert 4 < seconds < 12  # four windows of 40 hold 150, of which the first had begun


def test_what_is_refused_is_waited_for(hub: HubServer) -> None:
    names = [f"{n:03}" for n in range(60)]
    hub.make("o/n", {name: os.urandom(15_000) for name in names})
    fs = fsabs.from_url("hf://datasets/o/n")
    hub.quotas, hub.window = {"resolvers": 10}, 1.0
    assert [len(content) for content in fs.read_many(names)] == [15_000] * 60  # 32 requests at once, of which 10 may be
    assert 0 < hub.refused <= 22 + 10


def test_another_limit_is_waited_for_as_the_hub_says(hub: HubServer) -> None:
    hub.make("o/n", {"x": b"x"})
    answer, refused = hub.answer, iter([429, 429])

    def busy(request: Any) -> Answer:
        if next(refused, 0):
            return Answer(429, {"Retry-After": "1", "RateLimit": '"api";r=88;t=200'}, b"", 0)
        return answer(request)

    hub.answer = busy  # type: ignore[method-assign]
    begin = time.monotonic()
    assert fsabs.from_url("hf://datasets/o/n").read_bytes("x") == b"x"
    assert 2 <= time.monotonic() - begin < 10


def test_a_quota_that_takes_too_long_is_an_error(hub: HubServer) -> None:
    hub.make("o/n", {"x": b"x"})
    fs = fsabs.from_url("hf://datasets/o/n", max_attempts=1)
    hub.quotas, hub.window = {"resolvers": 0}, 100.0
    with pytest.raises(OSError, match="429"):
        fs.read_bytes("x")
