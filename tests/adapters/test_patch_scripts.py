"""Programs on every store, with one line added: a patch, or the import that applies what the environment names."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import cv2
import h5py
import numpy
import pytest

from tests.adapters import stores

PICTURE = numpy.random.default_rng(1).integers(0, 255, (24, 32, 3), dtype=numpy.uint8)
PICTURES = 4
LIBRARIES = ("cv2", "numpy", "pandas", "torch", "h5py")

SCRIPT = """
import json, sys
import cv2, h5py, numpy as np, pandas as pd, torch
class Pictures(torch.utils.data.Dataset):
    def __init__(self, root, names): self.root, self.names = root, names
    def __len__(self): return len(self.names)
    def __getitem__(self, n): return int(cv2.imread(self.root + "/" + self.names[n]).sum()), self.rows(n)
    def rows(self, n):
        with h5py.File(self.root + "/data.bin", "r") as file: return int(file["x"][n])
def main(root, target, *methods):
    table = pd.read_csv(root + "/names.csv")
    weights = np.load(root + "/weights.npy")
    for method in methods:
        pictures = Pictures(root, list(table["name"]))
        workers = 2 if method == "fork" else 1
        loader = torch.utils.data.DataLoader(pictures, 2, num_workers=workers, multiprocessing_context=method)
        total = sum(int(a.sum()) + int(b.sum()) for a, b in loader)
        print(method, total)
    torch.save({"w": torch.tensor(weights), "total": total}, target + "/model.pt")
    loaded = torch.load(target + "/model.pt")
    print(loaded["w"].tolist(), loaded["total"])
if __name__ == "__main__":
    for place in json.loads(sys.argv[1]):
        main(*place)
"""


def files() -> dict[str, bytes]:
    """What the program reads."""
    numpy.save(weights := io.BytesIO(), numpy.arange(4))
    with h5py.File(rows := io.BytesIO(), "w") as file:
        file["x"] = numpy.arange(PICTURES)
    names = "name\n" + "".join(f"{number}.png\n" for number in range(PICTURES))
    found = {"names.csv": names.encode(), "weights.npy": weights.getvalue(), "data.bin": rows.getvalue()}
    return found | {f"{n}.png": cv2.imencode(".png", PICTURE + n)[1].tobytes() for n in range(PICTURES)}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("how", "kinds"),
    [
        ("one line", ["s3", "zip on s3"]),
        # Ceph and corp:// are two servers of the one scheme s3.
        pytest.param("environment", ["hdfs", "ceph", "local"], marks=pytest.mark.nightly),
        pytest.param("environment", ["corp"], marks=pytest.mark.nightly),
    ],
)
def test_a_program_on_stores(how: str, kinds: list[str], request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Its loaders fork their workers; on the first store they spawn them, too, which import all of it again."""
    line = f"import fsabs; fsabs.patch{LIBRARIES}\n" if how == "one line" else "import fsabs\n"
    names = {"FSABS_PATCH": ",".join(LIBRARIES)} if how == "environment" else {}
    script = tmp_path / "script.py"
    script.write_text(line + SCRIPT)
    places, expected = [], []
    total = sum(int((PICTURE + number).sum()) + number for number in range(PICTURES))
    with contextlib.ExitStack() as stack:
        for kind in kinds:
            (folder := tmp_path / kind).mkdir()
            url = stack.enter_context(stores.opened(kind, request, folder))
            stores.fill(url, files())
            target = f"file://{folder}" if "zip" in kind else url  # nothing is written into a container by URL
            methods = ["fork", "spawn"] if kind == kinds[0] else ["fork"]
            places.append([url, target, *methods])
            expected += [*(f"{method} {total}" for method in methods), f"[0, 1, 2, 3] {total}"]
        done = subprocess.run(
            [sys.executable, str(script), json.dumps(places)],
            env={**os.environ, **names, "PYTHONPATH": str(stores.ROOT)},
            capture_output=True,
            text=True,
            timeout=150,
        )
    assert (done.returncode, done.stdout.splitlines()) == (0, expected), done.stderr
