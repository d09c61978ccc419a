"""What is built on the filesystems serves Google Cloud Storage and Azure as it serves S3: caches, manifests, patches,
`pfio.ini`, copies. Both are stores in memory, which the environment names.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import fsabs
from fsabs import FS, errors, manifest
from tests.servers.azure_store import ACCOUNT, KEY, AzureStore
from tests.servers.gcs_store import GcsStore

pytestmark = [pytest.mark.quick, pytest.mark.timeout(60)]
_numbers = itertools.count()
FILES = {"a.txt": b"1", "sub/b.txt": b"22", "sub/deep/c.txt": b"333"}


class Cloud(NamedTuple):
    """A store, and the URL of its bucket."""

    url: str
    store: GcsStore | AzureStore
    section: str
    """Options of `pfio.ini` that lead to it."""

    @property
    def fs(self) -> FS:
        """A new FS of the bucket."""
        return fsabs.from_url(self.url)

    def asked(self) -> list[str]:
        """The methods and keys of the requests since the last call, but for those about the account."""
        found = [f"{one.method} {one.key}" for one in self.store.seen if one.query.get("restype") != "account"]
        self.store.seen.clear()
        return found


@pytest.fixture(params=["gs", "az", "abfss"])
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    for name in [name for name in os.environ if name.startswith(("AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    bucket = f"bucket{next(_numbers)}"  # what a process has opened by a URL stays open
    if request.param == "gs":
        with GcsStore(listed=False) as gcs:
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.endpoint)
            yield Cloud(f"gs://{bucket}", gcs, f"scheme = gs\nendpoint = {gcs.endpoint}\nanonymous = true\n")
        return
    with AzureStore(listed=False) as azure:
        account = f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={azure.endpoint}"
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", account)
        host = f"{bucket}@{ACCOUNT}.dfs.core.windows.net" if request.param == "abfss" else bucket
        section = (
            f"scheme = {request.param}\naccount_name = {ACCOUNT}\nendpoint = {azure.endpoint}\naccount_key = {KEY}\n"
        )
        yield Cloud(f"{request.param}://{host}", azure, section)


def test_a_cache_keeps_what_is_there_but_no_old_version_and_nothing_of_another_bucket(
    cloud: Cloud, tmp_path: Path
) -> None:
    cloud.fs.write_many(FILES)
    options = {"dir": tmp_path / "cache", "min_free": 0}
    cached = fsabs.from_url(cloud.url, cache=options)
    cloud.asked()
    assert list(cached.read_many(FILES)) == list(FILES.values())
    assert sum(one.startswith("GET") for one in cloud.asked()) >= len(FILES)
    assert list(cached.read_many(FILES)) == list(FILES.values())
    assert cloud.asked() == []
    cloud.fs.write_bytes("a.txt", b"new")
    assert fsabs.from_url(cloud.url, cache=options).read_bytes("a.txt") == b"new"
    cloud.asked()
    assert fsabs.from_url(cloud.url.replace("bucket", "another", 1), cache=options).read_bytes("a.txt") == b"new"
    assert any(one.startswith("GET") for one in cloud.asked())  # it has the same key in another bucket


def test_a_manifest_pins_versions(cloud: Cloud, tmp_path: Path) -> None:
    cloud.fs.write_many(FILES)
    manifest.create(cloud.fs, tmp_path / "m.jsonl")
    fs = fsabs.from_url(cloud.url, manifest=tmp_path / "m.jsonl")
    cloud.asked()
    assert list(fs.list(recursive=True)) == ["a.txt", "sub/", "sub/b.txt", "sub/deep/", "sub/deep/c.txt"]
    assert cloud.asked() == []
    assert fs.read_bytes("sub/b.txt") == b"22"
    cloud.fs.write_bytes("sub/b.txt", b"xx")
    with pytest.raises(fsabs.StaleFileError) as caught:
        fs.read_bytes("sub/b.txt")
    assert caught.value.filename == cloud.fs.url("sub/b.txt")


def test_patched_calls_take_its_urls(cloud: Cloud) -> None:
    with fsabs.patch("builtins", "os", "glob", "pathlib"):
        os.makedirs(f"{cloud.url}/made/x", exist_ok=True)
        with open(f"{cloud.url}/made/x/a.txt", "w") as file:
            file.write("written")
        with open(f"{cloud.url}/made/x/a.txt") as file:
            assert file.read() == "written"
        assert os.listdir(f"{cloud.url}/made") == ["x"]
        assert glob.glob(f"{cloud.url}/made/*/*.txt") == [f"{cloud.url}/made/x/a.txt"]
        assert os.path.getsize(f"{cloud.url}/made/x/a.txt") == 7
        os.remove(f"{cloud.url}/made/x/a.txt")
        assert not os.path.exists(f"{cloud.url}/made/x/a.txt")


def test_a_section_of_the_configuration_leads_to_it(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "pfio.ini"))
    (tmp_path / "pfio.ini").write_text(
        f"[corp]\n{cloud.section}prefix = top\n[wrong]\n{cloud.section}conect_timeout = 3"
    )
    authority = cloud.url.partition("://")[2]
    with fsabs.from_url(f"corp://{authority}/x") as fs:
        fs.write_bytes("a", b"1")
        assert fs.url("a") == f"{cloud.url}/top/x/a"
    assert cloud.fs.read_bytes("top/x/a") == b"1"
    with pytest.warns(errors.ConfigWarning, match="connect_timeout"):
        fsabs.from_url(f"wrong://{authority}/x")


def test_trees_are_synced_by_what_the_store_tells(cloud: Cloud, tmp_path: Path) -> None:
    source = fsabs.from_url(tmp_path / "source", create=True)
    source.makedirs("sub/deep")
    source.write_many(FILES)
    for name in FILES:
        os.utime(tmp_path / "source" / name, (0, 0))  # long before the store's objects are from
    assert source.sync_tree("", "", cloud.fs.subfs("copy")).files == 3
    assert source.sync_tree("", "", cloud.fs.subfs("copy")).files == 0
    back = fsabs.from_url(tmp_path / "back", create=True)
    assert cloud.fs.subfs("copy").sync_tree("", "", back).files == 3
    assert {name: back.read_bytes(name) for name in FILES} == FILES
