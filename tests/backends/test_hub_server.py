"""The hub of the tests is like the real one: huggingface_hub itself lists, reads and commits by it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.servers.hub import TOKEN, HubServer

huggingface_hub = pytest.importorskip("huggingface_hub")
NAME = "org/data"
FILES = {"README.md": b"# Data\n", **{f"train/{n:02}.jpg": os.urandom(20_000 + n) for n in range(12)}, "empty": b""}


def test_the_library_lists_reads_and_commits(hub: HubServer, tmp_path: Path) -> None:
    hub.make(NAME, FILES)
    where: dict[str, Any] = {"repo_id": NAME, "repo_type": "dataset"}
    api: Any = huggingface_hub.HfApi(endpoint=hub.endpoint, token=TOKEN)
    found = {file.path: file for file in api.list_repo_tree(**where, recursive=True)}
    assert found.keys() == {*FILES, "train"}
    assert found["train/03.jpg"].lfs.size == 20_003
    assert found["README.md"].lfs is None
    for name, content in FILES.items():
        assert Path(api.hf_hub_download(**where, filename=name, local_dir=tmp_path)).read_bytes() == content
    before = api.repo_info(**where).sha
    api.upload_file(**where, path_or_fileobj=b"\0" * 100_000, path_in_repo="up/large.bin")
    remove = huggingface_hub.CommitOperationDelete("train/")
    api.create_commit(**where, operations=[remove], commit_message="remove")
    assert sorted(api.list_repo_files(**where)) == ["README.md", "empty", "up/large.bin"]
    with pytest.raises(huggingface_hub.errors.HfHubHTTPError, match="412"):
        api.create_commit(**where, operations=[remove], commit_message="late", parent_commit=before)
