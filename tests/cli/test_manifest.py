"""`fsabs manifest`: the whole output of each of its commands, whatever the files are in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.commands import FILES, fsabs, make_tree
from tests.cli.stores import Store
from tests.cli.stores import store as store

SIZE = sum(map(len, FILES.values()))


@pytest.mark.parametrize("store", ["local", "s3", "zip in zip"], indirect=True)
def test_a_store_has_what_its_manifest_says(store: Store, tmp_path: Path) -> None:
    made = fsabs("manifest", "create", store.url, "m.parquet", cwd=tmp_path)
    assert made == (f"m.parquet: {len(FILES)} entries, 2.1 kB\n", "", 0)
    done = fsabs("manifest", "check", store.url, "m.parquet", "--digests", cwd=tmp_path)
    assert done == ("", "checked 4, missing 0, added 0, changed 0\n", 0)
    merged = fsabs("manifest", "merge", "m.parquet", "m.jsonl", "--json", cwd=tmp_path)
    assert json.loads(merged.out) == {"manifest": "m.jsonl", "entries": len(FILES), "bytes": SIZE}
    lines = (tmp_path / "m.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines[1:-1]] == sorted(FILES)


@pytest.mark.quick
def test_drift(tmp_path: Path) -> None:
    make_tree(tmp_path / "data")
    fsabs("manifest", "create", "data", "m.jsonl", "--no-versions", cwd=tmp_path)
    (tmp_path / "data/a.txt").write_bytes(b"ONE\ntwo\nthree\n")
    (tmp_path / "data/z.txt").write_bytes(b"z")
    (tmp_path / "data/new").write_bytes(b"")
    (tmp_path / "data/sub/b.bin").unlink()
    drifts = ["added    new", "missing  sub/b.bin", "changed  z.txt  (1 bytes, 5 in the manifest)"]
    done = fsabs("manifest", "check", "data", "m.jsonl", cwd=tmp_path, code=1)
    assert done == ("\n".join(drifts) + "\n", "checked 5, missing 1, added 1, changed 1\n", 1)
    done = fsabs("manifest", "check", "data", "m.jsonl", "--digests", "--json", cwd=tmp_path, code=1)
    *found, summary = [json.loads(line) for line in done.out.splitlines()]
    assert [one["name"] for one in found] == ["a.txt", "new", "sub/b.bin", "z.txt"]
    assert found[0]["reason"].startswith("sha256:")
    assert summary == {"summary": {"checked": 5, "missing": 1, "added": 1, "changed": 2, "bytes": 0}}


@pytest.mark.quick
def test_parts_and_errors(tmp_path: Path) -> None:
    make_tree(tmp_path / "data")
    for part in ("sub/deep", "sub"):
        fsabs("manifest", "create", "data", f"{part.replace('/', '-')}.jsonl", "--only", part, cwd=tmp_path)
    merged = fsabs("manifest", "merge", "sub.jsonl", "sub-deep.jsonl", "m.jsonl", cwd=tmp_path)
    assert merged.out == "m.jsonl: 2 entries, 2.0 kB\n"
    failed = fsabs("manifest", "create", "data", "m.txt", cwd=tmp_path, code=1)
    assert failed.err.startswith("fsabs: a manifest's name ends in .jsonl (JSON lines), .parquet (Parquet), not as")
    failed = fsabs("manifest", "check", "none", "m.jsonl", cwd=tmp_path, code=1)
    assert (failed.out, failed.err.count("\n")) == ("", 1)
    shutil.copy(tmp_path / "m.jsonl", tmp_path / "cut.jsonl")
    (tmp_path / "cut.jsonl").write_bytes((tmp_path / "m.jsonl").read_bytes()[:-10])
    failed = fsabs("manifest", "check", "data", "cut.jsonl", cwd=tmp_path, code=1)
    assert "it was cut off" in failed.err
