"""CPython's own tests of file objects (`test_io`, `test_file`), on the files of `FS.open`.

They come with the interpreter, where it has its `test` package. What is written is read back from a local directory,
from memory, from S3 and from a zip. Left out is what is about descriptors, openers and `w+`, which no FS has, and what
`LEFT_OUT` names.
"""

from __future__ import annotations

import io
import os
import unittest
from pathlib import Path, PurePath
from typing import IO, Any, ClassVar

import pytest

import fsabs
from fsabs import FS
from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from tests.servers.moto import MotoServer
from tests.servers.shared import unique

test_file: Any = pytest.importorskip("test.test_file", reason="an interpreter without its tests")
test_io: Any = pytest.importorskip("test.test_io", reason="an interpreter without its tests")

NO_FS_HAS = "descriptors, openers and w+"
LEFT_OUT = {
    "testErrors": "the name of a file is its URL",
    "testSetBufferSize": "no warning of buffering=1 in binary mode",
    "testModeStrings": NO_FS_HAS,
    "testStdin": "needs a terminal",
    "testTruncateOnWindows": NO_FS_HAS,
    "test___all__": "the names of the module io",
    "test_attributes": NO_FS_HAS,
    "test_buffered_file_io": "a file that is written can't seek",
    "test_closefd": NO_FS_HAS,
    "test_closefd_attr": NO_FS_HAS,
    "test_flush_error_on_close": "flush() of a raw file as an attribute",
    "test_fspath_support": "paths in bytes",
    "test_io_after_close": NO_FS_HAS,
    "test_large_file_ops": NO_FS_HAS,
    "test_no_closefd_with_filename": NO_FS_HAS,
    "test_nonblock_pipe_write_bigbuf": NO_FS_HAS,
    "test_nonblock_pipe_write_smallbuf": NO_FS_HAS,
    "test_open_allargs": NO_FS_HAS,
    "test_open_handles_NUL_chars": "paths in bytes",
    "test_open_pipe_with_append": NO_FS_HAS,
    "test_opener": NO_FS_HAS,
    "test_opener_invalid_fd": NO_FS_HAS,
    "test_pickling": "our files can be pickled",
    "test_raw_file_io": "a file that is written can't seek",
    "test_read_closed": NO_FS_HAS,
    "test_removed_u_mode": NO_FS_HAS,
    "test_unbounded_file": "needs a machine of 32 bits",
}
"""Cases by name, and why."""
ON_DISK = ("test_create_writes", "test_destructor", "test_fileio_closefd", "test_garbage_collection")
"""Cases that look at the file with builtin `open` or FileIO."""


class Place:
    """Where the files are: an FS that is written to, and one that is read."""

    def __init__(self, fs: FS) -> None:
        self._fs = fs

    def path(self, file: Any) -> str:
        """The path on the FS of a file that a test names."""
        return os.path.abspath(file) if isinstance(self._fs, Local) else PurePath(os.fspath(file)).name

    def open(self, path: str, mode: str, *arguments: Any, **named: Any) -> IO[Any]:
        """`FS.open`."""
        return self._fs.open(path, mode, *arguments, **named)


class ZipPlace(Place):
    """Files are written to memory, and read out of a zip of them."""

    def open(self, path: str, mode: str, *arguments: Any, **named: Any) -> IO[Any]:
        """`FS.open`, of a zip for what is read."""
        if mode[0] != "r" or not self._fs.exists(path):
            return self._fs.open(path, mode, *arguments, **named)
        with self._fs.open_container("files.zip", "w") as archive:
            archive.write_bytes(path, self._fs.read_bytes(path))
        return self._fs.open_container("files.zip").open(path, mode, *arguments, **named)


class Cases(unittest.TestCase):
    """What the interpreter's tests look for in themselves."""

    place: ClassVar[Place]
    io = io

    @pytest.fixture(autouse=True)
    def _in_a_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def open(self, file: Any, mode: str = "r", *arguments: Any, **named: Any) -> IO[Any]:
        return self.place.open(self.place.path(file), mode, *arguments, **named)


for _name in io.__all__:
    if not hasattr(Cases, _name):
        setattr(Cases, _name, staticmethod(getattr(io, _name)))
for _name in vars(test_io):
    if _name.startswith("C") and _name[1:] in vars(test_io):  # the classes of the module io that tests are made with
        setattr(Cases, _name[1:], getattr(test_io, _name))


BASES = (Cases, test_file.AutoFileTests, test_file.OtherFileTests, test_io.IOTest, test_io.MiscIOTest)


def _cases(name: str, place: Place) -> type[unittest.TestCase]:
    left_out = LEFT_OUT if name == "TestLocal" else (*LEFT_OUT, *ON_DISK)
    return type(name, BASES, {"place": place, **dict.fromkeys(left_out)})


TestLocal = pytest.mark.quick(_cases("TestLocal", Place(Local())))
TestMemory = pytest.mark.nightly(_cases("TestMemory", Place(Memory())))  # TestZip writes to memory, too
TestZip = pytest.mark.quick(_cases("TestZip", ZipPlace(Memory())))


@pytest.mark.nightly
class TestS3(_cases("S3Cases", Place(Memory()))):  # type: ignore[misc]
    test_append_mode_tell = None  # S3 can't append

    @pytest.fixture(autouse=True)
    def _on_s3(self, moto: MotoServer) -> None:
        bucket = unique("cpython-files")
        moto.create_bucket(bucket)
        keys: dict[str, Any] = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region": "us-east-1"}
        type(self).place = Place(fsabs.from_url(f"s3://{bucket}/", endpoint=moto.endpoint, **keys))
