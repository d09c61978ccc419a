"""Paddle's design document on the storage and dispatch of training data, statement by statement, in its order.

A docstring says what the document says. Where this library differs on purpose, the test shows what it does;
docs/coming-from.md says why. What the tests of readers and of preparation hold is not repeated.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsabs
from fsabs.cli import main
from fsabs.readers import paddle
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


def test_a_job_for_conversion_on_a_cluster() -> None:
    """Or upload their data, and run a MapReduce job: here `fsabs prepare ... cluster`, on Spark."""
    from fsabs.cli.datasets import prepare

    mode = next(argument for argument in prepare.parser("prepare").arguments if argument.dest == "mode")
    assert mode.choices == ["local", "cluster"]


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


def test_types_of_instances(tmp_path: Path) -> None:
    """One value or a tuple of several: int, float, str, lists of them, numpy.ndarray come back as they were."""
    convert(tmp_path, lambda: iter(INSTANCES), 1, "x")
    found = list(paddle.creator.RecordIO(tmp_path)())
    np.testing.assert_equal(found, INSTANCES)
    assert [type(one) for one in found] == [type(one) for one in INSTANCES]


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
