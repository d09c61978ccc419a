"""A `#` in a secret of pfio.ini: it is not cut off in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

import fsabs
from fsabs.core.errors import ConfigWarning

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("line", "good"),
    [
        ("aws_secret_access_key = abc #def", False),
        ("aws_secret_access_key = abc ;def", False),
        ("password = #def", False),
        ("aws_secret_access_key = abc#def", True),
        ("aws_secret_access_key = $NO_SUCH_KEY  # of the vault", True),
        ("aws_secret_access_key = key\nendpoint = http://127.0.0.1:9000  # the lab", True),
    ],
)
def test_what_is_cut_off_a_secret_is_an_error(
    line: str, good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pfio.ini").write_text(
        f"[other]\nscheme = memory\n\n[mine]\nscheme = s3\naws_access_key_id = id\n{line}\n"
    )
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "pfio.ini"))
    monkeypatch.setenv("NO_SUCH_KEY", "x")
    if good:
        fsabs.from_url("mine://bucket")
        return
    with pytest.warns(ConfigWarning, match="line 7") as caught, pytest.raises(ValueError):
        fsabs.from_url("mine://bucket")
    assert "begins a comment" in str(caught[0].message)
    assert "def" not in str(caught[0].message)
    fsabs.from_url("other://x")
