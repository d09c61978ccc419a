"""A cache that was filled without `offline=True`: an error of its store says how one is read offline."""

from __future__ import annotations

from pathlib import Path

import pytest

import fsabs
from fsabs.cache import CachedFS

pytestmark = pytest.mark.quick


def test_a_store_that_is_gone_names_the_option(tmp_path: Path) -> None:
    nowhere = fsabs.from_url("s3://bucket", endpoint="http://127.0.0.1:1", anonymous=True, max_attempts=1)
    fs = CachedFS(nowhere, tmp_path)
    for use in (
        lambda: fs.read_bytes("a"),
        lambda: fs.stat("a"),
        lambda: fs.open("a"),
        lambda: list(fs.read_many(["a"])),
    ):
        with pytest.raises(ConnectionError) as caught:
            use()
        assert any("offline=True" in note for note in caught.value.__notes__)
