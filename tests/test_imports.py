"""What importing costs, that each public name is there, and that imports point up the map of CONTRIBUTING."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import fsabs

pytestmark = pytest.mark.quick

PACKAGE = Path(fsabs.__file__).parent
PUBLIC = (
    *("fsabs", "fsabs.spi", "fsabs.cache", "fsabs.manifest", "fsabs.trace", "fsabs.readers", "fsabs.readers.data"),
    *("fsabs.dispatch", "fsabs.prepare", "fsabs.adapters.patch", "fsabs.backends.hub", "fsabs.backends.web"),
    "fsabs.testing",
)
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


def printed(code: str) -> str:
    """Return what a program prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_importing_fsabs_loads_no_heavy_library_nor_does_a_local_directory(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    loaded = "print([m for m in {} if m in sys.modules]);"
    code = f"import fsabs, sys; {loaded.format(HEAVY)}"
    code += f"fs = fsabs.from_url({str(tmp_path)!r}); assert fs.read_bytes('a.txt') == b'x'; {loaded.format(HEAVY[:6])}"
    assert printed(code) == "[]\n[]"


MISSING = {  # what needs a package, and its name
    "h5py": ("memory.open_container('a.h5')", "h5py"),
    "boto3": ("fsabs.from_url('s3://bucket/x', region='eu-west-1').read_bytes('y')", "boto3"),
    "pyarrow": ("memory.arrow()", "pyarrow"),
    "fsspec": ("fsabs.from_url('github://x/y')", "fsspec"),
    "zstandard": ("memory.open_container('a.tar.zst', 'w')", "zstandard"),
    "hdfs_native": ("fsabs.from_url('hdfs://localhost:9/x').read_bytes('y')", "hdfs-native"),
}
USE = """
import sys
sys.modules[{package!r}] = None
import fsabs
memory = fsabs.Memory("x")
memory.write_bytes("a.h5", b"")
try:
    {use}
except ImportError as exc:
    print(type(exc).__name__, exc)
"""


@pytest.mark.parametrize("package", MISSING)
def test_a_missing_package_is_named_with_what_to_install(package: str) -> None:
    use, name = MISSING[package]
    said = printed(USE.format(package=package, use=use))
    assert said.startswith("MissingDependencyError")
    assert name in said
    assert "pip install" in said


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


def test_public_modules_are_imported_when_they_are_used() -> None:
    code = (
        "import fsabs, sys; before = 'fsabs.cache' in sys.modules; "
        "print(before, fsabs.cache.FileCache.__name__, 'cache' in dir(fsabs), fsabs.trace.span.__name__)"
    )
    assert printed(code) == "False FileCache True span"


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_there(module: str) -> None:
    found = importlib.import_module(module)
    assert set(found.__all__) <= set(dir(found))
    for name in found.__all__:
        assert getattr(found, name) is not None
    with pytest.raises(AttributeError):
        found.nonesuch  # noqa: B018


def test_no_modules_import_each_other_in_a_circle() -> None:
    """As they are loaded: what a function imports, or a type checker, is no part of a circle."""
    graph = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        at_once = _named(path, (node for node in _tree(path).body))
        graph[name] = {loaded for module in at_once for loaded in _loaded(module, name)}
    graphlib.TopologicalSorter(graph).prepare()  # raises an error that names a circle


def _loaded(module: str, by: str) -> Iterator[str]:
    """Yield a module, and the packages that its import loads before it if `by` is not in them."""
    while module and module != by:
        yield module
        module = module.rpartition(".")[0]
        if by.startswith(f"{module}."):
            return
