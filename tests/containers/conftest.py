"""Fixtures of the tests of archives."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsabs.containers import decoding
from tests import disks


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory of one test, where the index of an archive is kept that was written just now."""
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "cache"))
    disks.ticking(monkeypatch, -1)
    return tmp_path / "cache"


USUAL = {name: getattr(decoding, name) for name in ("SPACING", "PIECE", "NEAR", "MARGIN", "FIRST_FETCH", "MAX_FETCH")}


def decode_by_steps(monkeypatch: pytest.MonkeyPatch, times_smaller: int) -> None:
    """Have as many pieces, seek points and fetches in what is decoded as in data that is so many times larger."""
    for name, value in USUAL.items():
        monkeypatch.setattr(decoding, name, value // times_smaller)
