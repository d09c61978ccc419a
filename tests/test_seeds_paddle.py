"""Paddle's design document on the storage and dispatch of training data, statement by statement, in its order.

A docstring says what the document says. Where this library differs on purpose, the test shows what it does;
docs/differences.md says why.
"""

from __future__ import annotations

import glob
import os
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsabs
from fsabs import prepare
from fsabs.cli import main
from fsabs.dispatch import TaskDispatcher, get_dataset
from fsabs.readers import paddle
from fsabs.readers.data import RecordIODataReader
from fsabs.readers.recordio import Index
from fsabs.readers.sharded import convert
from fsabs.urls import config, opening, roots
from fsabs.urls.locations import parse
from tests.urls.test_pfs import certificate

pytestmark = [pytest.mark.quick, pytest.mark.timeout(120)]


def reader_creator(count: int = 1000) -> Callable[[], Iterator[Any]]:
    """The document's own example."""

    def reader() -> Iterator[Any]:
        for _ in range(count):
            yield np.random.uniform(-1, 1, size=28 * 28), 0

    return reader


@pytest.fixture
def center(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a datacenter that is called `datacenter_name`, whose user is `user_name`."""
    (tmp_path / "store/home/user_name").mkdir(parents=True)
    (tmp_path / "store/home/other").mkdir()
    (tmp_path / "store/common").mkdir()
    (tmp_path / "store/common/public.dat").write_bytes(b"for all")
    (tmp_path / "pfio.ini").write_text(f"[datacenter_name]\nusername=user_name\npfs={tmp_path}/store\n")
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "pfio.ini"))
    monkeypatch.chdir(tmp_path)
    roots.clear()
    return tmp_path / "store"


# ---- storage


@pytest.mark.parametrize("url", ["file:///tmp", "hdfs://cluster/data", "s3://bucket/data"])
def test_storage(url: str) -> None:
    """Training data lies in distributed storage: HDFS, Ceph, S3. Each has a backend (Ceph by S3 or its mount)."""
    opener, location, _, _ = opening.find_backend(parse(url), {}, strict=True)
    assert opener.name in ("Local", "Hdfs", "S3")
    assert location.scheme == url.partition(":")[0]


def test_several_kinds_of_jobs_read_the_same_data(tmp_path: Path) -> None:
    """Preprocessing, training and prediction run on the same storage: what one writes, another one opens by its URL."""
    (tmp_path / "raw").mkdir()
    for number in range(4):
        (tmp_path / "raw" / f"{number}.txt").write_bytes(b"%d" % number)
    (tmp_path / "model.py").write_text("def prepare_data_for_a_single_file(file, name):\n    return file.read(),\n")
    prepare.run(tmp_path / "model.py", tmp_path / "raw", tmp_path / "out", num_workers=1)
    assert len(list(paddle.creator.RecordIO(tmp_path / "out")())) == 4


def test_a_users_own_data(center: Path) -> None:
    """Everywhere, a user's own data are at `/pfs/$DATACENTER/home/$USER`."""
    fs = fsabs.from_url("/pfs/datacenter_name/home/user_name")
    fs.write_bytes("mine", b"1")
    assert (center / "home/user_name/mine").read_bytes() == b"1"
    assert fs.url() == "pfs://datacenter_name/home/user_name"


def test_common_data(center: Path) -> None:
    """`/pfs/$DATACENTER/common` has the public data sets."""
    assert fsabs.from_url("/pfs/datacenter_name/common").read_bytes("public.dat") == b"for all"


# ---- conversion


def test_conversion_before_training(tmp_path: Path) -> None:
    """Before training, a data set is converted to RecordIO."""
    names = convert(tmp_path, reader_creator(10), 2, "x")
    with fsabs.from_url(tmp_path) as fs:
        assert [Index.load(fs, name).records for name in names] == [5, 5]


def test_a_library_for_local_conversion(tmp_path: Path) -> None:
    """Users convert by a library in programs of their own."""
    assert callable(convert)
    assert len(convert(tmp_path, lambda: iter([1]), 1, "x")) == 1


def test_a_job_for_conversion_on_a_cluster() -> None:
    """Or upload their data, and run a MapReduce job: here `fsabs prepare ... cluster`, on Spark."""
    from fsabs.cli.datasets import prepare

    mode = next(argument for argument in prepare.parser("prepare").arguments if argument.dest == "mode")
    assert mode.choices == ["local", "cluster"]


@pytest.mark.parametrize(
    ("shards", "first", "last"), [(1, "0", "0"), (100, "00000", "00099"), (1000, "00000", "00999")]
)
def test_names_of_files(tmp_path: Path, shards: int, first: str, last: str) -> None:
    """`name_prefix-aaaaa-of-bbbbb`, of five digits: the index, and the largest one: imagenet-00999-of-00999."""
    names = convert(tmp_path, lambda: iter(()), shards, "imagenet")
    assert len(names) == shards
    assert names[-1] == f"imagenet-{shards - 1:05}-of-{shards - 1:05}"
    assert all(re.fullmatch(r"imagenet-\d{5}-of-\d{5}", name) for name in names)
    assert sorted(os.listdir(tmp_path)) == names


def test_the_interface_of_convert() -> None:
    """`convert(output_path, reader, num_shards, name_prefix)`."""
    import inspect

    positional = [
        name for name, one in inspect.signature(convert).parameters.items() if one.kind is not one.KEYWORD_ONLY
    ]
    assert positional == ["output_path", "reader", "num_shards", "name_prefix"]


def test_output_path(tmp_path: Path) -> None:
    """`output_path`: the directory in which output files will be saved; made here if it is missing, at any URL."""
    convert(tmp_path / "new" / "folder", reader_creator(3), 1, "x")
    assert os.listdir(tmp_path / "new" / "folder") == ["x-00000-of-00000"]
    convert("memory://paddle/out", reader_creator(3), 2, "x")
    assert sorted(fsabs.from_url("memory://paddle/out").list()) == ["x-00000-of-00001", "x-00001-of-00001"]


def test_reader(tmp_path: Path) -> None:
    """`reader`: a data reader, from which data instances are read: a function without arguments that gives them."""
    convert(tmp_path, lambda: iter("abc"), 1, "x")
    assert list(paddle.creator.RecordIO(tmp_path)()) == ["a", "b", "c"]


def test_num_shards(tmp_path: Path) -> None:
    """`num_shards`: the number of shards that the data set will be partitioned into; by turns, all of them written."""
    names = convert(tmp_path, lambda: iter(range(5)), 3, "x")
    with fsabs.from_url(tmp_path) as fs:
        assert [Index.load(fs, name).records for name in names] == [2, 2, 1]
    assert len(convert(tmp_path / "few", lambda: iter([1]), 4, "x")) == len(os.listdir(tmp_path / "few")) == 4


def test_name_prefix(tmp_path: Path) -> None:
    """`name_prefix`: the name prefix of generated files."""
    assert convert(tmp_path, lambda: iter(()), 1, "some.prefix") == ["some.prefix-00000-of-00000"]
    for wrong in ("", "a/b", ".hidden"):
        with pytest.raises(ValueError, match="name_prefix"):
            convert(tmp_path, lambda: iter(()), 1, wrong)


def test_another_number_of_shards(tmp_path: Path) -> None:
    """(Paddle's convert writes a second run beside the first: both are read as one data set.) Here it is refused."""
    convert(tmp_path, lambda: iter(range(10)), 3, "x")
    with pytest.raises(FileExistsError, match="another run"):
        convert(tmp_path, lambda: iter(range(10)), 4, "x")
    assert len(list(paddle.creator.RecordIO(f"{tmp_path}/x-*-of-*")())) == 10


INSTANCES: list[Any] = [
    1,
    -5,
    0.5,
    "text",
    [1, 2.5, "three"],
    [np.arange(3), 4],
    np.arange(6.0).reshape(2, 3),
    (np.random.uniform(-1, 1, size=28 * 28), 0),
    (1, "two", [3.0], np.ones(4, "f4")),
]


@pytest.mark.parametrize("number", range(len(INSTANCES)))
def test_types_of_instances(tmp_path: Path, number: int) -> None:
    """One value or a tuple of several: int, float, str, lists of them, numpy.ndarray come back as they were."""
    convert(tmp_path, lambda: iter([INSTANCES[number]]), 1, "x")
    (found,) = paddle.creator.RecordIO(tmp_path)()
    np.testing.assert_equal(found, INSTANCES[number])
    assert type(found) is type(INSTANCES[number])


class Other:
    """A value of another type."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Other)

    __hash__ = None  # type: ignore[assignment]


def test_other_types_are_pickled(tmp_path: Path) -> None:
    """Other types are pickled: here only if both sides say `allow_pickle=True`, since unpickling executes code."""
    with pytest.raises((TypeError, ValueError)):
        convert(tmp_path, lambda: iter([Other()]), 1, "x")
    convert(tmp_path, lambda: iter([Other()]), 1, "x", allow_pickle=True)
    assert list(paddle.creator.RecordIO(tmp_path, allow_pickle=True)()) == [Other()]
    with pytest.raises(OSError, match="allow_pickle"):
        list(paddle.creator.RecordIO(tmp_path)())
    assert pickle.dumps(Other())


# ---- the example program


def test_the_example_of_conversion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`convert("./", reader_creator(), 100, random_images)` makes 100 files in the working directory."""
    monkeypatch.chdir(tmp_path)
    random_images = "random_images"
    convert("./", reader_creator(), 100, random_images)
    names = sorted(os.listdir("."))
    assert len(names) == 100
    assert (names[0], names[1], names[99]) == (
        "random_images-00000-of-00099",
        "random_images-00001-of-00099",
        "random_images-00099-of-00099",
    )


def test_the_example_of_training(center: Path) -> None:
    """`paddle.reader.creator.RecordIO("/pfs/.../random_images-*-of-*")`, then `paddle.batch(reader, 128)`."""
    folder = "/pfs/datacenter_name/home/user_name"
    convert(folder, reader_creator(300), 10, "random_images")
    reader = paddle.creator.RecordIO(f"{folder}/random_images-*-of-*")
    batch_reader = paddle.batch(reader, 128)
    assert [len(batch) for batch in batch_reader()] == [128, 128, 44]
    assert [len(batch) for batch in batch_reader()] == [128, 128, 44]  # a second pass


def test_the_same_code_locally_and_in_the_cloud(center: Path, tmp_path: Path) -> None:
    """The reader is used in the same way locally and in the cloud."""
    for where in (f"{tmp_path}/here", "/pfs/datacenter_name/home/user_name/there", "memory://paddle/same"):
        convert(where, lambda: iter(range(7)), 2, "x")
        assert sorted(paddle.creator.RecordIO(f"{where}/x-*-of-*")()) == list(range(7))


def test_instances_are_the_same(tmp_path: Path) -> None:
    """The instances that the reader outputs are exactly those that the data set was made of."""
    made = [(np.random.uniform(-1, 1, size=28 * 28), number) for number in range(20)]
    convert(tmp_path, lambda: iter(made), 1, "x")
    for one, other in zip(paddle.creator.RecordIO(tmp_path)(), made, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        assert one[0].dtype == other[0].dtype
        assert one[1] == other[1]


# ---- uploading


def test_pfs_cp(center: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`paddle pfs cp random_images-*-of-* /pfs/$DATACENTER/home/$USER/folder/`: `fsabs pfs cp`."""
    convert(".", reader_creator(20), 4, "random_images")
    folder = "/pfs/datacenter_name/home/user_name/folder/"
    assert main(["pfs", "mkdir", folder]) == 0
    assert main(["pfs", "cp", "random_images-*-of-*", folder]) == 0  # the pattern quoted
    assert main(["pfs", "cp", *glob.glob("random_images-*-of-*"), folder]) == 0  # or expanded by the shell
    assert main(["pfs", "ls", folder]) == 0
    assert capsys.readouterr().out.count("random_images-") >= 4
    assert len(list(paddle.creator.RecordIO(f"{folder}random_images-*-of-*")())) == 20


def test_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration file as it stands: two datacenters, each with username, usercert, userkey, endpoint."""
    sections = "\n".join(
        f"[datacenter_{number}]\nusername=wuyi\nusercert=wuyi.pem\nuserkey=wuyi-key.pem\n"
        f"endpoint=datacenter{number}.paddlepaddle.org\n"
        for number in (1, 2)
    )
    (tmp_path / "pfio.ini").write_text(f"# config file\n{sections}")
    certificate(*(tmp_path / name for name in ("wuyi.pem", "wuyi-key.pem", "wuyi.der", "locked.pem")))
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "pfio.ini"))
    for number in (1, 2):
        path = f"/pfs/datacenter_{number}/home/wuyi/folder/x"
        _, location, options, _ = opening.find_backend(parse(path), {}, strict=True)
        assert (location.authority, location.path) == ("pfs", f"/datacenter_{number}/home/wuyi/folder/x")
        assert options["endpoint"] == f"https://datacenter{number}.paddlepaddle.org"
        assert options["client_certificate"] == (f"{tmp_path}/wuyi.pem", f"{tmp_path}/wuyi-key.pem")
        assert config.datacenter(f"datacenter_{number}").username == "wuyi"


# ---- what the document leaves to do


def test_common_is_read_only(center: Path) -> None:
    """`/pfs/$DATACENTER/common` can be read and not written."""
    fs = fsabs.from_url("/pfs/datacenter_name/common")
    with pytest.raises(PermissionError, match="read by all and written by none"):
        fs.write_bytes("public.dat", b"changed")
    assert (center / "common/public.dat").read_bytes() == b"for all"


def test_what_is_mounted_has_its_own_permissions(tmp_path: Path, center: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is mounted can be read and written: a mount at /pfs of a name that the configuration lacks stays local."""
    monkeypatch.setattr(os.path, "lexists", lambda path: path == "/pfs")
    assert parse("/pfs/mounted/home/x")[0] == "file"
    assert parse("file:///pfs/datacenter_name/home")[0] == "file"


def test_sharing_data(center: Path) -> None:
    """Users share data: the store's permissions decide who reads; another one's home is never written to."""
    (center / "home/other/shared").write_bytes(b"shared")
    fs = fsabs.from_url("/pfs/datacenter_name/home/other")
    assert fs.read_bytes("shared") == b"shared"
    with pytest.raises(PermissionError, match="the home of other"):
        fs.write_bytes("shared", b"changed")


def test_direct_access_without_a_mount(center: Path) -> None:
    """`f = open('/pfs/datacenter_name/home/user_name/test1.dat')`, by an API and without a mount."""
    fsabs.from_url("/pfs/datacenter_name/home/user_name").write_text("test1.dat", "content")
    with fsabs.patch("builtins"):
        f = open("/pfs/datacenter_name/home/user_name/test1.dat")  # noqa: SIM115
        assert f.read() == "content"
        f.close()
    with fsabs.open_url("/pfs/datacenter_name/home/user_name/test1.dat") as file:
        assert file.read() == "content"


def test_user_defined_preprocessing(tmp_path: Path) -> None:
    """User-defined preprocessing as a job: one function in a model file, run by `fsabs prepare` over all raw files."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a").write_bytes(b"a b")
    (tmp_path / "model.py").write_text(
        "def prepare_data_for_a_single_file(file, name):\n    return file.read().split()\n"
    )
    assert main(["prepare", *(f"{tmp_path}/{name}" for name in ("model.py", "raw", "out")), "local", "1"]) == 0
    assert len(list(RecordIODataReader(tmp_path / "out").create_shards())) == 1


def test_dispatching_records(tmp_path: Path) -> None:
    """The dispatch of training data to workers: shards of what was converted are tasks of a job."""
    convert(tmp_path / "data", lambda: iter(range(10)), 2, "x")
    reader = RecordIODataReader(tmp_path / "data")
    url = f"sqlite:///{tmp_path}/job.db"
    with TaskDispatcher.create(url, training=reader, records_per_task=3, train_end_callback=False) as job:
        assert sum(map(len, get_dataset(job, reader, "w", 2))) == 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(reader.create_shards()) == 2
