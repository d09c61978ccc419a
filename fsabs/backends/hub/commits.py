"""Changes of a repository: collected, and made one commit of by huggingface_hub's own `create_commit`.

Large files are uploaded as they are added, and are in no listing before the commit is made; small ones go with it. A
commit is made as a whole or not at all. One that fails by chance is made again. If only its response was lost, that
changes nothing, and raises `FileNotFoundError` where it removes files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...core import errors, keys, process, redaction
from ...core.writing import Writer
from ...disk.temporary import NamedSpool
from ..objects.failures import DEFAULT_ATTEMPTS, MAX_TURNS, QUOTA_SECONDS, backoff, seconds_to_wait
from .dialect import DEFAULT_REVISION, is_exhausted

if TYPE_CHECKING:
    from .dialect import HubDialect
    from .repository import Hub

MAX_PENDING = 64 * 1024 * 1024
"""Bytes of contents, in memory and in temporary files, from which they are uploaded before the commit is made."""
IN_MEMORY = 8 * 1024 * 1024
"""A file that is written has more bytes than these in a temporary file."""
_AGAIN = (429, 500, 502, 503, 504)


class Branch:
    """The commit that an FS and its copies read, and the change that is under way."""

    dialect: HubDialect

    def __init__(self) -> None:
        self._lock = process.Lock()
        self._block: Change | None = None
        self._made_in = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"dialect": self.dialect}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.dialect = state["dialect"]

    @property
    def in_block(self) -> bool:
        """True while the changes of a block are collected."""
        return self._block is not None

    @contextlib.contextmanager
    def block(self, fs: Hub, message: str, description: str, is_tree: bool = False) -> Iterator[None]:
        """Collect the changes of a block; `is_tree` for one that copies a tree, as it was before."""
        fs._require("write", "commit", fs._root)
        if not message:
            raise ValueError("a commit has a message")
        if self._block is not None:
            raise ValueError("a block of commit() in another one")
        with contextlib.closing(Change(fs, message, description, is_block=True)) as change:
            change.is_tree = is_tree
            self._block, self._made_in = change, process.generation()
            try:
                yield
            finally:
                self._block = None
            if not process.inherited(self._made_in):
                with fs._naming("commit", fs._root):
                    self._make(fs, change)

    @contextlib.contextmanager
    def change(self, fs: Hub, message: str) -> Iterator[Change]:
        """Give the change of the block that is under way, or one that is committed at the end of this block."""
        if self._block is not None:
            if process.inherited(self._made_in):
                raise OSError(errno.EBADF, "a block of commit() belongs to the process that began it")
            yield self._block
            return
        with contextlib.closing(Change(fs, message, "")) as change:
            yield change
            self._make(fs, change)

    def _make(self, fs: Hub, change: Change) -> None:
        with self._lock:  # one commit after the other: the last one is read
            commit = change.commit()
            if commit is not None:
                self.dialect = fs.dialect.at(commit)

    def check(self, fs: Hub, key: str, exclusive: bool = False, directory: bool = False) -> None:
        """Raise an `OSError` for a file that can't be written: for its name, or for what there is."""
        if not keys.is_text(key) or "\\" in key:
            raise OSError(errno.EINVAL, "a name that git or the hub can't have")
        if exclusive and fs._file(key) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if not directory and fs._any_below(key):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if any(fs._file(above) is not None for above in keys.ancestors(key)):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def check_source(self, key: str, directory: bool = False) -> None:
        """Raise an `OSError` for a file or directory that the block changes: the hub copies what a commit has."""
        if self._block is not None and not self._block.is_tree and self._block.has_changed(key, directory):
            raise OSError(errno.EBUSY, "changed in this block of commit(): it can be copied or renamed after it")


class Change:
    """The operations of one commit."""

    def __init__(self, fs: Hub, message: str, description: str, is_block: bool = False) -> None:
        try:
            import huggingface_hub
        except ImportError as exc:
            raise errors.missing("huggingface_hub", "hub", "writing to the hub") from exc
        self.is_block = is_block
        self.is_tree = False
        self._library: Any = huggingface_hub
        self._fs = fs
        self._message = message
        self._description = description
        self._operations: dict[str, Any] = {}  # by path: the last one counts
        self._pending: list[Any] = []  # additions that may not have been uploaded
        self._bytes = 0
        self._spools: dict[Any, NamedSpool] = {}
        self._parent: str | None = None
        self._lock = process.Lock()
        options = fs.dialect.options
        self._api: Any = huggingface_hub.HfApi(options.url, token=options.token, library_name="fsabs")
        named = fs.repository
        self._where = {
            "repo_id": named.name,
            "repo_type": named.type,
            "revision": named.revision or DEFAULT_REVISION,
        }

    def add(self, key: str, content: bytes | NamedSpool, exclusive: bool = False) -> None:
        """Add a file, with this content."""
        with self._lock, _translated(self._fs):
            added = self._library.CommitOperationAdd(key, content.name if isinstance(content, NamedSpool) else content)
            self._operations[key] = added
            if exclusive:
                self._parent = self._fs.pinned
            if (replaced := self._spools.pop(key, None)) is not None:
                replaced.close()
            if self.is_block and isinstance(content, NamedSpool):
                self._spools[key] = content
            self._pending.append(added)
            self._bytes += added.upload_info.size
            if self._bytes > MAX_PENDING and (self.is_block or isinstance(content, bytes)):
                self._upload()

    def _upload(self) -> None:
        """Send the large files among those added, and drop their contents."""
        pending = [added for added in self._pending if self._operations[added.path_in_repo] is added]
        self._pending, self._bytes = [], 0
        with _quietly():
            self._api.preupload_lfs_files(additions=pending, free_memory=True, **self._where)
        for added in pending:
            if added._is_uploaded and (spool := self._spools.pop(added.path_in_repo, None)) is not None:
                spool.close()

    def remove(self, key: str) -> None:
        """Remove a file, or for a `key` that ends in `/` a directory."""
        with self._lock, _translated(self._fs):
            self._operations[key] = self._library.CommitOperationDelete(key, is_folder=key.endswith("/"))

    def has_changed(self, key: str, directory: bool) -> bool:
        """Return whether there is an operation on a file, or a directory or something in it, or on one above it."""
        with self._lock:
            if key in self._operations or any(f"{above}/" in self._operations for above in keys.ancestors(key)):
                return True
            return directory and any(path.startswith(f"{key}/") for path in self._operations)

    def copy(self, source: Hub, src: str, dst: str) -> None:
        """Copy a file of this repository, or of another one, without its content passing this process."""
        there = source.repository
        elsewhere: dict[str, str] = {}
        if (there.kind, there.name) != (self._fs.repository.kind, self._fs.repository.name):
            elsewhere = {"src_repo_id": there.name, "src_repo_type": there.type}
        with self._lock, _translated(self._fs):
            self._operations[dst] = self._library.CommitOperationCopy(src, dst, src_revision=source.pinned, **elsewhere)

    def commit(self) -> str | None:
        """Make the commit, if there is something in it; return its name."""
        operations = list(self._operations.values())
        if not operations:
            return None
        begin, failures = time.monotonic(), 0
        while True:
            try:
                with _translated(self._fs), _quietly():
                    return self._committed(operations)
            except OSError as exc:
                failures += 1
                wait = max(backoff(failures), getattr(exc, "retry_after", 0.0))
                late = time.monotonic() - begin + wait > QUOTA_SECONDS
                again = getattr(exc, "again", False)
                if isinstance(exc, errors.StaleFileError):  # of no matter to a change that has no parent
                    again = self._parent is None
                if not again or late or failures == DEFAULT_ATTEMPTS:
                    raise
                time.sleep(wait)

    def _committed(self, operations: list[Any]) -> str:
        additions = [operation for operation in operations if isinstance(operation, self._library.CommitOperationAdd)]
        if additions:
            self._api.preupload_lfs_files(additions=additions, free_memory=False, **self._where)
        ignored = [added.path_in_repo for added in additions if getattr(added, "_should_ignore", False)]
        if ignored:
            reason = f"{len(ignored)} files, {ignored[0]} among them, are left out by the repository's .gitignore"
            raise OSError(errno.EPERM, reason)
        made = self._api.create_commit(
            operations=operations,
            commit_message=self._message,
            commit_description=self._description,
            parent_commit=self._parent,
            **self._where,
        )
        return str(made.oid)

    def close(self) -> None:
        """Remove the temporary files."""
        for spool in self._spools.values():
            spool.close()


class HubWriter(Writer):
    """Collects what is written, and makes it a file of a commit."""

    def __init__(self, fs: Hub, key: str, exclusive: bool) -> None:
        self._fs = fs
        self._key = key
        self._exclusive = exclusive
        self._spool = NamedSpool(IN_MEMORY)

    def write(self, data: bytes) -> None:
        """Append to the file."""
        self._spool.write(data)

    def commit(self) -> None:
        """Commit the file, or add it to the block of `Hub.commit` that is under way."""
        fs, key, spool = self._fs, self._key, self._spool
        for attempt in range(MAX_TURNS + 1):
            if self._exclusive:
                fs._branch.check(fs, key, True)
            try:
                with fs._branch.change(fs, f"Write {key}") as change:
                    change.add(key, spool if spool.name else spool.content(), self._exclusive)
                if not change.is_block:  # which takes the file
                    spool.close()
                return
            except errors.StaleFileError:  # another commit was faster: perhaps it made this file
                if not self._exclusive or attempt == MAX_TURNS:
                    raise
                fs.dialect = fs.dialect.at(fs._current_commit())

    def abort(self) -> None:
        """Remove what was written."""
        self._spool.close()


_quiet = process.Lock()


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Have huggingface_hub show no progress in a block."""
    from huggingface_hub import utils as library

    utils: Any = library
    with _quiet:
        shown = not utils.are_progress_bars_disabled() and not os.environ.get("HF_HUB_DISABLE_PROGRESS_BARS")
        if shown:
            utils.disable_progress_bars()
        try:
            yield
        finally:
            if shown:
                utils.enable_progress_bars()


@contextlib.contextmanager
def _translated(fs: Hub) -> Iterator[None]:
    """Turn what huggingface_hub raises into Python's own errors."""
    try:
        yield
    except OSError as exc:
        response = getattr(exc, "response", None)  # its errors of HTTP are an OSError
        if response is None:
            raise
        raise _refusal(fs, exc, response) from redaction.as_cause(exc)
    except (ImportError, TypeError):
        raise
    except ValueError as exc:
        raise OSError(errno.EINVAL, redaction.without_secrets(str(exc))) from redaction.as_cause(exc)
    except Exception as exc:  # of the libraries below it: httpx, hf_xet
        inner = exc.__cause__ or exc
        response = getattr(inner, "response", None)
        if response is not None:
            raise _refusal(fs, inner, response) from redaction.as_cause(exc)
        error = ConnectionError(errno.ECONNABORTED, redaction.without_secrets(f"{type(inner).__name__}: {inner}"))
        error.again = True  # type: ignore[attr-defined]
        raise error from redaction.as_cause(exc)


def _refusal(fs: Hub, exc: BaseException, response: Any) -> OSError:
    """Return the error for a refusal by the hub; with `again` if the commit may be made again."""
    status, code = response.status_code, response.headers.get("x-error-code", "")
    said = redaction.without_secrets(getattr(exc, "server_message", None) or str(exc).strip().splitlines()[0])
    name = fs.repository.name
    if status in (401, 403):
        return PermissionError(
            errno.EACCES, f"the token may not write to {name} ({status}): one of the kind write, as HF_TOKEN or token="
        )
    if status == 404 and code != "EntryNotFound":
        return FileNotFoundError(errno.ENOENT, f"there is no {name}, or no branch of this name: {said}")
    if status in (409, 412):
        return errors.StaleFileError(errno.ESTALE, f"the branch has got another commit meanwhile ({status}): {said}")
    usual = errno.EIO if status >= 500 else errno.EINVAL
    error = OSError({404: errno.ENOENT, 429: errno.EBUSY}.get(status, usual), f"{said} ({status})")
    error.again = status in _AGAIN  # type: ignore[attr-defined]
    exhausted = is_exhausted(response.headers.get("ratelimit", ""))
    wait = float(exhausted[1]) if exhausted else seconds_to_wait(response.headers.get("retry-after", ""))
    error.retry_after = wait  # type: ignore[attr-defined]
    return error
