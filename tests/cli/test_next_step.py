"""A command that refuses says what to do, in words that it takes itself; and does what its neighbours can do."""

from __future__ import annotations

from pathlib import Path

import pytest

import fsabs
from fsabs.cli import main
from tests.cli.commands import make_tree, read_tree

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("cp -R a b", "did you mean '-r'?"),
        ("find -name x .", "did you mean '--name'?"),
        ("mv -f a b", "did you mean '--force'?"),
        ("ls --jso", "did you mean '--json'?"),
        ("ls --hlep", "did you mean '--help'?"),
        ("sync --check a b", "did you mean '--checksum'?"),
        ("sync --exlude=x a b", "did you mean '--exclude'?"),
        ("cpy a b", "did you mean 'cp'?"),
        ("cache claer", "did you mean 'clear'?"),
    ],
)
def test_what_may_have_been_meant(command: str, wanted: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 2
    assert wanted in capfd.readouterr().err


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("pack src x.rar", "--type"),
        ("sync x.zip there", "x.zip/ stands for its members"),
        ("rm -r .", "a directory by the name '.'"),
    ],
)
def test_what_is_to_be_written(
    command: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_tree(tmp_path / "src", {"a": b"1"})
    fsabs.pack(fsabs.Local("src"), fsabs.Local("."), "x.zip")
    assert main(command.split()) == 1
    said = capfd.readouterr().err
    assert wanted in said
    assert "force_type" not in said


def test_how_a_command_reads_a_public_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    assert main(["ls", "s3://public-bucket-of-nobody/"]) == 1
    assert "pfio.ini" in capfd.readouterr().err


@pytest.mark.parametrize("suffix", ["zip", "h5"])
def test_sync_deletes_members(suffix: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = make_tree(tmp_path / "src", {"a": b"1"})
    archive = f"{tmp_path}/x.{suffix}"
    for _ in range(2):  # one that is missing has nothing to be removed
        assert main(["sync", "--delete", str(source), archive + "/"]) == 0
    with fsabs.from_url(archive, mode="a") as fs:
        fs.write_many({"old": b"", "d/old": b""})
    assert main(["sync", "--delete", "--max-delete", "1", str(source), archive + "/"]) == 1
    assert main(["sync", "--delete", str(source), archive + "/"]) == 0
    assert "removed 2" in capfd.readouterr().err
    with fsabs.from_url(archive) as fs:
        assert list(fs.list(recursive=True)) == ["a"]


def test_sync_deletes_in_the_root_of_a_store(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "src", {"a": b"1"})
    with fsabs.from_url("memory://next-step") as fs:
        fs.write_bytes("old", b"")
        assert main(["sync", "--delete", str(source), "memory://next-step/"]) == 0
        assert list(fs.list()) == ["a"]


@pytest.mark.parametrize("target", ["/", "~", "."])
def test_sync_deletes_in_no_root_of_this_machine(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(make_tree(tmp_path / "home", {"mine": b""})))
    monkeypatch.chdir(make_tree(tmp_path / "here", {"mine": b""}))
    place = {"~": str(tmp_path / "home")}.get(target, target)
    assert main(["sync", "--delete", "--dry-run", "--max-delete", "0", str(make_tree(tmp_path / "src")), place]) == 1
    assert (tmp_path / "home" / "mine").exists()
    assert (tmp_path / "here" / "mine").exists()


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_move_onto_what_is_there_is_a_move(dry_run: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source, target = (make_tree(tmp_path / name, {"d/a": b"1"}) for name in ("src", "target"))
    assert main(["mv", "-v", *(["--dry-run"] if dry_run else []), f"{source}/", str(target)]) == 0
    said = capfd.readouterr()
    assert "moved 1" in said.err
    assert "d/a" in said.out
    assert read_tree(source if dry_run else target) == {"d/a": b"1"}
    assert (source / "d/a").exists() is dry_run
