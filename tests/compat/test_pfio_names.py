"""Every public name of PFIO 2.10 is there, with its signature: modules, functions, classes, members, attributes."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pfio
import pytest
from moto import mock_aws

import fsabs
import fsabs.compat.pfio as ours
from fsabs.compat.pfio.testing import ZipForTest, make_http_server

pytestmark = pytest.mark.quick

MISSING = {
    *("pfio.v2.local.LocalProfileIOWrapper", "pfio.v2.s3.S3ProfileIOWrapper", "pfio.v2.s3.Boto3ProfileWrapper"),
    *("pfio.v2.zip.ZipProfileIOWrapper", "pfio.v2.zip.Zip.name_cache", "pfio.cache.http_cache.CONNECTION_POOL"),
    *(f"pfio.cache.file_cache.{name}" for name in ("RWLock", "DummyLock", "LockContext")),
    *(f"pfio.cache.file_cache.FileCache.{name}" for name in ("buflen", "cachefp", "lock", "pos")),
    *("pfio.cache.naive.NaiveCache.data", "pfio.cache.naive.NaiveCache.lock"),
    *(
        f"pfio.cache.multiprocess_file_cache.MultiprocessFileCache.{name}"
        for name in ("buflen", "cache_file", "cache_fd")
    ),
    *(f"pfio.cache.mmap_file_cache.ReadOnlyFileCache.{name}" for name in ("buflen", "fp", "mreg", "offset_list")),
}
"""What is not there on purpose: instruments, and the inside of caches."""


def test_it_is_the_version_that_is_compared() -> None:
    assert pfio.__version__ == ours.__version__ == "2.10.0"


def _modules() -> list[str]:
    found = pkgutil.walk_packages(pfio.__path__, "pfio.")
    return ["pfio", *(module.name for module in found if "._" not in module.name)]


def _names() -> Iterator[tuple[str, Any]]:
    """The public names of all modules: those that a module defines, and those that a package exports."""
    for module_name in _modules():
        module = importlib.import_module(module_name)
        is_package = hasattr(module, "__path__")
        for name, value in vars(module).items():
            own = getattr(value, "__module__", module_name) == module_name
            exported = is_package and str(getattr(value, "__module__", "")).startswith("pfio")
            if name.startswith("_") or isinstance(value, types.ModuleType) or not (own or exported):
                continue
            if inspect.isclass(value) or inspect.isfunction(value) or (is_package and exported) or name.isupper():
                yield f"{module_name}.{name}", value


NAMES = dict(_names())


def _here(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"fsabs.compat.{module}"), attribute)


def test_modules() -> None:
    for module in _modules():
        importlib.import_module(f"fsabs.compat.{module}")


def _shape(function: Any) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in parameters]


@pytest.mark.parametrize("name", sorted(NAMES.keys() - MISSING))
def test_names_and_signatures(name: str) -> None:
    theirs, found = NAMES[name], _here(name)
    assert inspect.isclass(theirs) == inspect.isclass(found)
    if inspect.isfunction(theirs):
        _fits(theirs, found)
    elif not inspect.isclass(theirs):
        assert type(found).__name__ == type(theirs).__name__
    elif not issubclass(theirs, BaseException):
        for member in _members(theirs):
            if f"{name}.{member}" not in MISSING:
                _compare(theirs, found, member)


def _fits(theirs: Any, found: Any) -> None:
    """Compare signatures; there may be more parameters at the end, if they have defaults."""
    before, after = _shape(theirs), _shape(found)
    assert after[: len(before)] == before, theirs
    assert all(default is not inspect.Parameter.empty for _, _, default in after[len(before) :]), theirs


def _members(kind: type) -> Iterator[str]:
    """The public members of a class of PFIO's, with those that its bases of PFIO's have, and how it is made."""
    for base in kind.__mro__:
        if base.__module__.startswith("pfio"):
            yield from (name for name in vars(base) if not name.startswith("_") or name in ("__init__", "__len__"))


def _compare(theirs: type, found: type, name: str) -> None:
    before, after = inspect.getattr_static(theirs, name), inspect.getattr_static(found, name)
    assert isinstance(before, property) == isinstance(after, property), name
    assert isinstance(before, classmethod) == isinstance(after, classmethod), name
    if inspect.isroutine(before) or isinstance(before, classmethod):
        if after is object.__init__:
            assert len(_shape(before)) == 1
        else:
            _fits(getattr(theirs, name), getattr(found, name))


def _attributes(kind: type) -> set[str]:
    """The public attributes that a class of PFIO's, or a base of it, gives its objects."""
    found = set()
    for base in kind.__mro__:
        if base.__module__.startswith("pfio"):
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
            for node in ast.walk(tree):
                is_own = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                if is_own and isinstance(node.value, ast.Name) and node.value.id == "self":  # type: ignore[attr-defined]
                    found.add(node.attr)  # type: ignore[attr-defined]
    return {name for name in found if not name.startswith("_")}


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[dict[str, Any]]:
    v2, cache, folder = ours.v2, ours.cache, str(tmp_path)
    ZipForTest(f"{folder}/a.zip")
    with mock_aws(), make_http_server() as (_, port):
        local, s3 = v2.Local(folder), v2.S3("bucket", create_bucket=True)
        with s3.open("a", "w") as file:
            file.write("x")
        archive = local.open_zip("a.zip")
        url = f"http://localhost:{port}/"
        with archive:
            yield {
                "pfio.v2.local.Local": local,
                "pfio.v2.s3.S3": s3,
                "pfio.v2.zip.Zip": archive,
                "pfio.v2.http_cache.HTTPCachedFS": v2.HTTPCachedFS(url, local),
                "pfio.v2.local.LocalFileStat": local.stat("a.zip"),
                "pfio.v2.s3.S3ObjectStat": s3.stat("a"),
                "pfio.v2.s3.S3PrefixStat": v2.s3.S3PrefixStat("d"),
                "pfio.v2.zip.ZipFileStat": archive.stat("file"),
                "pfio.cache.naive.NaiveCache": cache.NaiveCache(4),
                "pfio.cache.file_cache.FileCache": cache.FileCache(4, dir=folder),
                "pfio.cache.multiprocess_file_cache.MultiprocessFileCache": cache.MultiprocessFileCache(4, dir=folder),
                "pfio.cache.mmap_file_cache.ReadOnlyFileCache": cache.ReadOnlyFileCache(4, dir=folder),
                "pfio.cache.http_cache.HTTPCache": cache.HTTPCache(4, url),
                "pfio.testing.ZipForTest": ZipForTest(f"{folder}/b.zip"),
            }


def test_attributes(objects: dict[str, Any]) -> None:
    wanted = {
        f"{name}.{attribute}": hasattr(value, attribute)
        for name, value in objects.items()
        for attribute in _attributes(NAMES[name])
    }
    assert {name for name, there in wanted.items() if not there} == MISSING & wanted.keys()


def test_the_own_interface_has_the_arguments_of_pfio_in_their_order() -> None:
    """A path is `path` everywhere; PFIO's names for it are those of `fsabs.compat.pfio` alone."""
    names = "open open_zip list stat isdir mkdir makedirs exists rename remove glob"
    for name in names.split():
        theirs = [one for one in _shape(getattr(pfio.v2.fs.FS, name)) if one[0] not in ("closefd", "opener", "dir_fd")]
        here = [parameter for parameter, _, _ in _shape(getattr(fsabs.FS, name))]
        wanted = [parameter for parameter, kind, _ in theirs if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        own = ["path" if one in ("file_path", "path_or_prefix") else one for one in wanted]
        assert here[: len(wanted)] == own, name
    assert [parameter for parameter, _, _ in _shape(fsabs.FS.subfs)] == ["self", "path"]
