"""Other libraries read and write through our files, as through those of `builtins.open`."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
import pickle
import subprocess
import sys
import tarfile
import wave
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsabs

pytestmark = pytest.mark.quick
ROWS = [[str(number), f"text {number}"] for number in range(500)]
ARRAY = np.arange(6000, dtype=np.float32).reshape(60, 100)
CONTENTS = {"a.txt": b"text\n" * 1000, "b.bin": bytes(range(256)) * 40}


def write_zipfile(file: Any) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in CONTENTS.items():
            archive.writestr(name, data)


def read_zipfile(file: Any) -> None:
    assert zipfile.is_zipfile(file)
    with zipfile.ZipFile(file) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == CONTENTS


def write_tarfile(file: Any) -> None:
    with tarfile.open(fileobj=file, mode="w|gz") as archive:
        for name, data in CONTENTS.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def read_tarfile(file: Any) -> None:
    with tarfile.open(fileobj=file) as archive:
        members: Any = {info.name: archive.extractfile(info) for info in archive}
        assert {name: member.read() for name, member in members.items()} == CONTENTS


def write_gzip(file: Any) -> None:
    with gzip.open(file, "wb") as packed:
        packed.write(CONTENTS["b.bin"])


def read_gzip(file: Any) -> None:
    with gzip.open(file) as packed:
        assert packed.read() == CONTENTS["b.bin"]


def write_numpy(file: Any) -> None:
    np.save(file, ARRAY)


def read_numpy(file: Any) -> None:
    assert (np.load(file) == ARRAY).all()


def write_npz(file: Any) -> None:
    np.savez_compressed(file, array=ARRAY, other=ARRAY[0])


def read_npz(file: Any) -> None:
    with np.load(file) as found:
        assert (found["array"] == ARRAY).all()
        assert (found["other"] == ARRAY[0]).all()


def write_pickle(file: Any) -> None:
    pickle.dump({"rows": ROWS, "array": ARRAY}, file)


def read_pickle(file: Any) -> None:
    found = pickle.load(file)
    assert found["rows"] == ROWS
    assert (found["array"] == ARRAY).all()


def write_image(file: Any) -> None:
    image: Any = pytest.importorskip("PIL.Image")
    image.fromarray((ARRAY[:, :60] % 256).astype(np.uint8)).save(file, "PNG")


def read_image(file: Any) -> None:
    image: Any = pytest.importorskip("PIL.Image")
    with image.open(file) as found:
        assert (np.asarray(found) == (ARRAY[:, :60] % 256).astype(np.uint8)).all()


def write_pandas(file: Any) -> None:
    pandas: Any = pytest.importorskip("pandas")
    pandas.DataFrame(ROWS, columns=["number", "text"]).to_csv(file, index=False)


def read_pandas(file: Any) -> None:
    pandas: Any = pytest.importorskip("pandas")
    assert pandas.read_csv(file, dtype=str).to_numpy().tolist() == ROWS


def write_parquet(file: Any) -> None:
    pandas: Any = pytest.importorskip("pandas")
    pandas.DataFrame(ROWS, columns=["number", "text"]).to_parquet(file)


def read_parquet(file: Any) -> None:
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(file).column("text").to_pylist() == [row[1] for row in ROWS]


def write_arrow(file: Any) -> None:
    pyarrow: Any = pytest.importorskip("pyarrow")
    table = pyarrow.table({"text": [row[1] for row in ROWS]})
    with pyarrow.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def read_arrow(file: Any) -> None:
    pyarrow: Any = pytest.importorskip("pyarrow")
    assert pyarrow.ipc.open_stream(file).read_all().column("text").to_pylist() == [row[1] for row in ROWS]


def write_hdf5(file: Any) -> None:
    h5py: Any = pytest.importorskip("h5py")
    buffer = io.BytesIO()  # HDF5 goes back and forth in what it writes
    with h5py.File(buffer, "w") as made:
        made["array"] = ARRAY
    file.write(buffer.getvalue())


def read_hdf5(file: Any) -> None:
    h5py: Any = pytest.importorskip("h5py")
    with h5py.File(file, "r") as found:
        assert (found["array"][...] == ARRAY).all()


def write_sound(file: Any) -> None:
    with io.BytesIO() as buffer:  # the length stands at the start of a WAV file
        with wave.open(buffer, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(8000)
            sound.writeframes(np.arange(4000, dtype=np.int16).tobytes())
        file.write(buffer.getvalue())


def read_sound(file: Any) -> None:
    soundfile: Any = pytest.importorskip("soundfile")
    samples, rate = soundfile.read(file, dtype="int16")
    assert rate == 8000
    assert (samples == np.arange(4000)).all()


def write_csv(file: Any) -> None:
    csv.writer(file).writerows(ROWS)


def read_csv(file: Any) -> None:
    assert list(csv.reader(file)) == ROWS


def write_json(file: Any) -> None:
    json.dump(ROWS, file)


def read_json(file: Any) -> None:
    assert json.load(file) == ROWS


Action = Callable[[Any], None]
LIBRARIES: dict[str, tuple[str, Action, Action]] = {
    "zipfile": ("b", write_zipfile, read_zipfile),
    "tarfile": ("b", write_tarfile, read_tarfile),
    "gzip": ("b", write_gzip, read_gzip),
    "numpy": ("b", write_numpy, read_numpy),
    "npz": ("b", write_npz, read_npz),
    "pickle": ("b", write_pickle, read_pickle),
    "PIL": ("b", write_image, read_image),
    "pandas": ("b", write_pandas, read_pandas),
    "pandas text": ("", write_pandas, read_pandas),
    "parquet": ("b", write_parquet, read_parquet),
    "pyarrow": ("b", write_arrow, read_arrow),
    "h5py": ("b", write_hdf5, read_hdf5),
    "soundfile": ("b", write_sound, read_sound),
    "csv": ("", write_csv, read_csv),
    "json": ("", write_json, read_json),
}


CONTAINERS: dict[str, dict[str, Any]] = {"a.zip": {}, "b.zip": {"compression": "deflated"}, "a.tar.gz": {}, "a.h5": {}}


def places(folder: Path) -> Iterator[tuple[fsabs.FS, fsabs.FS | None]]:
    """What is written to, and what is read from once that is closed; None: the same."""
    yield fsabs.Local(folder), None
    yield fsabs.Memory(), None
    for name, options in CONTAINERS.items():
        read = fsabs.lazify(functools.partial(fsabs.from_url, f"{folder}/{name}"))
        yield fsabs.Local(folder).open_container(name, "w", **options), read
    yield fsabs.from_url(str(folder), cache=str(folder / "cache")), None


@pytest.mark.filterwarnings("ignore:a cache around local files")
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_writes_and_reads(library: str, tmp_path: Path) -> None:
    kind, write, read = LIBRARIES[library]
    for written, found in places(tmp_path):
        with written.open("file", "w" + kind, newline=None if kind else "") as file:
            write(file)
        if found is not None:
            written.close()
        with (found or written).open("file", "r" + kind, newline=None if kind else "") as file:
            read(file)


MISSING = """
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
USES = {
    "h5py": ("memory.open_container('a.h5')", "h5py"),
    "boto3": ("fsabs.from_url('s3://bucket/x', region='eu-west-1').read_bytes('y')", "boto3"),
    "pyarrow": ("memory.arrow()", "pyarrow"),
    "fsspec": ("fsabs.from_url('github://x/y')", "fsspec"),
    "zstandard": ("memory.open_container('a.tar.zst', 'w')", "zstandard"),
    "hdfs_native": ("fsabs.from_url('hdfs://localhost:9/x').read_bytes('y')", "hdfs-native"),
}


@pytest.mark.parametrize("package", USES)
def test_a_missing_package_is_named_with_what_to_install(package: str) -> None:
    use, name = USES[package]
    script = MISSING.format(package=package, use=use)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("MissingDependencyError"), done.stdout + done.stderr
    assert name in done.stdout
    assert "pip install" in done.stdout
