"""Secrets that are planted in `pfio.ini`, URLs, queries and the environment are printed by no command."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from fsabs.cli import commands, main

pytestmark = pytest.mark.quick

SECRETS = ["planted-in-file", "planted-in-url", "planted-in-query", "planted-in-environment", "planted-in-endpoint"]
INI = """
[corp]
scheme = s3
endpoint = http://me:planted-in-endpoint@127.0.0.1:1
aws_access_key_id = planted-in-file-id
aws_secret_access_key = planted-in-file
max_attempts = 1

[dc]
pfs = corp://bucket
username = wuyi
"""
URLS = [
    "corp://bucket/x.zip/y",
    "http://me:planted-in-url@127.0.0.1:1/x.zip?token=planted-in-query",
    "s3://me:planted-in-url@bucket/x.zip",
    "ftp://me:planted-in-url@127.0.0.1:1/x.zip",
    "/pfs/dc/home/wuyi/planted-in-file/x.zip",
    "nonesuch://me:planted-in-url@127.0.0.1:1/x.zip",
    "file:///none/planted-in-environment.zip/",
]
ARGUMENTS: dict[str, list[list[str]]] = {
    **{
        name: [["URL"]] for name in ("ls", "tree", "cat", "head", "tail", "stat", "du", "find", "rm", "mkdir", "verify")
    },
    **{name: [["URL"]] for name in ("repair", "explain", "doctor")},
    **{name: [["URL", "out"], ["in", "URL"]] for name in ("mv", "sync", "diff", "pack", "unpack", "convert")},
    "cp": [["-r", "URL", "out"], ["-r", "in", "URL"], ["URL", "-"]],
    "bench": [["URL", "--seconds", "0.01", "--workers", "1"]],
    "cache": [["warm", "URL", "--dir", "cache"], ["status", "--dir", "cache"]],
    "manifest": [["create", "URL", "m.jsonl"], ["check", "in", "URL"], ["create", "in", "URL"]],
    "pfs": [["ls", "URL"], ["cp", "in", "URL"], ["rm", "-r", "URL"], ["mkdir", "URL"]],
    "prepare": [["in/model.py", "URL", "out", "local"], ["in/model.py", "in", "URL", "local"]],
    "tasks": [["status", "postgresql://me:planted-in-url@127.0.0.1:1/db?password=planted-in-query"]],
    "trace": [["summary", "URL"]],
    "config": [["list"], ["check"]],
    "completion": [["bash"]],
}


def test_the_table_has_every_command() -> None:
    assert set(ARGUMENTS) == set(commands.COMMANDS)


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
@pytest.mark.filterwarnings("ignore")
def test_no_command_prints_a_secret(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pfio.ini").write_text(INI)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/model.py").write_text("def prepare_data_for_a_single_file(filename):\n    return ()\n")
    for variable, value in {
        "PFIO_CONFIG_PATH": str(tmp_path / "pfio.ini"),
        "AWS_ACCESS_KEY_ID": "some-id",
        "AWS_SECRET_ACCESS_KEY": "planted-in-environment",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "S3_ENDPOINT": "http://me:planted-in-endpoint@127.0.0.1:1",
        "HOME": str(tmp_path),
    }.items():
        monkeypatch.setenv(variable, value)
    for number, (arguments, url) in enumerate(itertools.product(ARGUMENTS[name], URLS)):
        if "URL" not in arguments and url != URLS[0]:
            continue
        options = ["--debug", "--json"] if number % 2 else ["--debug"]
        written = [url if text == "URL" else text for text in arguments]
        at = 1 if name in ("cache", "manifest", "pfs", "tasks", "trace", "config") else 0
        if name != "completion":
            written[at:at] = options
        main([name, *written])
        out, err = capfd.readouterr()
        found = [secret for secret in SECRETS if secret in out + err]
        assert not found, (written, out[-1000:], err[-3000:])
