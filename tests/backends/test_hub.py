"""Reading repositories of the Hugging Face hub."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import trace
from fsabs.backends.hub import Hub
from fsabs.backends.hub.access import HubOptions
from fsabs.backends.hub.dialect import HubDialect, parse
from fsabs.backends.objects.http1 import parse_head
from fsabs.cli.explain import facts_of
from tests.servers.hostile_store import Answer, Request
from tests.servers.hub import READER, STRANGER, TOKEN, HubServer

NAME = "org/data"
FILES = {
    "README.md": b"# Data\n",
    "empty.txt": b"",
    **{f"train/{n:03}.jpg": os.urandom(20_000 + n) for n in range(60)},
    "train/labels/a.txt": b"one\n",
    "big.bin": os.urandom(9_000_000),
}
IMAGES = sorted(name for name in FILES if name.endswith(".jpg"))


@pytest.fixture
def data(hub: HubServer) -> HubServer:
    hub.make(NAME, FILES)
    return hub


def opened(url: str = f"hf://datasets/{NAME}", **options: Any) -> Hub:
    fs = fsabs.from_url(url, **options)
    assert isinstance(fs, Hub)
    return fs


# ---- names


@pytest.mark.parametrize(
    ("authority", "expected"),
    [
        ("datasets/o/n", ("datasets", "o/n", "", "/datasets/o/n", "dataset")),
        ("o/n", ("models", "o/n", "", "/o/n", "model")),
        ("models/o/n@v1", ("models", "o/n", "v1", "/o/n", "model")),
        ("spaces/o/n@refs/pr/7", ("spaces", "o/n", "refs/pr/7", "/spaces/o/n", "space")),
        ("datasets/o/n@refs/convert/parquet", ("datasets", "o/n", "refs/convert/parquet", "/datasets/o/n", "dataset")),
        ("datasets/o/n@a%2Fb", ("datasets", "o/n", "a/b", "/datasets/o/n", "dataset")),
    ],
)
def test_names(authority: str, expected: tuple[str, ...]) -> None:
    found = parse(authority)
    assert (found.kind, found.name, found.revision, found.page, found.type) == expected


@pytest.mark.parametrize("url", ["hf://", "hf://gpt2", "hf://datasets/o", "hf://buckets/o/n", "hf://datasets/o/n n"])
def test_what_is_no_repository_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="hf://"):
        fsabs.from_url(url)


# ---- reading


def test_a_commit_is_pinned_and_travels_with_the_fs(data: HubServer) -> None:
    fs = opened()
    repository = data.repositories["datasets", NAME]
    before = repository.at("main")
    assert before is not None
    assert fs.pinned == before.oid
    data.put(repository, {"README.md": b"# Other\n", IMAGES[0]: b"\0" * 30_000})
    again = pickle.loads(pickle.dumps(fs))
    for one in (fs, again, fs.subfs("train")):
        assert one.pinned == before.oid
    assert fs.read_bytes("README.md") == again.read_bytes("README.md") == FILES["README.md"]
    assert fs.subfs("train").read_bytes("000.jpg") == FILES[IMAGES[0]]
    assert opened().read_bytes("README.md") == b"# Other\n"
    for url in (f"hf://datasets/{NAME}@{before.oid}", f"hf://datasets/{NAME}@{before.oid}/"):
        old = opened(url)
        assert old.read_bytes("README.md") == FILES["README.md"]
        assert not old.capabilities.write


def test_revisions(data: HubServer) -> None:
    repository = data.repositories["datasets", NAME]
    for branch in ("v1", "feature/x", "refs/pr/1", "refs/convert/parquet"):
        data.put(repository, {"README.md": branch.encode()}, branch)
    for text in ("v1", "feature%2Fx", "refs/pr/1", "refs/convert/parquet"):
        with fsabs.open_url(f"hf://datasets/{NAME}@{text}/README.md") as file:
            assert file.read() == text.replace("%2F", "/")
        assert opened(f"hf://datasets/{NAME}@{text}").url("a b") == f"hf://datasets/{NAME}@{text}/a%20b"


@pytest.mark.parametrize("kind", ["models", "spaces", "kernels", "datasets"])
def test_kinds_of_repositories(hub: HubServer, kind: str) -> None:
    hub.make("o/n", {"x.bin": b"\0" * 20_000, "y": b"y"}, kind=kind)
    urls = [f"hf://{kind}/o/n/x.bin", *(["hf://o/n/x.bin"] if kind == "models" else [])]
    for url in urls:
        with fsabs.open_url(url, "rb") as file:
            assert file.read() == b"\0" * 20_000
    assert fsabs.from_url(urls[-1].removesuffix("/x.bin")).read_bytes("y") == b"y"


def test_archives_are_read_in_place(hub: HubServer) -> None:
    members = {f"{n}.jpg": os.urandom(100_000) for n in range(40)}
    zipped, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"d/{name}", content)
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("inner.zip", zipped.getvalue())
    with tarfile.open(fileobj=tarred, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    hub.make("o/n", {"a.zip": zipped.getvalue(), "b.tar": tarred.getvalue(), "c.zip": outer.getvalue()})
    fs = fsabs.from_url("hf://datasets/o/n/a.zip/d")
    assert fs.read_bytes("7.jpg") == members["7.jpg"]
    sent = sum(1 for request in hub.elsewhere.seen if "range" in request.headers)
    assert sent == len(hub.elsewhere.seen) <= 4
    assert list(fs.read_many(list(members))) == list(members.values())
    assert fsabs.from_url("hf://datasets/o/n@main/b.tar").read_bytes("3.jpg") == members["3.jpg"]
    with fsabs.open_url("hf://datasets/o/n/c.zip/inner.zip/d/5.jpg", "rb") as file:
        assert file.read() == members["5.jpg"]
    assert hub.counts["resolve"] <= 2 * 3


# ---- what it costs


def test_an_epoch_takes_one_listing_and_one_resolve_request_a_file(data: HubServer) -> None:
    fs = opened()
    names = [f"train/{name}" for name in fs.list("train") if name.endswith(".jpg")]
    for _ in range(3):
        assert list(fs.read_many(names)) == [FILES[name] for name in names]
    assert (data.counts["tree"], data.counts["info"], data.counts["resolve"]) == (1, 1, len(names))
    assert all("authorization" not in request.headers for request in data.elsewhere.seen)
    for request in data.seen:
        if "/tree/" in request.target:
            assert "limit=1000" in request.target
            assert "expand" not in request.target


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_list_nothing_and_forked_ones_know_the_addresses(data: HubServer, method: str) -> None:
    fs = opened()
    names = [f"train/{name}" for name in fs.list("train") if name.endswith(".jpg")]
    assert len(list(fs.read_many(names))) == 60
    counts = dict(data.counts)
    context: Any = multiprocessing.get_context(method)
    workers = [context.Process(target=_read, args=(fs, names)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert data.counts["tree"] == counts["tree"]
    assert data.counts["resolve"] == counts["resolve"] + (0 if method == "fork" else 2 * 60)


def _read(fs: Hub, names: list[str]) -> None:
    assert [f"train/{name}" for name in fs.list("train") if name.endswith(".jpg")] == names
    assert [len(content) for content in fs.read_many(names)] == [20_000 + n for n in range(60)]


def test_nothing_is_kept_where_there_is_no_cache_directory(
    data: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSABS_CACHE_DIR", "")
    fs = opened()
    for _ in range(2):
        assert list(fs.read_many(IMAGES)) == [FILES[name] for name in IMAGES]
    assert data.counts["resolve"] == len(IMAGES)
    assert not (tmp_path / "fsabs-cache").exists()


def test_no_address_is_stored(data: HubServer, tmp_path: Path) -> None:
    """Its signature is a secret."""
    fs = fsabs.from_url(f"hf://datasets/{NAME}", cache=tmp_path / "cache")
    assert list(fs.read_many(IMAGES)) == [FILES[name] for name in IMAGES]
    stored = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(FILES[IMAGES[0]] in content for content in stored)
    assert not any(b"Signature" in content for content in stored)


def test_no_address_of_plain_http_is_kept_of_a_hub_with_tls() -> None:
    commit = 40 * "a"
    options = HubOptions("https://hub.example", token=False)
    dialect = HubDialect(parse(f"datasets/{NAME}@{commit}"), commit, options)
    digest = 64 * "0"
    linked = f'X-Repo-Commit: {commit}\r\nX-Linked-Size: 1\r\nX-Linked-ETag: "{digest}"'
    head = "HTTP/1.1 302 Found\r\nLocation: {}cdn.example/x?sig=1\r\n" + linked
    for request in (dialect.read("x"), dialect.head("x")):
        failure = dialect.failure(request, parse_head(head.format("http://").encode(), request.method), b"")
        assert isinstance(failure, OSError)
        assert not dialect.read("x").location
    dialect.failure(dialect.read("x"), parse_head(head.format("https://").encode(), "GET"), b"")
    assert dialect.read("x").location == "https://cdn.example/x?sig=1"


def test_addresses_that_end_are_asked_for_again(data: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.time
    data.lifetime = 3600
    fs = opened()
    assert list(fs.read_many(IMAGES)) == [FILES[name] for name in IMAGES]
    monkeypatch.setattr(time, "time", lambda: clock() + 3590)
    assert list(fs.read_many(IMAGES)) == [FILES[name] for name in IMAGES]
    assert data.counts["resolve"] == 2 * len(IMAGES)
    data.elsewhere.valid_from = time.time() + 1  # all that were given are refused
    monkeypatch.setattr(time, "time", lambda: clock() + 3600)
    assert list(fs.read_many(IMAGES)) == [FILES[name] for name in IMAGES]
    with fs.open("big.bin", "rb") as file:
        assert file.read() == FILES["big.bin"]


def test_a_directory_is_listed_when_many_of_its_files_are_asked_for(data: HubServer) -> None:
    fs = opened()
    for name in IMAGES:
        assert fs.stat(name).size == len(FILES[name])
        assert not fs.exists(name + "x")
    assert data.counts["resolve"] <= 8
    assert data.counts["tree"] <= 4


def test_pages_are_followed(hub: HubServer) -> None:
    names = {f"d{n % 7}/{n:05}": b"" for n in range(3_456)}
    hub.make("o/n", names)
    fs = opened("hf://datasets/o/n")
    assert [name for name in fs.list(recursive=True) if not name.endswith("/")] == sorted(names)
    assert hub.counts["tree"] == 4
    assert list(fs.list()) == [f"d{n}/" for n in range(7)]
    assert len(list(fs.list("d3"))) == len([name for name in names if name.startswith("d3/")])
    assert hub.counts["tree"] == 4
    assert list(fs.glob("d1/0000?")) == ["d1/00001", "d1/00008"]


def test_a_listing_that_is_cut_is_an_error(hub: HubServer) -> None:
    hub.make("o/n", {f"{n:05}": b"" for n in range(2_500)})

    def cut(request: Request, answer: Callable[[Request], Answer]) -> Answer:
        found = answer(request)
        if "Link" in found.headers:
            found.headers["Link"] = f'<{hub.endpoint}/api/x?page=2>; rel="next"'
        return found

    hub.intercept(cut)
    with pytest.raises(fsabs.CorruptFileError, match="where it goes on"):
        list(opened("hf://datasets/o/n").list(recursive=True))


@pytest.mark.parametrize("body", [b"{}", b'{"error": "later"}', b'["later"]'])
def test_json_that_is_no_page_is_an_error(data: HubServer, body: bytes) -> None:
    fs, page = opened(), Answer(200, {}, body, len(body))
    data.intercept(lambda request, answer: page if "/tree/" in request.target else answer(request))
    with pytest.raises(fsabs.CorruptFileError):
        list(fs.list(""))


def test_content_that_is_not_that_of_the_commit_is_an_error(data: HubServer) -> None:
    fs = opened(max_attempts=2)
    name, file = IMAGES[3], data.repositories["datasets", NAME].at("main").files[IMAGES[3]]  # type: ignore[union-attr]
    data.large[file.etag] = os.urandom(len(file.content))
    with pytest.raises(fsabs.CorruptFileError, match="digest"):
        fs.read_bytes(name)
    with pytest.raises(fsabs.CorruptFileError, match="digest"):
        list(fs.read_many([IMAGES[0], name]))


# ---- who may read


def test_tokens(hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub.make("o/private", {"x": b"secret"}, readers=[READER, TOKEN])
    url = "hf://datasets/o/private/x"
    with pytest.raises(PermissionError, match="HF_TOKEN"):
        fsabs.open_url(url).__enter__()
    with pytest.raises(FileNotFoundError, match="this token may not see it"):
        fsabs.open_url(url, token=STRANGER).__enter__()
    with fsabs.open_url(url, token=READER) as file:
        assert file.read() == "secret"
    monkeypatch.setenv("HF_TOKEN", f" {READER}\n")
    with fsabs.open_url(url) as file:
        assert file.read() == "secret"
    with pytest.raises(PermissionError):
        fsabs.open_url(url, token=False).__enter__()
    monkeypatch.delenv("HF_TOKEN")
    (tmp_path / "huggingface").mkdir(exist_ok=True)
    (tmp_path / "huggingface" / "token").write_text(READER)
    with fsabs.open_url(url) as file:
        assert file.read() == "secret"


@pytest.mark.parametrize(
    ("url", "options", "kind", "says"),
    [
        ("hf://datasets/o/none", {}, PermissionError, "there is no .*/datasets/o/none, or it is private"),
        ("hf://datasets/o/none", {"token": READER}, FileNotFoundError, "or this token may not see it"),
        ("hf://datasets/o/public@none", {}, FileNotFoundError, "no revision 'none'"),
        (f"hf://datasets/o/public@{'0' * 40}", {}, FileNotFoundError, "no revision"),
        ("hf://datasets/o/gated", {}, PermissionError, "is gated: ask for access at"),
        ("hf://datasets/o/gated", {"token": STRANGER}, PermissionError, "is gated: ask for access at"),
        ("hf://datasets/o/public", {"token": "wrong"}, PermissionError, "the token is not accepted"),
    ],
)
def test_refusals_say_what_to_do(
    hub: HubServer, url: str, options: dict[str, Any], kind: type[OSError], says: str
) -> None:
    hub.make("o/public", {"x": b""})
    hub.make("o/gated", {"x": b""}, readers=[READER], gated=True)
    with pytest.raises(kind, match=says) as caught:
        fsabs.from_url(url, **options).read_bytes("x")
    assert caught.value.filename.startswith(url)
    assert "\n" not in str(caught.value)
    assert fsabs.from_url("hf://datasets/o/gated", token=READER).read_bytes("x") == b""


def test_no_secret_is_shown(data: HubServer, tmp_path: Path) -> None:
    with trace.record(tmp_path / "trace"):
        fs = opened(token=READER)
        fs.read_bytes(IMAGES[0])
        shown = f"{fs!r} {fs.info()} {list(facts_of(fs))} {fs.dialect.options!r} {fs.http.access!r}"
        data.elsewhere.valid_from = time.time() + 100
        with pytest.raises(OSError) as caught:
            fs.read_bytes(IMAGES[0])
        shown += str(caught.value) + repr(caught.value.__cause__)
    shown += "".join(map(str, trace.events(tmp_path / "trace")))
    assert READER not in shown
    assert "Signature" not in shown
    assert "hf.redirect" in shown
    assert READER.encode() in pickle.dumps(fs)  # as every option; that of the environment is not
    os.environ["HF_TOKEN"] = READER
    try:
        assert READER.encode() not in pickle.dumps(opened())
    finally:
        del os.environ["HF_TOKEN"]
