"""The output directory: checked before a job begins, replaced as a whole when it is complete.

All that a job writes before that is in a hidden staging directory, in a folder of its own: a later run of it finds the
units that are done there, and processes of another job that linger on write elsewhere. Where the store renames
directories in one step (local disks, HDFS), staging is beside the output, and the commit is one rename. In other
stores, and where the output is a mount point, staging is inside the output, and the commit moves file by file:
meanwhile a marker makes readers refuse the directory. The commit is written down before it begins: a run after a crash
in the middle of it completes it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from ..backends.local import Local
from ..core import errors, identity, keys, registry
from ..core.fs import FS
from ..core.limits import parse_json
from ..core.threads import Threads
from ..disk.folders import Folder
from ..readers.locate import PUBLISHING
from ..urls import locations, opening
from .plan import UnitResult

REPORT = ".fsabs-prepare.json"
"""The report in the output directory, which also says that the directory is one that may be replaced."""
_STAGING = ".fsabs-prepare"
RENAMING_SCHEMES = frozenset({"file", "hdfs", "viewfs"})
"""Schemes whose stores rename a directory in one step."""
_THREADS = 16


class Commit(NamedTuple):
    """The step from staging to output, as it is written down before it begins."""

    moves: dict[str, str]
    """The name of each file of the output, by its path in the base directory."""
    report: dict[str, Any]


class OutputDirectory:
    """The output directory of a job, and its staging directory."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        text = os.fspath(url)
        if not text:
            raise ValueError("no output directory is given")
        if "://" not in text:
            text = os.path.realpath(text)
        if locations.parse_without_query(text).scheme == "memory":
            raise errors.unsupported("prepare", text, "memory:// is in the memory of one process")
        if any(registry.container_of(part) for part in locations.parse_without_query(text).path.split("/")):
            raise errors.unsupported("prepare", text, "the output can't be in an archive")
        parent, _, name = text.rstrip("/").rpartition("/")
        self._url = text.rstrip("/") or text
        self._beside = False
        self.fs: FS
        if name and locations.parse_without_query(parent + "/").path.strip("/") and not os.path.ismount(text):
            self._beside = self._open_parent(parent)
        if self._beside:
            self._name = keys.from_url_path(name) if "://" in text else name
            self.staging = f".{self._name}{_STAGING}"
        else:
            self.fs = opening.from_url(text, create=True)
            self._name, self.staging = "", _STAGING
        self._check_kind()
        self._token = uuid.uuid4().hex
        self._work = ""  # as of begin

    def _open_parent(self, parent: str) -> bool:
        """Open the directory above the output; return False if the commit can't be a rename in it."""
        try:
            fs = opening.from_url(parent, create=True)
        except PermissionError:  # or outside of the prefix of a custom scheme
            return False
        local = isinstance(fs, Local) and not os.access(locations.parse_without_query(fs.url()).path, os.W_OK)
        if fs.scheme not in RENAMING_SCHEMES or local:
            fs.close()
            return False
        self.fs = fs
        return True

    def _check_kind(self) -> None:
        able = self.fs.capabilities
        if not (able.write and able.replace and able.rename and able.remove):
            raise errors.unsupported("prepare", self.url, "the output's store must write, replace, rename and remove")

    @property
    def url(self) -> str:
        """The full URL of the output directory."""
        return self.fs.url(self._name).rstrip("/")

    @property
    def base(self) -> str:
        """The URL of the directory that `staging` and paths of output files are in."""
        if not self._beside:
            return self._url
        return self._url.rpartition("/")[0]

    # ---- before the work

    def check_input(self, tree: FS) -> None:
        """Raise an error if the output and a tree that is read contain each other, under whatever names."""
        top, key = tree._cwd, self.fs._key(self._name, "prepare")
        if identity.inside(tree, top, self.fs, key) or identity.inside(self.fs, key, tree, top):
            reason = f"the output and the input {tree.url()} contain each other"
            raise errors.error(errno.EINVAL, "prepare", self.url, reason)

    def check(self) -> None:
        """Raise an error if the output, or the staging directory, may not be replaced: if it is not ours."""
        self._check_staging()
        self._check_ours()

    def _check_staging(self) -> None:
        """Raise `PermissionError` for a staging directory that another user of this machine has made, or may write to.

        What is in it is trusted: it says which files become the output, and which are removed.
        """
        if isinstance(self.fs, Local):
            with contextlib.suppress(FileNotFoundError):
                Folder("/" + self.fs._key(self.staging, "prepare"), private=True).close()

    def _check_ours(self) -> None:
        if not self.fs.exists(self._name or "."):
            return
        if not self.fs.isdir(self._name or "."):
            raise errors.error(errno.ENOTDIR, "prepare", self.url, "the output is a file")
        commit = self._read_json("commit.json")
        moves = commit["moves"] if commit else {}
        ours = {REPORT, PUBLISHING, f"{_STAGING}/", *self._listed(self._name), *moves.values()}
        for name in self.fs.list(self._name):
            if name not in ours:
                reason = f"the output has {name!r}, which no report of fsabs prepare lists: move or remove it"
                raise errors.error(errno.EEXIST, "prepare", self.url, reason)

    def _listed(self, folder: str) -> set[str]:
        """Return the names of the data files that the report in a directory lists: all that may be removed there."""
        try:
            shards = parse_json(self.fs.read_bytes(f"{folder}/{REPORT}" if folder else REPORT))["shards"]
            return {shard["name"] for shard in shards if "/" not in shard["name"]}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return set()

    def work(self, fingerprint: str) -> str:
        """Return the path, in the base directory, of the folder that a job's processes write to."""
        return self._staged(f"job-{fingerprint[:32]}")

    def finished(self, fingerprint: str) -> dict[str, Any] | None:
        """Complete a commit that was interrupted; return its report if it is that of this job."""
        commit = self._read_json("commit.json")
        report = self.complete_commit()
        return report if commit is not None and commit.get("job") == fingerprint else None

    def begin(self, fingerprint: str) -> list[UnitResult]:
        """Take over the staging directory; return the results of the units that an earlier run of the job has done.

        What a run of another job, or of one that changed, left there is removed. A commit that was interrupted is
        completed first.
        """
        self.complete_commit()
        self._work = self.work(fingerprint)
        job = self._read_json("job.json")
        if job is None or job["fingerprint"] != fingerprint:
            self._remove_staging()
        self._make_staging()
        for part in ("parts", "done", "failed"):
            self.fs.makedirs(f"{self._work}/{part}", exist_ok=True)
        for name in self._names("failed"):
            self.fs.remove(f"{self._work}/failed/{name}")
        value = json.dumps({"fingerprint": fingerprint, "owner": self._token}).encode()
        self.fs.write_bytes(self._staged("job.json"), value)
        return self.done()

    def _make_staging(self) -> None:
        if not self.fs.capabilities.implied_directories:
            with contextlib.suppress(FileExistsError):
                self.fs.mkdir(self.staging, 0o700)
        self._check_staging()

    # ---- during the work

    def done(self) -> list[UnitResult]:
        """Return the results of the units that are done, in order."""
        paths = [f"{self._work}/done/{name}" for name in self._names("done")]
        return [UnitResult.from_json(data) for data in self.fs.read_many(paths)]

    def done_units(self) -> set[int]:
        """Return the numbers of the units that are done."""
        return {int(name) for name in self._names("done")}

    def result(self, number: int) -> UnitResult:
        """Return the result of a unit that is done."""
        return UnitResult.from_json(self.fs.read_bytes(f"{self._work}/done/{number:06}"))

    def forget(self, path: str) -> None:
        """Have the unit that wrote a staged file done again by the next run."""
        for result in self.done():
            if any(file.path == path for file in result.files):
                self.fs.remove(f"{self._work}/done/{result.number:06}")

    def failed(self) -> UnitResult | None:
        """Return the result of a unit that failed, or None."""
        for name in self._names("failed"):
            return UnitResult.from_json(self.fs.read_bytes(f"{self._work}/failed/{name}"))
        return None

    # ---- commit

    def commit(self, commit: Commit) -> None:
        """Make the staged files the output, in place of what was there."""
        job = self.check_owned()
        self._check_ours()
        value = {"job": job["fingerprint"], **commit._asdict()}
        self.fs.write_bytes(self._staged("commit.json"), json.dumps(value).encode())
        self.complete_commit()

    def check_owned(self) -> dict[str, Any]:
        """Return what says whose the staging directory is; raise `OSError` (EBUSY) if another run has taken it."""
        job = self._read_json("job.json")
        if job is None or job["owner"] != self._token:
            raise errors.error(errno.EBUSY, "prepare", self.url, "another run has begun to prepare the same output")
        return job

    def complete_commit(self) -> dict[str, Any] | None:
        """Complete a commit that has begun, if there is one; return its report."""
        commit = self._read_json("commit.json")
        if commit is None:
            return None
        report: dict[str, Any] = commit["report"]
        if self._beside:
            self._replace(commit["moves"], report)
        else:
            self._move(commit["moves"], report)
        self._remove_staging()
        return report

    def _replace(self, moves: dict[str, str], report: dict[str, Any]) -> None:
        """Rename a directory of the new files to the output's name. Repeating any part of it does no harm."""
        ready, old = self._staged("ready"), self._staged("old")
        if not self.fs.exists(self._staged("swapped")):
            self.fs.makedirs(ready, exist_ok=True)
            self._each(lambda path: self._rename(path, f"{ready}/{moves[path]}"), moves)
            self.fs.write_bytes(f"{ready}/{REPORT}", json.dumps(report, indent=1).encode())
            self.fs.write_bytes(self._staged("swapped"), b"")
        if self.fs.exists(ready):
            if self.fs.exists(self._name) and not self.fs.exists(old):
                self.fs.rename(self._name, old)
            self.fs.rename(ready, self._name)
        if self.fs.exists(old):
            there = set(self.fs.list(old))
            self._each(lambda name: self.fs.remove(f"{old}/{name}"), there & self._listed(old))
            for name in (PUBLISHING, REPORT):  # the report last: a run after a crash reads it again
                if name in there:
                    self.fs.remove(f"{old}/{name}")
            for name in self.fs.list(old):  # added by another program in the last moment
                self.fs.rename(f"{old}/{name}", f"{self._name}/{name}")

    def _move(self, moves: dict[str, str], report: dict[str, Any]) -> None:
        """Move the new files to the output one by one, marked as incomplete meanwhile."""
        self.fs.write_bytes(PUBLISHING, b"fsabs prepare is replacing this data set\n")
        self._each(lambda path: self._rename(path, moves[path]), moves)
        there = set(self.fs.list(""))
        self._each(self.fs.remove, there & self._listed("") - set(moves.values()))
        self.fs.write_bytes(REPORT, json.dumps(report, indent=1).encode())
        self.fs.remove(PUBLISHING)

    def _rename(self, path: str, target: str) -> None:
        try:
            self.fs.rename(path, target)
        except FileNotFoundError:
            if not self.fs.exists(target):  # else it was moved before a crash
                raise

    def _each(self, function: Callable[[str], None], names: Iterable[str]) -> None:
        with Threads[None](1 if isinstance(self.fs, Local) else _THREADS, wait=True) as threads:
            for wait in [threads.start(partial(function, name)) for name in names]:
                wait()

    # ---- staging

    def _staged(self, *names: str) -> str:
        return "/".join((self.staging, *names))

    def _names(self, part: str) -> list[str]:
        try:
            names = self.fs.list(f"{self._work}/{part}")
            return sorted(name for name in names if name.isdigit())
        except FileNotFoundError:
            return []

    def _read_json(self, name: str) -> dict[str, Any] | None:
        try:
            value: dict[str, Any] = parse_json(self.fs.read_bytes(self._staged(name)))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return value

    def _remove_staging(self) -> None:
        """Remove the staging directory.

        `job.json` is removed first, so that no run resumes a part of it. `commit.json` is removed after the folders of
        jobs, which take long: a run after a crash in between completes the removal, and does not repeat the job.
        """
        folders = [name for name in self._entries() if name.endswith("/") and name.startswith("job-")]
        for name in ("job.json", *folders, "commit.json"):
            if self.fs.exists(self._staged(name)):
                self.fs.remove(self._staged(name), recursive=True)
        if self.fs.exists(self.staging):
            self.fs.remove(self.staging, recursive=True)

    def _entries(self) -> list[str]:
        try:
            return list(self.fs.list(self.staging))
        except FileNotFoundError:
            return []

    def close(self) -> None:
        """Close the FS."""
        self.fs.close()
