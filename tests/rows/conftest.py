"""What several files of tests of rows need."""

from __future__ import annotations

import time

import pytest


@pytest.fixture
def ticked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filesystem's clock has ticked since the files were written: only then a version stands for a content."""
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 60)
