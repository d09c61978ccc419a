"""`FSABS_PATCH` in an environment that the wheel is installed in: for programs that never import fsabs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
import pytest

from tests.adapters.stores import ROOT

pytestmark = [pytest.mark.quick, pytest.mark.timeout(180)]

SOURCES = ("fsabs", "setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "fsabs_patch.pth")
PROGRAM = """
import multiprocessing, sys
import numpy
def total(path): return int(numpy.load(path).sum())
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(total(sys.argv[1]), pool.apply(total, [sys.argv[1]]))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel; its other packages are those of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    _run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)])
    (wheel,) = folder.glob("*.whl")
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")])
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        assert "fsabs_patch.pth" in archive.namelist()
        archive.extractall(packages)
    (packages / "others.pth").write_text(f"{Path(numpy.__file__).parents[1]}\n")
    return folder / "env" / "bin" / "python"


def _run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FSABS_PATCH")}
    done = subprocess.run(
        command, env={**variables, **environment}, capture_output=True, text=True, timeout=150, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_program_that_imports_no_fsabs_and_what_it_starts(python: Path, tmp_path: Path) -> None:
    numpy.save(tmp_path / "a.npy", numpy.arange(5))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(tmp_path / "a.npy", "in/a.npy")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = _run(
        [str(python), str(tmp_path / "program.py"), f"file://{tmp_path}/a.zip/in/a.npy"], FSABS_PATCH="numpy,cv2"
    )
    assert (done.stdout, done.stderr) == ("10 10\n", "")


def test_nothing_is_imported_without_the_variable(python: Path) -> None:
    code = "import sys; print([name for name in sys.modules if name.split('.')[0] == 'fsabs'])"
    for environment in ({}, {"FSABS_PATCH": ""}):
        assert _run([str(python), "-c", code], **environment).stdout == "[]\n"


def test_a_mistake_in_the_variable_ends_no_program(python: Path) -> None:
    done = _run([str(python), "-c", "print('works')"], FSABS_PATCH="nonesuch")
    assert done.stdout == "works\n"
    assert "'nonesuch' can't be patched" in done.stderr
