"""Stats as a store of a third party makes them: what it doesn't say has the value that is true of most files."""

from __future__ import annotations

import stat

import pytest

from fsabs import FileStat

pytestmark = pytest.mark.quick


def test_a_name_and_a_size_are_a_files() -> None:
    file = FileStat("a", 3)
    assert file.isfile()
    assert not file.isdir()
    assert file.listed() == "a"
    assert stat.S_ISREG(file.mode)
    assert (file.last_modified, file.version) == (None, None)


def test_a_directory_is_listed_with_a_slash() -> None:
    folder = FileStat.of_directory("a")
    assert folder.isdir()
    assert not folder.isfile()
    assert (folder.listed(), folder.size) == ("a/", 0)
    assert stat.S_ISDIR(folder.mode)
