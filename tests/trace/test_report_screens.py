"""The report in a real browser: it draws, fetches nothing, complains of nothing, and fits a phone."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path

import pytest

from fsabs.trace.headlines import headlines
from fsabs.trace.reports import render
from fsabs.trace.results import Analysis
from tests.servers import chromium
from tests.servers.fixtures import require
from tests.trace.synthetic import example_analysis
from tests.trace.test_report import NOTHING, _hostile

pytestmark = pytest.mark.nightly

# A window of a browser has a least width, a frame has not: the page in a phone's frame, measured from outside.
FRAME = """<!DOCTYPE html><body style="margin:0"><iframe id="f" style="border:0;width:375px;height:4000px"
 srcdoc="{page}"></iframe><script>f.onload = () => {{
  const inner = f.contentDocument, root = inner.documentElement, mark = document.documentElement.dataset;
  mark.width = root.scrollWidth; mark.frame = root.clientWidth; mark.ready = root.dataset.ready;
  const file = inner.querySelector("#files tbody"), all = file ? file.rows.length : 0;
  const head = [...inner.querySelectorAll("#files thead button")].find((one) => one.textContent === "bytes");
  if (head) {{ head.click(); mark.most = file.rows[0].cells[3].dataset.v; head.click(); }}
  if (head) mark.least = file.rows[0].cells[3].dataset.v;
  const find = inner.querySelector("#files input");
  if (find) {{ find.value = "NAME 17.jpeg"; find.dispatchEvent(new Event("input")); }}
  mark.found = [...(file ? file.rows : [])].filter((row) => row.checkVisibility()).length + " of " + all;
  const plot = inner.querySelector(".chart");
  if (plot) plot.dispatchEvent(new KeyboardEvent("keydown", {{key: "ArrowRight"}}));
  mark.tip = plot ? plot.querySelector(".u-legend").textContent : "";
}}</script>"""


@pytest.fixture(autouse=True, scope="module")
def _browser() -> None:
    require(chromium.missing)


def _page(folder: Path, text: str) -> Path:
    (folder / "page.html").write_text(text, "utf-8")
    return folder / "page.html"


def _ground(picture: bytes) -> tuple[int, int]:
    """How bright its corner is, 0 to 255, and how many colours it has."""
    from PIL import Image

    image = Image.open(io.BytesIO(picture)).convert("RGB")
    colours = image.getcolors(1 << 24) or []
    pixel = image.getpixel((2, 2))
    assert isinstance(pixel, tuple)
    return int(sum(pixel) / 3), len(colours)


@pytest.mark.parametrize("analysis", [example_analysis(), NOTHING, _hostile()], ids=["example", "nothing", "hostile"])
def test_it_is_drawn_without_complaint(analysis: Analysis, tmp_path: Path) -> None:
    seen = chromium.render(_page(tmp_path, render(analysis)))
    assert seen.console == []
    assert seen.fetched == []
    assert 'data-ready="yes"' in seen.dom  # its script ran to the end
    shown = re.findall(r'data-figure="(\w+)"><dt>.*?</dt><dd class="value">(.*?)</dd>', seen.dom)
    assert [(code, html.unescape(value)) for code, value in shown] == [
        (one.code, one.value) for one in headlines(analysis)
    ]
    bright, colours = _ground(seen.picture)
    assert bright > 200
    assert colours > 50


def test_it_is_dark_where_one_wants_it(tmp_path: Path) -> None:
    dark = render(example_analysis()).replace('<html lang="en">', '<html lang="en" data-theme="dark">')
    assert _ground(chromium.render(_page(tmp_path, dark)).picture)[0] < 60


@pytest.mark.parametrize("analysis", [example_analysis(), _hostile()], ids=["example", "hostile"])
def test_it_fits_a_phone_and_its_tables_sort_and_filter(analysis: Analysis, tmp_path: Path) -> None:
    seen = chromium.render(_page(tmp_path, FRAME.format(page=html.escape(render(analysis)))))
    assert seen.console == []
    marks = dict(re.findall(r'data-(\w+)="([^"]*)"', seen.dom.partition("<html")[2].partition(">")[0]))
    assert marks["ready"] == "yes"
    assert int(marks["width"]) <= int(marks["frame"]) <= 375
    sizes = [row.bytes for row in analysis.files]
    assert (int(marks["most"]), int(marks["least"])) == (max(sizes), min(sizes))
    wanted = [row for row in analysis.files if all(one in row.where.lower() for one in ("name", "17.jpeg"))]
    assert marks["found"] == f"{len(wanted)} of {len(sizes)}"
    assert "asked" in marks["tip"]
    assert "iB/s" in marks["tip"]


def test_a_page_that_misbehaves_is_seen_to(tmp_path: Path) -> None:
    """The means by which the tests above look."""
    bad = '<img src="https://example.com/a.png"><script>console.error("boo"); nonesuch()</script>'
    seen = chromium.render(_page(tmp_path, bad))
    assert seen.fetched == ["https://example.com/a.png"]
    assert len(seen.console) >= 2
