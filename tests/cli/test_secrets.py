"""Secrets in `pfio.ini`, URLs, queries and the environment, as many spell them: no command prints one."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from fsabs.backends.objects import failures
from fsabs.cli.program import COMMANDS
from tests.cli.commands import fsabs
from tests.spellings import OPTIONS, SECRET
from tests.spellings import URLS as SPELLED

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
SPELLINGS = [url for url in SPELLED if "?" not in url or url.startswith("postgresql")] + SPELLED[5:8]
"""Users and passwords, fragments, and parameters of three kinds; tests of the redaction have more."""
POSTGRES = "postgresql://me:planted-in-url@127.0.0.1:1/db?password=planted-in-query"
ARGUMENTS: dict[str, list[list[str]]] = {
    **{name: [["URL"]] for name in ("ls", "cat", "head", "tail", "stat", "du", "find", "rm", "mkdir", "verify")},
    **{name: [["URL"]] for name in ("repair", "explain", "doctor")},
    **{name: [["URL", "out"], ["in", "URL"]] for name in ("mv", "sync", "diff", "pack", "unpack", "convert")},
    "cp": [["-r", "URL", "out"], ["-r", "in", "URL"], ["URL", "-"]],
    "cache": [["warm", "URL", "--dir", "cache"], ["status", "--dir", "cache"]],
    "job": [
        ["create", "--training_data=URL", "--records_per_task=4", "--task_database=sqlite:///job.db"],
        ["create", "--training_data=in", "--records_per_task=4", f"--task_database={POSTGRES}"],
    ],
    "manifest": [["create", "URL", "m.jsonl"], ["check", "in", "URL"], ["create", "in", "URL"]],
    "pfs": [["ls", "URL"], ["cp", "in", "URL"], ["rm", "-r", "URL"], ["mkdir", "URL"]],
    "prepare": [["in/model.py", "URL", "out", "local"], ["in/model.py", "in", "URL", "local"]],
    "samples": [["URL", "0", "--loader", "in/model.py:f"], ["0", "--loader", "URL:f"]],
    "tasks": [["status", "--wait", "0", POSTGRES]],
    "trace": [["summary", "URL"]],
    "config": [["list"], ["check"]],
}

ENVIRONMENT = {"AWS_MAX_ATTEMPTS": "1", "AWS_EC2_METADATA_DISABLED": "true", "http_proxy": "", "HTTP_PROXY": ""}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "BACKOFF", 0.001)  # of hosts that refuse connections


def test_the_table_has_every_command() -> None:
    assert set(ARGUMENTS) == set(COMMANDS)


def assert_hidden(secrets: list[str], *arguments: str, env: dict[str, str], cwd: Path) -> None:
    """Check that a command, whatever comes of it, writes none of these."""
    done = fsabs(*arguments, code=None, env=env, cwd=cwd)
    shown = done.out + done.err
    assert not [secret for secret in secrets if secret in shown], (arguments, shown[-4000:])


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
@pytest.mark.filterwarnings("ignore")
def test_no_command_prints_a_secret(name: str, tmp_path: Path) -> None:
    (tmp_path / "pfio.ini").write_text(INI)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/model.py").write_text("def prepare_data_for_a_single_file(filename):\n    return ()\n")
    env = ENVIRONMENT | {
        "PFIO_CONFIG_PATH": str(tmp_path / "pfio.ini"),
        "AWS_ACCESS_KEY_ID": "some-id",
        "AWS_SECRET_ACCESS_KEY": "planted-in-environment",
        "S3_ENDPOINT": "http://me:planted-in-endpoint@127.0.0.1:1",
        "HOME": str(tmp_path),
    }
    for number, (arguments, url) in enumerate(itertools.product(ARGUMENTS[name], URLS)):
        if "URL" not in arguments and url != URLS[0]:
            continue
        options = ["--debug", "--json"] if number % 2 else ["--debug"]
        written = [url if text == "URL" else text for text in arguments]
        at = 1 if name in ("cache", "manifest", "pfs", "tasks", "trace", "config") else 0
        written[at:at] = options
        assert_hidden(SECRETS, name, *written, env=env, cwd=tmp_path)


def test_words_of_other_options_and_paths_in_variables_are_shown(tmp_path: Path) -> None:
    (tmp_path / "pfio.ini").write_text(
        "[odd]\nscheme = http\nwhatever = training\nregion_name = europe-west1\nprefix = run=first-run\n"
        "other = x1!not-a-word\n"
    )
    env = {"PFIO_CONFIG_PATH": str(tmp_path / "pfio.ini"), "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path)}
    for name in ("training", "europe-west1", "first-run", "x1!not-a-word"):
        (tmp_path / name).touch()
        shown = name if "!" not in name else "***"
        assert f"{tmp_path}/{shown}" in fsabs("stat", str(tmp_path / name), env=env).out
    listed = fsabs("config", "list", env=env).out
    assert "whatever = ***\nregion_name = ***\nprefix = run=first-run\nother = ***" in listed


@pytest.mark.filterwarnings("ignore")
def test_no_spelling_of_a_secret_in_a_url_is_printed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    commands = [["ls"], ["explain"], ["doctor"], ["cp", "-r", "in"], ["cat"], ["tasks", "status", "--wait", "0"]]
    for url, command, options in itertools.product(SPELLINGS, commands, ([], ["--debug"])):
        assert_hidden([SECRET], *command, *options, url, env=ENVIRONMENT, cwd=tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_no_spelling_of_a_secret_in_an_option_is_printed(tmp_path: Path) -> None:
    # Each is another one: a value that is known to be secret is hidden wherever it is printed.
    written = [(name, value) for name, value in OPTIONS if isinstance(value, str) and "\n" not in value]
    text, commands = "", [["config", "list"], ["config", "check"], ["doctor"]]
    for number, (name, value) in enumerate(written):
        scheme, other = ("s3", "http", "memory")[number % 3], value.replace(SECRET, f"{SECRET}{number:02}")
        text += f"[{scheme}-{number}]\nscheme = {scheme}\n{name} = {other}\n"
        url = f"{scheme}-{number}://127.0.0.1:1/x"
        commands += [["explain", url], ["ls", url], ["cp", url, "out", "--debug"]]
    (tmp_path / "pfio.ini").write_text(text)
    env = ENVIRONMENT | {
        "PFIO_CONFIG_PATH": str(tmp_path / "pfio.ini"),
        "S3_ENDPOINT": "http://127.0.0.1:1",
        "HOME": str(tmp_path),
    }
    for command, options in itertools.product(commands, ([], ["--json"])):
        assert_hidden([SECRET], *command, *options, env=env, cwd=tmp_path)
    assert len(written) >= 30


VARIABLES = [
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_CONNECTION_STRING"),
    *("AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_SECRET", "HF_TOKEN", "GITHUB_PAT", "CI_JOB_JWT"),
    *("PGPASSWORD", "MYSQL_PWD", "REDISCLI_AUTH", "KEYTAB_PASSPHRASE", "OPENAI_API_KEY", "SSH_PRIVATE"),
    "CORP_SIGNATURE",
]


def test_no_secret_of_the_environment_is_printed(tmp_path: Path) -> None:
    env = {name: f"{number}{SECRET}" for number, name in enumerate(VARIABLES)}
    for value, command in itertools.product(env.values(), (["stat"], ["cp", "-"], ["explain"])):
        for option in ("--debug", "--json"):
            assert_hidden([SECRET], *command, f"none/{value}/x", option, env=env, cwd=tmp_path)
