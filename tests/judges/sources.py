"""The sources that suites have their tests or files from: source distributions of PyPI, source packages of Debian."""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path

from tests.judges.suites import Suite
from tests.release.__main__ import call

APT = Path("/etc/apt")


def folder_of(suite: Suite, sources: Path) -> Path:
    """Return where a source distribution is unpacked."""
    name, _, version = suite.package.partition("==")
    return sources / f"{name.replace('-', '_')}-{version}"


def fetch(suite: Suite, sources: Path) -> None:
    """Download what a suite needs, and unpack it, unless it is there."""
    if suite.sdist and not folder_of(suite, sources).exists():
        name = suite.package.partition("==")[0]
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps")
        call(*pip, "--no-binary", name, "--dest", sources, suite.package)  # what builds it comes as wheels
        unpack(sources / f"{folder_of(suite, sources).name}.tar.gz", sources)
    if suite.debian and not [*sources.glob(f"{suite.debian}-*")]:
        unpack(debian(suite.debian, sources / "debian"), sources)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar."""
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")


def debian(package: str, folder: Path) -> Path:
    """Return the archive of a source package, of the release of this machine; apt's own lists are left as they are."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    # Beside the lines `deb`, a machine rarely has the lines `deb-src`.
    stanzas = [part for path in APT.glob("sources.list.d/*.sources") for part in path.read_text().split("\n\n")]
    mine = [part.replace("Types: deb\n", "Types: deb-src\n") for part in stanzas if "debian-archive-keyring" in part]
    (folder / "debian.sources").write_text("\n\n".join(mine))
    options = [
        f"-oDir::Etc::SourceList={os.devnull}",
        f"-oDir::Etc::SourceParts={folder}",
        f"-oDir::State::Lists={folder / 'lists'}",
        f"-oDir::Cache={folder / 'cache'}",
    ]
    call("apt-get", *options, "update", cwd=folder)
    call("apt-get", *options, "source", "--download-only", package, cwd=folder)
    (archive,) = folder.glob("*.orig.tar.*z")
    return archive
