"""What importing costs, and that imports point down the map of docs and CONTRIBUTING."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
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
    "readers": 8,
    "adapters": 8,
    "compat": 8,
    "testing": 8,
    "cache": 7,
    "manifest": 7,
    "trace": 7,
    "diskpaths": 7,
    "paths": 7,
    "purepaths": 7,
    "roots": 7,
    "urls": 7,
    "schemes": 5,
    "pfs": 5,
    "locations": 5,
    "config": 5,
    "containers": 4,
    "backends": 4,
    "layers": 3,
    "copying": 2,
    "globbing": 2,
    "listing": 2,
    "local_copies": 2,
    "opening": 2,
    "interop": 2,
    "fs": 2,
    "core": 2,
    "walking": 2,
    "registry": 2,
    "partials": 2,
    "texts": 1,
    "files": 1,
    "writefile": 1,
    "binaryfile": 1,
    "modes": 0,
    "readahead": 0,
    "stats": 0,
    "blobs": 0,
    "ranges": 0,
    "writemany": 0,
    "keys": 0,
    "descriptors": 0,
    "temporary": 0,
    "threads": 0,
    "errors": 0,
    "limits": 0,
    "owners": 0,
    "process": 0,
    "hooks": 0,
    "mounts": 0,
    "lazy": 0,
    "identity": 0,
    "index_cache": 0,
}
# PFIO's modules name each other, and its names can't move: `pfio.v2.fs` has both the base of `Zip` and `open_zip`.
CIRCLES = [{f"compat.pfio.v2.{name}" for name in ("fs", "hdfs", "http_cache", "local", "s3", "zip")}]


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
    """Return the modules of the package that a module imports, wherever in it, without the package's name."""
    package = ("fsabs", *path.relative_to(PACKAGE).parts[:-1])
    found: set[str] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            target = ".".join((*base, *(node.module or "").split("."))).rstrip(".")
            names = [f"{target}.{alias.name}" for alias in node.names]
            names = [name if _file(name) else target for name in names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
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
            if FLOORS[other] > FLOORS[room]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {other}")
            if {room, other} == {"backends", "containers"}:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {other}")
    assert not wrong, wrong


def test_every_room_is_on_the_map() -> None:
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")}
    assert rooms - {"__init__"} <= FLOORS.keys()


def test_public_modules_are_imported_when_they_are_used() -> None:
    code = (
        "import fsabs, sys; before = 'fsabs.cache' in sys.modules; "
        "print(before, fsabs.cache.FileCache.__name__, 'cache' in dir(fsabs), fsabs.trace.TracedFS is fsabs.TracedFS)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["False", "FileCache", "True", "True"]


def test_every_public_name_is_there() -> None:
    assert sorted(fsabs.__all__) == sorted(fsabs._HOMES)
    for name in fsabs.__all__:
        assert getattr(fsabs, name) is not None
    with pytest.raises(AttributeError):
        fsabs.nonesuch  # noqa: B018


def test_no_import_circle() -> None:
    """Imports in functions and for types included."""
    graph = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        graph[name] = {loaded for module in _imports(path) for loaded in _loaded(module, name)}
    circles = _circles(graph)
    assert circles == CIRCLES, [sorted(circle) for circle in circles if circle not in CIRCLES]


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
