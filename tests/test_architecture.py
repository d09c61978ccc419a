"""The rooms that docs/architecture.md names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fsabs

pytestmark = pytest.mark.quick

PACKAGE = Path(fsabs.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


def test_the_modules_of_the_page_are_there() -> None:
    table = PAGE.read_text().partition("## The package")[2].partition("## The way")[0]
    names = re.findall(r"`([a-z0-9_]+(?:\.py|/))`", table)
    assert len(names) > 12
    assert [name for name in names if not (PACKAGE / name).exists()] == []
