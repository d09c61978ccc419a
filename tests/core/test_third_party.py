"""Other libraries read and write through our files, as through those of `builtins.open`."""

from __future__ import annotations

import functools
import io
import tarfile
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
PIXELS = (ARRAY[:, :60] % 256).astype(np.uint8)
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


def write_image(file: Any) -> None:
    from PIL import Image

    Image.fromarray(PIXELS).save(file, "PNG")


def read_image(file: Any) -> None:
    from PIL import Image

    with Image.open(file) as found:
        assert (np.asarray(found) == PIXELS).all()


def table() -> Any:
    import pandas

    return pandas.DataFrame(ROWS, columns=["number", "text"])


def write_pandas(file: Any) -> None:
    table().to_csv(file, index=False)


def read_pandas(file: Any) -> None:
    import pandas

    assert pandas.read_csv(file, dtype=str).to_numpy().tolist() == ROWS


def write_parquet(file: Any) -> None:
    table().to_parquet(file)


def read_parquet(file: Any) -> None:
    import pyarrow.parquet

    assert pyarrow.parquet.read_table(file).column("text").to_pylist() == [row[1] for row in ROWS]


def write_hdf5(file: Any) -> None:
    import h5py

    buffer = io.BytesIO()  # HDF5 goes back and forth in what it writes
    with h5py.File(buffer, "w") as made:
        made["array"] = ARRAY
    file.write(buffer.getvalue())


def read_hdf5(file: Any) -> None:
    import h5py

    with h5py.File(file, "r") as found:
        assert (found["array"][...] == ARRAY).all()


def write_sound(file: Any) -> None:
    soundfile: Any = pytest.importorskip("soundfile")  # which the other Pythons of `make pythons` have not

    buffer = io.BytesIO()  # the length stands at the start of a WAV file
    soundfile.write(buffer, np.arange(4000, dtype=np.int16), 8000, format="WAV", subtype="PCM_16")
    file.write(buffer.getvalue())


def read_sound(file: Any) -> None:
    soundfile: Any = pytest.importorskip("soundfile")

    samples, rate = soundfile.read(file, dtype="int16")
    assert rate == 8000
    assert (samples == np.arange(4000)).all()


Action = Callable[[Any], None]
LIBRARIES: dict[str, tuple[str, Action, Action]] = {
    "zipfile": ("b", write_zipfile, read_zipfile),
    "tarfile": ("b", write_tarfile, read_tarfile),
    "numpy": ("b", write_numpy, read_numpy),
    "npz": ("b", write_npz, read_npz),
    "PIL": ("b", write_image, read_image),
    "pandas": ("b", write_pandas, read_pandas),
    "pandas text": ("", write_pandas, read_pandas),
    "parquet": ("b", write_parquet, read_parquet),
    "h5py": ("b", write_hdf5, read_hdf5),
    "soundfile": ("b", write_sound, read_sound),
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
