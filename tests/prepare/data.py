"""Raw files, a model file, and what a plain Python loop makes of them: what every way to prepare data is held to."""

from __future__ import annotations

import errno
import hashlib
import io
import random
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from fsabs import FS
from fsabs.readers import instances
from fsabs.readers.data import RecordIODataReader, Task, shards_of

MODEL = """\
import numpy as np

feature_columns = {"image": ("uint8", (None,)), "label": "int64"}


def prepare_data_for_a_single_file(file, filename):
    return np.frombuffer(file.read(), np.uint8), np.int64(filename.split("/")[-2])
"""


def raw_files(count: int = 60, seed: int = 1) -> dict[str, bytes]:
    """Return the contents of files by their paths, and of some that are to be left out."""
    rng = random.Random(seed)
    files = {f"{n % 7}/{n:04}.jpg": rng.randbytes(rng.randrange(1, 2000)) for n in range(count)}
    return {**files, ".hidden": b"x", "3/.DS_Store": b"x", ".git/config": b"x"}


def visible(files: dict[str, bytes]) -> list[str]:
    return sorted(path for path in files if not any(part.startswith(".") for part in path.split("/")))


def write_tree(fs: FS, files: dict[str, bytes]) -> None:
    """Write files and the directories above them."""
    for path, data in files.items():
        fs.makedirs(path.rpartition("/")[0] or ".", exist_ok=True)
        fs.write_bytes(path, data)


def zipped(files: dict[str, bytes]) -> bytes:
    """Return files as a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return buffer.getvalue()


def plain_loop(files: dict[str, bytes]) -> list[bytes]:
    """Return the records of MODEL's function, called in a loop."""
    return [
        instances.encode((np.frombuffer(files[path], np.uint8), np.int64(path.split("/")[-2])))
        for path in visible(files)
    ]


def records_below(where: str | Path | FS) -> list[bytes]:
    """Return all records of a directory, by the shard reader."""
    reader = RecordIODataReader(where)
    tasks = [Task(0, name, start, start + count) for name, start, count in shards_of(reader)]
    return [record for task in tasks for record in reader.read_records(task)]


def assert_refused(where: str | Path) -> None:
    """Check that readers refuse a directory, whose data set is not complete."""
    with pytest.raises(OSError, match="fsabs prepare or convert is replacing") as caught:
        records_below(where)
    assert caught.value.errno == errno.EBUSY


def digest(records: Iterable[bytes]) -> str:
    """Return the SHA-256 of records and their lengths."""
    sha = hashlib.sha256()
    for record in records:
        sha.update(len(record).to_bytes(4, "little") + record)
    return sha.hexdigest()
