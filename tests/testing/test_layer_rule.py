"""The wrapper rule: a layer that forgets a method of FS's core, or passes it on wrongly, fails here."""

from __future__ import annotations

import copy
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

from fsabs import from_url, lazify, trace
from fsabs.backends.memory import Memory
from fsabs.core.blobs import Blob, BytesBlob
from fsabs.core.fs import FS
from fsabs.core.layers import LayerFS

pytestmark = pytest.mark.quick

# What FS derives from the rest, or keeps for itself: a layer has it by being an FS.
DERIVED = {
    *("_key", "_file_key", "_key_to_write", "_nonempty_key", "_read_key", "_rename_target", "_following", "_is_link"),
    *("_named", "_naming", "_require", "_unsupported", "_is", "_contents", "_members", "_enters", "_in_order"),
    *("_open_reader", "_open_writer", "_open_append", "_glob_after", "_read_each", "_content"),
    *("_transfer_tree", "_write_blob", "_write_bytes", "_makedirs", "_remove_members", "_stat_directory", "_lstat"),
}

# What a store says of itself: it is asked of `backing`, whatever layers are around that.
OF_STORES = {
    *("_resolved_store", "_place", "_places", "_principal", "_is_strong", "_describe_store", "_storage_order"),
    *("_unnamed", "_local_path", "_can_copy_from", "_make_durable", "_has_content", "_has_digest", "_same_content"),
    *("_unchanged_since", "_divided_path", "_check_key"),
    *("_list_page", "_leads_back", "_directory_identity", "_compared"),
}

CORE = sorted(
    name
    for name, member in vars(FS).items()
    if name.startswith("_")
    and not name.startswith("__")
    and inspect.isfunction(member)
    and name not in DERIVED | OF_STORES
)


class Recorder(Memory):
    """Notes what it is asked, and gives something that is nobody else's."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def __getattribute__(self, name: str) -> Any:
        if name not in CORE:
            return super().__getattribute__(name)

        def answer(*arguments: Any) -> str:
            self.asked.append((name, arguments))
            return f"what {name} gives"

        return answer

    def _can_copy_from(self, source: FS) -> bool:
        return True


def arguments_of(name: str) -> tuple[Any, ...]:
    """An argument of the right type for each parameter."""
    samples: dict[str, Any] = {"str": "some key", "bool": True, "int": 0o750, "Sequence[str]": ["a", "b"]}
    parameters = list(inspect.signature(getattr(FS, name)).parameters.values())[1:]
    return tuple(samples.get(parameter.annotation, 3) for parameter in parameters)


@pytest.mark.parametrize("name", CORE)
def test_a_layer_passes_everything_on(name: str) -> None:
    inner = Recorder()
    layer = LayerFS(inner)
    given = arguments_of(name)
    found = getattr(layer, name)(*given)
    assert inner.asked[-1] == (name, given)
    assert found == (None if name in ("_close", "_abort", "_copy") else f"what {name} gives")


@pytest.mark.parametrize("name", ["capabilities", "scheme", "default_concurrency"])
def test_a_layer_says_what_its_inner_fs_says(name: str) -> None:
    inner = Memory()
    told = inner.capabilities._replace(rename=False) if name == "capabilities" else 7
    setattr(inner, name, told)
    assert getattr(LayerFS(inner), name) == told


# What a layer has to lead through a method that it overrides, unless it overrides that, too.
WAYS_ROUND = {
    "_open_blob": {"_read_many", "_opened_by"},
    "_create": {"_write_many", "_copy"},
    "_list": {"_walk"},
    "_remove": {"_remove_tree"},
}


def layers() -> list[type[LayerFS]]:
    """All layers of the package."""
    for module in ("cache.cachedfs", "cache.httpfs", "containers.base", "testing.faulty"):
        importlib.import_module(f"fsabs.{module}")
    found, waiting = set[type[LayerFS]](), [LayerFS]
    while waiting:
        waiting += [kind for kind in waiting.pop().__subclasses__() if not found & {kind}]
        found |= {kind for kind in waiting if kind.__module__.startswith("fsabs.")}
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", layers(), ids=lambda kind: kind.__name__)
def test_no_layer_leaves_a_way_round_what_it_overrides(kind: type[LayerFS]) -> None:
    for overridden, ways in WAYS_ROUND.items():
        if getattr(kind, overridden) is not getattr(LayerFS, overridden):
            for name in ways:
                assert getattr(kind, name) is not getattr(LayerFS, name), f"{name} goes round {overridden}"
    for name in ("limits", "capabilities", "scheme", "default_concurrency"):
        assert isinstance(getattr(kind, name), property), f"{name} is not the inner FS's"


# The contract: what every store writes, and what it may override.
CONTRACT = {
    *("_url", "_stat", "_list", "_open_blob", "_create", "_mkdir", "_rename", "_remove", "_close"),
    *("_read_many", "_walk", "_write_many", "_remove_tree", "_copy", "_set", "_batch"),
}


class Counted(Memory):
    """Notes the core methods that are called from outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0
        self.called: set[str] = set()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in CORE:
            return found

        def call(*arguments: Any) -> Any:
            if not self.depth:
                self.called.add(name)
            self.depth += 1
            try:
                return found(*arguments)
            finally:
                self.depth -= 1

        return call


def test_public_methods_ask_a_layers_inner_fs_for_the_contract_alone() -> None:
    inner = Counted()
    fs = LayerFS(inner)
    fs.makedirs("a/b")
    fs.write_bytes("a/x", b"1")
    assert fs.write_many({"a/y": b"2", "a/b/z": b"3"}) == 2
    fs.write_text("a/t", "4")
    with fs.open("a/t", "a") as file:
        file.write("5")
    with fs.open("a/t") as file, fs.open_blob("a/x", fs.stat("a/x")) as blob:
        assert (file.read(), blob.read_all()) == ("45", b"1")
    assert [fs.read_bytes("a/x"), *fs.read_many(["a/y", "a/b/z"])] == [b"1", b"2", b"3"]
    assert (fs.exists("a"), fs.isdir("a/"), fs.isfile("a/x"), fs.exists("none")) == (True, True, True, False)
    for recursive in (False, True):
        assert len(list(fs.list("a", recursive))) == len(list(fs.list("a", recursive, detail=True)))
    assert list(fs.glob("a/*.x")) == list(fs.unnamed()) == []
    assert (len(list(fs.walk())), fs.usage().files) == (3, 4)
    with fs.as_local("a/x") as path:
        assert Path(path).read_bytes() == b"1"
    fs.copy("a/x", "c")
    assert fs.copy_tree("a", "d").files == fs.sync_tree("a", "d").skipped == 4
    fs.rename("c", "e")
    fs.remove("e")
    fs.remove("a", recursive=True)
    fs.mkdir("f")
    fs.rmdir("f")
    fs.remove(".", recursive=True)
    fs.close()
    assert inner.called <= CONTRACT


def test_a_layer_forwards_the_contract_alone() -> None:
    methods = {name for name, member in vars(LayerFS).items() if name[:1] == "_" != name[:2][1:] and callable(member)}
    assert methods - {"_abort", "_inner_here"} == CONTRACT


def test_a_layer_that_opens_blobs_leaves_no_way_round_it() -> None:
    class Reversed(LayerFS):
        def _open_blob(self, key: str, *how: Any) -> Blob:
            with self.inner._open_blob(key, *how) as blob:
                return BytesBlob(self, key, blob.read_all()[::-1])

    inner = Memory()
    inner.write_bytes("a", b"abc")
    fs = Reversed(inner)
    with fs.open("a", "rb") as file:
        assert [file.read(), fs.read_bytes("a"), *fs.read_many(["a"])] == [b"cba"] * 3


def test_what_else_an_fs_offers_is_offered_by_its_layers() -> None:
    class More(Memory):
        def more(self) -> str:
            return f"more of {self.cwd}"

    layer: Any = LayerFS(LayerFS(More()))
    assert layer.more() == "more of /"
    with pytest.raises(AttributeError, match="'More' object has no attribute 'less'"):
        _ = layer.less
    made: list[str] = []

    def make() -> FS:
        made.append("made")
        return More()

    lazy: Any = lazify(make)
    assert not hasattr(lazy, "_more")
    assert copy.copy(lazy).__class__ is type(lazy)
    assert made == [], "looking for what is private, as copy and pickle do, is no use of it"
    assert lazy.more() == "more of /"


def test_a_cache_below_a_trace_has_its_own_methods(tmp_path: Path) -> None:
    """As with FSABS_TRACE, which must not break a program that uses them."""
    (tmp_path / "file").write_bytes(b"content")
    with trace.record(tmp_path / "trace"):
        fs: Any = from_url(tmp_path, cache=str(tmp_path / "cache"))
        assert repr(fs).startswith("CachedFS(")
        assert fs.read_bytes("file") == b"content"
        assert fs.status()["misses"] == 1
