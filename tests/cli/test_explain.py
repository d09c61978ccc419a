"""`fsabs explain`: the whole output on every kind of store, sources of what is configured, and costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fsabs as library
from tests.cli.commands import FILES, fsabs, make_tree
from tests.cli.stores import Store
from tests.cli.stores import store as store
from tests.servers.azurite import KEY
from tests.servers.moto import MotoServer

SIZE = sum(map(len, FILES.values()))


def facts(out: str) -> dict[str, tuple[str, str]]:
    found = [json.loads(line) for line in out.splitlines()]
    return {one["fact"]: (one["value"], one["from"] or "") for one in found if "fact" in one}


def test_on_every_store(store: Store) -> None:
    out = fsabs("explain", store.url, "--measure", "--json").out
    found = facts(out)
    inside = store.kind in ("zip in zip", "tar.gz")
    expected = {"s3": "S3", "azure": "Azure", "gcs": "GCS", "hdfs": "Hdfs"}.get(store.kind, "Local")
    assert found["backend"][0] == expected
    assert found["path"][0].rstrip("/").endswith(("/store", "/top", "/in.zip", "/out.tar.gz"))
    assert ("container" in found) == inside
    if store.kind == "s3":
        assert found["endpoint"] == (store.env["S3_ENDPOINT"], "$S3_ENDPOINT")
        assert found["region"] == (store.env["AWS_DEFAULT_REGION"], "$AWS_DEFAULT_REGION")
        assert found["credentials"] == ("environment: $AWS_ACCESS_KEY_ID", "")
        assert found["tls"][0] == "no"
    if store.kind == "azure":
        connection = store.env["AZURE_STORAGE_CONNECTION_STRING"]
        assert found["endpoint"] == (connection.rpartition("=")[2], "$AZURE_STORAGE_CONNECTION_STRING")
        assert found["credentials"] == ("account key", "$AZURE_STORAGE_CONNECTION_STRING")
        assert KEY not in str(found)
    if store.kind == "gcs":
        assert found["endpoint"] == (store.env["STORAGE_EMULATOR_HOST"], "$STORAGE_EMULATOR_HOST")
        assert found["credentials"][0].startswith("none")
    if store.kind == "hdfs":
        assert found["namenodes"][0] == store.url.split("/")[2]
        assert found["credentials"][0] == "none: simple authentication by the user's name"
    costs = {one["operation"]: one for one in map(json.loads, out.splitlines()) if "operation" in one}
    assert costs["listing"]["note"] == "4 files"
    assert costs["reading"]["note"] == f"4 files of {SIZE:,} bytes"
    assert costs["an epoch"]["note"] == f"estimate for 4 files of {SIZE:,} bytes, by read_many in one process"
    assert all(one["seconds"] >= 0 for one in costs.values())
    if store.is_cloud:
        assert costs["opening"]["requests"] == 0
        assert costs["listing"]["requests"] == 1 + (store.kind == "azure")  # whose account tells if it has directories
        assert costs["reading"]["requests"] == costs["an epoch"]["requests"] == len(FILES)
        assert costs["an epoch"]["bytes"] == SIZE
        assert costs["an epoch"]["round_trips"] == 1
        assert 0 < costs["round trip"]["seconds"] < 10
    else:
        assert costs["reading"]["requests"] is None
        assert "round trip" not in costs


@pytest.mark.quick
def test_the_whole_output(tmp_path: Path) -> None:
    make_tree(tmp_path / "data")
    found = fsabs("explain", "data", cwd=tmp_path, env={"PFIO_CONFIG_PATH": "/none.ini"})
    lines = found.out.splitlines()
    filesystem = lines.pop(4)
    assert filesystem.startswith("filesystem     ")
    assert lines == [
        f"url            file://{tmp_path}/data",
        "configuration  /none.ini (not there)  ($PFIO_CONFIG_PATH)",
        "backend        Local  (scheme file)",
        f"path           {tmp_path}/data",
        "capabilities   read, write, exclusive, replace, append, update, mkdir, rename, remove, "
        "last_modified, settable_times, versions, links, modes",
        "concurrency    1  (of read_many, by default)",
        "cost           opening: nothing",
        "cost           listing: a scan of each directory",
        "cost           an epoch: an open and a read for each file",
    ]
    assert (found.err, found.code) == ("", 0)


@pytest.mark.quick
def test_sections_options_layers_and_the_sources_of_secrets(tmp_path: Path) -> None:
    (tmp_path / "pfio.ini").write_text(
        "[base]\nscheme = s3\nendpoint = http://127.0.0.1:9\naws_access_key_id = $CORP_KEY\n"
        "aws_secret_access_key = written-in-the-file\nregion = moon-1\n"
        f"[corp]\nscheme = base\nprefix = data/2026\nmax_attempts = 7\ncache = {tmp_path}/cache\n"
    )
    env = {"PFIO_CONFIG_PATH": str(tmp_path / "pfio.ini"), "CORP_KEY": "AKIA-hidden", "AWS_EC2_METADATA_DISABLED": "1"}
    found = facts(fsabs("explain", "corp://bucket/x", "--json", env=env).out)
    path = env["PFIO_CONFIG_PATH"]
    assert found["section"] == ("[corp] -> [base] -> s3", path)
    assert found["prefix"] == ("data/2026", "")
    assert found["path"] == ("/data/2026/x", "")
    assert found["option aws_access_key_id"] == ("(not shown)", f"{path}, line 4: [base], from $CORP_KEY")
    assert found["option aws_secret_access_key"] == ("(not shown)", f"{path}, line 5: [base]")
    assert found["option max_attempts"] == ("7", f"{path}, line 10: [corp]")
    assert found["option cache"] == (f"{tmp_path}/cache", f"{path}, line 11: [corp]")
    assert found["layer"] == ("CachedFS", "")
    assert found["region"] == ("moon-1", "option region")
    assert found["endpoint"] == ("http://127.0.0.1:9", "option endpoint")
    assert found["credentials"] == ("options", "")


@pytest.mark.quick
def test_what_can_not_be_opened_is_explained_as_far_as_it_goes(tmp_path: Path) -> None:
    done = fsabs("explain", f"{tmp_path}/none", code=1)
    assert f"backend        Local  (scheme file)\npath           {tmp_path}/none\n" in done.out
    assert done.err == f"fsabs: No such file or directory [stat]: 'file://{tmp_path}/none'\n"
    done = fsabs("explain", "nonesuch://x/y", code=1)
    assert done.out == ""
    assert done.err.startswith("fsabs: unknown scheme 'nonesuch'")


def test_a_zip_on_s3_costs_what_its_index_costs(moto: MotoServer, tmp_path: Path) -> None:
    moto.create_bucket("explained")
    env = {
        "S3_ENDPOINT": moto.endpoint,
        "AWS_ACCESS_KEY_ID": moto.access_key,
        "AWS_SECRET_ACCESS_KEY": moto.secret_key,
        "FSABS_CACHE_DIR": "",
    }
    options: dict[str, Any] = {"endpoint": moto.endpoint, "aws_access_key_id": "x", "aws_secret_access_key": "y"}
    with library.from_url("s3://explained/", **options) as fs:
        library.pack(library.Local(make_tree(tmp_path / "data")), fs, "a.zip")
    out = fsabs("explain", "s3://explained/a.zip", "--measure", env=env).out
    assert "container      s3://explained/a.zip  (Zip)\n" in out
    rows = [line.split() for line in out[out.index("operation") :].splitlines()]
    assert rows[0][:2] == ["operation", "requests"]
    opening = next(row for row in rows if row[0] == "opening")
    listing = next(row for row in rows if row[0] == "listing")
    assert 1 <= int(opening[1]) <= 3
    assert listing[1] == "0"
