"""`python -m tests.release [EXTRA...]`: build the wheel and the source distribution, and try both.

The source distribution is built from this tree, the wheel from the source distribution. One environment holds
the wheel and what it requires, one for each extra what that requires beside it, on the oldest Python in the lowest
versions that setup.cfg asks for: all other tests have the newest. The checks run in an empty folder with an empty HOME.
Last, tests and the README's code run from the unpacked source distribution, which is complete.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from tests.release import checks
from tests.servers.process import locked

ROOT = Path(__file__).parents[2]
EXTRAS = [name for name in checks.CHECKS if name != "required"]
AT_ONCE = 2
"""Most of the time one process works, or waits for the package index."""
OLDEST = (3, 11)
"""The Python for which each package has a wheel in its lowest version."""
NOT_IN_SDIST = {".gitignore"}
FROM_SDIST = ("tests/test_architecture.py", "tests/test_docs.py", "-k", "not page_runs or README")
"""The code of the other pages runs where the tests do, and each of their files is in the source distribution."""


def call(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a program to its end; return what it prints. Its output is shown, and this program ends, if it fails."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FSABS_"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**env, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(
    folder: Path, *requirements: str | Path, beside: Path | None = None, versions: Iterable[str] = ()
) -> Path:
    """Make a virtual environment with these requirements, in these `versions`; it finds the packages of `beside`."""
    call(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin/python"
    if beside is not None:
        # With what the `.pth` files there lead to.
        (packages(folder) / "beside.pth").write_text(f"import site; site.addsitedir({str(packages(beside))!r})\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    known = folder / "constraints.txt"  # torch's newest may come with gigabytes for GPUs, and so does its lowest
    known.write_text("\n".join((f"torch=={importlib.metadata.version('torch')}", *versions)))
    call(*pip, "install", "--quiet", "--no-compile", "--constraint", known, *requirements)
    call(*pip, "check")
    return python


def kept_environment(folder: Path, requirements: Iterable[str]) -> Path:
    """Return an environment that finds the packages of the tests, too; made anew if its requirements are others."""
    wanted, stamp = sorted(requirements), folder / "packages.txt"
    with locked(folder.with_suffix(".lock")):
        if not stamp.exists() or stamp.read_text().split() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            environment(folder, *wanted, beside=Path(sys.prefix))
            stamp.write_text("\n".join(wanted))
    return folder


def lowest() -> list[str]:
    """Return the lowest version of each package that users are asked for, as pip's constraints; none for torch."""
    found: dict[str, Version] = {}
    for one in map(Requirement, importlib.metadata.requires("fsabs") or ()):
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in EXTRAS):
            bounds = [Version(bound.version) for bound in one.specifier if bound.operator == ">="]
            found[one.name] = max([*bounds, found.get(one.name, Version("0"))])
    return [f"{name}=={version}" for name, version in found.items() if name != "torch"]


def packages(folder: Path) -> Path:
    """Return the folder of an environment's packages."""
    return next(folder.glob("lib/*/site-packages"))


def build(folder: Path) -> tuple[Path, Path]:
    """Build from a copy of what is committed or would be; return the source distribution and the wheel."""
    python = environment(folder / "build", "build")
    source = folder / "source"
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    call(python, "-m", "build", "--outdir", folder / "dist", source)
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return sdist, wheel


def tracked() -> list[str]:
    """Return the paths of this repository's files."""
    listed = call("git", "ls-files", "--cached", "--others", "--exclude-standard").split("\n")
    return sorted(name for name in listed if name and (ROOT / name).is_file())


def check_contents(sdist: Path, wheel: Path) -> None:
    """Check that the source distribution has each file of the repository, and the wheel each of the package."""
    wanted = set(tracked())
    with tarfile.open(sdist) as archive:
        missing = wanted - NOT_IN_SDIST - {member.name.partition("/")[2] for member in archive}
    with zipfile.ZipFile(wheel) as installed:
        names = {name for name in installed.namelist() if ".dist-info/" not in name}
    package = {name for name in wanted if name.startswith("fsabs/")} | {"fsabs_patch.pth"}
    if missing or names != package:
        sys.exit(f"not in {sdist.name}: {sorted(missing)}; {wheel.name} differs by {sorted(names ^ package)}")


def check(name: str, python: Path, folder: Path) -> None:
    """Run one check in an empty folder, and show how large the packages of its environment are."""
    (empty := folder / f"empty-{name}").mkdir()
    program = shutil.copy(checks.__file__, folder / "checks.py")
    call(python, "-I", program, name, cwd=empty, HOME=str(empty), HADOOP_CONF_DIR="", CLASSPATH="")
    sizes = {path.name: _size(path) for path in packages(python.parents[1]).iterdir()}
    largest = sorted((size, found) for found, size in sizes.items() if size > 10**6)[::-1]
    shown = ", ".join(f"{found} {size / 1e6:.0f}" for size, found in largest)
    print(f"{name}: {sum(sizes.values()) / 1e6:.0f} MB ({shown})", flush=True)


def _size(path: Path) -> int:
    return sum(one.stat().st_size for one in (path.rglob("*") if path.is_dir() else [path]) if one.is_file())


def check_sdist(sdist: Path, folder: Path) -> None:
    """Run tests from the unpacked source distribution, with the libraries of this environment."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (root,) = (folder / "unpacked").iterdir()
    print(call(sys.executable, "-m", "pytest", "-q", *FROM_SDIST, cwd=root, PYTHONPATH=str(root)).splitlines()[-1])


def main(extras: list[str]) -> None:
    """Build and check everything, or the extras that are named."""
    with tempfile.TemporaryDirectory(prefix="fsabs-release-") as name:
        folder = Path(name)
        sdist, wheel = build(folder)
        print(f"{sdist.name} {_size(sdist) / 1e6:.1f} MB, {wheel.name} {_size(wheel) / 1e6:.1f} MB")
        check_contents(sdist, wheel)
        versions = lowest() if sys.version_info[:2] == OLDEST else ()
        check("required", environment(folder / "required", wheel, versions=versions), folder)

        def check_extra(extra: str) -> None:
            wanted = f"{wheel}[{extra}]"
            check(extra, environment(folder / extra, wanted, beside=folder / "required", versions=versions), folder)
            shutil.rmtree(folder / extra)

        with ThreadPoolExecutor(AT_ONCE) as threads:
            unpacked = threads.submit(check_sdist, sdist, folder)
            list(threads.map(check_extra, extras or EXTRAS))
            unpacked.result()


if __name__ == "__main__":
    main(sys.argv[1:])
