"""The table of mounts: which filesystem a folder is on, and whether that is on a network."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from fsabs.cache.items.table import ItemTable
from fsabs.disk import folders
from tests import disks

pytestmark = pytest.mark.quick

MOUNTS = """\
22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw - nfs4 server:/home rw
31 30 0:41 / /home/local\\040disk rw - xfs /dev/sdb rw
32 22 0:42 / /data rw - ext4 /dev/sdc rw
33 22 0:43 / /data rw master:1 propagate_from:2 - nfs server:/data rw
a line that is no mount
"""


PLACES = {
    "/tmp/x": "ext4",
    "/": "ext4",
    "/home": "nfs4",
    "/home/me/.cache/fsabs": "nfs4",
    "/home/local disk/me": "xfs",
    "/homework": "ext4",
    "/data/x": "nfs",
}


@pytest.mark.parametrize("path", PLACES)
def test_a_network_mount_is_seen_in_the_table(path: str) -> None:
    kind = PLACES[path]
    assert folders.filesystem_of(path, MOUNTS) == kind
    if kind.startswith("nfs"):
        with pytest.raises(ValueError, match="network filesystem") as caught:
            folders.refuse_network(path, MOUNTS)
        assert isinstance(caught.value, OSError)
        assert caught.value.filename == path
    else:
        folders.refuse_network(path, MOUNTS)


def test_kinds_of_filesystems() -> None:
    network = ("nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "fuse", "fuse.sshfs", "fuse.glusterfs")
    others = ("fuse.fuse-overlayfs", "fuseblk", "ext4", "overlay", "tmpfs", "")
    assert [kind for kind in network + others if folders.is_network(kind)] == list(network)


def on(monkeypatch: pytest.MonkeyPatch, kinds: dict[str, str]) -> None:
    """Have the filesystems of files be those of the nearest folder that is named."""

    def kind(path: str) -> str:
        place = os.path.realpath(path)
        return kinds[max((folder for folder in kinds if place.startswith(folder)), key=len)]

    disks.on(monkeypatch, kind)


LOCAL = {"ext4": True, "tmpfs": True, "nfs4": False, "fuse.fuse-overlayfs": False, "virtiofs": False, "": False}


@pytest.mark.parametrize("kind", LOCAL)
def test_only_what_is_known_is_taken_for_a_local_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, {"/": kind})
    (tmp_path / "x").touch()
    assert [folders.is_local(f"{tmp_path}/{name}") for name in "xy"] == [LOCAL[kind]] * 2


def test_a_file_is_where_its_link_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("one file system has both folders")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        on(monkeypatch, {"/": "ext4", other: "nfs4"})
        (tmp_path / "here").touch()
        for name in ("there", "missing"):
            (tmp_path / name).symlink_to(f"{other}/{name}")
        Path(other, "there").touch()
        names = ("here", "there", "missing", "here", "new")
        assert [folders.is_local(f"{tmp_path}/{name}") for name in names] == [True, False, False, True, True]


def test_an_item_cache_on_a_network_mount_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folders.filesystem_of(str(tmp_path))
    disks.on(monkeypatch, "lustre")
    with pytest.raises(OSError, match="network filesystem"):
        ItemTable.temporary(str(tmp_path / "a"), length=1)
    with pytest.raises(OSError, match="network filesystem"):
        ItemTable.preserved(str(tmp_path / "c"))
    assert list(tmp_path.iterdir()) == []
