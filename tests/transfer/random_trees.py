"""Random trees of local files, as people have them: odd names, links of all kinds, modes; and what is in a tree."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

NAMES = [
    "a",
    "b",
    "c",
    "a b",
    "é",
    "-x",
    "*",
    "[x]",
    "back\\slash",
    ".hidden",
    "it's",
    "a%41",
    "~",
    "#",
    "new\nline",
    "$X",
]
MODES = [0o644, 0o600, 0o755, 0o700, 0o444, 0o640, 0o4755, 0o2750, 0o6711]
START = 1_600_000_000


class TreeMaker:
    """Makes trees by a generator of random numbers.

    Names tell what they are: directories end in `.d`, files in `.f`, links in `.l`, so that two trees are compatible.
    """

    def __init__(self, chance: random.Random, *, loops: bool = True, hard_links: bool = True) -> None:
        self._chance = chance
        self._loops = loops
        self._hard_links = hard_links
        self._owners = os.geteuid() == 0
        self._number = 0

    def make(self, top: Path, outside: Path, depth: int = 3) -> None:
        """Make a tree at `top`, with links to what is `outside`, too."""
        folders, files = [top], []
        top.mkdir(parents=True, exist_ok=True)
        for folder in folders:
            level = len(folder.relative_to(top).parts)
            for name in self._chance.sample(NAMES, self._chance.randrange(6)):
                kind = self._chance.random()
                if kind < 0.3 and level < depth:
                    folders.append(folder / f"{name}.d")
                    folders[-1].mkdir(exist_ok=True)
                elif kind < 0.8 and not os.path.lexists(folder / f"{name}.f"):
                    files.append(folder / f"{name}.f")
                    self._fill(files)
                elif not os.path.lexists(folder / f"{name}.l"):
                    (folder / f"{name}.l").symlink_to(self._leads_to(folder, top, outside, folders, files))
        for path in files:
            if self._owners and self._chance.random() < 0.1:
                os.chown(path, 54321, 54321, follow_symlinks=False)
            if not path.is_symlink():
                path.chmod(self._chance.choice(MODES))
            self._number += 1
            os.utime(path, (START + self._number * 60, START + self._number * 60), follow_symlinks=False)
        for folder in reversed(folders[1:]):
            folder.chmod(self._chance.choice([0o755, 0o700, 0o750, 0o711]))

    def _fill(self, files: list[Path]) -> None:
        if self._hard_links and len(files) > 1 and self._chance.random() < 0.1:
            os.link(self._chance.choice(files[:-1]), files[-1])
            return
        size = self._chance.choice([0, 1, 10, 1000]) if self._chance.random() < 0.98 else 2_500_000
        files[-1].write_bytes(self._chance.randbytes(size))

    def _leads_to(self, folder: Path, top: Path, outside: Path, folders: list[Path], files: list[Path]) -> str:
        choices = ["nothing", os.path.relpath(outside / "dir", folder), os.path.relpath(outside / "file", folder)]
        choices += [os.path.relpath(path, folder) for path in files[:5]]
        if self._loops:
            choices += [".", "..", os.path.relpath(top, folder), os.path.relpath(self._chance.choice(folders), folder)]
        return self._chance.choice(choices)


def snapshot(top: Path, *, owners: bool = True, times: bool = True) -> dict[str, object]:
    """Return all that is below a directory: kind, permissions without setuid and setgid, content or link, owner, time.

    A directory has no time, and a link no permissions.
    """
    found: dict[str, object] = {}
    for folder, names, files in os.walk(top):
        for name in names + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            kind, content = stat.S_IFMT(status.st_mode), None
            if kind == stat.S_IFLNK:
                content = os.readlink(path).encode("utf-8", "surrogateescape")
            elif kind == stat.S_IFREG:
                with open(path, "rb") as file:
                    content = file.read()
            mode = stat.S_IMODE(status.st_mode) & 0o777 if kind != stat.S_IFLNK else 0
            owner = (status.st_uid, status.st_gid) if owners else None
            time = int(status.st_mtime) if times and kind == stat.S_IFREG else 0
            found[os.path.relpath(path, top)] = kind, mode, content, owner, time
    return found
