"""What importing costs, and that imports point up the map of CONTRIBUTING."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import fsabs

pytestmark = pytest.mark.quick

PACKAGE = Path(fsabs.__file__).parent
HEAVY = ("boto3", "botocore", "pyarrow", "h5py", "numpy", "fsspec", "hdfs_native", "torch", "asyncio", "dataclasses")

# A module may import from rooms of a lower number, and from its own room.
FLOORS = {
    "__main__": 10,
    "cli": 9,
    "prepare": 8,
    "dispatch": 8,
    "adapters": 8,
    "compat": 8,
    "testing": 8,
    "readers": 7,
    "manifest": 6,
    "paths": 5,
    "urls": 5,
    "cache": 4,
    "trace": 4,
    "spi": 3,
    "transfer": 3,
    "containers": 2,
    "backends": 2,
    "disk": 1,
    "core": 0,
}
UPWARDS = {
    # Public methods whose work a room above does: each imported when it is called.
    "core/fs.py": {"disk", "transfer"},
    # The table of schemes, suffixes, layers and adapters: names, each imported when a URL or a method needs it.
    "core/registry.py": {"backends", "containers", "trace", "urls", "manifest", "adapters"},
}


def test_importing_fsabs_loads_no_heavy_library() -> None:
    code = f"import fsabs, sys; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_opening_a_local_directory_loads_no_heavy_library(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    code = (
        f"import fsabs, sys; fs = fsabs.from_url({str(tmp_path)!r}); assert fs.read_bytes('a.txt') == b'x';"
        f"print([m for m in {HEAVY[:6]} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def _imports(path: Path) -> set[str]:
    """Return the modules of the package that a module imports or names in a string, without the package's name."""
    return _named(path, ast.walk(_tree(path)))


def _named(path: Path, nodes: Iterable[ast.AST]) -> set[str]:
    package = ("fsabs", *path.relative_to(PACKAGE).parts[:-1])
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            target = ".".join((*base, *(node.module or "").split("."))).rstrip(".")
            names = [f"{target}.{alias.name}" for alias in node.names]
            names = [name if _file(name) else target for name in names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = re.fullmatch(r"(fsabs(?:\.\w+)+)(?::\w+)?", node.value)
            names = [text[1]] if text and _file(".".join(text[1].split(".")[:2])) else []
        else:
            continue
        found |= {name.removeprefix("fsabs.") for name in names if name.startswith("fsabs.")}
    return found


def _file(module: str) -> Path | None:
    """Return the file of a module, by its full name."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.exists()), None)


def test_imports_point_down_the_map() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        rooms = {module.partition(".")[0] for module in _imports(path)}
        for other in rooms & FLOORS.keys() - {room}:
            if FLOORS[other] > FLOORS[room] and other not in UPWARDS.get(str(path.relative_to(PACKAGE)), ()):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {other}")
            if {room, other} == {"backends", "containers"}:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {other}")
    assert not wrong, wrong


def test_names_in_strings_are_found() -> None:
    text = """import importlib\nA = {"s3": "fsabs.backends.s3:S3"}\nimportlib.import_module("fsabs.trace.session")\n"""
    found = _named(PACKAGE / "core" / "example.py", ast.walk(ast.parse(text)))
    assert found == {"backends.s3", "trace.session"}


def test_every_room_is_on_the_map() -> None:
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")}
    assert rooms - {"__init__"} <= FLOORS.keys()


def test_public_modules_are_imported_when_they_are_used() -> None:
    code = (
        "import fsabs, sys; before = 'fsabs.cache' in sys.modules; "
        "print(before, fsabs.cache.FileCache.__name__, 'cache' in dir(fsabs), fsabs.trace.span.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["False", "FileCache", "True", "span"]


def test_every_public_name_is_there() -> None:
    assert set(fsabs.__all__) <= set(dir(fsabs))
    for name in fsabs.__all__:
        assert getattr(fsabs, name) is not None
    with pytest.raises(AttributeError):
        fsabs.nonesuch  # noqa: B018


def test_no_import_circle() -> None:
    """Of modules as they are loaded: what a function imports, or a type checker, is no part of a circle."""
    graph = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        at_once = _named(path, (node for node in _tree(path).body))
        graph[name] = {loaded for module in at_once for loaded in _loaded(module, name)}
    assert _circles(graph) == []


def _loaded(module: str, by: str) -> Iterator[str]:
    """Yield a module, and the packages that its import loads before it if `by` is not in them."""
    while module and module != by:
        yield module
        module = module.rpartition(".")[0]
        if by.startswith(f"{module}."):
            return


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c", "e"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": {"e"}, "g": set[str]()}
    assert _circles(graph) == [{"a", "b", "c"}, {"e", "f"}]


def _circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules each of which leads to all others of its set."""
    reached = {name: set(needs) for name, needs in graph.items()}
    for name in graph:
        new = graph[name]
        while new := {far for near in new for far in graph.get(near, ())} - reached[name]:
            reached[name] |= new
    circles = []
    for name in sorted(graph):
        circle = {other for other in reached[name] if name in reached.get(other, ())}
        if circle and circle not in circles:
            circles.append(circle)
    return circles


def test_no_module_touches_a_private_name_of_another() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        tree, modules = _tree(path), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                for alias in node.names:
                    if (folder / f"{alias.name}.py").exists() or (folder / alias.name).is_dir():
                        modules.add(alias.asname or alias.name)
                    if _is_private(alias.name):
                        wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno} imports {alias.name}")
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                if _is_private(node.attr):
                    wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno} uses {node.value.id}.{node.attr}")
    assert not wrong, "\n".join(wrong)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
