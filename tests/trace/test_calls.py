"""Recorded calls and the ways to start a trace: what the user does is in it, and nothing changes for the program."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import trace
from fsabs.backends.local import Local
from fsabs.core import hooks
from fsabs.core.blobs import Blob
from fsabs.core.fs import FS
from fsabs.core.layers import LayerFS, lazify
from fsabs.trace import session


class Notes(hooks.Instrument):
    """An instrument of one's own."""

    calls = True

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int, str, int]] = []

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: Any = "", error: str = "", offset: int = -1
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
def fs(tmp_path: Path) -> Local:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.bin").write_bytes(bytes(range(100)))
    return Local(str(tmp_path / "data"))


def test_what_an_archive_reads_is_no_read_of_the_user(fs: Local, notes: Notes) -> None:
    """Not that of a pickled one either."""
    fs.write_bytes("a.zip", b"")
    with fs.open_container("a.zip", "w") as archive:
        archive.write_bytes("x", b"content")
    with fs.open_container("a.zip") as archive, pickle.loads(pickle.dumps(archive)) as copy:
        notes.told.clear()
        archives: list[Any] = [archive, copy]
        assert [each.verify() for each in archives] == [[], []]
        assert notes.told == []
        with copy.open_blob("x") as blob:
            pickle.loads(pickle.dumps(blob)).read_all()
        assert [name for _, name, *_ in notes.told] == ["zip.open", "zip.read"]


def test_every_call_is_recorded(fs: Local, notes: Notes) -> None:
    with fs.open("a.bin", "rb") as file:
        file.read()
    with fs.open_blob("a.bin") as blob:
        blob.pread_many([(5, 0), (5, 50)])
        blob.pread(3, 7)
    fs.read_bytes("a.bin")
    fs.read_text("a.bin", "latin-1")
    list(fs.read_many(["a.bin", "a.bin"]))
    list(fs.list())
    list(fs.list(recursive=True))
    list(fs.glob("*"))
    fs.write_bytes("b.bin", b"123")
    fs.copy("b.bin", "c.bin")
    fs.rename("c.bin", "d.bin")
    fs.makedirs("e/f")
    fs.mkdir("g")
    with fs.open("b.bin", "ab") as file:
        file.write(b"4")
    fs.remove("d.bin")
    fs.remove("e", recursive=True)
    fs.exists("b.bin"), fs.isdir("g"), fs.stat("a.bin")
    found = Counter((kind, name) for kind, name, *_ in notes.told)
    assert found == {
        ("fs", "local.open"): 3, ("fs", "local.read"): 4, ("batch", "local.read_many"): 2,
        ("fs", "local.read_bytes"): 1, ("fs", "local.read_many"): 2, ("fs", "local.list"): 2, ("fs", "local.glob"): 1,
        ("fs", "local.write_bytes"): 1, ("fs", "file.write"): 1, ("fs", "file.commit"): 1, ("fs", "local.copy"): 1,
        ("fs", "local.rename"): 1, ("fs", "local.makedirs"): 1, ("fs", "local.mkdir"): 1, ("fs", "local.remove"): 2,
        ("fs", "local.stat"): 3,
    }  # fmt: skip
    assert ("fs", "local.read", 100, "", 0) in notes.told
    assert ("fs", "local.read", 3, "", 7) in notes.told
    assert ("fs", "local.read", 10, "", 0) in notes.told
    assert ("batch", "local.read_many", 10, "", 2) in notes.told
    assert ("batch", "local.read_many", 200, "", 2) in notes.told
    assert ("fs", "file.write", 1, "", -1) in notes.told


def test_what_fails_is_recorded_and_what_is_not_there_is_no_failure(fs: Local, notes: Notes) -> None:
    assert not fs.exists("none")
    with pytest.raises(FileNotFoundError):
        fs.stat("none")
    with pytest.raises(FileNotFoundError):
        fs.open("none")
    with pytest.raises(FileNotFoundError):
        list(fs.read_many(["a.bin", "none"]))
    with pytest.raises(FileNotFoundError):
        fs.list("none")
    errors = [(name, error) for kind, name, _, error, _ in notes.told if kind == "fs"]
    assert errors == [
        ("local.stat", ""),
        ("local.stat", ""),
        ("local.open", "FileNotFoundError"),
        ("local.read_many", ""),
        ("local.read_many", "FileNotFoundError"),
        ("local.list", "FileNotFoundError"),
    ]


@pytest.mark.quick
def test_what_is_open_when_a_trace_starts_is_recorded_too(fs: Local, tmp_path: Path) -> None:
    (tmp_path / "data" / "big.bin").write_bytes(bytes(1 << 20))
    again = fsabs.from_url(tmp_path / "data")
    with fs.open("big.bin", "rb") as file, fs.open_blob("a.bin") as blob, trace.record(tmp_path / "trace"):
        assert len(again.read_bytes("a.bin")) == len(blob.pread(100, 0)) == 100
        assert len(file.read()) == 1 << 20
        assert [len(data) for data in fs.read_many(["a.bin"])] == [100]
    events = [
        (event.operation, event.where.rpartition("/")[2], event.size)
        for event in trace.events(tmp_path / "trace")
        if event.kind == "fs"
    ]
    assert events[:2] == [("read_bytes", "a.bin", 100), ("read", "a.bin", 100)]
    assert events[-1] == ("read_many", "a.bin", 100)
    assert sum(size for _, name, size in events if name == "big.bin") == 1 << 20


@pytest.mark.quick
def test_without_an_instrument_nothing_is_replaced(fs: Local, notes: Notes) -> None:
    recorded = (FS.read_bytes, FS.stat, Blob.pread)
    hooks.install(None)
    plain = (FS.read_bytes, FS.stat, Blob.pread)
    assert not any(hasattr(method, "__wrapped__") for method in plain)
    assert [getattr(method, "__wrapped__") for method in recorded] == [*plain]  # noqa: B009 - of functools.wraps
    with fs.open("a.bin", "rb") as file:
        assert type(file) is io.BufferedReader


def test_reading_goes_on_when_the_trace_ends_and_when_it_begins_again(fs: Local, tmp_path: Path) -> None:
    with trace.record(tmp_path / "one"), fs.open("a.bin", "rb", buffering=10) as file:
        assert file.read(10) == bytes(range(10))
        trace.stop()
        assert file.read(10) == bytes(range(10, 20))
        with trace.record(tmp_path / "two"):
            assert file.read(10) == bytes(range(20, 30))
            assert pickle.loads(pickle.dumps(file)).read(10) == bytes(range(30, 40))
    for folder in ("one", "two"):
        assert [event.size for event in trace.events(tmp_path / folder) if event.operation == "read"] != []


@pytest.mark.quick
def test_a_descriptor_passes_through(fs: Local, notes: Notes) -> None:
    with fs.open("a.bin", "rb") as file:
        assert os.pread(file.fileno(), 3, 1) == b"\1\2\3"


def test_events_are_named_after_what_is_inside(fs: Local, notes: Notes, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data" / "a.zip", "w") as archive:
        archive.writestr("x", b"xyz")
    with fsabs.from_url(tmp_path / "data" / "a.zip") as packed:
        packed.read_bytes("x")
    lazy = lazify(lambda: fs)
    lazy.read_bytes("a.bin")
    LayerFS(fs).exists("a.bin")
    names = [name for kind, name, *_ in notes.told if kind == "fs"]
    assert names == ["local.open_container", "zip.read_bytes", "local.read_bytes", "local.stat"], (
        "what a container reads is part of its call"
    )


def test_a_long_file_is_read_as_a_stream_and_recorded(tmp_path: Path, notes: Notes) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", bytes(9 << 20))
    with fsabs.from_url(tmp_path / "a.zip") as packed, packed.open("x", "rb") as file:
        while file.read(1 << 20):
            pass
    for recorded in (("fs", "zip.read"), ("decompress", "zip.inflate")):
        assert sum(size for kind, name, size, *_ in notes.told if (kind, name) == recorded) == 9 << 20


def test_from_url_takes_a_folder_true_and_false_or_their_words(tmp_path: Path, fs: Local) -> None:
    path = tmp_path / "data"
    assert repr(fsabs.from_url(path, trace=True)) == repr(fsabs.from_url(path, trace=False)) == repr(fs)
    for word in ("false", "True"):  # those of a configuration file
        assert session.traced(fs, word) is fs
    assert hooks.active is None
    try:
        fsabs.from_url(path, trace=tmp_path / "trace").read_bytes("a.bin")
        assert os.environ["FSABS_TRACE"] == str(tmp_path / "trace")
    finally:
        trace.stop()
    assert "FSABS_TRACE" not in os.environ
    assert [event.size for event in trace.events(tmp_path / "trace") if event.operation == "read_bytes"] == [100]


def test_starting_twice_and_elsewhere(tmp_path: Path, fs: Local) -> None:
    trace.start(tmp_path / "one")
    trace.start(tmp_path / "one")
    fs.read_bytes("a.bin")
    trace.start(tmp_path / "two")
    fs.read_bytes("a.bin")
    trace.stop()
    trace.stop()
    for folder in ("one", "two"):
        (read,) = trace.events(tmp_path / folder)
        assert (read.operation, read.size) == ("read_bytes", 100)
    with pytest.raises(TypeError, match="str"):
        trace.start(tmp_path / "three", max_bytes="50MB")  # type: ignore[arg-type]


def test_what_interrupts_a_call_does_not_end_the_recording(fs: Local) -> None:
    class Interrupting(Notes):
        interrupts = True

        def record_span(self, *given: Any, **named: Any) -> None:
            if self.interrupts:
                raise KeyboardInterrupt
            super().record_span(*given, **named)

    notes = Interrupting()
    before = hooks.install(notes)
    try:
        for name, error in (("a.bin", ""), ("none", "FileNotFoundError")):
            notes.interrupts = True
            with pytest.raises(KeyboardInterrupt):
                fs.read_bytes(name)
            notes.interrupts = False
            with contextlib.suppress(FileNotFoundError):
                fs.read_bytes(name)
            assert notes.told.pop()[3] == error
    finally:
        hooks.install(before)


def test_each_trace_has_steps_from_zero(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        with trace.record(tmp_path / folder):
            for _ in range(3):
                trace.step()
        assert [event.size for event in trace.events(tmp_path / folder) if event.kind == "step"] == [0, 1]


def test_a_trace_lasts_until_it_ends(tmp_path: Path, fs: Local) -> None:
    """What comes after the last event is outside of steps, too."""
    with trace.record(tmp_path / "trace"):
        for _ in trace.steps(range(3)):
            fs.read_bytes("a.bin")
        time.sleep(0.3)
    analysis = trace.analyze(tmp_path / "trace")
    assert analysis.seconds >= 0.3
    assert analysis.breakdown[0].causes["outside"] >= 0.3
    assert sum(row.seconds for row in analysis.breakdown[1:]) <= analysis.seconds - 0.3


def test_spans_and_steps(tmp_path: Path) -> None:
    with trace.record(tmp_path / "trace"):
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
