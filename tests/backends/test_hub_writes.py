"""Writing to the Hugging Face hub: each change is a commit, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any, cast

import pytest

import fsabs
from fsabs.backends.hub import Hub
from fsabs.backends.objects.failures import DEFAULT_ATTEMPTS
from fsabs.cli import main
from tests.servers.hostile_store import Answer, Request
from tests.servers.hub import READER, TOKEN, HubServer, Repository

MIB = 1024 * 1024
NAME = "org/data"
FILES = {"README.md": b"# Data\n", "a/one.bin": os.urandom(30_000), "a/two.txt": b"two"}


@pytest.fixture
def repository(hub: HubServer) -> Repository:
    return hub.make(NAME, FILES)


@pytest.fixture
def fs(repository: Repository) -> Hub:
    found = fsabs.from_url(f"hf://datasets/{NAME}", token=TOKEN)
    assert isinstance(found, Hub)
    return found


def stored(repository: Repository) -> dict[str, bytes]:
    commit = repository.at("main")
    assert commit is not None
    return {path: file.content for path, file in commit.files.items()}


def messages(repository: Repository) -> list[str]:
    return [repository.commits[oid].message for oid in repository.history[2:]]


def test_write_many_is_one_commit(fs: Hub, repository: Repository) -> None:
    new = {f"new/{n}.bin": os.urandom(15_000) for n in range(30)} | {f"new/{n}.txt": b"%d" % n for n in range(30)}
    assert fs.write_many(new) == 60
    assert stored(repository) == {**FILES, **new}
    assert messages(repository) == ["Write files"]
    assert fs.pinned == repository.references["main"]
    assert list(fs.read_many(list(new))) == list(new.values())


def test_a_failing_iterable_commits_nothing(fs: Hub, repository: Repository) -> None:
    def pairs() -> Iterator[tuple[str, bytes]]:
        yield "x", b"1" * 20_000
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fs.write_many(pairs())
    with pytest.raises(IsADirectoryError) as caught:
        fs.write_many({"x": b"1", "a": b"2"})
    assert caught.value.filename == f"hf://datasets/{NAME}/a"
    assert stored(repository) == FILES
    assert messages(repository) == []


def test_a_block_is_one_commit(fs: Hub, repository: Repository) -> None:
    big = os.urandom(9_000_000)
    with fs.commit("All of it", "in one"):
        fs.write_bytes("b/x", b"x")
        with fs.open("b/big.bin", "wb") as file:
            file.write(big)
        with fs.subfs("b").open("y", "w") as text:
            text.write("y")
        fs.remove("README.md")
        fs.rename("a/one.bin", "c/one.bin")
        fs.copy("a/two.txt", "c/two.txt")
        assert messages(repository) == []
        assert fs.exists("README.md")
    expected = {
        "a/two.txt": b"two",
        "b/x": b"x",
        "b/y": b"y",
        "b/big.bin": big,
        "c/one.bin": FILES["a/one.bin"],
        "c/two.txt": b"two",
    }
    assert stored(repository) == expected
    assert messages(repository) == ["All of it"]
    assert {name: fs.read_bytes(name) for name in expected} == expected


def test_what_a_block_has_changed_is_not_copied_nor_renamed_in_it(hub: HubServer, repository: Repository) -> None:
    hub.put(repository, {"model.tmp": b"old", "b/c/x": b"old", "b/d/x": b"old"})
    fs = cast(Hub, fsabs.from_url(f"hf://datasets/{NAME}", token=TOKEN))
    other = fsabs.from_url(f"hf://datasets/{NAME}", token=TOKEN)
    with fs.commit("new model"):
        fs.write_bytes("model.tmp", b"new")
        fs.subfs("a").write_bytes("two.txt", b"2")
        fs.remove("b/c", recursive=True)
        for src in ("model.tmp", "a/two.txt", "a", "b/c/x", "b/c", "b"):
            with pytest.raises(OSError, match=r"changed in this block of commit\(\)") as caught:
                fs.rename(src, "model")
            assert caught.value.errno == errno.EBUSY
            assert caught.value.filename == f"hf://datasets/{NAME}/{src}"
        for target in (fs, other):
            with pytest.raises(OSError, match="changed in this block"):
                fs.copy("model.tmp", "model", target)
        fs.rename("b/d", "d")
        fs.copy("a/one.bin", "one.bin")
        other.copy("README.md", "README.new", other)
    fs.rename("model.tmp", "model")
    assert stored(repository) == {
        "README.md": FILES["README.md"],
        "README.new": FILES["README.md"],
        "a/one.bin": FILES["a/one.bin"],
        "a/two.txt": b"2",
        "d/x": b"old",
        "model": b"new",
        "one.bin": FILES["a/one.bin"],
    }


def test_a_tree_is_copied_over_itself_as_it_was(hub: HubServer) -> None:
    made = hub.make("org/nested", {"a/a/x": b"lowest", "a/x": b"low", "x": b"high"})
    fs = fsabs.from_url("hf://datasets/org/nested", token=TOKEN)
    fs.copy_tree("a", "")
    assert stored(made) == {"a/a/x": b"lowest", "a/x": b"lowest", "x": b"low"}


@pytest.mark.parametrize("many", [False, True])
def test_what_a_block_has_changed_is_read_after_it_through_a_cache(
    repository: Repository, tmp_path: Path, many: bool
) -> None:
    cached: Any = fsabs.from_url(f"hf://datasets/{NAME}", token=TOKEN, cache=tmp_path / "cache")

    def read(name: str) -> bytes:
        content: bytes = next(cached.read_many([name])) if many else cached.read_bytes(name)
        return content

    assert read("a/two.txt") == b"two"
    with cached.commit("another two"):
        cached.write_bytes("a/two.txt", b"2")
        cached.write_bytes("a/none", b"")
        assert read("a/two.txt") == b"two", "a block is read after it"
    assert (read("a/two.txt"), read("a/none")) == (b"2", b"")
    assert stored(repository)["a/two.txt"] == b"2"


def test_a_block_that_raises_commits_nothing(fs: Hub, repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), fs.commit("none"):
        fs.write_bytes("x", b"x")
        with fs.open("y", "wb") as file:
            file.write(b"y" * 9_000_000)
        raise ZeroDivisionError
    assert stored(repository) == FILES
    fs.write_bytes("z", b"z")
    assert stored(repository) == {**FILES, "z": b"z"}
    with fs.commit("empty"):
        pass
    assert messages(repository) == ["Write z"]
    for wrong in ("", "nested"):
        with pytest.raises(ValueError, match="commit"), fs.commit("outer"), fs.commit(wrong):
            pass


def test_a_forked_child_commits_nothing(fs: Hub, repository: Repository) -> None:
    with fs.commit("the parent's"):
        fs.write_bytes("x", b"x" * 20_000)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                fs.write_bytes("y", b"y")
            except OSError:
                code = 0
            os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
    assert stored(repository) == {**FILES, "x": b"x" * 20_000}
    pid = os.fork()
    if pid == 0:  # of its own, it does
        fs.write_bytes("z", b"z")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert stored(repository)["z"] == b"z"


def test_files_of_any_size(fs: Hub, repository: Repository, tmp_path: Path) -> None:
    before = set(os.listdir(tmp_path))
    for size in (0, 1, 10_000, 70_000, 8 * MIB, 8 * MIB + 1):
        data = os.urandom(size)
        with fs.open("f", "wb") as file:
            for at in range(0, size, 1 << 20):
                file.write(data[at : at + (1 << 20)])
        assert stored(repository)["f"] == data
        assert fs.read_bytes("f") == data
    gc.collect()
    assert set(os.listdir(tmp_path)) - before <= {"fsabs-cache", "huggingface"}


def test_what_waits_for_a_commit_is_bounded(hub: HubServer, fs: Hub, repository: Repository) -> None:
    """Large contents are sent before it, when 64 MiB of them are pending."""
    contents = {f"m/{number}": bytes([number]) * (6 * MIB) for number in range(24)}
    pending = list[int]()

    def pairs() -> Iterator[tuple[str, bytes]]:
        for number, pair in enumerate(contents.items()):
            pending.append(number * 6 * MIB - sum(map(len, hub.large.values())))
            yield pair

    assert fs.write_many(pairs()) == 24
    assert max(pending) <= 70 * MIB
    assert stored(repository) == {**FILES, **contents}
    assert messages(repository) == ["Write files"]


def test_a_new_file_of_two_writers(fs: Hub, repository: Repository) -> None:
    other = fsabs.from_url(f"hf://datasets/{NAME}", token=TOKEN)
    with fs.open("new", "xb") as file:
        file.write(b"mine")
        other.write_bytes("unrelated", b"theirs")
    assert stored(repository)["new"] == b"mine"
    with pytest.raises(FileExistsError), other.open("new", "xb") as file:  # of a commit that it has not seen
        file.write(b"theirs")
    with pytest.raises(FileExistsError), fs.open("new2", "xb") as file:
        file.write(b"mine")
        other.write_bytes("new2", b"theirs")
    assert stored(repository)["new2"] == b"theirs"


def test_an_open_file_stays_in_its_commit(fs: Hub) -> None:
    with fs.open("a/one.bin", "rb", 0) as file:
        fs.write_bytes("a/one.bin", b"\0" * 40_000)
        assert file.read(100) == FILES["a/one.bin"][:100]
        file.seek(29_000)
        assert file.read() == FILES["a/one.bin"][29_000:]
    assert fs.read_bytes("a/one.bin") == b"\0" * 40_000


def test_directories(fs: Hub, repository: Repository) -> None:
    fs.rename("a", "b/c")
    assert sorted(stored(repository)) == ["README.md", "b/c/one.bin", "b/c/two.txt"]
    fs.remove("b", recursive=True)
    assert sorted(stored(repository)) == ["README.md"]
    with pytest.raises(FileNotFoundError):
        fs.remove("b", recursive=True)
    with pytest.raises(NotADirectoryError):
        fs.write_bytes("README.md/x", b"")
    with pytest.raises(io.UnsupportedOperation):
        fs.mkdir("d")
    fs.remove(".", recursive=True)
    assert stored(repository) == {}
    assert len(messages(repository)) == 3


def test_copies_between_repositories(fs: Hub, repository: Repository, hub: HubServer) -> None:
    other = hub.make("org/other", {"x.txt": b"x"}, kind="models")
    target = fsabs.from_url("hf://org/other", token=TOKEN)
    fs.copy("a/two.txt", "two.txt", target)
    assert stored(other) == {"x.txt": b"x", "two.txt": b"two"}
    with fsabs.Memory() as memory:
        memory.write_bytes("m", b"m" * 50_000)
        memory.copy_tree("", "from", fs)
    assert stored(repository)["from/m"] == b"m" * 50_000
    fs.copy_tree("a", "", fsabs.Memory())


def test_what_may_not_be_written(hub: HubServer, repository: Repository) -> None:
    url = f"hf://datasets/{NAME}"
    for token in (READER, None):
        fs = fsabs.from_url(url, token=token)
        with pytest.raises(PermissionError, match="the token may not write to org/data") as caught:
            fs.write_bytes("x", b"x" * 20_000)
        assert caught.value.filename == f"{url}/x"
    pinned = fsabs.from_url(f"{url}@{repository.references['main']}", token=TOKEN)
    with pytest.raises(io.UnsupportedOperation, match="write_if"):
        cast(Any, fs).write_if("a", b"x", "version")
    with pytest.raises(io.UnsupportedOperation):
        pinned.write_bytes("x", b"")
    fs = fsabs.from_url(url, token=TOKEN)
    for name in ("a\\b", ".git/x"):
        with pytest.raises(OSError) as failed:
            fs.write_bytes(name, b"x")
        assert failed.value.errno == errno.EINVAL
    hub.put(repository, {".gitignore": b"*.log\n"})
    fs = fsabs.from_url(url, token=TOKEN)
    with pytest.raises(OSError, match=r"x.log among them, are left out by the repository's .gitignore"):
        fs.write_many({"ok": b"1", "x.log": b"2"})
    assert stored(repository) == {**FILES, ".gitignore": b"*.log\n"}


def test_a_branch(hub: HubServer, repository: Repository) -> None:
    hub.put(repository, {}, "next")
    fs = fsabs.from_url(f"hf://datasets/{NAME}@next", token=TOKEN)
    fs.write_bytes("x", b"1")
    assert "x" not in stored(repository)
    assert fs.read_bytes("x") == b"1"


def test_a_hub_that_fails_by_chance(hub: HubServer, fs: Hub, repository: Repository) -> None:
    failures = iter([503, 500, 429])

    def failing(request: Request, answer: Callable[[Request], Answer]) -> Answer:
        if "/commit/" in request.target and (status := next(failures, 0)):
            return Answer(status, {"Retry-After": "0"}, b"", 0)
        return answer(request)

    hub.intercept(failing)
    fs.write_many({"x": b"x", "y": b"y" * 20_000})
    assert stored(repository) == {**FILES, "x": b"x", "y": b"y" * 20_000}
    assert len(messages(repository)) == 1


@pytest.mark.parametrize("status", [409, 412])
def test_a_commit_that_comes_while_another_one_is_made(
    hub: HubServer, fs: Hub, repository: Repository, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    refusals, asked = [status, status], list[str]()
    body = b'{"error": "Another commit operation is in progress for this repository. Please try again later."}'

    def locking(request: Request, answer: Callable[[Request], Answer]) -> Answer:
        if "/commit/" not in request.target:
            return answer(request)
        asked.append(request.target)
        return Answer(refusals.pop(), {}, body, len(body)) if refusals else answer(request)

    hub.intercept(locking)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with fs.commit("labels"):
        fs.write_bytes("x", b"x")
        fs.rename("a/two.txt", "b")
    assert sorted(stored(repository)) == ["README.md", "a/one.bin", "b", "x"]
    assert len(asked) == 3
    assert messages(repository) == ["labels"]
    refusals += [status] * 100
    with pytest.raises(fsabs.StaleFileError, match="in progress") as caught:
        fs.write_bytes("y", b"y")
    assert caught.value.filename == f"hf://datasets/{NAME}/y"
    assert len(asked) == 3 + DEFAULT_ATTEMPTS


def test_a_commit_waits_as_long_as_the_hub_says(hub: HubServer, fs: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, refusals = list[float](), list[Answer]()

    def throttling(request: Request, answer: Callable[[Request], Answer]) -> Answer:
        return refusals.pop() if refusals and "/commit/" in request.target else answer(request)

    hub.intercept(throttling)
    monkeypatch.setattr(time, "sleep", waits.append)
    for name, value in (("RateLimit", '"api";r=0;t=20'), ("Retry-After", formatdate(time.time() + 80, usegmt=True))):
        refusals.append(Answer(429, {name: value}, b"", 0))
        waits.clear()
        fs.write_bytes(name, b"1")
        assert max(waits) >= 20


@pytest.mark.parametrize("change", ["write", "rename", "remove", "remove tree"])
def test_a_commit_whose_response_was_lost_is_whole(
    hub: HubServer, fs: Hub, repository: Repository, change: str
) -> None:
    """It is made again, and then there may be nothing left to remove."""
    hub.lose_response(lambda request: "/commit/" in request.target)
    new, expected = {"new": b"1", "large": bytes(30_000)}, dict(FILES)
    if change == "write":
        fs.write_many(new)
        expected |= new
    elif change == "rename":
        with contextlib.suppress(FileNotFoundError):
            fs.rename("a", "b")
        expected = {name.replace("a/", "b/"): content for name, content in FILES.items()}
    elif change == "remove":
        with pytest.raises(FileNotFoundError) as caught:
            fs.remove("README.md")
        assert caught.value.filename == f"hf://datasets/{NAME}/README.md"
        del expected["README.md"]
    else:
        with contextlib.suppress(FileNotFoundError):
            fs.remove("a", recursive=True)
        expected = {"README.md": FILES["README.md"]}
    assert stored(repository) == expected
    with fsabs.from_url(f"hf://datasets/{NAME}") as again:
        assert {name: again.read_bytes(name) for name in expected} == expected


def test_threads_commit_one_after_the_other(fs: Hub, repository: Repository) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            fs.write_bytes(f"t/{number}", b"%d" % number)
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert fs.pinned == repository.references["main"]
    assert {name: fs.read_bytes(name) for name in (f"t/{n}" for n in range(8))} == {
        f"t/{n}": b"%d" % n for n in range(8)
    }


def test_nothing_is_shown(fs: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    fs.write_many({f"{n}": os.urandom(20_000) for n in range(5)})
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_a_tree_is_one_commit(fs: Hub, repository: Repository, tmp_path: Path) -> None:
    contents = {f"{n % 3}/{n}.bin": os.urandom(300_000 * n) for n in range(9)}
    source = fsabs.from_url(tmp_path / "files", create=True)
    for name, data in contents.items():
        source.makedirs(name[0], exist_ok=True)
        source.write_bytes(name, data)
    assert source.copy_tree("", "b", fs).files == 9
    assert stored(repository) == {**FILES, **{f"b/{name}": data for name, data in contents.items()}}
    source.remove("2/8.bin")
    source.write_bytes("0/0.bin", b"other")
    cached = fsabs.from_url(f"hf://datasets/{NAME}", token=TOKEN, cache=tmp_path / "cache")
    assert cached.read_bytes("b/0/0.bin") == b""
    assert source.sync_tree("", "b", cached, delete=True, content=True) == fsabs.TreeCounts(1, 0, 5, 7, 1)
    assert cached.read_bytes("b/0/0.bin") == b"other"
    assert "b/2/8.bin" not in stored(repository)
    again: Any = fsabs.from_url(f"hf://datasets/{NAME}", token=TOKEN)
    again.copy_tree("b", "c")
    with again.commit("several"):
        source.copy_tree("", "d", again)
        again.remove("b", recursive=True)
    assert {name[0] for name in stored(repository)} == {"R", "a", "c", "d"}
    assert messages(repository) == ["Copy files", "Copy files", "Copy files", "several"]
    repository.readers = set()
    with pytest.raises(OSError, match="org/data"):
        source.copy_tree("", "e", fs)
    assert len(messages(repository)) == 4


def test_commands_make_one_commit(
    hub: HubServer, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    for name in ("one", "two", "three"):
        (tmp_path / "files" / name).mkdir(parents=True)
        (tmp_path / "files" / name / "x").write_bytes(os.urandom(40_000))
    files, url = str(tmp_path / "files"), f"hf://datasets/{NAME}"
    assert main(["cp", "-r", files, f"{url}/copied"]) == 0
    assert main(["sync", "--delete", files, f"{url}/a"]) == 0
    assert messages(repository) == ["Copy files", "Copy files"]
    assert sorted(name for name in stored(repository) if name.startswith("a/")) == ["a/one/x", "a/three/x", "a/two/x"]
    repository.readers = {READER}
    monkeypatch.setenv("HF_TOKEN", READER)
    assert main(["mv", files, f"{url}/moved"]) == 1
    assert sorted(path.name for path in (tmp_path / "files").iterdir()) == ["one", "three", "two"]


def test_disk_space_is_bounded(
    fs: Hub, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    data = os.urandom(9 * MIB)
    with fs.commit("large ones"):
        for number in range(16):
            with fs.open(f"large/{number % 12}", "wb") as file:
                file.write(bytes([number]) + data)
            assert len(os.listdir(tmp_path / "tmp")) <= 8
    assert os.listdir(tmp_path / "tmp") == []
    assert [stored(repository)[f"large/{number}"][0] for number in range(12)] == [12, 13, 14, 15, *range(4, 12)]
