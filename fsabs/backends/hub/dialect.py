"""The dialect of the hub: requests that read a repository at one commit, and what their responses mean.

A file is asked for at `/ORG/NAME/resolve/COMMIT/path`. The hub sends the content of few; of the others it gives the
address, signed for about an hour, of where it lies: that is followed without the token, kept, and asked for again when
it is refused (huggingface.co/docs/hub/api).

A repository at a revision is named by the first segments of a URL:

    hf://datasets/ORG/NAME[@REVISION]/path      and spaces/, kernels/, models/ or, for models, nothing

A revision is a branch, a tag or a commit; one with slashes is written with `%2F`, but for `refs/pr/N` and
`refs/convert/NAME`.
"""

from __future__ import annotations

import errno
import hashlib
import re
import time
import urllib.parse
import warnings
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from ...core import errors
from ...core.identity import Identity
from ...core.limits import parse_json
from ..objects.addresses import LONGEST, signed_until
from ..objects.client import absolute
from ..objects.dialect import EPOCH, Dialect, length_of
from ..objects.failures import (
    Expired,
    OutOfQuota,
    Redirected,
    Throttled,
    is_location_refused,
    mismatched,
    refusal,
    refused,
    retry_after,
)
from ..objects.messages import WHOLE, Found, ObjectPage, PageQuery, Reading, Request, Response, ResponseHead, is_number
from .access import HubAccess, HubOptions, environment, principal_of, token_of
from .tree import HubFile, Tree, shared

DEFAULT_REVISION = "main"
_KINDS = ("datasets", "spaces", "kernels", "models")
_NO_OWNERS = (*_KINDS, "buckets")
"""First segments of the hub's URLs that are no account's name."""
_NAME = r"[A-Za-z0-9_.-]{1,96}"
_STORE = re.compile(rf"(?:({'|'.join(_KINDS)})/)?({_NAME}/{_NAME})(?:@(refs/convert/[^/@]+|refs/pr/\d+|[^/@]+))?")
is_commit = re.compile("[0-9a-f]{40}").fullmatch
"""Matches the full name of a commit: what it names never changes."""
PAGE = 1000
"""Entries of a page of a listing."""
_RESOLVE = "/resolve/"
_is_answer = re.compile("/resolve/|/resolve-cache/|/api/").search
"""Matches URLs of files and of the API, and not those of web pages."""
_next = re.compile(r'<([^>]*)>\s*;[^,]*rel="next"').search
is_exhausted = re.compile(r'"\w+"\s*;\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d+)').search
"""Finds in a RateLimit field a quota of which nothing is left, and the seconds until it is renewed."""
WARNED_SECONDS = 5.0
"""Users are warned of a quota that is renewed after more seconds than these."""
_is_digest = re.compile("[0-9a-f]{40}|[0-9a-f]{64}").fullmatch


class Repository(NamedTuple):
    """A repository at a revision."""

    kind: str
    """`datasets`, `spaces`, `kernels` or `models`."""
    name: str
    """`ORG/NAME`."""
    revision: str
    """A branch, a tag or a commit; empty for the default branch."""
    text: str
    """As a URL has it: what stands between `hf://` and the path."""

    @property
    def api(self) -> str:
        """The path of its API."""
        return f"/api/{self.kind}/{self.name}"

    @property
    def page(self) -> str:
        """The path of its page, and of what is below it."""
        return f"/{self.name}" if self.kind == "models" else f"/{self.kind}/{self.name}"

    @property
    def type(self) -> str:
        """The name of its kind in huggingface_hub."""
        return self.kind[:-1]


def parse(authority: str) -> Repository:
    """Return what the authority of a URL names; `ValueError` for what is no repository."""
    match = _STORE.fullmatch(authority)
    if match is None or (not match[1] and match[2].partition("/")[0] in _NO_OWNERS):
        raise ValueError(
            f"hf://{authority} names no repository: hf://datasets/ORG/NAME[@REVISION]/path, hf://ORG/MODEL/path or "
            "hf://spaces/ORG/NAME/path"
        )
    return Repository(match[1] or "models", match[2], urllib.parse.unquote(match[3] or ""), authority)


class Resolved(Exception):
    """A response that says all about a file, and where its content lies."""

    def __init__(self, head: ResponseHead) -> None:
        super().__init__("redirected")
        self.response = Response(head, b"")


class HubDialect(Dialect):
    """A repository at a commit, with the options of `Hub`."""

    scheme = name = "hf"
    sent_with_objects = (b"x-repo-commit",)
    user_agent = "fsabs"
    checks_writes = True  # a large file is sent, and committed, by its digest; a small one is part of its commit

    def __init__(self, repository: Repository, commit: str, options: HubOptions) -> None:
        self.bucket = repository.text
        self.repository = repository
        self.commit = commit
        self.options = options
        self._tree: Tree | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tree": None}

    def at(self, commit: str) -> HubDialect:
        """Return the dialect of another commit."""
        return HubDialect(self.repository, commit, self.options)

    @property
    def tree(self) -> Tree:
        """What this process knows of the commit."""
        if self._tree is None:
            self._tree = self._tree_at(self.commit)
        return self._tree

    def _tree_at(self, commit: str) -> Tree:
        named, url = self.repository, self.options.url
        principal = principal_of(token_of(self.options.token))
        return shared(Identity(f"hf {url}", f"hf://{named.kind}/{named.name}", commit, 0, principal))

    # ---- the store

    def same_client(self) -> Hashable:
        """Return repository, options and environment."""
        return self.bucket, self.options, environment()

    def access(self) -> HubAccess:
        """Return this process's access to the hub."""
        return HubAccess(self.options)

    def failure(self, request: Request, head: ResponseHead, body: bytes) -> Exception:
        """Return what a status of 300 and above stands for."""
        status = head.status
        if status < 400:
            return self._redirect(request, head)
        code, message = head.header(b"x-error-code") or "", _message(head, body)
        error = refusal(status, code or head.reason, message)
        if is_location_refused(request, status):
            self._tree_at(_commit_of(request)).addresses.forget(request.key)  # signed for a time that is over, or moved
            return Redirected(error, "", anew=True)
        if status == 429:
            exhausted = is_exhausted(head.header(b"ratelimit") or "")
            if exhausted is None:
                return Throttled(error, retry_after(head))
            seconds = float(exhausted[1])
            if seconds > WARNED_SECONDS:
                self._warn_of_quota()
            return OutOfQuota(error, seconds)
        found = refused(head, code, message, self._refusal(status, code, message))
        return Expired(found) if status == 401 and isinstance(found, OSError) else found

    def _warn_of_quota(self) -> None:
        warnings.warn(  # the same text each time, of which Python shows the first one
            f"the quota of requests to {self.options.url} is used up, and waited for: a token has a larger one "
            "(HF_TOKEN), cache= needs fewer requests, and files in archives fewer still",
            RuntimeWarning,
            stacklevel=2,
        )

    def _refusal(self, status: int, code: str, message: str) -> OSError | None:
        """Return the error for a refusal that the user can do something about, or that is about the repository."""
        named, page = self.repository.name, self.options.url + self.repository.page
        if code == "RevisionNotFound":
            revision = self.repository.revision or DEFAULT_REVISION
            return FileNotFoundError(errno.ENOENT, f"{named} has no revision {revision!r}")
        if code == "GatedRepo":
            return PermissionError(
                errno.EACCES,
                f"{named} is gated: ask for access at {page}, and give the token of that account (HF_TOKEN)",
            )
        if status == 401 and "Invalid credentials" in message:
            return PermissionError(errno.EACCES, "the token is not accepted (any more): hf auth login, or HF_TOKEN")
        if status == 401:
            return PermissionError(
                errno.EACCES, f"there is no {page}, or it is private: a token that may read it is HF_TOKEN or token="
            )
        if code == "RepoNotFound":
            return FileNotFoundError(errno.ENOENT, f"there is no {page}, or this token may not see it")
        if status == 403:
            return PermissionError(errno.EACCES, f"the token may not do this in {named} (403): {message}")
        return None

    def _redirect(self, request: Request, head: ResponseHead) -> Exception:
        """Return what a redirect stands for: the address of a file, or another name of the repository."""
        error = refusal(head.status, head.reason)
        here = request.location or f"{self.options.origin}{request.path}"
        there = absolute(here, head.header(b"location") or "")
        if request.method not in ("GET", "HEAD") or there is None:
            return error
        if there.startswith(f"{self.options.origin}/"):
            if not _is_answer(there):
                return error
            return Redirected(error, there, **self._keep(request, head, there))
        if not request.key or head.header(b"x-repo-commit") is None:  # a sign-in page, for example
            return OSError(errno.EREMOTEIO, f"the hub's address leads to {urllib.parse.urlsplit(there).netloc}")
        if head.header(b"x-repo-commit") != _commit_of(request):
            return mismatched(f"an address in the commit {head.header(b'x-repo-commit')}")
        known = self._keep(request, head, there)
        return Redirected(error, there, **known) if request.method == "GET" else Resolved(head)

    def _keep(self, request: Request, head: ResponseHead, there: str) -> dict[str, Any]:
        """Keep what a redirect says of a file; return it as fields of a request."""
        if not request.key:
            return {}
        size, digest = head.header(b"x-linked-size") or "", self.version(head)
        if not is_number(size) or digest is None:
            return {}
        tree = self._tree_at(_commit_of(request))
        tree.remember(request.key, HubFile(int(size), digest))
        tree.addresses.put(request.key, there, signed_until(there, head) or time.time() + LONGEST)
        return {"size": int(size), **({"digest": digest} if request.range is None else {})}

    def version(self, head: ResponseHead) -> str | None:
        """Return the digest of the file that a response of the hub is about."""
        found = head.header(b"x-linked-etag") or head.header(b"etag") or ""
        digest = found.removeprefix("W/").strip('"')
        return digest if _is_digest(digest) else None

    def has_checksum(self, head: ResponseHead) -> bool:
        """Return whether a response is of the hub itself, whose ETags are digests."""
        return b"\r\nx-repo-commit:" in head.lower and self.version(head) is not None

    def mismatch(self, head: ResponseHead, pieces: Iterable[bytes]) -> str | None:
        """Compare with the digest in the head."""
        return self.differs(self.version(head) or "", pieces)

    def check(self, request: Request, head: ResponseHead, body: bytes) -> Exception | None:
        """Return why a response of the API is none."""
        if request.method == "GET" and body.lstrip()[:1] not in (b"[", b"{"):
            return mismatched("a response that is not JSON")
        return None

    def differs(self, digest: str, pieces: Iterable[bytes]) -> str | None:
        """Return how the bytes of a whole file differ from its digest; None if they don't."""
        if len(digest) == 64:
            found = hashlib.sha256()
        else:
            pieces = list(pieces)
            found = hashlib.sha1(b"blob %d\0" % sum(map(len, pieces)), usedforsecurity=False)
        for piece in pieces:
            found.update(piece)
        return f"content with the digest {found.hexdigest()} for {digest}" if found.hexdigest() != digest else None

    # ---- reading

    def _path(self, key: str) -> str:
        prefix = self.options.path
        return f"{prefix}{self.repository.page}{_RESOLVE}{self.commit}/{urllib.parse.quote(key, safe='/~')}"

    def read(self, key: str, wanted: Reading = WHOLE) -> Request:
        """Return a GET, at the file's address if that is known; the commit is the version."""
        request = Request("GET", key, "", (), b"", *wanted._replace(version=None), path=self._path(key))
        _, file = self.tree.find(key)
        if file is None:  # and what lies at an address would be compared with nothing
            return request
        digest = file.digest if wanted.range is None else ""
        return request._replace(size=file.size, location=self.tree.addresses.get(key), digest=digest)

    def head(self, key: str) -> Request:
        """Return a HEAD."""
        return Request("HEAD", key, path=self._path(key))

    def found(self, response: Response, total: int | None = None) -> Found:
        """Return what the response to a HEAD says."""
        head = response.head
        if total is None:
            total = length_of(head.header(b"x-linked-size") or head.header(b"content-length"))
        return Found(total, EPOCH, self.version(head))

    # ---- listing

    def api(self, path: str, **query: str) -> Request:
        """Return a GET of the repository's API."""
        where = f"{self.options.path}{self.repository.api}/{path}"
        return Request("GET", path=where, query=urllib.parse.urlencode(query))

    def page_request(self, query: PageQuery) -> Request:
        """Return the request for a page of a directory, or of all that is below it."""
        folder = urllib.parse.quote(query.prefix.rstrip("/"), safe="")
        fields = {"recursive": "false" if query.one_level else "true", "limit": str(PAGE)}
        if query.token is not None:
            fields["cursor"] = query.token
        return self.api(f"tree/{self.commit}{folder and '/' + folder}", **fields)

    def page(self, prefix: str, response: Response) -> ObjectPage:
        """Return the files of a page, and the directories that were not entered."""
        try:
            objects, folders = [], []
            for path, kind, size, digest in _entries(parse_json(response.body)):
                if f"{path}/" == prefix:  # a file, which is all that is in it
                    continue
                if not path.startswith(prefix):
                    raise ValueError(f"{path!r} is not below {prefix!r}")
                if kind == "file":
                    objects.append((path, "", digest, str(size)))
                elif kind == "directory":
                    folders.append(path + "/")
        except (ValueError, KeyError, TypeError) as exc:
            raise errors.CorruptFileError(errno.EBADMSG, f"not a page of a listing: {exc}") from exc
        following = _next(response.head.header(b"link") or "")
        if following is None:
            return ObjectPage(objects, folders, None)
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(following[1]).query))
        if not query.get("cursor"):
            raise errors.CorruptFileError(errno.EBADMSG, "a page of a listing that doesn't say where it goes on")
        return ObjectPage(objects, folders, query["cursor"])


def _commit_of(request: Request) -> str:
    return request.path.partition(_RESOLVE)[2].partition("/")[0]


def _entries(found: Any) -> Iterator[tuple[str, str, int, str]]:
    """Yield path, kind, size and digest of what is on a page."""
    if not (isinstance(found, list) and all(isinstance(entry, dict) for entry in found)):
        raise ValueError("no list of entries")
    for entry in found:
        large = entry.get("lfs")
        size, digest = (large["size"], large["oid"]) if large else (entry.get("size", 0), entry["oid"])
        if entry["type"] == "file" and not (isinstance(size, int) and size >= 0 and _is_digest(digest)):
            raise ValueError(f"the size and the digest of {entry['path']!r}")
        yield entry["path"], entry["type"], size, digest


def _message(head: ResponseHead, body: bytes) -> str:
    """Return what the hub says of a refusal."""
    found = head.header(b"x-error-message")
    if found is None:
        try:
            said = parse_json(body) if body else {}
            found = str(said.get("error", "")) if isinstance(said, dict) else ""
        except ValueError:
            found = ""
    return errors.without_secrets(found)[:300]
