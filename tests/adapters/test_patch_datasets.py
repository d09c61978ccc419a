"""Data sets as others write them, with nothing changed but their root: the samples are those of local files."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
import pandas
import pytest
import soundfile
from PIL import Image

import fsabs
from tests.adapters import stores

LIBRARIES = ("builtins", "os", "shutil", "glob", "pathlib", "numpy", "PIL", "cv2", "pandas", "soundfile", "h5py")

SCRIPT = """
import bisect, csv, glob, hashlib, json, os, pickle, sys
from os import listdir
from os.path import isfile, join, splitext
from pathlib import Path
from functools import partial
import cv2, h5py, joblib, numpy as np, pandas as pd, soundfile, torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

class ImageFolder(Dataset):  # folders of classes, found by scandir and walk
    def __init__(self, root):
        root = os.path.expanduser(os.path.join(root, "images"))
        classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.samples = []
        for number, name in enumerate(classes):
            directory = os.path.join(root, name)
            if not os.path.isdir(directory): continue
            for top, _, names in sorted(os.walk(directory, followlinks=True)):
                self.samples += [(os.path.join(top, name), number) for name in sorted(names) if name.endswith(".png")]
    def __len__(self): return len(self.samples)
    def __getitem__(self, index):
        path, number = self.samples[index]
        with open(path, "rb") as file: return np.asarray(Image.open(file).convert("RGB")), number

class Entries(Dataset):  # passes the entries themselves on
    def __init__(self, root):
        self.paths = [entry for entry in os.scandir(os.path.join(root, "images", "a")) if entry.is_file()]
        self.paths.sort(key=lambda entry: entry.name)
    def __len__(self): return len(self.paths)
    def __getitem__(self, index): return np.asarray(Image.open(self.paths[index])), os.stat(self.paths[index]).st_size

class Captions(Dataset):  # an index in JSON, and the names in it
    def __init__(self, root):
        self.root = Path(root) / "images"
        with open(Path(root) / "captions.json") as file: self.items = json.load(file)["images"]
    def __len__(self): return len(self.items)
    def __getitem__(self, index):
        image = cv2.imread(os.path.join(self.root, self.items[index]["file_name"]), cv2.IMREAD_COLOR)
        return cv2.cvtColor(image, cv2.COLOR_BGR2RGB), self.items[index]["id"]

class Masks(Dataset):  # pairs of an image and its mask, by the stem, as U-Nets read them
    def __init__(self, root):
        self.images_dir, self.mask_dir = Path(root) / "images" / "a", Path(root) / "masks"
        self.ids = [splitext(file)[0] for file in sorted(listdir(self.images_dir))
                    if isfile(join(self.images_dir, file)) and not file.startswith(".")]
        if not self.ids: raise RuntimeError(f"No input file found in {self.images_dir}")
    def __len__(self): return len(self.ids)
    def load(self, filename):
        ext = splitext(filename)[1]
        return np.load(filename) if ext == ".npy" else np.asarray(Image.open(filename))
    def __getitem__(self, index):
        name = self.ids[index]
        mask_file = list(self.mask_dir.glob(name + "_mask.*"))
        img_file = list(self.images_dir.glob(name + ".*"))
        assert len(img_file) == 1 and len(mask_file) == 1
        return self.load(img_file[0]), self.load(mask_file[0])

class Boxes(Dataset):  # images by a recursive glob, labels by a replaced part of the path, as detectors read them
    def __init__(self, root):
        p = Path(os.path.abspath(root)) / "images"
        assert p.is_dir()
        files = glob.glob(str(p / "**" / "*.*"), recursive=True)
        self.files = sorted(f.replace("/", os.sep) for f in files if f.rpartition(".")[-1].lower() == "png")
        self.labels = [f.replace("/images/", "/labels/").rsplit(".", 1)[0] + ".txt" for f in self.files]
        self.hash = sum(os.path.getsize(f) for f in self.files + self.labels if os.path.exists(f))
    def __len__(self): return len(self.files)
    def __getitem__(self, index):
        label = np.zeros((0, 5), "f4")
        if os.path.isfile(self.labels[index]):
            with open(self.labels[index], encoding="utf-8") as f:
                label = np.array([x.split() for x in f.read().strip().splitlines() if len(x)], "f4")
        with open(self.files[index], "rb") as f: image = cv2.imdecode(np.frombuffer(f.read(), "u1"), 1)
        top = os.path.dirname(self.files[0])
        assert os.path.samefile(os.path.join(top, os.path.relpath(self.files[index], top)), self.files[index])
        return image, label, self.hash

class Batches(Dataset):  # pickled batches with a digest
    def __init__(self, root):
        path = os.path.join(root, "batch.pkl")
        with open(path, "rb") as file: digest = hashlib.md5(file.read()).hexdigest()
        if not os.access(path, os.R_OK) or digest != open(path + ".md5").read(): raise RuntimeError("corrupted")
        with open(path, "rb") as file: self.data = pickle.load(file, encoding="latin1")["data"]
    def __len__(self): return len(self.data)
    def __getitem__(self, index): return self.data[index]

class Tables(Dataset):  # what libraries read by name
    def __init__(self, root):
        self.root = root
        self.table = pd.read_csv(f"{root}/table.csv")
        self.lines = list(csv.reader(open(os.path.join(root, "table.csv"), newline="")))
    def __len__(self): return len(self.table)
    def __getitem__(self, index):
        sound = soundfile.read(os.path.join(self.root, "sound.wav"))[0]
        array = np.load(Path(self.root) / "array.npy")
        return self.lines[index], sound[index], array[index], joblib.load(open(f"{self.root}/model.joblib", "rb"))

class Mapped(Dataset):  # tokens, mapped
    def __init__(self, root): self.tokens = np.memmap(os.path.join(root, "train.bin"), dtype="u2", mode="r")
    def __len__(self): return 1
    def __getitem__(self, index): return np.array(self.tokens)

SETS = [ImageFolder, Entries, Captions, Masks, Boxes, Batches, Tables, Mapped]

def whole(samples): return samples

def main(roots, methods):
    for root in roots:
        for kind in SETS:
            try: data = kind(root)
            except OSError as exc:
                print(kind.__name__, "says as_local" if "as_local" in str(exc) else exc)
                continue
            for method in methods:
                if method == "spawn" and kind not in (Masks, Boxes): continue  # which take long to start
                workers = 2 if method else 0
                loader = DataLoader(data, 2, collate_fn=whole, num_workers=workers, multiprocessing_context=method)
                digest = hashlib.sha256()
                for samples in loader:
                    for sample in samples:
                        for part in sample if isinstance(sample, tuple) else (sample,):
                            digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
                print(kind.__name__, len(data), digest.hexdigest())

if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
"""
SETS = ("ImageFolder", "Entries", "Captions", "Masks", "Boxes", "Batches", "Tables", "Mapped")


def _bytes(save: object, *given: object, **named: object) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *given, **named)  # type: ignore[operator]
    return buffer.getvalue()


def files() -> dict[str, bytes]:
    """What the data sets read; some names are quoted in a URL."""
    random = numpy.random.default_rng(1)
    found = {}
    names = [f"images/{kind}/{name}.png" for kind in "ab" for name in ("one", "two 2", "50%25")]
    for name in names:
        picture = Image.fromarray(random.integers(0, 255, (9, 8, 3), "u1"))
        found[name] = _bytes(lambda file, picture=picture: picture.save(file, "PNG"))
        if "/a/" in name:
            found["masks/" + name.rpartition("/")[2].replace(".png", "_mask.npy")] = _bytes(
                numpy.save, random.random(9)
            )
            found[name.replace("images/", "labels/").replace(".png", ".txt")] = b"1 0.5 0.5 0.1 0.2\n" * 2
    items = [{"file_name": name.removeprefix("images/"), "id": at} for at, name in enumerate(names) if "%" not in name]
    batch = pickle.dumps({"data": list(range(7))})
    found |= {"captions.json": json.dumps({"images": items}).encode(), "batch.pkl": batch}
    found |= {"batch.pkl.md5": hashlib.md5(batch).hexdigest().encode(), "table.csv": b"a,b\n1,x\n2,y\n"}
    found |= {"array.npy": _bytes(numpy.save, random.random(9)), "train.bin": bytes(range(100))}
    found["sound.wav"] = _bytes(soundfile.write, random.random(9), 8000, format="WAV")
    found["model.joblib"] = pickle.dumps(pandas.Series([1, 2]).to_dict())
    return found


def run(script: Path, line: str, roots: list[str], methods: list[str | None]) -> list[str]:
    """Return what the program prints."""
    script.write_text(line + SCRIPT)
    command = [sys.executable, str(script), json.dumps([roots, methods])]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(stores.ROOT)}, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("kind", "methods"),
    [
        ("nested", [None, "fork"]),
        *(
            pytest.param(kind, [method], marks=pytest.mark.nightly)
            for kind in ("zip on s3", "nested", "corp")
            for method in (None, "fork", "spawn")
        ),
    ],
)
def test_samples_are_those_of_local_files(
    kind: str, methods: list[str | None], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    contents = files()
    local = tmp_path / "local"
    for name, data in contents.items():
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        (local / name).write_bytes(data)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(stores.opened("zip on s3" if kind == "nested" else kind, request, tmp_path))
        line = f"import fsabs; fsabs.patch{LIBRARIES}\n"
        if kind == "nested":
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w") as archive:
                for name, data in contents.items():
                    archive.writestr(name, data)
            stores.fill(url, {"train/inner.zip": packed.getvalue()})
            url += "/train/inner.zip"
        else:
            stores.fill(url, contents)
        found = run(tmp_path / "patched.py", line, [url], methods)
    expected = [text for text in run(tmp_path / "plain.py", "", [str(local)], methods) if "Mapped" not in text]
    assert len(expected) == (2 if "spawn" in methods else len(methods) * (len(SETS) - 1))
    assert found == [*expected, "Mapped says as_local"]


def test_the_line_that_the_error_says(tmp_path: Path) -> None:
    with fsabs.Memory("tokens") as fs, fsabs.patch("numpy"):
        fs.write_bytes("train.bin", bytes(range(100)))
        url = "memory://tokens/train.bin"
        with pytest.raises(OSError, match="as_local"):
            numpy.memmap(url, dtype="u2", mode="r")
        with fsabs.Path(url).as_local() as path:
            tokens = numpy.memmap(path, dtype="u2", mode="r")
        assert tokens.tobytes() == bytes(range(100))
