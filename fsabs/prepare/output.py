"""The output directory: checked before a job begins, and given its new files when they are complete.

All that a job writes before that is in a hidden staging directory in it, in a folder of its own: a later run of it
finds the units that are done there, and processes of another job that linger on write elsewhere. The commit moves file
by file: meanwhile, and from the beginning where there is no data set yet, a marker makes readers refuse the directory.
It is written down before it begins: a run after a crash in the middle of it completes it.
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
_THREADS = 16


class Commit(NamedTuple):
    """The step from staging to output, as it is written down before it begins."""

    moves: dict[str, str]
    """The new name of each file of the output, by its path."""
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
        self.given = text
        """The URL or path by which each process opens it."""
        self._owner, self.fs = _opened(text)
        able = self.fs.capabilities
        if not (able.write and able.replace and able.rename and able.remove):
            raise errors.unsupported("prepare", self.url, "the output's store must write, replace, rename and remove")
        self._token = uuid.uuid4().hex
        self._work = ""  # as of begin

    @property
    def url(self) -> str:
        """The full URL of the output directory."""
        return self.fs.url().rstrip("/")

    # ---- before the work

    def check_input(self, tree: FS) -> None:
        """Raise an error if the output and a tree that is read contain each other, under whatever names."""
        top, key = tree._cwd, self.fs._cwd
        if identity.inside(tree, top, self.fs, key) or identity.inside(self.fs, key, tree, top):
            reason = f"the output and the input {tree.url()} contain each other"
            raise errors.error(errno.EINVAL, "prepare", self.url, reason)

    def check(self) -> None:
        """Raise an error if the output, or the staging directory, may not be replaced: if it is not ours."""
        if self.fs.isfile("."):
            raise errors.error(errno.ENOTDIR, "prepare", self.url, "the output is a file")
        self._check_staging()
        self._check_ours()

    def _check_staging(self) -> None:
        """Raise `PermissionError` for a staging directory that another user of this machine has made, or may write to.

        What is in it is trusted: it says which files become the output, and which are removed.
        """
        if isinstance(self.fs, Local):
            with contextlib.suppress(FileNotFoundError):
                Folder("/" + self.fs._key(_STAGING, "prepare"), private=True).close()

    def _check_ours(self) -> None:
        commit = self._read_json("commit.json")
        moves = commit["moves"] if commit else {}
        ours = {REPORT, PUBLISHING, f"{_STAGING}/", *self._listed(), *moves.values()}
        for name in self._entries(""):
            if name not in ours:
                reason = f"the output has {name!r}, which no report of fsabs prepare lists: move or remove it"
                raise errors.error(errno.EEXIST, "prepare", self.url, reason)

    def _listed(self) -> set[str]:
        """Return the names of the data files that the report of the output lists: all that may be removed there."""
        try:
            shards = parse_json(self.fs.read_bytes(REPORT))["shards"]
            return {shard["name"] for shard in shards if "/" not in shard["name"]}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return set()

    def work(self, fingerprint: str) -> str:
        """Return the path of the folder that a job's processes write to."""
        return self._staged(f"job-{fingerprint[:32]}")

    def finished(self, fingerprint: str) -> dict[str, Any] | None:
        """Complete a commit that was interrupted; return its report if it is that of this job."""
        commit = self._read_json("commit.json")
        report = self.complete_commit()
        return report if commit is not None and commit.get("job") == fingerprint else None

    def begin(self, fingerprint: str) -> list[UnitResult]:
        """Take over the staging directory; return the results of the units that an earlier run of the job has done.

        What a run of another job, or of one that changed, left there is removed.
        """
        self._work = self.work(fingerprint)
        job = self._read_json("job.json")
        if job is None or job["fingerprint"] != fingerprint:
            self._remove_staging()
        self._make_staging()
        if not self.fs.exists(REPORT):
            self._mark()
        for part in ("parts", "done", "failed"):
            self.fs.makedirs(f"{self._work}/{part}", exist_ok=True)
        for name in self._names("failed"):
            self.fs.remove(f"{self._work}/failed/{name}")
        value = json.dumps({"fingerprint": fingerprint, "owner": self._token}).encode()
        self.fs.write_bytes(self._staged("job.json"), value)
        return self.done()

    def _make_staging(self) -> None:
        if not self.fs.capabilities.implied_directories:
            self.fs.makedirs("", exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.fs.mkdir(_STAGING, 0o700)
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
        self._check_staged(commit.moves)
        self._make_durable(commit.moves)
        value = {"job": job["fingerprint"], **commit._asdict()}
        self.fs.write_bytes(self._staged("commit.json"), json.dumps(value).encode())
        self._make_durable([self._staged("commit.json")])
        self.complete_commit()

    def _check_staged(self, paths: Iterable[str]) -> None:
        """Raise `FileNotFoundError` if a staged file is gone: once the commit has begun, it would count as moved."""
        parts = f"{self._work}/parts"
        there = {f"{parts}/{name}" for name in self._entries(parts)}
        for path in paths:
            if path not in there:
                self.forget(path)
                reason = "the file is gone from the staging directory: run it again"
                raise errors.error(errno.ENOENT, "prepare", self.fs.url(path), reason)

    def check_owned(self) -> dict[str, Any]:
        """Return the job that owns the staging directory; raise `OSError` (EBUSY) if another run has taken it."""
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
        self._move(commit["moves"], report)
        self._remove_staging()
        return report

    def _move(self, moves: dict[str, str], report: dict[str, Any]) -> None:
        """Move the new files to their places one by one, marked as incomplete meanwhile.

        Repeating any part of it does no harm.
        """
        self._mark()
        self._each(lambda path: self._rename(path, moves[path]), moves)
        self._make_durable(moves.values())
        kept = {self._place(name) for name in moves.values()}  # a disk may have one by a name that it had before
        self._each(self._remove_if_there, [name for name in self._listed() if self._place(name) not in kept])
        self.fs.write_bytes(REPORT, json.dumps(report, indent=1).encode())
        self._make_durable([REPORT])
        self.fs.remove(PUBLISHING)

    def _make_durable(self, names: Iterable[str]) -> None:
        self.fs.backing._make_durable([self.fs._key(name, "prepare") for name in names])

    def _place(self, name: str) -> identity.Place:
        return identity.place(self.fs, self.fs._key(name, "prepare"))

    def _mark(self) -> None:
        """Have readers refuse the output."""
        self.fs.write_bytes(PUBLISHING, b"fsabs prepare has not completed this data set\n")

    def _rename(self, path: str, target: str) -> None:
        try:
            self.fs.rename(path, target)
        except FileNotFoundError:
            if not self.fs.exists(target):  # else it was moved before a crash
                raise

    def _remove_if_there(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.fs.remove(name)

    def _each(self, function: Callable[[str], None], names: Iterable[str]) -> None:
        with Threads[None](1 if isinstance(self.fs, Local) else _THREADS, wait=True) as threads:
            for wait in [threads.start(partial(function, name)) for name in names]:
                wait()

    # ---- staging

    def _staged(self, *names: str) -> str:
        return "/".join((_STAGING, *names))

    def _names(self, part: str) -> list[str]:
        return sorted(name for name in self._entries(f"{self._work}/{part}") if name.isdigit())

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
        folders = [name for name in self._entries(_STAGING) if name.endswith("/") and name.startswith("job-")]
        for name in ("job.json", *folders, "commit.json"):
            if self.fs.exists(self._staged(name)):
                self.fs.remove(self._staged(name), recursive=True)
        if self.fs.exists(_STAGING):
            self.fs.remove(_STAGING, recursive=True)

    def _entries(self, folder: str) -> list[str]:
        """Return the names in a directory; none if it is missing."""
        try:
            return list(self.fs.list(folder))
        except FileNotFoundError:
            return []

    def close(self) -> None:
        """Close the FS."""
        self._owner.close()


def _opened(url: str) -> tuple[FS, FS]:
    """Open the directory above the output, and return its FS and that of the output, which may be missing yet."""
    parent, _, name = url.rstrip("/").rpartition("/")
    if locations.parse_without_query(parent + "/").path.strip("/"):
        with contextlib.suppress(PermissionError):  # nothing is written above the home of a datacenter
            fs = opening.from_url(parent, create=True)
            return fs, fs.subfs(keys.from_url_path(name) if "://" in url else name)
    fs = opening.from_url(url, create=True)
    return fs, fs
