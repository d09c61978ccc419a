"""Other libraries, as people use them before they come here: each in a folder of the tests' cache, for PYTHONPATH.

They are installed without their requirements, and with those that the tests' environment has not: s3fs wants an older
botocore, and litdata and streaming want torchvision, which PyPI has for CUDA only. What streaming imports of it, for
classes that no test uses, is in a folder of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.servers.hdfs_jvm import cache_dir
from tests.servers.process import locked

PACKAGES = {
    "adlfs": "adlfs==2026.8.0 azure-storage-blob==12.31.1 isodate==0.7.2",
    "gcsfs": "gcsfs==2026.10.1 decorator==5.3.1 google-api-core==2.44.0 google-auth-oauthlib==1.5.0 "
    "google-cloud-core==2.8.0 google-cloud-storage==3.17.1 google-cloud-storage-control==1.17.0 "
    "google-resumable-media==2.11.0 googleapis-common-protos==1.76.0 grpc-google-iam-v1==0.14.6 grpcio==1.85.3 "
    "grpcio-status==1.85.3 oauthlib==4.0.1 proto-plus==1.29.0 requests-oauthlib==2.0.0",
    "litdata": "litdata==0.2.76",
    "multi-storage-client": "multi-storage-client==1.3.1 bracex==3.2.2 lark==1.3.1 prettytable==3.18.0 "
    "pyroute2==0.9.7 tzdata==2025.3 wcmatch==10.2.1 wcwidth==0.9.4 xattr==1.3.0",
    "s3fs": "s3fs==2026.9.0 aiobotocore==3.10.0 aioitertools==0.13.0 botocore==1.43.117 wrapt==2.5.2",
    "smart_open": "smart_open==9.0.2 wrapt==2.5.2",
    "streaming": "mosaicml-streaming==0.13.0 Brotli==1.2.1 catalogue==2.0.10 cramjam==2.14.0 python-snappy==0.7.3 "
    "xxhash==3.8.2 zstd==1.5.7.2",
    "webdataset": "webdataset==1.0.2 braceexpand==0.1.7",
}
_TORCHVISION = {
    "__init__.py": "",
    "datasets.py": "VisionDataset = CIFAR10 = object\n",
    "transforms/__init__.py": "",
    "transforms/functional.py": "to_tensor = None\n",
}


def folder(name: str) -> Path:
    """Return the folder of a library."""
    version = f"{sys.version_info.major}.{sys.version_info.minor} {PACKAGES[name]}"
    return cache_dir() / f"peer-{name}-{hashlib.sha256(version.encode()).hexdigest()[:12]}"


def missing() -> str | None:
    """Return None if all are there, else a sentence that says what is missing."""
    absent = [name for name in PACKAGES if not folder(name).is_dir()]
    return f"Not there: {', '.join(absent)}: run `python -m tests.servers install`." if absent else None


def install() -> None:
    """Install those that are not there, by pip; safe in several processes at once and to kill."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    for name, packages in PACKAGES.items():
        target = folder(name)
        with locked(target.with_name(f"{target.name}.lock")):
            if target.is_dir():
                continue
            with tempfile.TemporaryDirectory(dir=target.parent, prefix="peer-download-") as tmp:
                fresh = Path(tmp, "fresh")
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
                command = [*pip, "--no-compile", "--target", str(fresh), *packages.split()]
                environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
                if name == "streaming":
                    for path, text in _TORCHVISION.items():
                        module = fresh / "torchvision" / path
                        module.parent.mkdir(parents=True, exist_ok=True)
                        module.write_text(text)
                shutil.move(fresh, target)
