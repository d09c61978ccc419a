"""The frame of the benchmarks measures, tells and draws what it says; the benchmarks themselves are `make bench`."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import socket
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.frame import chart, delay, document, measure, one, peers, race, report, servers
from benchmarks.frame.measure import Dropped, Round, at_least, at_most
from benchmarks.frame.workers import Here, Worker

pytestmark = pytest.mark.quick

NAMED = re.compile(r"[a-z_0-9]+\.[a-z_0-9]+")
CONTESTANTS = one.BENCHMARKS / "contestants"


class Scripted:
    """A contestant whose rounds are given; an exception among them is raised."""

    def __init__(self, log: list[str], name: str, rounds: list[float | Exception]) -> None:
        self.log, self.name, self.rounds = log, name, iter(rounds)

    def round(self) -> Round:
        self.log.append(self.name)
        seconds = next(self.rounds)
        if isinstance(seconds, Exception):
            raise seconds
        return {"seconds": seconds, "cpu": seconds / 2}

    def close(self) -> None:
        self.log.append(f"{self.name} closed")


@pytest.fixture
def bench(tmp_path: Path) -> race.Bench:
    return race.Bench(tmp_path, full=False, rounds=None)


def entered(a_race: race.Race, name: str, each: int, rounds: list[float]) -> race.Entrant:
    figures: Iterator[Round] = ({"seconds": seconds, "cpu": seconds / 2} for seconds in [9.0, *rounds])
    return a_race.program(name, lambda: next(figures), each)


def entered_as_ours(a_race: race.Race, name: str, each: int, rounds: list[float]) -> race.Entrant:
    entrant = entered(a_race, name, each, rounds)
    a_race._entrants[name] = entrant = entrant._replace(mine=True)
    return entrant


def found(bench: race.Bench) -> report.Content:
    """As it is read back from a file."""
    content = report.content("local", "A title & more", "python -m benchmarks local", bench)
    read: report.Content = json.loads(json.dumps(content))
    return read


# ---- statistics


def test_a_spread_is_the_median_and_the_outer_tenths() -> None:
    assert measure.spread([float(value) for value in range(11)]) == (5.0, 1.0, 9.0)
    assert measure.spread([3.0]) == (3.0, 3.0, 3.0)
    assert measure.spread([1.0, 2.0]) == (1.5, 1.1, 1.9)


def test_a_target_has_a_side() -> None:
    assert at_least(1.4).reached(1.4)
    assert not at_least(1.4).reached(1.39)
    assert at_most(0.4).reached(0.4)
    assert not at_most(0.4).reached(0.41)
    assert str(at_most(20, "ms")) == "<= 20 ms"


def test_contestants_take_turns_and_the_first_round_warms_up() -> None:
    log: list[str] = []
    both = {name: Scripted(log, name, [100, 1, 2, 3]) for name in "ab"}
    taken = measure.take_turns(both, 3, lambda name, why: None)
    assert [figures["seconds"] for figures in taken["a"]] == [1, 2, 3]
    assert "".join(log) == "abbaabba"


def test_who_drops_out_is_told_and_the_others_go_on() -> None:
    log: list[str] = []
    told: dict[str, str] = {}
    both = {"a": Scripted(log, "a", [1, 1, 1]), "b": Scripted(log, "b", [1, Dropped("it broke")])}
    taken = measure.take_turns(both, 2, lambda name, why: told.update({name: str(why)}))
    assert (list(taken), len(taken["a"]), told) == (["a"], 2, {"b": "it broke"})


# ---- claims


def test_ratios_are_taken_within_a_round_and_per_thing(bench: race.Bench) -> None:
    with bench.race("reading", "file", rounds=3) as a_race:
        ours = entered(a_race, "ours", 10, [1, 10, 2])
        theirs = entered(a_race, "theirs", 5, [2, 20, 1])
        a_race.run()
        a_race.table("seconds", "ms/file", 1e3)
        a_race.faster(ours, theirs, at_least(4))
        a_race.cheaper(ours, theirs, at_most(0.1))
        a_race.rate(ours)
    faster, cheaper, rate = bench.claims
    assert faster.figure is not None
    assert (faster.figure.median, faster.reached) == (4, True)
    assert cheaper.figure is not None
    assert (cheaper.figure.median, cheaper.reached) == (0.25, False)
    assert rate.figure is not None
    assert (rate.figure.median, rate.unit, rate.reached) == (5, "files/s", None)
    (table,) = bench.tables
    assert [(row.name, row.value.median, row.ratio.median) for row in table.rows] == [
        ("ours", 200, 1),
        ("theirs", 400, 4),
    ]


def test_the_best_is_the_best_of_each_round(bench: race.Bench) -> None:
    with bench.race("reading", "file", rounds=2) as a_race:
        ours = entered(a_race, "ours", 1, [1, 1])
        others = [entered(a_race, "a", 1, [2, 8]), entered(a_race, "b", 1, [8, 2])]
        gone = a_race.absent("c", OSError("no such wheel"))
        a_race.run()
        a_race.against_best(ours, [*others, gone], at_least(2))
    (claim,) = bench.claims
    assert claim.figure == (2, 2, 2)
    assert claim.reached


def test_an_absent_peer_is_named_with_the_reason(bench: race.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(environment: str, package: str) -> str:
        raise peers.Missing(f"no {package} in {environment}")

    monkeypatch.setattr(peers, "interpreter", missing)
    with bench.race("reading", "file", rounds=1) as a_race:
        ours = entered(a_race, "ours", 1, [1])
        pfio = a_race.peer("PFIO", "pfio", "files.pfio", 1)
        a_race.run()
        a_race.table("seconds", "s", 1)
        a_race.faster(ours, pfio, at_least(5))
    text = report.text(found(bench))
    assert "absent: PFIO (reading): no pfio in clients" in text
    assert "target >= 5: PFIO is absent: no pfio in clients" in text
    assert "PFIO (reading) is absent: no pfio in clients" in document.section(found(bench))


# ---- workers


def test_a_worker_reads_in_a_process_of_its_own(bench: race.Bench, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(10))
    options = {"path": str(tmp_path), "names": ["a"], "size": 10}
    with bench.race("reading", "file", rounds=1) as a_race:
        worker = Worker(sys.executable, "files.builtin_open", options, a_race.environment)
        try:
            figures = worker.round()
            assert figures["seconds"] > 0
            assert figures["cpu"] >= 0
            (tmp_path / "a").write_bytes(bytes(9))
            with pytest.raises(Dropped, match="9 bytes came, and not 10"):
                worker.round()
        finally:
            worker.close()
        with pytest.raises(Dropped, match="nothing_like_it"):
            Worker(sys.executable, "files.nothing_like_it", {}, a_race.environment)


def test_a_program_is_asked_here() -> None:
    assert Here(lambda: {"seconds": 1.0}).round() == {"seconds": 1.0}


# ---- what is written


def two_tables(bench: race.Bench) -> None:
    for seconds in ([1.0, 1.1], [0.001, 0.002]):
        with bench.race("reading <& co>", "file", rounds=2) as a_race:
            ours = entered_as_ours(a_race, "fs.read_bytes", 1, seconds)
            theirs = entered(a_race, 'theirs <"8">', 1, [500.0, 400.0])
            a_race.run()
            a_race.table("seconds", "s/file", 1)
            a_race.faster(ours, theirs, at_least(1000))


def test_the_chart_is_a_picture_of_every_row_light_and_dark(bench: race.Bench) -> None:
    two_tables(bench)
    text = chart.svg(found(bench))
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    labels = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert labels.count('theirs <"8">') == labels.count("fs.read_bytes") == 2
    bars = [element for element in root.iter("{http://www.w3.org/2000/svg}rect") if element.get("class") != "page"]
    assert len(bars) == 4
    assert [bar.get("class") for bar in bars] == ["ours", "theirs"] * 2
    assert all(0 < float(bar.get("width", 0)) <= chart.LENGTH for bar in bars)
    assert "prefers-color-scheme: dark" in text


def test_an_axis_is_logarithmic_where_the_values_are_far_apart() -> None:
    near, far = chart.Scale([1, 2, 4]), chart.Scale([1, 10, 100])
    assert (near(2), near.ticks()) == (chart.LENGTH / 2, [])
    assert far(100) == chart.LENGTH
    assert far(100) - far(10) == pytest.approx(far(10) - far(1))
    assert far.ticks() == [0.1, 1, 10, 100]


def test_numbers_have_three_digits_that_matter() -> None:
    shown = [report.number(value) for value in (0, 0.0123, 1.234, 12.34, 1234.5)]
    assert shown == ["0", "0.012", "1.23", "12.3", "1,234"]


def test_a_section_has_the_command_and_what_was_missed(bench: race.Bench) -> None:
    two_tables(bench)
    section = document.section(found(bench))
    assert "`python -m benchmarks local`" in section
    assert section.count("**NOT reached**") == 1


# ---- servers


def test_the_proxy_holds_bytes_back_and_loses_none() -> None:
    sent = os.urandom(300_000)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        delay.proxy(server.getsockname()[1], 20) as port,
        socket.create_connection(("127.0.0.1", port)) as client,
        server.accept()[0] as far,
    ):
        start = time.monotonic()
        client.sendall(sent)
        assert received(far, len(sent)) == sent
        assert time.monotonic() - start >= 0.01
        far.sendall(sent[::-1])
        assert received(client, len(sent)) == sent[::-1]
        client.close()
        assert far.recv(1) == b""


def received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size)
        assert piece, f"{len(data)} bytes of {size} came"
        data += piece
    return bytes(data)


def test_requests_are_counted_from_where_the_log_was(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("GET 200 5 /a\n")
    start = log.stat().st_size
    with log.open("a") as file:
        file.write("GET 206 7 /a\nHEAD 200 0 /b c\n")
    assert servers.requests(log, start) == ((2, 7), log.stat().st_size)


# ---- the benchmarks


@pytest.mark.parametrize("name", one.names())
def test_a_benchmark_is_listed_and_documented_and_its_contestants_exist(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    assert callable(module.run)
    assert one.title(name).endswith(".") or ":" in one.title(name)
    named = [
        node.value
        for node in ast.walk(ast.parse((one.BENCHMARKS / f"{name}.py").read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    contestants = {path.stem for path in CONTESTANTS.glob("*.py")}
    wanted = [text for text in named if NAMED.fullmatch(text) and text.split(".")[0] in contestants]
    assert wanted
    for text in wanted:
        contestant, _, function = text.partition(".")
        assert callable(getattr(importlib.import_module(f"benchmarks.contestants.{contestant}"), function)), text


def test_every_peer_that_races_is_installed_somewhere() -> None:
    installed = {name for groups in peers.ENVIRONMENTS.values() for group in groups for name in peers.packages(group)}
    for path in one.BENCHMARKS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "peer":
                package = node.args[1]
                assert not isinstance(package, ast.Constant) or package.value in installed, (path, package)
