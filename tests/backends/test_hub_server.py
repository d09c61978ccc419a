"""The hub of the tests is like the real one: huggingface_hub itself lists, reads and commits by it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.servers.hub import READER, STRANGER, TOKEN, HubServer

huggingface_hub = pytest.importorskip("huggingface_hub")
NAME = "org/data"
FILES = {"README.md": b"# Data\n", **{f"train/{n:02}.jpg": os.urandom(20_000 + n) for n in range(12)}, "empty": b""}
WHERE: dict[str, Any] = {"repo_id": NAME, "repo_type": "dataset"}


@pytest.fixture
def api(hub: HubServer) -> Any:
    hub.make(NAME, FILES)
    return huggingface_hub.HfApi(endpoint=hub.endpoint, token=TOKEN)


def test_it_is_listed(hub: HubServer, api: Any) -> None:
    found = {file.path: file for file in api.list_repo_tree(**WHERE, recursive=True)}
    assert found.keys() == {*FILES, "train"}
    assert found["train/03.jpg"].lfs.size == 20_003
    assert found["README.md"].lfs is None
    assert [file.path for file in api.get_paths_info(**WHERE, paths=["README.md", "train", "none"])] == [
        "README.md",
        "train",
    ]
    assert sorted(api.list_repo_files(**WHERE)) == sorted(FILES)
    info = api.repo_info(**WHERE)
    assert info.sha == hub.repositories["datasets", NAME].references["main"]
    assert api.list_repo_refs(**WHERE).branches[0].name == "main"
    hub.make("org/many", {f"{n:04}": b"" for n in range(2_345)})
    assert len(list(api.list_repo_tree("org/many", repo_type="dataset"))) == 2_345


def test_it_is_downloaded(hub: HubServer, api: Any, tmp_path: Path) -> None:
    for name, content in FILES.items():
        path = huggingface_hub.hf_hub_download(NAME, name, repo_type="dataset", endpoint=hub.endpoint)
        assert Path(path).read_bytes() == content
    folder = api.snapshot_download(**WHERE, local_dir=tmp_path / "all")
    assert Path(folder, "train", "07.jpg").read_bytes() == FILES["train/07.jpg"]


def test_it_is_committed_to(hub: HubServer, api: Any, tmp_path: Path) -> None:
    before = api.repo_info(**WHERE).sha
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / "large.bin").write_bytes(b"\0" * 100_000)
    (tmp_path / "up" / "small.txt").write_bytes(b"small")
    made = api.upload_folder(**WHERE, folder_path=tmp_path / "up", path_in_repo="up")
    assert made.oid != before
    tree = hub.repositories["datasets", NAME].at("main")
    assert tree is not None
    assert tree.files["up/large.bin"].content == b"\0" * 100_000
    assert tree.files["up/large.bin"].large
    assert not tree.files["up/small.txt"].large
    operations = [
        huggingface_hub.CommitOperationCopy("up/large.bin", "moved.bin"),
        huggingface_hub.CommitOperationDelete("up/"),
    ]
    api.create_commit(**WHERE, operations=operations, commit_message="move")
    assert sorted(api.list_repo_files(**WHERE)) == sorted([*FILES, "moved.bin"])
    with pytest.raises(huggingface_hub.errors.HfHubHTTPError, match="412"):
        api.create_commit(
            **WHERE,
            operations=[huggingface_hub.CommitOperationDelete("moved.bin")],
            commit_message="late",
            parent_commit=before,
        )


def test_its_file_system(hub: HubServer, api: Any) -> None:
    fs = huggingface_hub.HfFileSystem(endpoint=hub.endpoint, token=TOKEN, skip_instance_cache=True)
    root = f"datasets/{NAME}"
    assert sorted(fs.ls(f"{root}/train", detail=False)) == [f"{root}/train/{n:02}.jpg" for n in range(12)]
    assert fs.cat_file(f"{root}/train/05.jpg") == FILES["train/05.jpg"]
    assert fs.cat_file(f"{root}/train/05.jpg", 100, 200) == FILES["train/05.jpg"][100:200]
    assert fs.info(f"{root}/README.md")["size"] == 7
    with fs.open(f"{root}/new.bin", "wb") as file:
        file.write(b"\0" * 50_000)
    assert fs.cat_file(f"{root}/new.bin") == b"\0" * 50_000
    fs.rm(f"{root}/new.bin")
    assert not fs.exists(f"{root}/new.bin")


def test_its_refusals(hub: HubServer, api: Any) -> None:
    errors = huggingface_hub.errors
    hub.make("org/gated", FILES, readers=[READER], gated=True)
    hub.make("org/private", FILES, readers=[READER])
    stranger = huggingface_hub.HfApi(endpoint=hub.endpoint, token=STRANGER)
    for call, kind in (
        (lambda: api.repo_info("org/none", repo_type="dataset"), errors.RepositoryNotFoundError),
        (lambda: stranger.repo_info("org/private", repo_type="dataset"), errors.RepositoryNotFoundError),
        (lambda: stranger.repo_info("org/gated", repo_type="dataset"), errors.GatedRepoError),
        (lambda: api.repo_info(**WHERE, revision="none"), errors.RevisionNotFoundError),
        (lambda: list(api.list_repo_tree(**WHERE, path_in_repo="none")), errors.EntryNotFoundError),
        (lambda: stranger.upload_file(**WHERE, path_or_fileobj=b"x", path_in_repo="x"), errors.HfHubHTTPError),
        (
            lambda: huggingface_hub.get_hf_file_metadata(
                huggingface_hub.hf_hub_url(NAME, "none", repo_type="dataset", endpoint=hub.endpoint)
            ),
            errors.EntryNotFoundError,
        ),
    ):
        with pytest.raises(kind):
            call()


def test_its_quotas(hub: HubServer, api: Any) -> None:
    from huggingface_hub import utils as library

    utils: Any = library
    hub.quotas, hub.window = {"api": 3}, 1000.0
    for left in (2, 1, 0):
        response = utils.get_session().get(f"{hub.endpoint}/api/datasets/{NAME}")
        told = utils.parse_ratelimit_headers(response.headers)
        assert told is not None
        assert (told.resource_type, told.remaining, told.limit, told.window_seconds) == ("api", left, 3, 1000)
    assert utils.get_session().get(f"{hub.endpoint}/api/datasets/{NAME}").status_code == 429
