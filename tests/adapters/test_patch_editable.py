"""`FSABS_PATCH` in an environment with an editable installation, for a program that never imports fsabs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from tests.adapters.stores import ROOT
from tests.adapters.test_patch_installed import SOURCES

PIP = ("-m", "pip", "--disable-pip-version-check", "-q")


def _run(*command: str | Path, **environment: str) -> str:
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FSABS_PATCH")}
    done = subprocess.run(
        command, env={**variables, **environment}, capture_output=True, text=True, timeout=200, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_an_editable_installation_reads_the_variable(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    _run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env")
    python = tmp_path / "env/bin/python"
    (packages,) = (tmp_path / "env/lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(f"{Path(numpy.__file__).parents[1]}\n")
    _run(python, *PIP, "install", "--no-deps", "--no-build-isolation", "--ignore-installed", "--editable", source)
    numpy.save(tmp_path / "a.npy", numpy.arange(5))
    code = f"import numpy; print(numpy.load('file://{tmp_path}/a.npy').sum())"
    assert _run(python, "-c", code, FSABS_PATCH="numpy") == "10\n"
    code = "import sys; print([name for name in sys.modules if name.split('.')[0] == 'fsabs'])"
    assert _run(python, "-c", code) == "[]\n"
