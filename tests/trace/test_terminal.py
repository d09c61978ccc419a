"""The summary for a terminal: an analysis' figures in 100 columns, and nothing it would obey."""

from __future__ import annotations

import pytest

from fsabs import trace
from fsabs.trace import terminal
from fsabs.trace.headlines import headlines
from tests.trace.synthetic import altered, example_analysis
from tests.trace.test_report import NOTHING, SECRET, _hostile

pytestmark = pytest.mark.quick


def test_it_has_all_in_order() -> None:
    analysis = example_analysis()
    text = trace.summary(analysis)
    for one in headlines(analysis):
        line = next(line for line in text.splitlines() if line.startswith(one.name))
        assert one.value in line
        assert one.note in line
    cause = "Small random reads dominate: 84 % of 60,000 reads are under 64 KiB. It costs 12.5 s"
    first = [cause, "Where the time went", "store: first byte", "Data stall", "Findings", "F015", "F014", "F006"]
    parts = [*first, "Operations", "zip.read", "Slowest files", "7 ev"]
    order = [text.index(part) for part in parts]
    assert order == sorted(order)
    read = next(line for line in text.splitlines() if line.strip().startswith("zip.read"))
    assert read.split() == [
        "zip.read", "fs", "60k", "1.14", "GiB", "50.4", "s", "600", "µs", "5.4", "ms", "36", "ms", "3", "0",
    ]  # fmt: skip
    slow = [line for line in text.splitlines() if "s3://bucket" in line]
    assert len(slow) == terminal.FILES
    assert all("140 ms" in line for line in slow)


def test_it_fits_100_columns_and_is_only_text() -> None:
    row = altered(example_analysis().operations[0], calls=10**12, bytes=10**17, errors=10**8, retries=10**7)
    most = {"operation": "a" * 40, "p50": 5999.0, "p99": 99.9, "most": 1e7}
    large = [altered(row, seconds=days * 86400.0, **most) for days in (1, 900)]
    for analysis in (example_analysis(), NOTHING, _hostile(), altered(example_analysis(), operations=large)):
        text = trace.summary(analysis)
        assert max(len(line) for line in text.splitlines()) <= 100
        assert text.endswith("\n")
        assert not {"\x1b", "\u202e", "\udcff"} & set(text)
        assert SECRET not in text
        text.encode()
