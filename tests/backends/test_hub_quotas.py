"""What the hub's quotas refuse is waited for."""

from __future__ import annotations

import os
import time

import pytest

import fsabs
from tests.servers.hostile_store import Answer
from tests.servers.hub import HubServer

URL = "hf://datasets/o/n"


def test_what_is_refused_is_waited_for(hub: HubServer) -> None:
    names = [f"{n:03}" for n in range(25)]
    hub.make("o/n", {name: os.urandom(15_000) for name in names})
    fs = fsabs.from_url(URL)
    hub.quotas, hub.window = {"resolvers": 10}, 1.0
    assert [len(content) for content in fs.read_many(names)] == [15_000] * 25
    assert hub.refused > 0
    assert hub.counts["resolve"] == 25


def test_another_limit_is_waited_for_as_the_hub_says(hub: HubServer) -> None:
    hub.make("o/n", {"x": b"x"})
    busy = iter(2 * [Answer(429, {"Retry-After": "1", "RateLimit": '"api";r=88;t=200'}, b"", 0)])
    hub.intercept(lambda request, answer: next(busy, None) or answer(request))
    begin = time.monotonic()
    assert fsabs.from_url(URL).read_bytes("x") == b"x"
    assert time.monotonic() - begin >= 2


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
