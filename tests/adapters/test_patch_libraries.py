"""Data sets of others' libraries, with nothing changed but their root or by the lines of the page: as of local files.

Some of the libraries have an environment of their own, `.venv-libraries`, which is made when a test needs it.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy
import pandas
import pytest
import soundfile
from PIL import Image

from tests.adapters import stores
from tests.release.__main__ import kept_environment

LIBRARIES = (
    *("builtins", "os", "shutil", "glob", "pathlib"),
    *("numpy", "PIL", "cv2", "pandas", "soundfile", "h5py", "safetensors", "pyarrow", "indexed_gzip"),
)
# What a user writes where a patch does not do: the lines of the page.
RECIPES = """
import fsabs
fsabs.patch({libraries})
def tokens_of(url):
    import shutil
    return shutil.copy(url, os.path.basename(url))
def local_copy(url): return fsabs.Path(url).as_local()
def tables_of(root):
    scheme = root.partition("://")[0]
    if scheme != "corp": return "fsabs+" + root
    fsabs.register_fsspec("corp")
    return root
def of_webdataset(root):
    from webdataset.gopen import gopen_schemes
    scheme = root.partition("://")[0]
    gopen_schemes[scheme] = lambda url, mode="rb", bufsize=-1, **_: fsabs.Path(url).open(mode)
def of_mmengine(root):
    from mmengine.fileio import BaseStorageBackend, register_backend
    class Backend(BaseStorageBackend):
        def get(self, filepath): return fsabs.Path(filepath).read_bytes()
        def get_text(self, filepath, encoding="utf-8"): return fsabs.Path(filepath).read_text(encoding)
    register_backend("fsabs", Backend, prefixes=root.partition("://")[0], force=True)
def of_iopath(manager, root):
    from iopath.common.file_io import PathHandler
    class Handler(PathHandler):
        def _get_supported_prefixes(self): return [root.partition("://")[0] + "://"]
        def _open(self, path, mode="r", buffering=-1, **_): return fsabs.Path(path).open(mode)
        def _exists(self, path, **_): return fsabs.Path(path).exists()
        def _isfile(self, path, **_): return fsabs.Path(path).is_file()
        def _isdir(self, path, **_): return fsabs.Path(path).is_dir()
        def _ls(self, path, **_): return [member.name for member in fsabs.Path(path).iterdir()]
    manager.register_handler(Handler())
"""
LOCAL = """
import contextlib
def tokens_of(path): return path
local_copy = contextlib.nullcontext
def tables_of(root): return root
def of_webdataset(root): pass
def of_mmengine(root): pass
def of_iopath(manager, root): pass
"""
SCRIPT = """
import hashlib, json, os, sys, types
sys.modules["torchvision._meta_registrations"] = types.ModuleType("of operators that its build for the CPU lacks")
import numpy as np, torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset

class Listed(Dataset):  # for what has no Dataset of its own
    def __init__(self, root): self.root, self.items = root, self.names(root)
    def names(self, root): return [0]
    def __len__(self): return len(self.items)
    def __getitem__(self, index): return self.read(self.items[index])

def torchvision_folder(root):
    from torchvision.datasets import ImageFolder
    return ImageFolder(os.path.join(root, "images"))

def torchvision_coco(root):
    from torchvision.datasets import CocoDetection
    return CocoDetection(os.path.join(root, "images"), os.path.join(root, "coco.json"))

def torchvision_voc(root):
    from torchvision.datasets import VOCDetection
    return VOCDetection(root, year="2012", image_set="train")

def torchvision_cifar(root):
    from torchvision.datasets import CIFAR10
    class Small(CIFAR10):  # with digests of its own
        train_list, test_list = [], [["test_batch", hashlib.md5(BATCH).hexdigest()]]
        meta = {"filename": "batches.meta", "key": "label_names", "md5": hashlib.md5(META).hexdigest()}
    Small.__qualname__ = "Small"; globals()["Small"] = Small
    data = Small(root, train=False)
    return list(zip(map(np.asarray, data.data), data.targets))

def timm_folder(root):
    from timm.data import create_dataset
    return create_dataset("", root=os.path.join(root, "images"))

def timm_tar(root):
    from timm.data import ImageDataset
    try:
        data = ImageDataset(root + "/shard-0.tar")
        assert "://" not in root
    except OSError as exc:
        assert "as_local" in str(exc), exc
    with local_copy(root + "/shard-0.tar") as path:
        data = ImageDataset(path)
        return [data[at] for at in range(len(data))]

class Yolo(Listed):
    def names(self, root):
        from ultralytics.data.dataset import YOLODataset
        self.data = YOLODataset(img_path=os.path.join(root, "images"), imgsz=32, augment=False, prefix="",
                                data={"names": {1: "x", 0: "y"}, "channels": 3, "nc": 2}, task="detect")
        return list(range(len(self.data)))
    def read(self, index):
        found = self.data.get_image_and_label(index)
        return os.path.basename(found["im_file"]), found["img"], found["cls"], np.asarray(found["instances"].bboxes)

class Nibabel(Listed):
    def names(self, root): return ["brain.nii.gz", "brain.nii"]
    def read(self, name):
        import nibabel
        image = nibabel.load(f"{self.root}/{name}")
        return image.get_fdata(), np.asarray(image.dataobj[1]), image.affine

class Sound(Listed):
    def names(self, root): return [f"{root}/sound.wav"]
    def read(self, path):
        import soundfile
        return (*soundfile.read(path), repr(soundfile.info(path).frames) if "://" not in path else "9")

class Hdf5(Listed):
    def names(self, root):
        import h5py
        with h5py.File(os.path.join(root, "data.h5")) as file: return sorted(file)
    def read(self, name):
        import h5py
        with h5py.File(os.path.join(self.root, "data.h5"), "r") as file: return file[name][1:3]

class Pandas(Listed):
    def names(self, root): return ["csv", "json", "parquet"]
    def read(self, kind):
        import pandas
        return getattr(pandas, f"read_{kind}")(f"{self.root}/table.{kind}").to_numpy().tolist()

class Sklearn(Listed):
    def read(self, index):
        from sklearn.datasets import load_files, load_svmlight_file
        texts = load_files(os.path.join(self.root, "texts"), encoding="utf-8", shuffle=False)
        return texts.data, texts.target, load_svmlight_file(f"{self.root}/rows.svm")[0].toarray()

class Joblib(Listed):
    def names(self, root): return ["model.joblib"]
    def read(self, name):
        import joblib
        try: joblib.load(f"{self.root}/{name}", mmap_mode="r")
        except OSError as exc: assert "as_local" in str(exc), exc
        return joblib.load(f"{self.root}/{name}")["weights"]

class Webdataset(Listed):
    def read(self, index):
        import webdataset
        of_webdataset(self.root)
        shards = self.root + "/shard-{0..1}.tar"
        found = webdataset.WebDataset(shards, shardshuffle=False, workersplitter=None).decode("rgb8")
        return [(picture, label) for picture, label in found.to_tuple("png", "cls")]

class Mmengine(Listed):
    def read(self, index):
        import mmengine
        of_mmengine(self.root)
        return mmengine.load(f"{self.root}/coco.json"), mmengine.list_from_file(f"{self.root}/table.csv"), \
            mmengine.fileio.get(f"{self.root}/sound.wav")

class Iopath(Listed):
    def read(self, index):
        from iopath.common.file_io import PathManager
        manager = PathManager()
        of_iopath(manager, self.root)
        with manager.open(f"{self.root}/sound.wav", "rb") as file: sound = file.read()
        with manager.open(f"{self.root}/table.csv") as file: table = file.read()
        return sound, table, sorted(manager.ls(f"{self.root}/texts")), manager.exists(f"{self.root}/nosuch")

class Hugging(Listed):
    def names(self, root):
        import datasets
        datasets.disable_progress_bars()
        place, kinds = tables_of(root), ("csv", "json", "parquet")
        def loaded(kind, **options):
            return datasets.load_dataset(kind, data_files=f"{place}/table.{kind}", split="train", **options)
        rows = [row for kind in kinds for row in loaded(kind, streaming=True)]
        return rows + [row for kind in kinds for row in loaded(kind, cache_dir="hugging")]
    def read(self, row): return row

class NanoGPT(Listed):  # its get_batch
    def names(self, root):
        try: data = np.memmap(os.path.join(root, "train.bin"), dtype=np.uint16, mode="r")
        except OSError as exc: assert "as_local" in str(exc), exc
        self.path = tokens_of(os.path.join(root, "train.bin"))
        return list(range(5))
    def read(self, i):
        data = np.memmap(self.path, dtype=np.uint16, mode="r")
        return torch.from_numpy((data[i:i + 8]).astype(np.int64)).numpy(), data[i + 1:i + 9].astype(np.int64)

class Megatron(Listed):
    def names(self, root):
        from megatron.core.datasets.indexed_dataset import IndexedDataset
        if "://" in root:
            try: IndexedDataset(f"{root}/tokens", mmap=True)
            except OSError as exc: assert "as_local" in str(exc), exc
            else: raise AssertionError("mapped by itself")
        for suffix in (".idx", ".bin"): path = tokens_of(f"{root}/tokens{suffix}")
        self.data = IndexedDataset(path.removesuffix(".bin"), mmap=True)
        return list(range(len(self.data)))
    def read(self, index): return self.data[index]

class Lightning(Listed):  # its example of an image classifier, on a folder
    def read(self, index):
        import warnings, logging
        warnings.simplefilter("ignore")
        logging.getLogger("pytorch_lightning").setLevel("CRITICAL")
        import pytorch_lightning as pl
        from PIL import Image
        class Pictures(Dataset):
            def __init__(self, root): self.paths = sorted(os.path.join(root, name) for name in os.listdir(root))
            def __len__(self): return len(self.paths)
            def __getitem__(self, n): return torch.tensor(np.asarray(Image.open(self.paths[n])) / 255.0).float(), n % 2
        class Classifier(pl.LightningModule):
            def __init__(self):
                super().__init__()
                torch.manual_seed(1)
                self.layer = torch.nn.Linear(12 * 11 * 3, 2)
            def training_step(self, batch, _):
                return torch.nn.functional.cross_entropy(self.layer(batch[0].flatten(1)), batch[1])
            def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
        class Data(pl.LightningDataModule):
            def __init__(self, root):
                super().__init__()
                self.root = root
            def setup(self, stage=None): self.data = Pictures(os.path.join(self.root, "images", "a"))
            def train_dataloader(self): return DataLoader(self.data, 2)
        model = Classifier()
        quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
        pl.Trainer(max_epochs=2, accelerator="cpu", **quiet).fit(model, datamodule=Data(self.root))
        return model.layer.weight.detach().numpy()

def digest(value):
    if isinstance(value, (list, tuple)): return hashlib.md5("".join(map(digest, value)).encode()).hexdigest()
    if hasattr(value, "convert"): value = np.asarray(value.convert("RGB"))
    data = value.tobytes() if isinstance(value, (np.ndarray, np.generic)) else repr(value).encode()
    return hashlib.md5(data).hexdigest()

class Digests(Dataset):
    def __init__(self, data): self.data = data
    def __len__(self): return len(self.data)
    def __getitem__(self, index): return digest(self.data[index])

def whole(samples): return samples

def main(root, names, methods):
    sets = [Digests(globals()[name](root)) for name in names]
    owners = [name for name, data in zip(names, sets) for _ in range(len(data))]
    assert set(owners) == set(names)
    for method in methods:
        workers = {"num_workers": 2, "multiprocessing_context": method} if method else {}
        loader = DataLoader(ConcatDataset(sets), 3, collate_fn=whole, **workers)
        for name, found in zip(owners, [one for samples in loader for one in samples], strict=True):
            print(method, name, found)

if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
"""
BATCH = pickle.dumps({"data": numpy.arange(2 * 3072).astype("u1").reshape(2, 3072), "labels": [3, 4]})
META = pickle.dumps({"label_names": ["x"] * 10})
_EITHER = ["Nibabel", "Sound", "Hdf5", "Pandas", "Sklearn", "Joblib", "Webdataset", "Iopath", "Hugging", "NanoGPT"]
# The sets of a run, by the library that it needs.
SETS = {
    "webdataset": _EITHER,
    "megatron": ["Megatron"],
    "pytorch_lightning": ["Lightning"],
    "torchvision": ["torchvision_folder", "torchvision_voc", "torchvision_cifar"],
    "pycocotools": ["torchvision_coco"],
    "timm": ["timm_folder", "timm_tar"],
    "ultralytics": ["Yolo"],
    "mmengine": ["Mmengine"],
}
FOLDER = stores.ROOT / ".venv-libraries"
# What the others of them are in; torchvision is the one of the tests' torch.
PACKAGES = {
    "torchvision": "torchvision==0.28.0",
    "pycocotools": "pycocotools==2.0.11",
    "timm": "timm==1.0.31",
    "ultralytics": "ultralytics==8.4.190",
    "mmengine": "mmengine==0.10.7",
}


def files() -> Iterator[tuple[str, bytes]]:
    """What the data sets read."""
    random = numpy.random.default_rng(1)
    coco = {"images": [], "annotations": [], "categories": [{"id": 1, "name": "x"}]}
    pictures = {}
    for number, name in enumerate(("a/one", "a/two 2", "b/three", "b/four")):
        Image.fromarray(random.integers(0, 255, (12, 11, 3), "u1")).save(picture := io.BytesIO(), "PNG")
        pictures[f"{name}.png"] = picture.getvalue()
        coco["images"].append({"id": number, "file_name": f"{name}.png", "width": 11, "height": 12})
        coco["annotations"].append(
            {"id": number, "image_id": number, "category_id": 1, "bbox": [0, 0, 2, 2], "area": 4}
        )
        yield f"labels/{name}.txt", b"1 0.5 0.5 0.1 0.2\n" * (number + 1)
        yield f"VOCdevkit/VOC2012/JPEGImages/{number}.jpg", pictures[f"{name}.png"]
        yield f"VOCdevkit/VOC2012/Annotations/{number}.xml", b"<annotation><filename>x</filename></annotation>"
    for name, data in pictures.items():
        yield f"images/{name}", data
    yield "VOCdevkit/VOC2012/ImageSets/Main/train.txt", b"0\n1\n2\n3\n"
    yield "coco.json", json.dumps(coco).encode()
    yield "cifar-10-batches-py/test_batch", BATCH
    yield "cifar-10-batches-py/batches.meta", META
    for shard in range(2):
        with tarfile.open(fileobj=(packed := io.BytesIO()), mode="w") as archive:
            for name, data in list(pictures.items())[shard::2]:
                for suffix, content in (("png", data), ("cls", b"3")):
                    info = tarfile.TarInfo(name.replace("png", suffix).replace(" ", "_"))
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
        yield f"shard-{shard}.tar", packed.getvalue()
    table = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    yield "table.csv", table.to_csv(index=False).encode()
    yield "table.json", table.to_json(orient="records", lines=False).encode()
    yield "table.parquet", table.to_parquet()
    yield from (("texts/k/1.txt", b"one"), ("texts/l/2.txt", b"two"), ("rows.svm", b"1 1:0.5 3:2\n0 2:1\n"))
    soundfile.write(sound := io.BytesIO(), random.random(9), 8000, format="WAV")
    yield "sound.wav", sound.getvalue()
    yield from _written_by_path(random)
    yield "train.bin", bytes(range(100))


def _written_by_path(random: numpy.random.Generator) -> Iterator[tuple[str, bytes]]:
    """Files of libraries that write to a path."""
    import tempfile

    import h5py
    import joblib  # type: ignore[import-untyped]
    import nibabel
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    with tempfile.TemporaryDirectory() as folder:
        joblib.dump({"weights": random.random(9)}, f"{folder}/model.joblib")
        with h5py.File(f"{folder}/data.h5", "w") as file:
            file["x"], file["y"] = numpy.arange(9), random.random((4, 3))
        image = nibabel.Nifti1Image(random.random((3, 4, 5)), numpy.eye(4))  # type: ignore[no-untyped-call]
        nibabel.save(image, f"{folder}/brain.nii")
        builder = IndexedDatasetBuilder(f"{folder}/tokens.bin", dtype=numpy.uint16)
        for length in (3, 5):
            builder.add_document(numpy.arange(length), [length])
        builder.finalize(f"{folder}/tokens.idx")
        for path in Path(folder).iterdir():
            yield path.name, path.read_bytes()
        yield "brain.nii.gz", gzip.compress(Path(folder, "brain.nii").read_bytes())


def run(folder: Path, lines: str, root: str, names: list[str], methods: list[str | None]) -> list[str]:
    """Return what the program prints, in a folder of its own."""
    folder.mkdir()
    script = folder / "script.py"
    # Behind the packages of the tests: the cv2 there needs a display's libraries.
    found = f"import os, sys\nsys.path += {[*map(str, FOLDER.glob('lib/*/site-packages'))]}\n"
    script.write_text(f"{found}BATCH, META = {BATCH!r}, {META!r}\n{lines}{SCRIPT}")
    done = subprocess.run(
        [sys.executable, str(script), json.dumps([root, names, methods])],
        env={**os.environ, "PYTHONPATH": str(stores.ROOT), "HF_DATASETS_CACHE": str(folder / "cache")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("None ", "fork ", "spawn "))]


@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    ("library", "kind", "methods"),
    [
        ("webdataset", "nested", [None, "fork"]),
        *(
            pytest.param(library, kind, methods, marks=pytest.mark.nightly)
            for library in SETS
            for kind in ("zip on s3", "nested", "corp")
            for methods in ([None, "fork"], ["spawn"])
        ),
    ],
)
def test_samples_are_those_of_local_files(
    library: str, kind: str, methods: list[str | None], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if library in PACKAGES:
        kept_environment(FOLDER, PACKAGES.values())
    contents = dict(files())
    for name, data in contents.items():
        path = tmp_path / "local" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    names = SETS[library]
    expected = run(tmp_path / "plain", LOCAL, str(tmp_path / "local"), names, methods)
    assert len(expected) >= len(names) * len(methods)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(stores.opened("zip on s3" if kind == "nested" else kind, request, tmp_path))
        if kind == "nested":
            with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
                for name, data in contents.items():
                    archive.writestr(name, data)
            contents = {"train/inner.zip": packed.getvalue()}
        stores.fill(url, contents)
        url += "/train/inner.zip" if kind == "nested" else ""
        lines = RECIPES.format(libraries=", ".join(map(repr, LIBRARIES)))
        assert run(tmp_path / "patched", lines, url, names, methods) == expected
