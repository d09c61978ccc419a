"""The page of the command: each example gives what the page says."""

from __future__ import annotations

import os
import re
import shlex
import time
from pathlib import Path

import pytest

import fsabs
from fsabs.cli import main

PAGE = Path(__file__).parents[2] / "docs/command.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.quick


def examples() -> list[tuple[str, str]]:
    found = []
    for block in BLOCK.findall(PAGE.read_text()):
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = example.partition("\n")
            found.append((command, output))
    return found


def test_the_examples_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setattr("fsabs.cache.cachedfs.LARGEST_FLOOR", 0)  # caches are used also where the disk is nearly full
    time.tzset()
    with fsabs.from_url("train.zip", mode="w") as archive:
        archive.write_bytes("labels.csv", b"0,cat\n1,dog\n")
        archive.write_bytes("images/0.jpg", b"0" * 100)
        archive.write_bytes("images/1.jpg", b"1" * 105)
    Path("notes.txt").write_text("not much to tell\n")
    os.utime("notes.txt", (1_700_000_000, 1_700_000_000))
    try:
        for command, expected in examples():
            main(shlex.split(command)[1:])
            captured = capsys.readouterr()
            pattern = re.escape(expected).replace(re.escape("\n...\n"), r"\n(?:.*\n)+").replace(re.escape("..."), ".*")
            assert re.fullmatch(pattern, captured.out + captured.err), (command, captured)
    finally:
        monkeypatch.undo()
        time.tzset()
