"""Fixtures of the tests of archives."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsabs.core import identity


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory of one test, where the index of an archive is kept that was written just now."""
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(identity, "TICK", -1)
    return tmp_path / "cache"
