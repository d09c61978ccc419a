"""TracedFS and the ways to start a trace: what the user does is in it, and nothing changes for him."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import hooks, trace
from fsabs.backends.local import Local
from fsabs.layers import LayerFS, lazify
from fsabs.trace import TracedFS


class Notes(hooks.Instrument):
    """An instrument of one's own."""

    calls = True

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int, str, int]] = []

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: str = "", error: str = "", offset: int = -1
    ) -> None:
        assert begin > 0
        self.told.append((kind, name, size, error, offset))


@pytest.fixture
def notes() -> Iterator[Notes]:
    notes = Notes()
    before = hooks.install(notes)
    yield notes
    hooks.install(before)


@pytest.fixture
def fs(tmp_path: Path) -> TracedFS:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.bin").write_bytes(bytes(range(100)))
    return TracedFS(Local(str(tmp_path / "data")))


def test_every_call_is_told(fs: TracedFS, notes: Notes) -> None:
    with fs.open("a.bin", "rb") as file:
        file.read()
        file.blob.pread_many([(5, 0), (5, 50)])
    fs.read_bytes("a.bin")
    list(fs.read_many(["a.bin", "a.bin"]))
    list(fs.list())
    list(fs.list(recursive=True))
    fs.write_bytes("b.bin", b"123")
    fs.copy("b.bin", "c.bin")
    fs.rename("c.bin", "d.bin")
    fs.makedirs("e/f")
    fs.mkdir("g")
    with fs.open("b.bin", "ab") as file:
        file.write(b"4")
    with fs.open("b.bin", "r+b") as file:
        file.write(b"5")
    fs.remove("d.bin")
    fs.remove("e", recursive=True)
    found = Counter((kind, name) for kind, name, *_ in notes.told if name != "local.stat")
    assert found == {
        ("fs", "local.open"): 1, ("fs", "local.read"): 2, ("batch", "local.read_many"): 2,
        ("fs", "local.read_bytes"): 1, ("fs", "local.read_many"): 2, ("fs", "local.list"): 1, ("fs", "local.walk"): 1,
        ("fs", "local.create"): 1, ("fs", "local.write"): 2, ("fs", "local.commit"): 2, ("fs", "local.copy"): 1,
        ("fs", "local.rename"): 1, ("fs", "local.makedirs"): 1, ("fs", "local.mkdir"): 1, ("fs", "local.append"): 1,
        ("fs", "local.open_update"): 1, ("fs", "local.remove"): 1, ("fs", "local.remove_tree"): 1,
    }  # fmt: skip
    assert ("fs", "local.read", 100, "", 0) in notes.told
    assert ("fs", "local.read", 10, "", 0) in notes.told
    assert ("batch", "local.read_many", 10, "", 2) in notes.told
    assert ("batch", "local.read_many", 200, "", 2) in notes.told
    assert ("fs", "local.write", 3, "", -1) in notes.told


def test_what_fails_is_told_and_what_is_not_there_is_no_failure(fs: TracedFS, notes: Notes) -> None:
    assert not fs.exists("none")
    with pytest.raises(FileNotFoundError):
        fs.open("none")
    with pytest.raises(FileNotFoundError):
        list(fs.read_many(["a.bin", "none"]))
    with pytest.raises(FileNotFoundError):
        fs.list("none")
    errors = [(name, error) for kind, name, _, error, _ in notes.told if kind == "fs"]
    assert errors == [
        ("local.stat", ""),
        ("local.open", "FileNotFoundError"),
        ("local.read_many", ""),
        ("local.read_many", "FileNotFoundError"),
        ("local.list", "FileNotFoundError"),
    ]


@pytest.mark.quick
def test_without_an_instrument_nothing_is_wrapped(fs: TracedFS) -> None:
    assert hooks.active is None
    with fs.open("a.bin", "rb") as file:
        assert type(file.blob) is type(fs.inner._open_blob(fs._key("a.bin", "")))


def test_reading_goes_on_when_the_trace_ends_and_when_it_begins_again(fs: TracedFS, tmp_path: Path) -> None:
    with trace.trace(tmp_path / "one"), fs.open("a.bin", "rb", buffering=10) as file:
        assert file.read(10) == bytes(range(10))
        trace.stop()
        assert file.read(10) == bytes(range(10, 20))
        with trace.trace(tmp_path / "two"):
            assert file.read(10) == bytes(range(20, 30))
    for folder in ("one", "two"):
        assert [event.size for event in trace.events(tmp_path / folder) if event.operation == "read"] != []


@pytest.mark.quick
def test_repr_nests_and_a_descriptor_passes_through(fs: TracedFS, notes: Notes) -> None:
    assert repr(TracedFS(LayerFS(fs.inner))) == f"TracedFS(LayerFS({fs.inner!r}))"
    with fs.open("a.bin", "rb") as file:
        assert os.pread(file.fileno(), 3, 1) == b"\1\2\3"


def test_events_are_named_after_what_is_inside(fs: TracedFS, notes: Notes, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data" / "a.zip", "w") as archive:
        archive.writestr("x", b"xyz")
    with fsabs.from_url(tmp_path / "data" / "a.zip") as packed:
        assert isinstance(packed, TracedFS)
        packed.read_bytes("x")
    lazy = TracedFS(lazify(lambda: fs.inner))
    lazy.read_bytes("a.bin")
    assert {"zip.read_bytes", "local.read_bytes"} <= {name for _, name, *_ in notes.told}


def test_a_long_file_is_read_as_a_stream_and_told(tmp_path: Path, notes: Notes) -> None:
    data = os.urandom(9 * 1024 * 1024)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", data)
    with fsabs.from_url(tmp_path / "a.zip") as packed, packed.open("x", "rb") as file:
        pieces = []
        while piece := file.read(1024 * 1024):
            pieces.append(piece)
    assert b"".join(pieces) == data
    assert sum(size for kind, name, size, *_ in notes.told if (kind, name) == ("fs", "zip.read")) >= len(data)


def test_from_url_takes_a_folder_true_and_false(tmp_path: Path, fs: TracedFS) -> None:
    path = tmp_path / "data"
    assert not isinstance(fsabs.from_url(path), TracedFS)
    assert isinstance(fsabs.from_url(path, trace=True), TracedFS)
    assert hooks.active is None
    try:
        traced = fsabs.from_url(path, trace=tmp_path / "trace")
        traced.read_bytes("a.bin")
        assert isinstance(fsabs.from_url(path), TracedFS)
        assert not isinstance(fsabs.from_url(path, trace=False), TracedFS)
        assert os.environ["FSABS_TRACE"] == str(tmp_path / "trace")
    finally:
        trace.stop()
    assert "FSABS_TRACE" not in os.environ
    assert [event.size for event in trace.events(tmp_path / "trace") if event.operation == "read_bytes"] == [100]


@pytest.mark.quick
def test_the_words_true_and_false_are_those_of_a_configuration_file(fs: TracedFS) -> None:
    assert trace.traced(fs.inner, "false") is fs.inner
    assert isinstance(trace.traced(fs.inner, "True"), TracedFS)
    assert trace.traced(fs, True) is fs
    assert hooks.active is None


def test_a_pickle_takes_the_trace_along(tmp_path: Path, fs: TracedFS) -> None:
    with trace.trace(tmp_path / "trace"):
        recipe = pickle.dumps(fs)
    assert hooks.active is None
    again: TracedFS = pickle.loads(recipe)
    try:
        again.read_bytes("a.bin")
    finally:
        trace.stop()
    operations = [event.operation for event in trace.events(tmp_path / "trace")]
    assert operations.count("read_bytes") == 1
    assert not hasattr(pickle.loads(pickle.dumps(fs)), "_plan")


def test_starting_twice_and_elsewhere(tmp_path: Path, fs: TracedFS) -> None:
    trace.start(tmp_path / "one")
    trace.start(tmp_path / "one")
    fs.read_bytes("a.bin")
    trace.start(tmp_path / "two", detail="histograms")
    fs.read_bytes("a.bin")
    trace.stop()
    trace.stop()
    assert len(list(trace.events(tmp_path / "one"))) == 1
    counted = trace.analyse(tmp_path / "two")
    assert counted.events == 0
    (row,) = counted.operations
    assert (row.operation, row.calls, row.bytes) == ("read_bytes", 1, 100)
    assert 0 < row.least <= row.p50 <= row.most < 1
    with pytest.raises(ValueError, match="detail"):
        trace.start(tmp_path / "three", detail="all")  # type: ignore[arg-type]


def test_spans_and_steps(tmp_path: Path) -> None:
    with trace.trace(tmp_path / "trace"):
        for number in trace.steps(range(3)):
            with trace.span("decode"):
                assert number < 3
        with pytest.raises(KeyError), trace.span("broken"):
            raise KeyError
    events: list[Any] = list(trace.events(tmp_path / "trace"))
    found = Counter((event.kind, event.name, event.error) for event in events)
    assert found == {
        ("span", "user.decode", ""): 3,
        ("span", "user.broken", "KeyError"): 1,
        ("wait", "steps.next", ""): 3,
        ("step", "train.step", ""): 3,
    }
    assert [event.size for event in events if event.kind == "step"] == [0, 1, 2]
    with trace.span("nothing"):  # no trace is on: nothing happens
        trace.step()
