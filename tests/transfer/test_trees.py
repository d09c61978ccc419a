"""Random trees and commands: against GNU's cp, mv and rm and rsync on a copy, and between stores against a model."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import boto3
import pytest

import fsabs
from fsabs.backends import memory
from fsabs.cli import program
from tests import soak
from tests.servers import rsync
from tests.servers.fixtures import require
from tests.servers.hdfs import HdfsCluster
from tests.servers.moto import MotoServer
from tests.servers.shared import unique
from tests.transfer.random_trees import START, TreeMaker, snapshot

pytestmark = pytest.mark.timeout(600)


def run(arguments: list[str], folder: Path) -> tuple[bool, str]:
    """Run the command in this process, in a folder; return whether it succeeded, and what it said."""
    before, output = os.getcwd(), io.StringIO()
    os.chdir(folder)
    try:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(io.StringIO()):
            return program.run(arguments) == 0, output.getvalue()
    finally:
        os.chdir(before)


def reference(arguments: list[str], folder: Path) -> tuple[bool, str]:
    """Run a program of the system in a folder."""
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, errors="replace", timeout=60)
    return done.returncode == 0, done.stderr


class Round:
    """One tree, one command, and the same command of the system's tools on a copy."""

    def __init__(self, number: int, top: Path) -> None:
        self._chance = random.Random(number)
        self._number = number
        self.loops = self._chance.random() < 0.5
        self.one, self.other = top / "one", top / "other"

    def prepare(self) -> None:
        """Make the tree twice."""
        for top in (self.one, self.other):
            chance = random.Random(self._number)
            outside = top / "outside"
            for name in ("dir", "dir/sub"):
                (outside / name).mkdir(parents=True)
            for name in ("file", "dir/keep", "dir/sub/keep"):
                (outside / name).write_bytes(name.encode())
                os.utime(outside / name, (START, START))
            TreeMaker(chance, loops=self.loops).make(top / "s", outside)
            TreeMaker(chance, loops=False, hard_links=False).make(top / "t", outside, depth=2)
            for name in ("empty", "new"):
                (top / name).mkdir()

    def commands(self) -> tuple[list[str], list[str]]:
        """Return the command, and that of the system's tools."""
        chance = self._chance
        names = sorted(os.listdir(self.one / "s")) or ["none"]
        some = [f"s/{name}" for name in chance.sample(names, min(len(names), chance.randrange(1, 4)))]
        quoted = [self._quoted(name) for name in some]
        follow = ["-rL", "--preserve=mode,timestamps"]
        keep = ["-rP", "--preserve=mode,timestamps"]
        filters = chance.choice(
            [
                [],
                ["--exclude", "*.f"],
                ["--include", "a*", "--exclude", "*.f"],
                ["--exclude", "a*"],
                ["--exclude", "*.d/"],
            ]
        )
        delete = chance.choice([[], ["--delete"]])
        choices: list[tuple[list[str], list[str]]] = [
            (["cp", "-r", "s", "new/"], ["cp", *follow, "s", "new/"]),
            (["cp", "-r", "--links", "s/", "fresh"], ["cp", *keep, "s", "fresh"]),
            (["cp", "-r", "-f", "s/", "t"], ["cp", "-rL", "s/.", "t"]),
            (["cp", "-r", *quoted, "new/"], ["cp", *follow, "--", *some, "new/"]),
            (["mv", *quoted, "new/"], ["mv", "--", *some, "new/"]),
            (["mv", "s", "empty/"], ["mv", "s", "empty/"]),
            (["rm", "-r", *quoted], ["rm", "-r", "--", *some]),
            (["rm", "-r", "s"], ["rm", "-r", "s"]),
            (
                ["sync", "--links", *delete, *filters, "s", "t"],
                ["rsync", "-rlt", "--no-i-r", *delete, *filters, "s/", "t"],
            ),
        ]
        if not self.loops:
            choices.append(
                (["sync", *delete, *filters, "s", "t"], ["rsync", "-rLt", "--no-i-r", *delete, *filters, "s/", "t"])
            )
        return chance.choice(choices)

    @staticmethod
    def _quoted(name: str) -> str:
        """Return a name as an argument: what exists is no pattern."""
        return f"./{name}"

    def compare(self) -> None:
        """Run both, and compare the trees and the exit codes."""
        ours, theirs = self.commands()
        good, said = run(ours, self.one)
        expected, told = reference(theirs, self.other)
        what = f"{ours} | {theirs}\nours: {said}\ntheirs: {told}"
        self._check(good == expected, what, ours)

    def _check(self, agree: bool, what: str, arguments: list[str]) -> None:
        """Compare the trees."""
        replaced = "t" in arguments  # what is there keeps its owner here, but not the file that rsync replaces
        how = {"owners": not replaced, "times": "-f" not in arguments}
        one, other = (snapshot(folder, **how) for folder in (self.one, self.other))
        if "into itself" in what and agree:  # refused here before anything is copied, and there when it comes to that
            one, other = ({name: one[name] for name in one if not name.startswith("new/")} for one in (one, other))
        if "levels of symbolic links" in what and agree:  # a loop is left where it begins, and there a turn later
            both = {name for name in one.keys() | other.keys() if not name.startswith(("new/", "t/"))}
            both |= one.keys() & other.keys()
            one, other = ({name: tree[name] for name in tree if name in both} for tree in (one, other))
        if "--delete" in what and "failed 0" not in what:  # here nothing is removed then
            one = {name: one[name] for name in one if not name.startswith("t/") or name in other}
        differing = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
        shown = [(name, str(one.get(name))[:80], str(other.get(name))[:80]) for name in differing[:5]]
        assert not differing, f"{what}\n{shown}"
        assert agree, what
        if arguments[0] == "cp":
            made = [path for name in ("new", "fresh") for path in (self.one / name).rglob("*")]
            assert not [path for path in made if path.lstat().st_mode & 0o6000], what


@pytest.mark.soak
@pytest.mark.parametrize("rounds", [60, pytest.param(400, marks=pytest.mark.nightly)])
def test_as_the_tools_of_the_system_do(rounds: int) -> None:
    require(rsync.missing)
    rounds, first = soak.rounds(rounds), soak.seed(1) * 1_000_000
    for number in range(first, first + rounds):
        with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
            one = Round(number, Path(folder))
            one.prepare()
            try:
                one.compare()
            except AssertionError as exc:
                raise AssertionError(f"round {number}: {exc}") from None
    soak.count("trees that commands change as GNU's tools and rsync do", rounds)


# ---- between stores

Contents = dict[str, bytes]


class Places:
    """Stores under one model: what each directory is to have in it."""

    def __init__(self, chance: random.Random, folder: Path, stores: dict[str, str]) -> None:
        self._chance = chance
        self.name = f"trees{chance.randrange(1 << 40)}"
        self.urls = {"local": str(folder / "local"), "memory": f"memory://{self.name}"}
        self.urls |= {name: url + self.name for name, url in stores.items()}
        self.model: dict[str, Contents] = {}
        self._folder = folder
        self._zips = 0
        for url in self.urls.values():
            for number in range(2):
                self.model[f"{url}/d{number}"] = self._random()
        for where, contents in self.model.items():
            with fsabs.from_url(where, create=True) as fs:
                for name, data in contents.items():
                    if (above := name.rpartition("/")[0]) and fs.capabilities.mkdir:
                        fs.makedirs(above, exist_ok=True)
                    fs.write_bytes(name, data)

    def _random(self) -> Contents:
        names = [
            f"{above}{name}" for above in ("", "sub/", "sub/deep/", "é x/") for name in ("a", "b", "-c", "d%41", "[e]")
        ]
        return {
            name: self._chance.randbytes(self._chance.choice([0, 5, 900]))
            for name in self._chance.sample(names, self._chance.randrange(1, 9))
        }

    def step(self) -> list[str]:
        """Choose a command, have the model do what it asks for, and return it."""
        chance, model = self._chance, self.model
        source = chance.choice([where for where in sorted(model) if model[where]])
        target = chance.choice([where for where in sorted(model) if where != source])
        verb = chance.choice(["cp", "mv", "sync", "sync --delete", "pack", "unpack", "one", "rm"])
        if verb == "pack":
            self._zips += 1
            archive = f"{chance.choice(list(self.urls.values()))}/{self._zips}.zip"
            model[f"{archive}/"] = dict(model[source])
            return ["pack", source, archive]
        ours = model[source]
        if verb == "rm":
            name = chance.choice(sorted(ours))
            if source.endswith("/"):
                return ["ls", source]
            del ours[name]
            return ["rm", self._url(source, name)]
        if source.endswith("/") and verb in ("mv", "one"):
            verb = "unpack"
        if target.endswith("/"):  # nothing is written to an archive that is there
            return ["ls", source]
        if verb == "unpack" and source.endswith("/"):
            model[target] |= ours
            return ["unpack", source.rstrip("/"), target]
        if verb == "one":
            name = chance.choice(sorted(ours))
            model[target]["moved"] = ours.pop(name)
            return ["mv", self._url(source, name), f"{target}/moved"]
        if verb == "sync --delete":
            model[target] = dict(ours)
            return ["sync", "--checksum", "--delete", source, target]
        model[target] |= ours
        if verb == "mv":
            ours.clear()
            return ["mv", f"{source.rstrip('/')}/", target]
        return (
            ["cp", "-r", "-f", f"{source.rstrip('/')}/", target]
            if verb == "cp"
            else ["sync", "--checksum", source, target]
        )

    @staticmethod
    def _url(where: str, name: str) -> str:
        return f"{where}/{fsabs.spi.keys.to_url_path(name) if '://' in where else name}"

    def check(self) -> None:
        """Compare all stores with the model."""
        for where, expected in self.model.items():
            try:
                with fsabs.from_url(where.rstrip("/")) as fs:
                    names = [name for name in fs.list(recursive=True) if not name.endswith("/")]
                    found = dict(zip(names, fs.read_many(names), strict=True))
            except FileNotFoundError:  # it went with its last file
                found = {}
            own = {name: data for name, data in found.items() if ".zip" not in name}
            assert own == expected, where

    def close(self) -> None:
        """Forget the trees in memory."""
        with contextlib.suppress(FileNotFoundError):
            memory.forget(self.name)


@pytest.fixture
def s3(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket, which the environment leads to."""
    for name, value in (
        ("S3_ENDPOINT", moto.endpoint),
        ("AWS_ACCESS_KEY_ID", moto.access_key),
        ("AWS_SECRET_ACCESS_KEY", moto.secret_key),
        ("AWS_DEFAULT_REGION", moto.region),
    ):
        monkeypatch.setenv(name, value)
    bucket = unique("trees")
    moto.create_bucket(bucket)
    return f"s3://{bucket}/"


class RawBucket:
    """The bucket as another client has it, whose keys may be names of directories, too."""

    def __init__(self, url: str, objects: dict[str, bytes]) -> None:
        self._name = url.split("/")[2]
        self._client = boto3.client("s3", endpoint_url=os.environ["S3_ENDPOINT"])
        for key in self.objects():
            self._client.delete_object(Bucket=self._name, Key=key)
        for key, data in objects.items():
            self._client.put_object(Bucket=self._name, Key=key, Body=data)

    def objects(self) -> dict[str, bytes]:
        found = self._client.list_objects_v2(Bucket=self._name).get("Contents", ())
        return {one["Key"]: self._client.get_object(Bucket=self._name, Key=one["Key"])["Body"].read() for one in found}


def test_a_file_of_the_name_of_a_directory_is_not_removed_with_it(s3: str, tmp_path: Path) -> None:
    bucket = RawBucket(s3, {"c/a": b"a", "c/a/b.txt": b"b"})
    assert run(["mv", "--include", "b.txt", f"{s3}c", str(tmp_path / "some")], tmp_path)[0]
    assert bucket.objects() == {"c/a": b"a"}
    bucket = RawBucket(s3, {"c/a": b"a", "c/a/b.txt": b"b"})
    assert not run(["mv", f"{s3}c", str(tmp_path / "all")], tmp_path)[0], "a disk can't have both"
    moved = [path.read_bytes() for path in (tmp_path / "all").rglob("*") if path.is_file()]
    assert sorted([*moved, *bucket.objects().values()]) == [b"a", b"b"]


def test_a_directory_that_became_a_file(s3: str, tmp_path: Path) -> None:
    bucket = RawBucket(s3, {"t/a/b": b"old"})
    (tmp_path / "a").write_bytes(b"new")
    assert run(["sync", "--delete", str(tmp_path), f"{s3}t"], tmp_path)[0]
    assert bucket.objects() == {"t/a": b"new"}


def test_a_mark_of_a_directory_that_has_content_stays(s3: str, tmp_path: Path) -> None:
    bucket = RawBucket(s3, {"m/d/": b"precious", "m/d/f": b"f"})
    run(["mv", f"{s3}m", str(tmp_path / "m")], tmp_path)
    assert bucket.objects() == {"m/d/": b"precious"}
    assert (tmp_path / "m/d/f").read_bytes() == b"f"


def between_stores(stores: dict[str, str], rounds: int, folder: Path) -> None:
    """Run rounds of commands between stores, and compare with the model after each."""
    first, steps = soak.seed(1) * 1_000_000, 0
    for number in range(first, first + rounds):
        places = Places(random.Random(number), folder / str(number), stores)
        try:
            for _ in range(15):
                command = places.step()
                good, said = run(command, folder)
                assert good or command[0] == "ls", (number, command, said)
                try:
                    places.check()
                except AssertionError as exc:
                    raise AssertionError(f"round {number}, {command}: {said}\n{str(exc)[:1500]}") from None
                steps += 1
        finally:
            places.close()
            shutil.rmtree(folder / str(number))
    soak.count("commands between local, memory, S3, HDFS and zip against a model", steps)


def test_between_stores_nothing_is_lost(s3: str, tmp_path: Path) -> None:
    between_stores({"s3": s3}, 2, tmp_path)


@pytest.mark.soak
@pytest.mark.nightly
def test_between_stores_and_hdfs_nothing_is_lost(s3: str, hdfs: HdfsCluster, tmp_path: Path) -> None:
    between_stores({"s3": s3, "hdfs": f"{hdfs.url}/"}, soak.rounds(8), tmp_path)
