"""The data of the demo: 1797 scanned digits, as PNG files in two zips inside a zip.

digits.zip
  train.zip    0/0003.png  0/0010.png ... 9/1795.png     1437 images, a folder for each digit
  test.zip     0/0011.png ...                             360 images
"""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

from fsabs import FS

TEST_IMAGES = 360


def make_data(fs: FS, name: str = "digits.zip") -> None:
    """Write the data set into `fs`, whatever that is; it becomes visible when the last byte is written."""
    digits = load_digits()  # ships with scikit-learn: 8 x 8 pixels of 0 to 16
    shuffled = np.random.default_rng(seed=0).permutation(len(digits.images))
    parts = {"test.zip": shuffled[:TEST_IMAGES], "train.zip": shuffled[TEST_IMAGES:]}
    with fs.open_zip(name, "w") as outer:
        for part, members in parts.items():
            with outer.open_zip(part, "w") as inner:
                for i in sorted(members):
                    inner.write_bytes(f"{digits.target[i]}/{i:04}.png", png(digits.images[i]))


def png(image: NDArray[np.float64]) -> bytes:
    """A grey PNG file of pixels from 0 to 16."""
    file = io.BytesIO()
    Image.fromarray((image * 15).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()
