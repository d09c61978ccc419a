"""What importing costs, and that imports point down the map of docs and CONTRIBUTING."""

from __future__ import annotations

import ast
import subprocess
import sys
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
    "urls": 6,
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
    "registry": 1,
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
# Names that are looked up when they are used: the door that the map leaves open between a class and what makes it.
TYPE_ONLY = {("urls", "cache"), ("registry", "fs"), ("globbing", "fs"), ("interop", "fs")}


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


def _imports(path: Path) -> set[str]:
    """The rooms of the package that a module imports, wherever in it."""
    module = ("fsabs", *path.relative_to(PACKAGE).with_suffix("").parts)
    package = module if path.name == "__init__.py" else module[:-1]
    if path.name == "__init__.py":
        package = module[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            target = (*base, *(node.module or "").split(".")) if node.module else tuple(base)
            names = [(*target, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        else:
            continue
        found |= {name[1] for name in names if name[0] == "fsabs" and len(name) > 1}
    return found


def test_imports_point_down_the_map() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for other in _imports(path) & FLOORS.keys() - {room}:
            if FLOORS[other] > FLOORS[room] and (room, other) not in TYPE_ONLY:
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


def test_the_cache_has_no_import_circle() -> None:
    """Type-checking imports included."""
    graph: dict[str, set[str]] = {}
    for path in (PACKAGE / "cache").rglob("*.py"):
        name = path.stem
        if name == "__init__":
            continue  # names that are looked up when they are used
        found = graph.setdefault(name, set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                found |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    while leaves := {name for name, needs in graph.items() if not needs & graph.keys()}:
        for name in leaves:
            del graph[name]
    assert not graph, graph


def test_no_module_touches_a_private_name_of_another() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        tree, modules = ast.parse(path.read_text()), set()
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
