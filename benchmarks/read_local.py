"""Reading small files: from a local directory against Python's own `open`, from a zip against `zipfile`."""

from __future__ import annotations

import random
import tempfile
import zipfile
from pathlib import Path

from measure import Result, compare, reading, save, show

import fsabs

FILES = 500
SIZE = 20_000  # bytes
ROUNDS = 20


def make_files(folder: Path) -> list[str]:
    """Random files in `folder`, and the same in the zips stored.zip and deflated.zip beside it; their names."""
    source = random.Random(0)
    contents = {f"{i % 10}/{i:04}.bin": source.randbytes(SIZE // 2) + bytes(SIZE // 2) for i in range(FILES)}
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    for method, name in ((zipfile.ZIP_STORED, "stored.zip"), (zipfile.ZIP_DEFLATED, "deflated.zip")):
        with zipfile.ZipFile(folder.with_name(name), "w", method) as archive:
            for member, data in contents.items():
                archive.writestr(member, data)
    return source.sample(list(contents), FILES)


def directory(folder: Path, names: list[str]) -> list[Result]:
    """Files of a directory."""

    def by_open(name: str) -> bytes:
        with open(f"{folder}/{name}", "rb") as file:
            return file.read()

    fs = fsabs.from_url(folder)

    def by_fs_open(name: str) -> bytes:
        with fs.open(name, "rb") as file:
            data: bytes = file.read()
            return data

    def by_read_many() -> None:
        contents = fs.read_many(names)
        reading(lambda _: next(contents), names, SIZE)()

    return compare(
        {
            "builtins.open, read": reading(by_open, names, SIZE),
            "fs.open, read": reading(by_fs_open, names, SIZE),
            "fs.read_bytes": reading(fs.read_bytes, names, SIZE),
            "fs.read_many": by_read_many,
        },
        ROUNDS,
    )


def archive(path: Path, names: list[str]) -> list[Result]:
    """Members of a zip that is open."""
    with zipfile.ZipFile(path) as theirs, fsabs.from_url(path) as fs:

        def by_fs_open(name: str) -> bytes:
            with fs.open(name, "rb") as file:
                data: bytes = file.read()
                return data

        return compare(
            {
                "zipfile.ZipFile.read": reading(theirs.read, names, SIZE),
                "fs.open, read": reading(by_fs_open, names, SIZE),
                "fs.read_bytes": reading(fs.read_bytes, names, SIZE),
            },
            ROUNDS,
        )


def opening(path: Path) -> list[Result]:
    """From a path to an open zip whose names are known."""

    def by_zipfile() -> None:
        zipfile.ZipFile(path).close()

    def by_fsabs() -> None:
        with fsabs.from_url(path) as fs:
            fs.exists("0/0000.bin")

    return compare({"zipfile.ZipFile": by_zipfile, "fsabs.from_url": by_fsabs}, ROUNDS)


def main() -> None:
    """Measure, print and save."""
    tables: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory(prefix="fsabs-bench-") as name:
        folder = Path(name, "files")
        names = make_files(folder)
        tables[f"{FILES} files of {SIZE} bytes"] = directory(folder, names)
        for kind in ("stored", "deflated"):
            tables[f"{FILES} {kind} members of {SIZE} bytes"] = archive(Path(name, f"{kind}.zip"), names)
        for title, results in tables.items():
            show(title, results, FILES, "us a file")
        title = f"opening a zip of {FILES} members"
        tables[title] = opening(Path(name, "stored.zip"))
        show(title, tables[title], 1, "us")
    save("read_local", tables)


if __name__ == "__main__":
    main()
