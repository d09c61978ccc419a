"""A pfio.ini that others may write to says where credentials go: it is not used in silence."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import fsabs

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o644, False), (0o664, False), (0o646, True)])
def test_one_that_any_user_may_write_to(
    mode: int, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ini = tmp_path / "pfio.ini"
    ini.write_text("[mine]\nscheme = memory\n")
    ini.chmod(mode)
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(ini))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fsabs.from_url("mine://x")
    assert ["another user can write" in str(warning.message) for warning in caught] == [True] * warned
    if warned:
        with pytest.raises(fsabs.ConfigError, match="another user can write"):
            fsabs.from_url("mine://x", strict=True)


def test_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PFIO_CONFIG_PATH", "/dev/null")  # which any user may write to
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fsabs.from_url("memory://x")
