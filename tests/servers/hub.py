"""A Hugging Face hub on loopback: repositories of commits, and where large files lie, a host of its own that takes no
token and whose addresses end.

It speaks the part of the hub's API that `huggingface_hub` lists, reads and commits by, with its header fields; that
library is tested against it, so that it is known to be like the real one. It counts requests, keeps quotas in fixed
windows, and can do wrong whatever `HostileStore` can. Its methods change repositories behind the backs of clients.

As the hub does, it sends small text files itself, by one redirect on its host, and keeps all others elsewhere.
"""

from __future__ import annotations

import base64
import collections
import fnmatch
import hashlib
import hmac
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any, NamedTuple

from tests.servers.hostile_store import LISTED, Answer, HostileStore, Request, content

TOKEN, READER, STRANGER = "hf_writer", "hf_reader", "hf_stranger"
"""Tokens of accounts that may write, may read, and may read what is public."""
MAX_PAGE = 1000
LARGE = 10 * 1024
"""A file of more bytes, or one that is not text, is kept elsewhere."""
_KINDS = "models|datasets|spaces|kernels"
_PAGE = re.compile(r"/(?:(datasets|spaces|kernels)/)?([^/]+/[^/]+?)/resolve/([^/]+)/(.+)")
_CACHED = re.compile(rf"/api/resolve-cache/({_KINDS})/([^/]+/[^/]+)/([^/]+)/(.+)")
_API = re.compile(rf"/api/({_KINDS})/([^/]+/[^/]+)(?:/([a-z-]+)(?:/([^/]+)(?:/(.*))?)?)?")
_LFS = re.compile(r"/(?:(datasets|spaces|kernels)/)?([^/]+/[^/]+)\.git/info/lfs/objects/(batch|verify)")


class File(NamedTuple):
    """A file of a commit."""

    content: bytes
    large: bool
    oid: str
    """The id in git: of the content, or of the pointer to it."""
    etag: str
    """What the hub calls the file's ETag: the SHA-256 of a large one, and the id of the others."""

    @classmethod
    def of(cls, content: bytes, large: bool) -> File:
        """A file with this content."""
        digest, data = hashlib.sha256(content).hexdigest() if large else "", content
        if large:
            text = "version https://git-lfs.github.com/spec/v1\n"
            data = f"{text}oid sha256:{digest}\nsize {len(content)}\n".encode()
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        return cls(content, large, oid, digest or oid)


class Commit(NamedTuple):
    """A commit."""

    oid: str
    message: str
    files: dict[str, File]


class Repository:
    """A repository; `readers` are the tokens that may read it, None for all."""

    def __init__(self, name: str, readers: set[str] | None, gated: bool) -> None:
        self.name = name
        self.readers = readers
        self.gated = gated
        self.commits: dict[str, Commit] = {}
        self.history: list[str] = []
        self.references: dict[str, str] = {}
        self.commit({}, "initial commit")

    def commit(self, files: dict[str, File], message: str, branch: str = "main") -> Commit:
        """Make a commit of a whole tree."""
        seed = f"{self.name} {len(self.commits)} {message} {time.time_ns()}"
        made = Commit(hashlib.sha1(seed.encode()).hexdigest(), message, files)
        self.commits[made.oid] = made
        self.history.append(made.oid)
        self.references[branch] = made.oid
        return made

    def at(self, revision: str) -> Commit | None:
        """The commit of a revision; None if there is none."""
        return self.commits.get(self.references.get(revision, revision))


def file_of(path: str, content: bytes) -> File:
    """A file as the hub would keep it."""
    text = len(content) <= LARGE and b"\0" not in content[:512]
    return File.of(content, bool(content) and not text)


class HubServer(HostileStore):
    """The hub; `elsewhere` is where large files lie.

    Args:
        certificate: the file of a key and its certificate; plain without one.
    """

    def __init__(self, certificate: str | None = None, seed: int = 0) -> None:
        super().__init__(certificate, seed)
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.large: dict[str, bytes] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        self.seen: list[Request] = []
        self.quotas: dict[str, int] = {}
        """Requests of a window by kind, `api` and `resolvers`; no limit without one."""
        self.window = 300.0
        self.lifetime = 3600.0
        """Seconds that addresses are good for."""
        self.page = MAX_PAGE
        self.refused = 0
        self._used: collections.Counter[tuple[str, str, int]] = collections.Counter()
        self._state = threading.Lock()
        self.elsewhere = Elsewhere(self, certificate, seed)

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.elsewhere.__exit__(*exc)

    # ---- behind the backs of clients

    def make(
        self,
        name: str,
        files: Mapping[str, bytes] | None = None,
        *,
        kind: str = "datasets",
        readers: Iterable[str] | None = None,
        gated: bool = False,
    ) -> Repository:
        """Make a repository with these files."""
        made = Repository(name, set(readers) if readers is not None else None, gated)
        self.repositories[kind, name] = made
        if files:
            self.put(made, files)
        return made

    def put(self, repository: Repository, files: Mapping[str, bytes | None], branch: str = "main") -> Commit:
        """Make a commit that adds files, or removes those that are None."""
        before = repository.at(branch)
        tree = dict(before.files) if before is not None else {}
        for path, data in files.items():
            if data is None:
                del tree[path]
            else:
                tree[path] = file_of(path, data)
                if tree[path].large:
                    self.large[tree[path].etag] = data
        return repository.commit(tree, "put", branch)

    # ---- answers

    def answer(self, request: Request) -> Answer:
        """The hub's response."""
        with self._state:
            self.seen.append(request)
            path = urllib.parse.urlsplit(request.target).path
            kind = "resolvers" if "/resolve/" in path else "api"
            self.counts[kind] += 1
            fields, over = self._quota(kind, request)
            answer = self._refusal(429, "", "We had to rate limit you") if over else self._answer(request, path)
            answer.headers.update(fields)
            if request.method == "HEAD":
                answer = answer._replace(body=b"")
            return answer

    def _quota(self, kind: str, request: Request) -> tuple[dict[str, str], bool]:
        limit = self.quotas.get(kind)
        if limit is None:
            return {"Date": formatdate(usegmt=True)}, False
        number = int(time.time() // self.window)
        name = (request.headers.get("authorization", ""), kind, number)
        over = self._used[name] >= limit
        self.refused += over
        self._used[name] += not over
        left = -(-((number + 1) * self.window - time.time()) // 1)
        return {
            "Date": formatdate(usegmt=True),
            "RateLimit": f'"{kind}";r={limit - self._used[name]};t={int(left)}',
            "RateLimit-Policy": f'"fixed window";"{kind}";q={limit};w={int(self.window)}',
        }, over

    def _answer(self, request: Request, path: str) -> Answer:
        if request.headers.get("authorization", "Bearer hf_").partition("Bearer hf_")[1] == "":
            return self._refusal(401, "", "Invalid credentials in Authorization header")
        if (found := _LFS.fullmatch(path)) is not None:
            return self._lfs(request, found[1] or "models", found[2], found[3])
        if (found := _PAGE.fullmatch(path)) is not None:
            self.counts["resolve"] += 1
            return self._resolve(
                request, found[1] or "models", found[2], *map(urllib.parse.unquote, found.groups()[2:])
            )
        if (found := _CACHED.fullmatch(path)) is not None:
            return self._cached(request, found[1], found[2], found[3], urllib.parse.unquote(found[4]))
        if path == "/api/validate-yaml":
            return _json({"errors": [], "warnings": []})
        if path == "/api/whoami-v2":
            return _json({"name": _token(request), "auth": {"accessToken": {"role": "write"}}})
        if (found := _API.fullmatch(path)) is not None:
            rest = [urllib.parse.unquote(text or "") for text in found.groups()[2:]]
            return self._api(request, found[1], found[2], *rest)
        return self._refusal(404, "", "Sorry, we can't find the page you are looking for.")

    def _refusal(self, status: int, code: str, message: str) -> Answer:
        body = json.dumps({"error": message}).encode()
        shown = message.encode("ascii", "backslashreplace").decode()
        headers = {"Content-Type": "application/json", "X-Error-Message": shown}
        if code:
            headers["X-Error-Code"] = code
        return Answer(status, headers, body, len(body))

    def _found(self, request: Request, kind: str, name: str) -> Repository | Answer:
        """The repository, or why it can't be read."""
        token, repository = _token(request), self.repositories.get((kind, name))
        hidden = repository is not None and repository.readers is not None and token not in repository.readers
        if repository is None or (hidden and not repository.gated):
            if not token:
                return self._refusal(401, "RepoNotFound", "Invalid username or password.")
            return self._refusal(404, "RepoNotFound", "Repository not found")
        if hidden:
            message = f"Access to {kind[:-1]} {name} is restricted and you are not in the authorized list."
            return self._refusal(403 if token else 401, "GatedRepo", message)
        return repository

    def _commit(self, repository: Repository, revision: str) -> Commit | Answer:
        found = repository.at(revision)
        return found or self._refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")

    def _file(self, commit: Commit, path: str) -> File | None:
        return commit.files.get(path)

    def _resolve(self, request: Request, kind: str, name: str, revision: str, path: str) -> Answer:
        repository = self._found(request, kind, name)
        if isinstance(repository, Answer):
            return repository
        commit = self._commit(repository, revision)
        if isinstance(commit, Answer):
            return commit
        file = self._file(commit, path)
        if file is None:
            missing = self._refusal(404, "EntryNotFound", "Entry not found")
            missing.headers["X-Repo-Commit"] = commit.oid
            return missing
        headers = {"X-Repo-Commit": commit.oid, "Accept-Ranges": "bytes", "X-Linked-Size": str(len(file.content))}
        if not file.large:
            where = f"/api/resolve-cache/{kind}/{name}/{commit.oid}/{urllib.parse.quote(path, safe='')}"
            headers |= {"Location": f"{where}?etag=%22{file.etag}%22", "X-Linked-Etag": f'"{file.etag}"'}
            return Answer(307, headers, b"Temporary Redirect", 18)
        self.large.setdefault(file.etag, file.content)
        headers |= {"X-Linked-Etag": f'"{file.etag}"', "Location": self.elsewhere.address(file.etag, path)}
        return Answer(302, headers, b"Found", 5)

    def _cached(self, request: Request, kind: str, name: str, revision: str, path: str) -> Answer:
        repository = self._found(request, kind, name)
        if isinstance(repository, Answer):
            return repository
        commit = self._commit(repository, revision)
        if isinstance(commit, Answer):
            return commit
        file = self._file(commit, path)
        if file is None:
            return self._refusal(404, "EntryNotFound", "Entry not found")
        answer = _ranged(request, file.content)
        answer.headers.update({"ETag": f'"{file.etag}"', "X-Repo-Commit": commit.oid})
        return answer

    def _api(self, request: Request, kind: str, name: str, action: str, revision: str, path: str) -> Answer:
        repository = self._found(request, kind, name)
        if isinstance(repository, Answer):
            return repository
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(request.target).query))
        if action == "refs":
            branches = [
                {"name": name, "ref": f"refs/heads/{name}", "targetCommit": oid}
                for name, oid in repository.references.items()
            ]
            return _json({"branches": branches, "tags": [], "converts": []})
        if action == "commit":
            return self._make_commit(request, kind, repository, revision)
        commit = self._commit(repository, revision or "main")
        if isinstance(commit, Answer):
            return commit
        if action in ("", "revision"):
            self.counts["info"] += 1
            info: dict[str, Any] = {"_id": "0", "id": name, "sha": commit.oid}
            if "expand" not in query:
                info |= {
                    "private": repository.readers is not None,
                    "gated": repository.gated,
                    "tags": [],
                    "downloads": 0,
                }
                info |= {"tags": [], "downloads": 0}
                info["siblings"] = [{"rfilename": path} for path in sorted(commit.files)]
            return _json(info)
        if action == "tree":
            return self._tree(commit, request, path, query)
        if action == "paths-info":
            asked = urllib.parse.parse_qs(request.body.decode()).get("paths", [])
            found = {entry["path"]: entry for entry in self._entries(commit, "", True)}
            return _json([found[path] for path in asked if path in found])
        if action == "preupload":
            return self._preupload(request, commit)
        return self._refusal(404, "", "Not found")

    # ---- listings

    def _tree(self, commit: Commit, request: Request, path: str, query: dict[str, str]) -> Answer:
        self.counts["tree"] += 1
        recursive = query.get("recursive", "").lower() in ("true", "1")
        most = min(int(query.get("limit", self.page)), 50 if query.get("expand", "").lower() == "true" else self.page)
        entries = self._entries(commit, path, recursive)
        if not entries and path:
            return self._refusal(404, "EntryNotFound", f"{path} does not exist on this revision")
        start = int(base64.b64decode(query["cursor"])) if "cursor" in query else 0
        answer = _json(entries[start : start + most])
        if start + most < len(entries):
            cursor = base64.b64encode(str(start + most).encode()).decode()
            base = request.target.partition("?")[0]
            following = urllib.parse.urlencode({**query, "cursor": cursor})
            answer.headers["Link"] = f'<{self.endpoint}{base}?{following}>; rel="next"'
        return answer

    def _entries(self, commit: Commit, path: str, recursive: bool) -> list[dict[str, Any]]:
        if path in commit.files:
            return [_entry(path, commit.files[path])]
        prefix = path and path.rstrip("/") + "/"
        files, folders = list[dict[str, Any]](), set[str]()
        for name, file in self._named(commit).items():
            if not name.startswith(prefix):
                continue
            parts = name[len(prefix) :].split("/")
            for depth in range(1, len(parts) if recursive else min(2, len(parts))):
                folders.add(prefix + "/".join(parts[:depth]))
            if recursive or len(parts) == 1:
                files.append(_entry(name, file))
        found = [
            {"type": "directory", "oid": hashlib.sha1(name.encode()).hexdigest(), "size": 0, "path": name}
            for name in sorted(folders)
        ]
        return [*found, *sorted(files, key=lambda entry: str(entry["path"]))]  # folders come first

    def _named(self, commit: Commit) -> dict[str, File]:
        return commit.files

    # ---- commits

    def _may_write(self, request: Request) -> Answer | None:
        if _token(request) == TOKEN:
            return None
        message = "You don't have the rights to create a commit on this repository."
        return self._refusal(403 if _token(request) else 401, "", message)

    def _preupload(self, request: Request, commit: Commit) -> Answer:
        if (refusal := self._may_write(request)) is not None:
            return refusal
        patterns = commit.files[".gitignore"].content.decode().split() if ".gitignore" in commit.files else []
        found = []
        for file in json.loads(request.body)["files"]:
            sample = base64.b64decode(file["sample"])
            large = file["size"] > LARGE or b"\0" in sample
            ignored = any(fnmatch.fnmatch(file["path"].rpartition("/")[2], pattern) for pattern in patterns)
            before = commit.files.get(file["path"])
            entry = {"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": ignored}
            found.append({**entry, "oid": before.etag if before is not None else None})
        return _json({"files": found})

    def _lfs(self, request: Request, kind: str, name: str, action: str) -> Answer:
        repository = self._found(request, kind, name)
        if isinstance(repository, Answer):
            return repository
        if (refusal := self._may_write(request)) is not None:
            return refusal
        asked = json.loads(request.body)
        if action == "verify":
            there = len(self.large.get(asked["oid"], b"")) == asked["size"]
            return _json({}) if there else self._refusal(404, "", "no such object")
        objects = []
        for entry in asked["objects"]:
            if entry["oid"] in self.large:
                objects.append(entry)
                continue
            verify = f"{self.endpoint}{request.target.replace('/batch', '/verify')}"
            upload = self.elsewhere.address(entry["oid"], "upload", "PUT")
            objects.append({**entry, "actions": {"upload": {"href": upload}, "verify": {"href": verify}}})
        answer = _json({"transfer": "basic", "objects": objects})
        answer.headers["Content-Type"] = "application/vnd.git-lfs+json"
        return answer

    def _make_commit(self, request: Request, kind: str, repository: Repository, branch: str) -> Answer:
        if (refusal := self._may_write(request)) is not None:
            return refusal
        if branch not in repository.references:
            return self._refusal(404, "RevisionNotFound", f"Invalid rev id: {branch}")
        before = repository.at(branch)
        assert before is not None
        tree, header = dict(before.files), dict[str, str]()
        for line in request.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                header = value
            elif entry["key"] == "file":
                tree[value["path"]] = File.of(base64.b64decode(value["content"]), False)
            elif entry["key"] == "lfsFile":
                if value["oid"] not in self.large:
                    return self._refusal(400, "", f"LFS object {value['oid']} was not uploaded")
                tree[value["path"]] = File.of(self.large[value["oid"]], True)
            elif entry["key"] == "deletedFile" and value["path"] not in before.files:
                return self._refusal(404, "EntryNotFound", "A file with this name doesn't exist")
            else:
                for path in [path for path in tree if f"{path}/".startswith(value["path"].rstrip("/") + "/")]:
                    if path in before.files:
                        del tree[path]
        if header.get("parentCommit") not in (None, before.oid):
            return self._refusal(412, "", "A commit has happened since. Please refresh and try again.")
        self.counts["commit"] += 1
        made = repository.commit(tree, header["summary"], branch)
        page = f"{self.endpoint}/{kind}/{repository.name}".replace("/models/", "/")
        return _json({"success": True, "commitOid": made.oid, "commitUrl": f"{page}/commit/{made.oid}"})


class HostileHub(HubServer):
    """A hub with one repository, `datasets/o/n`, which has the files that `HostileStore` has; both hosts do wrong."""

    def __init__(self, certificate: str | None = None, seed: int = 0) -> None:
        super().__init__(certificate, seed)
        self.page = 10
        self.make("o/n")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("faults", "rate") and "elsewhere" in self.__dict__:
            setattr(self.elsewhere, name, value)

    def _file(self, commit: Commit, path: str) -> File | None:
        whole = self.object(path)
        return None if whole is None else file_of(path, whole)

    def _named(self, commit: Commit) -> dict[str, File]:
        return {f"listed/{name}": file_of(name, content(name)) for name in LISTED}


class Elsewhere(HostileStore):
    """Where large files lie: at addresses that are signed, for a time, and that no token goes with."""

    def __init__(self, hub: HubServer, certificate: str | None, seed: int) -> None:
        super().__init__(certificate, seed)
        self._hub = hub
        self.seen: list[Request] = []
        self.valid_from = 0.0
        self.origin = self.endpoint
        """Where the addresses lead to."""

    def address(self, digest: str, name: str, method: str = "GET") -> str:
        """The address of a file, as AWS signs them."""
        begun = datetime.fromtimestamp(time.time(), UTC).strftime("%Y%m%dT%H%M%SZ")
        disposition = urllib.parse.quote(f'inline; filename="{name.rpartition("/")[2]}"')
        seconds = f"{self._hub.lifetime:.0f}"
        signature = _signature(digest, begun, seconds, method)
        query = f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date={begun}&X-Amz-Expires={seconds}&X-Amz-SignedHeaders=host"
        where = f"{self.origin}/repos/ab/cd/{digest}"
        return f"{where}?{query}&X-Amz-Signature={signature}&response-content-disposition={disposition}&x-id=GetObject"

    def answer(self, request: Request) -> Answer:
        """The file, or a refusal as XML."""
        self.seen.append(request)
        parts = urllib.parse.urlsplit(request.target)
        digest, query = parts.path.rpartition("/")[2], dict(urllib.parse.parse_qsl(parts.query))
        begun, seconds = query.get("X-Amz-Date", ""), query.get("X-Amz-Expires", "0")
        method = "PUT" if request.method == "PUT" else "GET"
        if "authorization" in request.headers:
            return _xml(400, "InvalidArgument", "Only one auth mechanism allowed")
        good = hmac.compare_digest(query.get("X-Amz-Signature", ""), _signature(digest, begun, seconds, method))
        if not good or request.method not in ("GET", "PUT"):
            return _xml(403, "SignatureDoesNotMatch", "The request signature does not match")
        since = datetime.strptime(begun, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        if time.time() > since + float(seconds) or since < self.valid_from:
            return _xml(403, "AccessDenied", "Request has expired")
        if request.method == "PUT":
            if hashlib.sha256(request.body).hexdigest() != digest:
                return _xml(400, "BadDigest", "another content")
            self._hub.large[digest] = request.body
            return Answer(200, {"ETag": '"uploaded"'}, b"", 0)
        self._hub.counts["content"] += 1
        answer = _ranged(request, self._hub.large[digest])
        answer.headers["ETag"] = f'"{hashlib.md5(digest.encode()).hexdigest()}"'  # which is not the hub's
        return answer


def _token(request: Request) -> str:
    return request.headers.get("authorization", "").removeprefix("Bearer ")


def _signature(digest: str, begun: str, seconds: str, method: str) -> str:
    return hmac.new(b"key", f"{method} {digest} {begun} {seconds}".encode(), "sha256").hexdigest()


def _entry(path: str, file: File) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "oid": file.oid, "size": len(file.content), "path": path}
    if file.large:
        entry["lfs"] = {"oid": file.etag, "size": len(file.content), "pointerSize": 134}
    return entry


def _json(value: Any) -> Answer:
    body = json.dumps(value).encode()
    return Answer(200, {"Content-Type": "application/json; charset=utf-8"}, body, len(body))


def _xml(status: int, code: str, message: str) -> Answer:
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'.encode()
    return Answer(status, {"Content-Type": "application/xml"}, body, len(body))


def _ranged(request: Request, whole: bytes) -> Answer:
    asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
    if asked is None:
        return Answer(200, {"Accept-Ranges": "bytes"}, whole, len(whole))
    start, end = int(asked[1]), min(int(asked[2] or len(whole)), len(whole) - 1)
    if start >= len(whole):
        return Answer(416, {"Content-Range": f"bytes */{len(whole)}"}, b"", 0)
    part = whole[start : end + 1]
    return Answer(206, {"Content-Range": f"bytes {start}-{end}/{len(whole)}"}, part, len(part))
