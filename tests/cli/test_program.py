"""The program around the commands: help, version, errors, exit codes, and what `--help` imports."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import fsabs
from fsabs.cli import main
from fsabs.cli.program import COMMANDS, PROGRAM, Group
from tests.test_imports import HEAVY

pytestmark = pytest.mark.quick


def run(arguments: Sequence[str], code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command as a process, and check its exit code."""
    command = [sys.executable, "-m", "fsabs", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_version_and_help() -> None:
    assert run(["--version"]).stdout == f"fsabs {fsabs.__version__}\n"
    words = " ".join(run(["--help"]).stdout.split())
    for name, line in COMMANDS.items():
        assert f" {name} {line.line}" in words


def test_help_imports_no_command_and_no_heavy_library() -> None:
    code = (
        "import sys; from fsabs.cli import main; main(['--help']);"
        f"print([m for m in {(*HEAVY, 'sqlalchemy', 'rich', 'fsabs.core.fs', 'fsabs.cli.jobs')} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    ours = ["dataclasses"] if sys.version_info >= (3, 14) else []  # argparse imports it from 3.14 on
    assert done.stdout.splitlines()[-1] == str(ours)


def test_each_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        found = PROGRAM.find(name)
        for words in ([name], *([name, member] for member in (found.commands if isinstance(found, Group) else ()))):
            assert main([*words, "--help"]) == 0
            out = capsys.readouterr().out
            assert f"usage: fsabs {' '.join(words)}" in out
            assert "Example: fsabs " in out


def test_wrong_usage_is_2_and_names_what_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["taks"]) == 2
    assert "No such command 'taks'" in capsys.readouterr().err
    assert main(["tasks", "status"]) == 2
    assert "the following arguments are required: URL" in capsys.readouterr().err
    assert main(["cache"]) == 2
    assert capsys.readouterr().err.startswith("usage: fsabs cache")


def test_options_stand_anywhere_and_their_values_may_begin_with_a_dash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "large").write_bytes(bytes(3000))
    (tmp_path / "-r").write_bytes(b"1\n2\n")
    for arguments, out in (
        (["find", ".", "--size", "-2k", "--name", "-*"], "./-r\n"),
        (["find", "--size=+2k", ".", "--type", "f"], "./large\n"),
        (["head", "./-r", "-n", "1", "large", "-c1"], "1\0"),
        (["head", "-n1", "--", "-r"], "1\n"),
        (["cp", "large", "-v", "copy", "--progress=none"], "copied copy\n"),
        (["rm", "-v", "--", "-r"], "removed -r\n"),
        (["rm", "copy", "-v", "large"], "removed copy\nremoved large\n"),
        (["ls"], ""),
        (["ls", "--"], ""),
    ):
        assert main(arguments) == 0, arguments
        assert capsys.readouterr().out == out, arguments
    for arguments, reason in (
        (["head", "-n"], "expected one argument"),
        (["head", "-n", "-1", "x"], "-1 is less than 0"),
        (["find", ".", "--size", "2k"], "a size is +1M or -20k"),
        (["find", ".", "--older", "soon"], "a date is 2026-01-31"),
        (["ls", "--recurs"], "unrecognized arguments: --recurs"),
        (["ls", "--human=1"], "ignored explicit argument '1'"),
        (["cp", "a"], "required: TARGET"),
        (["diff", "a", "b", "c"], "unrecognized arguments: c"),
    ):
        assert main(arguments) == 2, arguments
        assert reason in capsys.readouterr().err, arguments


def test_an_error_is_one_line_and_a_traceback_only_with_debug(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/no/folder.db"
    assert main(["tasks", "status", url]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"fsabs: no job was created in this database: there is no such file [open]: '{url}'\n"
    for arguments in (["tasks", "status", url, "--debug"], ["--debug", "tasks", "status", url]):
        assert main(arguments) == 1
        assert "Traceback" in capsys.readouterr().err


def test_a_missing_library_is_named() -> None:
    code = (
        "import sys; sys.modules['sqlalchemy'] = None; from fsabs.cli import main;"
        "sys.exit(main(['tasks', 'status', 'sqlite:///x']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "needs SQLAlchemy: pip install 'fsabs[sql]'" in done.stderr


@pytest.mark.parametrize(("option", "command"), [("-u", "cat"), ("-B", "ls"), ("-u", "--version"), ("-B", "--version")])
def test_a_full_disk_behind_the_standard_output_is_a_failure(option: str, command: str, tmp_path: Path) -> None:
    """Of what the last write takes a part only; under `python -u`, too, whose standard output loses the rest."""
    (tmp_path / "content").write_bytes(bytes(1000))
    arguments = [command] if command == "--version" else [command, str(tmp_path / "content")]
    with open(tmp_path / "out", "wb") as out:
        done = subprocess.run(
            [sys.executable, option, "-m", "fsabs", *arguments],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5, 5)),
        )
    assert (done.returncode, done.stderr) == (1, "fsabs: File too large\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(closed: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_bytes(b"content")
    works = {"cp -r d e": "e/a", "mkdir h": "h"}
    writes = ["ls -l d", "cat d/a", "config list", "--version"]
    asks = {"cat -": "", "cp - i": "i", "cache clear": ""}
    for arguments in (*works, *writes, *asks):
        command = f"exec {sys.executable} -m fsabs {arguments} {closed}"
        done = subprocess.run(
            ["bash", "-c", command],
            input=b"",
            capture_output=True,
            timeout=60,
            cwd=tmp_path,
            check=False,
            env={**os.environ, "FSABS_CACHE_DIR": str(tmp_path)},
        )
        error = done.stderr.decode()
        assert "Traceback" not in error
        if arguments in asks:
            if "<" in closed or arguments == "cache clear":
                assert done.returncode == 1, arguments
                assert "2>" in closed or "standard input" in error
                assert "<" not in closed or not (tmp_path / "i").exists()
        elif arguments in works or ">" not in closed.replace("2>", ""):
            assert done.returncode == 0, (arguments, error)
            assert (tmp_path / works.get(arguments, "")).exists()
        else:
            assert done.returncode == 1, arguments
            assert error == ("" if "2>" in closed else "fsabs: the standard output is closed\n")


def test_no_file_becomes_a_standard_stream(tmp_path: Path) -> None:
    code = (
        "import os; from fsabs.cli.output import standard_streams\n"
        f"with standard_streams(), open({str(tmp_path / 'number')!r}, 'w') as file: file.write(str(file.fileno()))"
    )
    (tmp_path / "program.py").write_text(code)
    command = f"exec {sys.executable} {tmp_path}/program.py <&- >&- 2>&-"
    subprocess.run(["bash", "-c", command], timeout=60, check=True)
    assert int((tmp_path / "number").read_text()) > 2


@pytest.mark.parametrize("arguments", ["ls d", "cat d/a", "cp d/a -"])
@pytest.mark.parametrize("option", ["-u", "-B"])
def test_a_reader_that_has_enough_is_not_told(arguments: str, option: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for number in range(2000):
        (tmp_path / f"d/{number}{'x' * 200}").touch()
    (tmp_path / "d/a").write_bytes(bytes(5_000_000))
    command = f"{sys.executable} {option} -m fsabs {arguments} | head -c 10; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, cwd=tmp_path, check=False)
    assert (done.returncode, len(done.stdout), done.stderr) == (1, 10, b"")


def test_a_command_goes_on_when_nobody_reads_its_progress(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for number in range(2000):
        (tmp_path / f"d/{number}").touch()
    command = f"{sys.executable} -m fsabs cp -r --progress=line d e 2> >(true)"
    subprocess.run(["bash", "-c", command], timeout=60, cwd=tmp_path, check=True)
    assert len(os.listdir(tmp_path / "e")) == 2000


def test_an_error_that_nobody_reads_leaves_the_exit_code(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as error:
        done = subprocess.run([sys.executable, "-m", "fsabs", "cat", tmp_path / "none"], timeout=60, stderr=error)
    assert done.returncode == 1
