"""`fsabs trace`, `fsabs cache` and `fsabs config`: the whole output of each of their commands."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest

import fsabs as library
from fsabs import trace
from fsabs.core import identity
from tests.cli.commands import FILES, fsabs, make_tree

pytestmark = pytest.mark.quick
SIZE = sum(map(len, FILES.values()))


def test_trace(tmp_path: Path) -> None:
    data = make_tree(tmp_path / "data")
    with trace.record(tmp_path / "trace"), library.from_url(data) as fs:
        for name in FILES:
            fs.read_bytes(name)
    out = fsabs("trace", "summary", "trace", cwd=tmp_path).out
    assert out == trace.summary(trace.analyze(tmp_path / "trace"))
    lines = fsabs("trace", "summary", "trace", "--json", cwd=tmp_path).out.splitlines()
    operations = [one["operation"] for one in map(json.loads, lines) if "operation" in one]
    assert sum(one["calls"] for one in operations if one["operation"] == "read_bytes") == len(FILES)
    assert fsabs("trace", "export", "trace", "timeline.json.gz", cwd=tmp_path).out == "timeline.json.gz\n"
    assert json.loads(gzip.decompress((tmp_path / "timeline.json.gz").read_bytes()))
    assert fsabs("trace", "report", "trace", cwd=tmp_path).out == "trace/report.html\n"
    assert (tmp_path / "trace/report.html").read_text().startswith("<!DOCTYPE html")
    assert "does not exist" in fsabs("trace", "summary", "none", cwd=tmp_path, code=2).err


def test_cache(tmp_path: Path) -> None:
    make_tree(tmp_path / "data")
    time.sleep(2 * identity.TICK)  # files are cached when the clock has ticked since they were written
    done = fsabs("cache", "warm", "data", "--dir", "cache", "--min-free", "0", cwd=tmp_path)
    assert done.out == "data: 4 files (2.1 kB), fetched 2.1 kB\n"
    done = fsabs("cache", "warm", "data", "--dir", "cache", "--min-free", "0", "--json", cwd=tmp_path)
    assert json.loads(done.out) == {"url": "data", "files": 4, "bytes": SIZE, "fetched": 0}
    done = fsabs("cache", "warm", "data", "--dir", "full", "--min-free", "1000TB", cwd=tmp_path)
    assert "full stores nothing: less than min_free, 1,000,000,000,000,000 bytes, of the disk is free" in done.err
    status = json.loads(fsabs("cache", "status", "--dir", "cache", "--json", cwd=tmp_path).out)
    shown = fsabs("cache", "status", "--dir", "cache", cwd=tmp_path).out.splitlines()
    assert [line.split("  ")[0].strip().replace(" ", "_") for line in shown] == list(status)
    assert status["bytes"] > SIZE
    assert fsabs("cache", "verify", "--dir", "cache", cwd=tmp_path).out == "nothing is damaged\n"
    entries = [path for path in (tmp_path / "cache").rglob("*-*") if path.is_file()]
    largest = max(entries, key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[-1] ^= 1
    largest.chmod(0o600)
    largest.write_bytes(content)
    done = fsabs("cache", "verify", "--dir", "cache", cwd=tmp_path, code=1)
    assert done.out.startswith(f"damaged, and removed: file://{tmp_path}/data/sub/b.bin")
    refused = fsabs("cache", "clear", "--dir", "cache", cwd=tmp_path, input=b"n\n", code=1)
    assert "nothing was removed" in refused.err
    assert fsabs("cache", "clear", "--dir", "cache", "--yes", cwd=tmp_path).out.startswith("removed ")
    assert not [path for path in (tmp_path / "cache").rglob("*-*") if path.is_file()]
    for command in ("status", "verify", "clear"):
        assert "there is no cache" in fsabs("cache", command, "--dir", "cahce", cwd=tmp_path, code=1).err
    assert not (tmp_path / "cahce").exists()
    assert "there is no cache" in fsabs("cache", "status", env={"FSABS_CACHE_DIR": ""}, code=1).err


INI = """[good]
scheme = s3
endpoint = http://user:in-a-url@host/
aws_access_key_id = $ID_OF_KEY
aws_secret_access_key = in-the-file-itself
[bad]
scheme = s3
max_attempts = many
"""


def test_config(tmp_path: Path) -> None:
    path = tmp_path / "pfio.ini"
    path.write_text(INI)
    env = {"PFIO_CONFIG_PATH": str(path), "ID_OF_KEY": "in-the-environment"}
    listed = fsabs("config", "list", env=env)
    assert listed.out.startswith(
        f"{path}\n\n[bad]\nscheme = s3\nmax_attempts = many\n\n[good]\nscheme = s3\nendpoint = http://***@host/\n"
        "aws_access_key_id = $ID_OF_KEY\naws_secret_access_key = ***\n"
    )
    checked = fsabs("config", "check", env=env, code=1)
    assert checked.out == f"{path}, line 8: [bad] max_attempts must be int, not 'many'\n"
    path.write_text("[good]\nscheme = memory\n")
    assert fsabs("config", "check", env=env).out == f"{path}: 1 sections, nothing is wrong\n"
    none = fsabs("config", "list", env={"PFIO_CONFIG_PATH": "/none.ini"})
    assert none.out == "/none.ini (not there)\n"


def test_config_check_shows_all_faults(tmp_path: Path) -> None:
    path = tmp_path / "pfio.ini"
    path.write_text(
        "stray = line\n"
        "[base]\nscheme = s3\nendpiont = http://127.0.0.1:1\nmax_attempts = many\nregion = $NOT_SET_ANYWHERE\n"
        "verify = ${NOT_SET_EITHER}\npath_style = perhaps\nmetadata = none at all\n"
        "[team]\nscheme = base\nprefix = ../x\nacll = private\nlimits = max_links=x\ncache = max_byte=1\n"
        "[dc]\npfs = base://bucket\nusername = a/b\nregion = $NOT_SET_ANYWHERE\n"
        "[lost]\nscheme = memroy\n[circle]\nscheme = circle\n[broken]\nno value\n[s3]\nscheme = file\n"
        "[good]\nscheme = memory\nprefix = x\n"
    )
    done = fsabs("config", "check", "--json", env={"PFIO_CONFIG_PATH": str(path)}, code=1)
    found: dict[str, list[str]] = {}
    for one in map(json.loads, done.out.splitlines()):
        found.setdefault(one["section"], []).append(one["problem"])
    expected = {
        "": ["line 1 stands before", "neither a [section] nor key = value in line", "[s3] is a built-in scheme"],
        "base": [
            "NOT_SET_ANYWHERE",
            "NOT_SET_EITHER",
            "mean 'endpoint'",
            "be int",
            "be bool",
            "metadata must be name=",
        ],
        "team": ["prefix", "'acll'; did you mean 'acl'", "max_links must be a number", "did you mean 'max_bytes'"],
        "dc": ["[dc] region needs the environment variable", "needs username="],
        "lost": ["did you mean 'memory'"],
        "circle": ["go in a circle"],
    }
    assert found.keys() == expected.keys()
    for section, said in expected.items():
        assert len(found[section]) == len(said), found[section]
        for text in said:
            assert any(text in problem for problem in found[section]), (text, found[section])
    for place in ("line 4: [base]", "line 5: [base] max_attempts", "line 8: [base] path_style", "line 13: [team]"):
        assert place in done.out
    assert done.err == ""
