"""A backend or a container is known everywhere by its entry in `core/registry.py`."""

from __future__ import annotations

import configparser
import difflib
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.adapters import fsspec as adapter
from fsabs.backends.fsspec import Fsspec
from fsabs.core import registry
from fsabs.core.redaction import is_harmless
from fsabs.urls import constructors, opening

pytestmark = pytest.mark.quick
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("scheme", sorted(registry.BUILTIN_SCHEMES))
def test_a_scheme_has_a_filesystem_of_fsspec_and_its_misspelt_options_are_corrected(scheme: str) -> None:
    setup = configparser.RawConfigParser()
    setup.read(ROOT / "setup.cfg")
    entries = dict(line.split(" = ") for line in setup["options.entry_points"]["fsspec.specs"].strip().split("\n"))
    module, _, name = entries[f"fsabs+{scheme}"].partition(":")
    assert (module, getattr(adapter, name).protocol) == (adapter.__name__, (f"fsabs+{scheme}",))
    known = [*constructors.known_options(registry.backend(scheme) or fsabs.FS)]
    for option in known:
        wrong: dict[str, Any] = {option + "x": 1}
        (near,) = difflib.get_close_matches(option + "x", known, n=1)
        with pytest.raises(TypeError, match=f"no option '{option}x'; did you mean '{near}'"):
            fsabs.from_url(f"{scheme}://name/path", **wrong)


def test_a_container_is_known_by_its_suffix() -> None:
    for name, container in {
        "a.zip": "zip",
        "a.ZIP": "zip",
        "a.b.tar.gz": "tar",
        "a.tgz": "tar",
        "a.gz": None,
        "zip": None,
        ".zip": "zip",
        "a.h5": "hdf5",
        "a.npz": None,
    }.items():
        assert registry.container_of(name) == container, name


def test_fsspecs_filesystem_serves_a_scheme_that_has_a_backend() -> None:
    with fsabs.from_url("memory://tree/d", fsspec=True, create=True) as fs:
        assert isinstance(fs, Fsspec)
        fs.write_bytes("a.txt", b"by fsspec")
        assert fs.implementation.cat_file("/tree/d/a.txt") == b"by fsspec"
    with fsabs.from_url("memory://tree/d", fsspec=False, create=True) as fs:
        assert isinstance(fs, fsabs.Memory)
    fsabs.add_custom_scheme("mine", "memory", {"fsspec": "yes"})
    with fsabs.from_url("mine://tree/d") as fs:
        assert fs.read_bytes("a.txt") == b"by fsspec"
    with fsabs.from_url("mine://tree/d", fsspec=False, create=True) as fs:
        assert isinstance(fs, fsabs.Memory)
    assert is_harmless(opening.FSSPEC)
