"""A repository without the hub: what is in its cache, and the listings that were kept (`HF_HUB_OFFLINE`).

The cache is that of huggingface_hub (`$HF_HUB_CACHE`), which `hf download` fills: a folder of links for each commit,
`datasets--ORG--NAME/snapshots/COMMIT`, whose targets are named by their digests. What a `cache=` of ours holds is read
before anything is asked for here.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Iterator
from typing import Any

from ...core.blobs import Blob, BlobLayer
from ...core.fs import FS, FileStat
from ...disk import indexes
from ..local import Local
from ..objects.messages import Request, Response
from .dialect import DEFAULT_REVISION, HubDialect, is_commit
from .repository import READS, REFERENCE_KIND, Hub
from .tree import HubFile, Listing, Tree


class OfflineHub(Hub):
    """A repository at the commit that its revision was when it was seen last; options as of `Hub`."""

    default_concurrency = 8

    def __init__(self, repository: str, prefix: str | None = None, **options: Any) -> None:
        super().__init__(repository, prefix, **options)
        self.capabilities = READS
        self._found_here: Tree | None = None  # not shared: the snapshot of a cache has what was downloaded

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_found_here": None}

    @property
    def _tree(self) -> Tree:
        if self._found_here is None:
            self._found_here = self.dialect.new_tree()
        return self._found_here

    def _current_commit(self) -> str:
        """Return the commit that the revision was, as it was kept, or as the cache of huggingface_hub has it."""
        view = indexes.load(REFERENCE_KIND, self._reference())
        found = bytes(view).decode("ascii", "replace") if view is not None else ""
        if not is_commit(found) or not os.path.isdir(self._snapshot(found)):
            path = os.path.join(self._cached(), "refs", self.repository.revision or DEFAULT_REVISION)
            try:
                with open(path, encoding="ascii") as file:
                    found = file.read().strip()
            except (OSError, ValueError):
                pass
        if not is_commit(found):
            revision = self.repository.revision or DEFAULT_REVISION
            raise self._unreachable(f"no cache has {self.repository.name} at {revision!r}")
        return found

    def _unreachable(self, reason: str) -> OSError:
        return ConnectionError(errno.ENETUNREACH, f"HF_HUB_OFFLINE is set, and {reason}")

    def _cached(self) -> str:
        """Return the folder of the repository in the cache of huggingface_hub."""
        home = os.environ.get("HF_HOME") or os.path.join(
            os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface"
        )
        cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
        named = self.repository
        folder = f"{named.kind}--{named.name.replace('/', '--')}"
        return os.path.abspath(os.path.join(os.path.expandvars(os.path.expanduser(cache)), folder))

    def _snapshot(self, commit: str = "") -> str:
        return os.path.join(self._cached(), "snapshots", commit or self.pinned)

    def send(self, request: Request) -> Response:
        """Raise an `OSError`: nothing is requested."""
        raise self._unreachable("no cache has what is asked for")

    def _listing(self, key: str, recursive: bool) -> Listing:
        return self._tree.listing(key, recursive, functools.partial(self._fetch, self.dialect), partial=True)

    def _fetch(self, dialect: HubDialect, key: str, recursive: bool) -> Iterator[tuple[str, int, str]]:
        snapshot = self._snapshot()
        if not os.path.isdir(snapshot):
            raise self._unreachable("no cache has a listing of this directory")
        for folder, _, names in os.walk(os.path.join(snapshot, key)):
            for name in names:
                path = os.path.join(folder, name)
                digest = os.path.basename(os.path.realpath(path))
                if len(digest) in (40, 64):
                    yield os.path.relpath(path, snapshot), os.stat(path).st_size, digest

    def _file(self, key: str) -> HubFile | None:
        known, file = self._tree.find(key)
        if not known:
            self._listing("", True)
            file = self._tree.find(key)[1]
        return file

    def _open_blob(self, key: str) -> Blob:
        file = self._file(key) if key else None
        if file is None:
            raise self._no_file(key)
        path = os.path.join(self._snapshot(), key)
        if os.path.basename(os.path.realpath(path)) != file.digest:
            raise self._unreachable("no cache has this file")
        blob = Local(os.path.dirname(path))._open_blob(path.lstrip("/"))
        return BlobLayer(self, key, blob, file.size, file.digest)

    _open_from_start = _open_blob

    def _open_listed(self, key: str, stat: FileStat) -> Blob:
        return self._open_blob(key)

    _read_bytes = FS._read_bytes
    _read_many = FS._read_many
