"""The report: what is in it are the analysis' figures, as they are; nothing in it can do harm, or needs the network."""

from __future__ import annotations

import html
import itertools
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fsabs import trace
from fsabs.trace import units
from fsabs.trace.headlines import headlines
from fsabs.trace.reports import render
from fsabs.trace.results import (
    Amplification,
    Analysis,
    CacheUse,
    FileRow,
    Finding,
    HeatMap,
    Histogram,
    Row,
    Stall,
    Step,
    Timeline,
)
from fsabs.trace.schema import KINDS, Event, ProcessInfo
from tests.trace.synthetic import BEGIN, altered, event, example_analysis, write_process

pytestmark = pytest.mark.quick

NOTHING = Analysis(
    folder="", begin=0, seconds=0.0, processes=(), events=0, dropped=0, operations=(),
    amplification=Amplification(0, None), cache=CacheUse(0, 0, 0), retries=0, retry_seconds=0.0,
    timeline=Timeline(0.0, (), (), (), (), ()), heat=HeatMap(0.0, (), ()), read_sizes=Histogram("bytes", ()),
    request_sizes=Histogram("bytes", ()), latencies={}, files=(), files_seen=0, slowest=(), failures={}, steps=(),
    stall=None, breakdown=(), findings=(), notes=(),
)  # fmt: skip
EVIL = "</script></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[31m\u202egpj.exe\udcff\n"
SECRET = "sesame-open"


class Page(HTMLParser):
    """Elements of a document, and the texts of its tables and figures."""

    VOID = frozenset({"meta", "link", "input", "br", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[tuple[str, str | None]]]] = {}
        self.figures: dict[str, list[str]] = {}
        self._table = self._figure = ""
        self._texts: list[str] = []
        self._caption = False
        self._key: str | None = None
        self.feed(text)
        self.close()
        assert not self.stack

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.elements.append((tag, given))
        if tag not in self.VOID and tag != "path":
            self.stack.append(tag)
        if tag == "tr" and self._table:
            self.tables[self._table].append([])
        if tag in ("th", "td", "caption", "dd"):
            self._texts, self._key = [], given.get("data-v")
        if "data-figure" in given:
            self._figure = str(given["data-figure"])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag, tag
        text = "".join(self._texts)
        if tag == "dl":
            self._figure = ""
        if tag == "caption":
            self._table = text
            self.tables[text] = []
        elif tag in ("th", "td"):
            self.tables[self._table][-1].append((text, self._key))
        elif tag == "dd" and self._figure:
            self.figures.setdefault(self._figure, []).append(text)

    def handle_data(self, data: str) -> None:
        self._texts.append(data)


def _hostile() -> Analysis:
    """Every text of it wants to be code, and every URL has a secret."""
    url = f"s3://user:{SECRET}@bucket/{EVIL}?X-Amz-Signature={SECRET}"
    kept = example_analysis()
    row = Row("fs", EVIL, EVIL, 1, 2, 3, 4, 5.0, math.nan, 0.1, 0.2, 0.3, 0.4, 0.5)
    return altered(
        kept,
        folder=f"/home/{SECRET}/{EVIL.replace('/', '')}",
        processes=[ProcessInfo(0, EVIL, 1, 0, 0, EVIL, BEGIN, BEGIN, 1, 1, False)],
        operations=[row, *kept.operations],
        heat=altered(kept.heat, rows=[EVIL] * len(kept.heat.rows)),
        latencies={f"fs {EVIL}": Histogram("ns", [0, 3])},
        files=[FileRow(url, 1, 1, 1, 1.0, 1.0, 1)],
        slowest=[Event(BEGIN, 1, EVIL, EVIL, 1, 1, url, EVIL, 0, 1), Event(BEGIN, 1, "fs", "x", 1, 1, "", "", 77, 1)],
        findings=[Finding(EVIL, EVIL, EVIL, {EVIL: EVIL}, f"`{EVIL}`")],
        notes=[EVIL],
    )


def _scripts(page: Page) -> int:
    return sum(1 for tag, given in page.elements if tag == "script" and "type" not in given)


def test_the_figures_are_the_analysis() -> None:
    analysis = example_analysis()
    page = Page(render(analysis))
    assert {one.code: [one.value, one.note] for one in headlines(analysis)} == page.figures
    assert page.figures["stall"][0] == f"{analysis.stall.percentage:.1f} %" if analysis.stall else False
    assert page.figures["seconds"] == ["60 s", "5 processes, 100,000 events"]
    assert page.figures["bytes"] == ["1.14 GiB", "by 60,000 reads"]  # 60,000 * 20,480 bytes
    assert page.figures["throughput"][0] == "19.5 MiB/s"
    assert page.figures["amplification"] == ["1.30 ×", "1.49 GiB fetched"]
    assert page.figures["hits"][0] == "76.7 %"
    assert page.figures["retries"] == ["41", "3.2 s in failed attempts"]
    assert page.figures["errors"] == ["3", "and 41 failed attempts, 41 × TimeoutError, 3 × OSError 503"]


def test_the_tables_are_the_analysis() -> None:
    analysis = example_analysis()
    tables = Page(render(analysis)).tables
    lines = tables["Operations"][1:]
    assert len(lines) == len(analysis.operations)
    for row, line in zip(analysis.operations, lines, strict=True):
        shown, keys = [text for text, _ in line], [float(key) for _, key in line[2:] if key is not None]
        assert shown[:3] == [f"{row.layer}.{row.operation}", row.kind, f"{row.calls:,}"]
        assert keys == pytest.approx(
            [row.calls, row.bytes, row.throughput, row.seconds, *row[9:14], row.errors, row.retries]
        )
    found = [(line[0][0], *(float(key or "nan") for _, key in line[1:])) for line in tables["Files"][1:]]
    assert found == [(row.where, *(pytest.approx(value) for value in row[1:])) for row in analysis.files]
    assert len(tables["Slowest calls"]) == 1 + len(analysis.slowest)
    assert [line[0][0] for line in tables["Processes"][1:]] == [one.label for one in analysis.processes]


def test_sizes_that_are_no_bytes_are_not_shown_as_such() -> None:
    row = example_analysis().operations[0]
    rows = [altered(row, kind=kind) for kind in KINDS]
    tables = Page(render(altered(NOTHING, operations=rows))).tables
    shown = {line[1][0] for line in tables["Operations"][1:] if line[3][0] == "1.14 GiB"}
    assert shown == KINDS.keys() - {"step", "fetch", "span", "hit", "miss", "evict", "retry", "grid"}


def test_findings_come_first_and_the_gravest_of_them_before_the_others() -> None:
    text = render(example_analysis())
    order = [text.index(code) for code in ("F015", "F014", "F006", 'id="time"', 'id="files"', 'id="notes"')]
    assert order == sorted(order)
    assert "<code>fsabs.pack</code>" in text
    assert "7 events of node-1:4002 were dropped" in text


def test_nothing_is_too_little() -> None:
    page = Page(render(NOTHING))
    assert page.figures["stall"][0] == page.figures["amplification"][0] == page.figures["hits"][0] == "–"
    assert page.figures["errors"][0] == "0"
    assert not page.tables


def test_little_is_drawn() -> None:
    for little in (
        {"seconds": 1.0, "timeline": Timeline(1.0, [0.0], [0.0], [0.0], [0.0], [1])},
        {"heat": HeatMap(1.0, ["a"], [[0.0]])},
        {"heat": HeatMap(1.0, ["a"], [[]])},
        {"read_sizes": Histogram("bytes", [5]), "latencies": {"x": Histogram("ns", [0] * 64 + [1])}},
        {"stall": Stall(0, 0.0, 0.0)},
        {"stall": Stall(1, 0.0, 0.0), "steps": [Step(0, 7, 0, 0.0, {})]},
    ):
        text = render(altered(NOTHING, **little))
        assert Page(text).figures
        assert "nan" not in re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL).lower()


def _charts(text: str) -> list[dict[str, Any]]:
    return [json.loads(one) for one in re.findall(r'<script type="application/json">(.*?)</script>', text)]


def test_the_charts_have_the_figures() -> None:
    analysis = example_analysis()
    charts = {chart["title"]: chart for chart in _charts(render(analysis))}
    assert charts["Bandwidth"]["names"] == ["asked", "fetched"]
    assert charts["Bandwidth"]["data"][1] == pytest.approx(list(analysis.timeline.asked), rel=1e-3)
    assert charts["In flight"]["data"][3][60] == 3
    assert sum(charts["Steps"]["data"][2]) == pytest.approx(sum(step.wait for step in analysis.steps), rel=1e-3)
    sizes = charts["Bytes of reads"]
    assert dict(zip(*sizes["data"], strict=True)) == {
        bucket: count for bucket, count in enumerate(analysis.read_sizes.counts) if bucket >= 10
    }


def test_many_steps_are_few_bars_with_the_same_sum() -> None:
    steps = [Step(0, number, number, 0.1, {"first_byte": 0.05, "step": 0.05}) for number in range(5000)]
    (chart,) = _charts(render(altered(NOTHING, stall=Stall(5000, 250.0, 250.0), steps=steps)))
    assert len(chart["data"][0]) <= 600
    assert set(chart["data"][1]) == {0.1}
    assert set(chart["data"][2]) == {0.05}


def test_the_first_figure_is_where_the_time_went() -> None:
    analysis = example_analysis()
    page = Page(render(analysis))
    widths = [given["style"] for tag, given in page.elements if tag == "i" and "style" in given]
    first = [float(str(width).removeprefix("width:").removesuffix("%")) for width in widths][:9]
    assert sum(first) == pytest.approx(100, abs=0.1)
    lines = page.tables["Where the time went"]
    assert [text for text, _ in lines[0]] == ["cause", "all", "epoch 1", "epoch 2"]
    assert [float(str(key)) for _, key in lines[-1][1:]] == pytest.approx([one.seconds for one in analysis.breakdown])
    assert render(analysis).index('id="causes"') < render(analysis).index('id="findings"')


def test_what_takes_no_time_has_no_latency() -> None:
    text = render(altered(NOTHING, latencies={"hit a.b": Histogram("ns", [3]), "fs a.c": Histogram("ns", [3])}))
    assert [chart["title"] for chart in _charts(text)] == ["a.c"]


def test_texts_are_no_code_and_have_no_secrets() -> None:
    text = render(_hostile())
    page = Page(text)
    assert _scripts(page) == 2
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object", "embed", "form")]
    assert not [name for _, given in page.elements for name in given if name.startswith("on")]
    assert not {"\x1b", "\u202e", "\udcff"} & set(text)
    assert SECRET not in text
    text.encode()


def test_it_needs_no_network() -> None:
    text = render(example_analysis())
    addresses = re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[/a-zA-Z]*", text.replace("s3://", ""))
    assert addresses == ["https://github.com/leeoniya/uPlot"], "the comment on the library's source"
    assert "default-src 'none'" in html.unescape(text)
    links = [given[name] for _, given in Page(text).elements for name in ("src", "href") if name in given]
    assert all(link is not None and (link.startswith("#") or link == "data:,") for link in links)


def test_it_has_the_structure_that_readers_of_screens_need() -> None:
    page = Page(render(example_analysis()))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    names = [str(given["id"]) for _, given in page.elements if "id" in given]
    assert len(names) == len(set(names))
    for tag, given in page.elements:
        if given.get("role") in ("img", "region"):
            assert given.get("aria-label"), tag
        if given.get("aria-labelledby"):
            assert given["aria-labelledby"] in names
        if tag == "th":
            assert given.get("scope") in ("row", "col")
    targets = {str(given["href"])[1:] for tag, given in page.elements if tag == "a"}
    assert targets <= set(names)


def test_its_size_is_bounded() -> None:
    made = example_analysis(workers=200, slices=512)
    where = "s3://bucket/" + "<long & long>" * 80
    files = [altered(made.files[0], where=f"{number}{where}{number}") for number in range(500)]
    names = {f"fs zip.o{number}": Histogram("ns", range(64)) for number in range(1000)}
    text = render(
        altered(made, files=files, latencies=names, steps=[*made.steps] * 16, slowest=[made.slowest[0]] * 100)
    )
    assert len(text.encode()) < 1_000_000
    assert len(render(example_analysis())) < 300_000


def test_a_folder_becomes_a_file(tmp_path: Path) -> None:
    events = [
        event(number * 1000, 500, "fs", "local.read", 4096, where="file:///d/<b>.bin", offset=0) for number in range(50)
    ]
    write_process(tmp_path / "run", events)
    trace.report(tmp_path / "run", tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    assert page.figures["bytes"] == ["200 KiB", "by 50 reads"]
    assert page.tables["Files"][1][0][0] == "file:///d/<b>.bin"
    with pytest.raises(FileNotFoundError):
        trace.report(tmp_path / "none", tmp_path / "other.html")
    with pytest.raises(FileNotFoundError):
        trace.report(tmp_path / "run", tmp_path / "no" / "other.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "run"]


def test_figures_are_for_people() -> None:
    shown = [
        *(units.size(number) for number in (0, 1023, 1536, 2**40)),
        *(units.duration(seconds) for seconds in (0, 3e-9, 0.99999, 0.0123, 119, 125, 7300, math.nan)),
        *(units.short_count(number) for number in (999.9, 0, 1.25e6)),
        units.percent(0.1234),
        units.moment(0),
        units.visible("a\x1b[0m\n\u202eb é 日"),
        units.evidence("seconds", 0.5),
        units.evidence("reads", 1200),
    ]
    assert shown == [
        *("0 B", "1 KiB", "1.5 KiB", "1 TiB"),
        *("0 s", "3 ns", "1 s", "12.3 ms", "119 s", "2 min 5 s", "2 h 1 min", "–"),
        *("1k", "0", "1.25M"),
        "12.3 %",
        "1970-01-01 00:00:00 UTC",
        "a\\x1b[0m\\n\\u202eb é 日",
        "500 ms",
        "1,200",
    ]
