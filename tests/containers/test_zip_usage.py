"""`usage` of large zip archives, which sums up columns of the directory and looks at no member."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import fsabs
from fsabs import TreeCounts

pytestmark = pytest.mark.quick


def test_usage_of_many_members_is_that_of_a_walk(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in range(20_100):
            archive.writestr(f"{number % 7}/{'ä' * (number % 3)}{number}", b"x" * (number % 5))
        archive.mkdir("empty")
        archive.writestr("0/0", b"replaced")  # the last entry of a name counts
        with archive.open("large", "w", force_zip64=True) as file:
            file.write(b"y" * 1000)
    with fsabs.from_url(tmp_path / "a.zip") as fs:
        for base in ("", "0", "3"):
            files = [stat for stat in fs.list(base, recursive=True, detail=True) if not stat.directory]
            assert fs.usage(base) == TreeCounts(len(files), bytes=sum(stat.size for stat in files)), base
        with pytest.raises(NotADirectoryError):
            fs.usage("0/0")


def test_usage_of_many_members_of_windows(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("d\\", "d\\e\\", *(f"d\\{number}" for number in range(20_000))):
            info = zipfile.ZipInfo()
            info.filename, info.create_system = name, 0
            archive.writestr(info, b"" if name.endswith("\\") else b"x")
    with fsabs.from_url(tmp_path / "a.zip") as fs:
        assert fs.isdir("d/e")
        assert fs.usage() == TreeCounts(20_000, bytes=20_000)
