"""What the hub's quotas refuse is waited for."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

import pytest

import fsabs
from tests.servers.hostile_store import Answer
from tests.servers.hub import HubServer

URL = "hf://datasets/o/n"


def _read(names: list[str]) -> None:
    fs = fsabs.from_url(URL)
    assert [len(content) for content in fs.read_many(names)] == [15_000] * len(names)


def test_what_is_refused_is_waited_for(hub: HubServer) -> None:
    names = [f"{n:03}" for n in range(60)]
    hub.make("o/n", {name: os.urandom(15_000) for name in names})
    fs = fsabs.from_url(URL)
    hub.quotas, hub.window = {"resolvers": 10}, 1.0
    assert [len(content) for content in fs.read_many(names)] == [15_000] * 60
    assert hub.refused > 0
    assert hub.counts["resolve"] == 60


def test_processes_wait_for_a_quota_that_they_share(hub: HubServer) -> None:
    names = [f"{n:03}" for n in range(90)]
    hub.make("o/n", {name: os.urandom(15_000) for name in names})
    hub.quotas, hub.window = {"resolvers": 40, "api": 1000}, 1.0
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_read, args=(names[n::3],)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert hub.counts["resolve"] == 90


def test_another_limit_is_waited_for_as_the_hub_says(hub: HubServer) -> None:
    hub.make("o/n", {"x": b"x"})
    answer, refused = hub.answer, iter([429, 429])

    def busy(request: Any) -> Answer:
        if next(refused, 0):
            return Answer(429, {"Retry-After": "1", "RateLimit": '"api";r=88;t=200'}, b"", 0)
        return answer(request)

    hub.answer = busy  # type: ignore[method-assign]
    begin = time.monotonic()
    assert fsabs.from_url(URL).read_bytes("x") == b"x"
    assert 2 <= time.monotonic() - begin < 10


def test_a_long_wait_is_said_and_one_that_may_not_be_is_an_error(hub: HubServer) -> None:
    hub.make("o/n", {"x": b"x"})
    fs = fsabs.from_url(URL, max_attempts=1)
    hub.quotas, hub.window = {"resolvers": 0}, 1e6
    with (
        pytest.warns(RuntimeWarning, match="quota of requests to http://.* is used up"),
        pytest.raises(OSError, match="429") as caught,
    ):
        fs.read_bytes("x")
    assert caught.value.filename == f"{URL}/x"
