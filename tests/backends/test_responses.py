"""What comes in the place of a store's response, or of its content: the right bytes are read, or there is an error.

Each kind of store, each fault, each way to read: all cells in the nightly tests, and one of each store and fault in the
others. Cells that mean nothing are in `MEANINGLESS`, with the reason.
"""

from __future__ import annotations

import gzip
import itertools
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fsabs
from fsabs.adapters.torch import FileDataset
from fsabs.backends.objects import failures
from fsabs.cli.program import run
from tests.servers import hostile_store
from tests.servers.azure_store import ACCOUNT, KEY, AzureStore
from tests.servers.gcs_store import GcsStore
from tests.servers.hostile_store import LISTED, Answer, Fault, HostileStore, Link, Request, content
from tests.servers.hub import Elsewhere, HostileHub
from tests.servers.scripted import Asked, ScriptedStore, message
from tests.servers.web import BODY, WebServer

pytestmark = pytest.mark.timeout(120)
LARGE = "300000-large"
"""An object that is read by several requests when it is opened."""
SMALL = [f"listed/{name}" for name in LISTED[:3]]
PAGE = b"<html><title>Sign in</title>Please sign in to this network.</html>"


# ---- stores


class Kind(NamedTuple):
    """A kind of store, how it is reached, and which of its requests are about objects."""

    store: type[HostileStore]
    url: str
    environment: dict[str, str]
    """With `@` in the place of the store's URL."""
    is_about_object: Callable[[Request], bool]


def _has_key(request: Request) -> bool:
    return request.method in ("GET", "HEAD") and request.key != ""


def _is_of_file(request: Request) -> bool:
    return any(part in request.path for part in ("/resolve/", "/resolve-cache/", "/repos/"))


KEYS = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
CONNECTION = f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint=@"
KINDS = {
    "s3": Kind(HostileStore, "s3://bucket", {"S3_ENDPOINT": "@", **KEYS}, _has_key),
    "gcs": Kind(GcsStore, "gs://bucket", {"STORAGE_EMULATOR_HOST": "@"}, _has_key),
    "azure": Kind(AzureStore, "az://bucket", {"AZURE_STORAGE_CONNECTION_STRING": CONNECTION}, _has_key),
    "hub": Kind(HostileHub, "hf://datasets/o/n", {"HF_ENDPOINT": "@", "HF_TOKEN": ""}, _is_of_file),
    "web": Kind(HostileStore, "@/bucket", {}, _has_key),
}


class Stored(NamedTuple):
    """A store that does wrong, and the contents that each of its objects has had."""

    name: str
    url: str
    store: HostileStore
    contents: dict[str, set[bytes]]

    def expect(self, key: str, data: bytes) -> None:
        """Check that bytes are those of an object."""
        if key not in self.contents and data != content(key):
            raise AssertionError(f"{key}: {data[:80]!r}, {len(data)} bytes where {len(content(key))} are right")
        assert data in self.contents.get(key, {data}), f"{key}: {len(data)} bytes of no version that there was"


# ---- faults


def sign_in(link: Link, request: Request, answer: Answer) -> bytes:
    """The page by which a network asks who somebody is."""
    page = Answer(200, {"Content-Type": "text/html", "Server": "proxy"}, PAGE, len(PAGE))
    return page.head() if request.method == "HEAD" else page.raw


def cut(link: Link, request: Request, answer: Answer) -> bytes:
    """A connection that is lost, in the middle of a body with a length."""
    return answer.head() + answer.body[: len(answer.body) // 2]


def cut_without_length(link: Link, request: Request, answer: Answer) -> bytes:
    """The same of a whole object, whatever was asked for, whose end is that of the connection."""
    whole = _whole(link, request, answer)
    if whole is None:
        return answer.raw
    head = answer._replace(status=200).head(Content_Length=None, Content_Range=None, Connection="close")
    return head + whole[: len(whole) // 2]


def _transformed(answer: Answer, body: bytes, **fields: str) -> bytes:
    """A response as an edge sends it that changes the encoding: it knows no length, and its ETag is a weak one."""
    changes = {"Content_Length": None, "Transfer_Encoding": "chunked", "Content_Range": None, **fields}
    if "ETag" in answer.headers:
        changes["ETag"] = f"W/{answer.headers['ETag']}"
    return answer._replace(status=200).head(**changes) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def _whole(link: Link, request: Request, answer: Answer) -> bytes | None:
    """The whole object that a response is of; None for a response without an object's content."""
    is_resource = isinstance(link.store, GcsStore) and request.query.get("alt") != "media"
    if request.method != "GET" or answer.status >= 300 or is_resource:
        return None
    if not isinstance(link.store, HostileHub | Elsewhere):
        return content(request.key)
    headers = {name: value for name, value in request.headers.items() if name != "range"}
    return link.store.answer(request._replace(headers=headers)).body


def encoded(link: Link, request: Request, answer: Answer) -> bytes:
    """An object that an edge has compressed."""
    whole = _whole(link, request, answer)
    return answer.raw if whole is None else _transformed(answer, gzip.compress(whole), Content_Encoding="gzip")


def decoded(link: Link, request: Request, answer: Answer) -> bytes:
    """An object that was stored compressed, and that an edge decompresses for clients which don't accept that."""
    if "gzip" in request.headers["accept-encoding"]:
        return answer.raw
    if request.method == "HEAD":
        return answer.head(Content_Length=None, ETag=f"W/{answer.headers.get('ETag')}")
    whole = _whole(link, request, answer)
    return answer.raw if whole is None else _transformed(answer, whole * 2)


def head_without_length(link: Link, request: Request, answer: Answer) -> bytes:
    """A HEAD that doesn't say how long the object is."""
    return answer.head(Content_Length=None) if request.method == "HEAD" else answer.raw


def weak(link: Link, request: Request, answer: Answer) -> bytes:
    """Validators that are weak, of the right bytes."""
    if "ETag" not in answer.headers:
        return answer.raw
    return answer.head(ETag=f"W/{answer.headers['ETag']}") + answer.body


FAULTS: dict[str, Callable[[Link, Request, Answer], bytes]] = {
    "sign in": sign_in,
    "cut": cut,
    "cut without length": cut_without_length,
    "encoded": encoded,
    "decoded": decoded,
    "HEAD without length": head_without_length,
    "weak": weak,
    "changing": lambda link, request, answer: answer.raw,
}
HARMLESS = frozenset(
    {("s3", "decoded"), ("azure", "decoded"), *itertools.product(KINDS, ("HEAD without length", "weak"))}
)
"""Faults of stores in spite of which the right bytes are read."""
ENDING = frozenset({"cut", "cut without length"})
"""Faults that end their connection."""
USUAL = {"sign in": "read_bytes", "cut without length": "open"}
"""The reads that faults mislead most easily."""
MEANINGLESS = {
    ("web", "sign in"): "whatever page a web server has is what it has",
    ("web", "decoded"): "a web server says nothing of what it has stored",
    ("gcs", "HEAD without length"): "what is asked for is a resource, in JSON",
    ("hub", "changing"): "a commit never changes",
}


def _rewritten(stored: Stored, key: str, counter: Iterator[int]) -> None:
    """Give an object another content of the same size."""
    turn = next(counter) % 200
    data = content(key)[turn:] + content(key)[:turn]
    stored.contents.setdefault(key, {content(key)}).add(data)
    if isinstance(stored.store, GcsStore | AzureStore):
        stored.store.put(key, data)
    else:
        stored.store.written[key] = data


def _as_fault(stored: Stored, name: str) -> Fault:
    """Return a fault for the requests about objects; others are answered as they should be."""
    is_about_object, counter = KINDS[stored.name].is_about_object, itertools.count(1)

    def send(link: Link, request: Request, answer: Answer) -> bool:
        if not is_about_object(request):
            link.send(answer.raw)
            return True
        link.send(FAULTS[name](link, request, answer))
        if name == "changing":
            _rewritten(stored, request.key, counter)
        return name not in ENDING

    return send


# ---- ways to read


def read_bytes(stored: Stored, folder: Path) -> None:
    fs = fsabs.from_url(stored.url)
    for key in (SMALL[0], LARGE):
        stored.expect(key, fs.read_bytes(key))


def read_many(stored: Stored, folder: Path) -> None:
    wanted = [*SMALL, LARGE]
    for key, data in zip(wanted, fsabs.from_url(stored.url).read_many(wanted), strict=True):
        stored.expect(key, data)


def open_(stored: Stored, folder: Path) -> None:
    fs = fsabs.from_url(stored.url)
    for key in (SMALL[0], LARGE):
        with fs.open(key, "rb") as file:
            start = file.read(1000)
            stored.expect(key, start + file.read())


def dataset(stored: Stored, folder: Path) -> None:
    samples = FileDataset(fsabs.from_url(stored.url), SMALL)
    for key, data in zip(SMALL, samples.__getitems__([0, 1, 2]), strict=True):
        stored.expect(key, data)


def cp(stored: Stored, folder: Path) -> None:
    _run("cp", f"{stored.url}/{LARGE}", str(folder / "copy"))
    stored.expect(LARGE, (folder / "copy").read_bytes())


def sync(stored: Stored, folder: Path) -> None:
    _run("sync", f"{stored.url}/listed", str(folder / "copies"))
    for name in LISTED:
        stored.expect(f"listed/{name}", (folder / "copies" / name).read_bytes())


def _run(*arguments: str) -> None:
    """Run a command; raise `OSError` if its exit code says that it failed."""
    if (code := run(arguments)) != 0:
        raise OSError(f"exit code {code}")


READS = {
    "read_bytes": read_bytes,
    "read_many": read_many,
    "open": open_,
    "FileDataset": dataset,
    "cp": cp,
    "sync": sync,
}


@pytest.fixture
def stored(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stored]:
    """A store of the kind that the test names, with the fault that it names."""
    name, fault = request.param
    kind = KINDS[name]
    for variable in os.environ:
        if variable.startswith(("AWS_", "S3_", "AZURE_", "HF_")) or variable.lower().endswith("_proxy"):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PFIO_CONFIG_PATH", os.devnull)
    monkeypatch.setattr(failures, "BACKOFF", 0.001)
    with kind.store() as store:
        for variable, value in kind.environment.items():
            monkeypatch.setenv(variable, value.replace("@", store.endpoint))
        found = Stored(name, kind.url.replace("@", store.endpoint), store, {})
        monkeypatch.setitem(hostile_store.FAULTS, fault, _as_fault(found, fault))
        store.rate = 1.0
        store.faults = (fault,)
        yield found
        store.rate = 0.0


def _cells(everything: bool) -> list[Any]:
    """Return each store with each fault and each read, or with one of these."""
    turns, cells = itertools.cycle(READS), []
    for kind, fault in itertools.product(KINDS, FAULTS):
        if (kind, fault) in MEANINGLESS:
            continue
        reads = [read for read in READS if (kind, read) != ("web", "sync")]  # it lists nothing
        usual = USUAL.get(fault) or next(read for read in turns if read in reads)
        chosen = reads if everything else [usual]
        for read in chosen:
            cells.append(pytest.param((kind, fault), read, id=f"{kind}-{fault}-{read}"))
    return cells


def check(stored: Stored, read: str, folder: Path) -> None:
    (fault,) = stored.store.faults
    try:
        READS[read](stored, folder)
    except FileNotFoundError as exc:
        raise AssertionError(f"a file that is there is not found: {exc}") from exc
    except OSError:
        if (stored.name, fault) in HARMLESS:
            raise
    assert stored.store.injected[fault], "nothing was read"


@pytest.mark.parametrize(("stored", "read"), _cells(everything=False), indirect=["stored"])
def test_right_bytes_or_an_error(stored: Stored, read: str, tmp_path: Path) -> None:
    check(stored, read, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("stored", "read"), _cells(everything=True), indirect=["stored"])
def test_right_bytes_or_an_error_by_every_way_to_read(stored: Stored, read: str, tmp_path: Path) -> None:
    check(stored, read, tmp_path)


# ---- servers that say little, or too much

S3_KEYS: dict[str, Any] = {"aws_access_key_id": "me", "aws_secret_access_key": "secret", "region": "us-east-1"}
TIME = "2026-01-01T00:00:00.000Z"


@pytest.mark.quick
def test_parts_of_a_file_without_a_version_are_of_one_content() -> None:
    with WebServer({"/d": BODY}) as web, fsabs.from_url(f"{web.url}/plain").open("d", "rb") as file:
        start = file.read(10)
        web.files["/d"] = BODY[::-1]
        assert start + file.read() == BODY


@pytest.mark.quick
@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_of_unknown_length_is_read_by_ranges_or_not_at_all(ranges: bool) -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> bool:
        wanted = asked.headers.get("range", "")
        if wanted == "bytes=0-":
            asked.headers["range"] = f"bytes=0-{len(BODY) - 1}"
        if not ranges:
            asked.headers.pop("range", None)
        headers = {"Content-Length": None, "Connection": "close", "ETag": '"v"'}
        connection.sendall(store.respond(asked, headers=headers))
        return True

    with ScriptedStore({"d": BODY}, script) as store:
        fs = fsabs.from_url(f"{store.endpoint}/bucket", max_attempts=2)
        reads: list[Callable[[], bytes]] = [
            lambda: fs.read_bytes("d"),
            lambda: next(iter(fs.read_many(["d", "d"]))),
            lambda: fs.open("d", "rb").read(),
        ]
        assert fs.exists("d")
        assert fs.isfile("d")
        for read in reads:
            if ranges:
                assert read() == BODY
            else:
                with pytest.raises(fsabs.CorruptFileError, match="how long it is"):
                    read()


@pytest.mark.quick
@pytest.mark.parametrize("size", [0, 1000])
def test_a_gateway_whose_head_has_no_length(size: int) -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if not size and asked.range is not None:
            connection.sendall(message(416, {"Content-Length": "0"}, b""))
        else:
            headers = {"Content-Length": None} if asked.method == "HEAD" else {}
            connection.sendall(store.respond(asked, headers=headers))

    with ScriptedStore({"d": bytes(size)}, script) as store:
        fs = fsabs.from_url("s3://bucket", endpoint=store.endpoint, **S3_KEYS)
        assert fs.exists("d")
        assert fs.isfile("d")
        assert fs.stat("d").size == size
        with fs.open("d", "rb") as file:
            assert file.read() == bytes(size)


@pytest.mark.quick
def test_more_bytes_than_the_store_lists_are_no_copy(tmp_path: Path) -> None:
    """As an edge sends them that has decoded an object, and says nothing of it."""

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if not asked.key:
            page = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>d</Key>"
            body = f"{page}<LastModified>{TIME}</LastModified><Size>555</Size></Contents></ListBucketResult>".encode()
            connection.sendall(message(200, {"Content-Length": str(len(body))}, body))
        else:
            connection.sendall(
                store.respond(asked, headers={"Content-Length": "555"} if asked.method == "HEAD" else {})
            )

    with ScriptedStore({"d": bytes(1000)}, script) as store:
        fs = fsabs.from_url("s3://bucket", endpoint=store.endpoint, **S3_KEYS)
        with pytest.raises(fsabs.CorruptFileError, match="1000 bytes can be read of 555"):
            fs.copy_tree("", "copies", fsabs.from_url(str(tmp_path)))
    assert not (tmp_path / "copies" / "d").exists()
