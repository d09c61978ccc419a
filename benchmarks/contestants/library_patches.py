"""Functions of other libraries that `fsabs.patch` has changed, and the same done by hand."""

from __future__ import annotations

import os

from . import Run, library

IMAGES = 300
"""The pictures of the bucket: `0000.jpg` and so on."""


def imread(endpoint: str) -> Run:
    """`cv2.imread` of URLs."""
    os.environ["S3_ENDPOINT"] = endpoint
    cv2 = library("cv2")
    library("fsabs").patch("cv2")
    names = [f"s3://bucket/{number:04}.jpg" for number in range(IMAGES)]

    def run() -> None:
        for name in names:
            if cv2.imread(name).shape != (160, 160, 3):
                raise RuntimeError("not the picture")

    return run


def imdecode(endpoint: str) -> Run:
    """`cv2.imdecode` of what `fs.read_bytes` returns."""
    cv2, numpy = library("cv2"), library("numpy")
    fs = library("fsabs").from_url("s3://bucket", endpoint=endpoint)
    names = [f"{number:04}.jpg" for number in range(IMAGES)]

    def run() -> None:
        for name in names:
            encoded = numpy.frombuffer(fs.read_bytes(name), numpy.uint8)
            if cv2.imdecode(encoded, cv2.IMREAD_COLOR).shape != (160, 160, 3):
                raise RuntimeError("not the picture")

    return run


def exists(calls: int, patched: bool) -> Run:
    """`os.path.exists` of a file that is there."""
    if patched:
        library("fsabs").patch("os")
    path = os.path.abspath(__file__)

    def run() -> None:
        for _ in range(calls):
            os.path.exists(path)

    return run
