"""The backend and the container of CONTRIBUTING.md pass the whole kit, and so does a container that is a plain FS."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.containers.base import NameTree
from fsabs.core import blobs, registry
from fsabs.testing import ContainerSubject, LocalSubject, Subject, checks, run
from tests.test_docs import program

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    for table in ("_BACKENDS", "_CONTAINERS", "_SUFFIXES"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The names of the page, as a module that pickles find."""
    module = types.ModuleType("contributing_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(program(PAGE.read_text()), PAGE, "exec"), module.__dict__)
    return module


@pytest.fixture(params=["backend", "container"])
def subject(request: pytest.FixtureRequest, page: Any) -> Iterator[Subject]:
    pile = ContainerSubject("a.pile", page.build, page.parse, LocalSubject())
    with closing(page.TableSubject() if request.param == "backend" else pile) as subject:
        yield subject


def test_the_classes_of_the_page_pass_the_kit(subject: Subject) -> None:
    report = run(subject, only=[one.name for one in checks(subject) if not one.start_methods])
    assert report.ok, str(report)
    assert len(report.passed) > 60


@pytest.mark.nightly
def test_the_classes_of_the_page_pass_the_kit_in_forked_children(subject: Subject) -> None:
    report = run(subject, only=[one.name for one in checks(subject) if "fork" in one.start_methods])
    assert report.ok, str(report)


class PlainBundle(fsabs.FS):
    """A container that is no `Container`: one line for each file, `name=content`."""

    capabilities = fsabs.spi.Capabilities(implied_directories=True)
    closed = 0

    def __init__(self, parent: fsabs.FS, path: str, mode: str = "r", *, separator: str = "=") -> None:
        self.scheme = parent.scheme
        self._where = parent.url(path)
        lines = parent.read_text(path).splitlines()
        self._tree = NameTree({name: text.encode() for name, _, text in (line.partition(separator) for line in lines)})

    def _url(self, key: str) -> str:
        return f"{self._where}/{key}" if key else self._where

    def _stat(self, key: str, *how: Any) -> fsabs.FileStat:
        if self._tree.isdir(key):
            return fsabs.FileStat.of_directory(key)
        return fsabs.FileStat(key, len(self._tree.file(key)))

    def _list(self, key: str, *how: Any) -> Iterator[fsabs.FileStat]:
        for name, data in self._tree.children(key):
            yield fsabs.FileStat(name.rstrip("/"), len(data or b""), name.endswith("/"))

    def _open_blob(self, key: str, *how: Any) -> fsabs.spi.Blob:
        return blobs.BytesBlob(self, key, self._tree.file(key))

    def _close(self) -> None:
        type(self).closed += 1


@pytest.mark.quick
def test_any_fs_class_is_a_container(tmp_path: Path) -> None:
    fsabs.register_container("lines", (".lines",), PlainBundle)
    (tmp_path / "a.lines").write_text("x/one=1\ntwo=2")
    url = f"{tmp_path}/a.lines"
    with fsabs.from_url(url) as fs:
        assert sorted(fs.list(recursive=True)) == ["two", "x/", "x/one"]
        assert fs.read_bytes("x/one") == b"1"
    with fsabs.from_url(f"{url}/x") as fs, fsabs.open_url(f"{url}/x/one") as file:
        assert (fs.read_text("one"), file.read()) == ("1", "1")
    assert PlainBundle.closed == 3
    with fsabs.from_url(url, separator="/") as fs, fsabs.Local(tmp_path).open_container("a.lines") as other:
        assert list(fs.list()) == ["two=2", "x"]
        assert other.read_bytes("two") == b"2"
