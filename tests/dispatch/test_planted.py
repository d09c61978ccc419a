"""The database of a job in a folder where others may make links."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsabs.dispatch import TaskDispatcher
from tests.users import ALICE, needs_root

pytestmark = pytest.mark.quick


@needs_root
@pytest.mark.parametrize("there", [True, False])
def test_a_link_of_another_user_is_not_followed(there: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "mine", tmp_path / "job.db"
    if there:
        target.write_bytes(b"")
    link.symlink_to(target)
    os.lchown(link, ALICE, ALICE)
    with pytest.raises(PermissionError, match="another user"):
        TaskDispatcher(f"sqlite:///{link}")
    assert not target.exists() or target.read_bytes() == b""
