"""What a person sees: progress and colours on terminals of two widths, NO_COLOR, interrupts; and no secret anywhere."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from fsabs.cli import main
from fsabs.cli.progress import ProgressDisplay, progress_text
from tests.cli.commands import fsabs, make_tree
from tests.servers.moto import MotoServer

pytestmark = [pytest.mark.quick, pytest.mark.timeout(240)]


def on_terminal(arguments: list[str], columns: int, **env: str) -> str:
    """Run the command on a terminal, and return all that it shows."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environment |= {"TERM": "xterm", "TZ": "UTC", **env}
    with subprocess.Popen(
        [sys.executable, "-m", "fsabs", *arguments], stdout=child, stderr=child, stdin=child, env=environment
    ) as process:
        os.close(child)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal has no process any more
            while piece := os.read(parent, 65536):
                shown += piece
        assert process.wait(60) == 0, shown
    os.close(parent)
    return shown.decode()


@pytest.mark.parametrize("columns", [80, 200])
def test_progress_is_one_line_that_fits(columns: int, tmp_path: Path) -> None:
    make_tree(tmp_path / "d", {f"{number:04}{'x' * 90}": b"x" * 1000 for number in range(3000)})
    shown = on_terminal(["cp", "-r", f"{tmp_path}/d", f"{tmp_path}/e"], columns)
    lines = [line for line in re.split(r"[\r\n]+", shown) if line.strip()]
    assert lines[-1] == "copied 3,000 (3.0 MB), skipped 0, failed 0, retried 0"
    assert all(re.match(r"[\d,]+(/3,000)? files  [\d.]+ k?M?B", line) for line in lines[:-1]), lines
    assert all(len(line) < columns for line in lines)
    assert shown.count("\n") == 1


def test_colours_and_none_with_no_color(tmp_path: Path) -> None:
    make_tree(tmp_path, {"d/a": b"", "odd\x1b[31m\nname": b""})
    coloured = on_terminal(["ls", str(tmp_path)], 80)
    assert coloured == "\x1b[1;34md/\x1b[0m\r\nodd\\x1b[31m\\nname\r\n"
    assert on_terminal(["ls", str(tmp_path)], 80, NO_COLOR="1") == "d/\r\nodd\\x1b[31m\\nname\r\n"
    assert fsabs("ls", str(tmp_path)).out == "d/\nodd\x1b[31m\nname\n"


def test_help_fits_and_is_plain_on_a_terminal() -> None:
    shown = on_terminal(["cp", "--help"], 80)
    assert "Example: fsabs cp -r" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "\x1b" not in shown


def test_progress_lines_for_logs_and_their_figures(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with ProgressDisplay("plain", lambda: now) as progress:
        for second in range(12):
            now = float(second)
            progress.update(second, second * 1_000_000, 100, 100_000_000)
    assert capsys.readouterr().err == (
        "5/100 files  5.0 MB/100.0 MB  1.0 MB/s  0:01:35 left\n10/100 files  10.0 MB/100.0 MB  1.0 MB/s  0:01:30 left\n"
    )
    assert progress_text(3, 500, None, None, 0, 0.0) == "3 files  500 B  0 B/s"
    assert progress_text(3, 9_000, 4, 10_000, 8_000, 1.0) == "3/4 files  9.0 kB/10.0 kB  1.0 kB/s  0:00:01 left"
    with ProgressDisplay("none") as progress:
        progress.update(1, 1)
    assert capsys.readouterr().err == ""


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    make_tree(tmp_path / "d", {f"{number}": b"x" * 500_000 for number in range(400)})
    command = [sys.executable, "-m", "fsabs", "cp", "-r", "--json", f"{tmp_path}/d", f"{tmp_path}/e"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.fullmatch(
        r"\n?fsabs: interrupted: copied \d+ \(.*\), skipped 0, failed 0, retried 0; "
        r"no file is half-written, run the same command again to go on\n",
        error,
    )


def test_planted_secrets_are_never_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ini = tmp_path / "pfio.ini"
    with MotoServer() as server:
        server.create_bucket("bucket")
        ini.write_text(
            f"[corp]\nscheme = s3\nendpoint = {server.endpoint}\naws_access_key_id = planted-ini-id\n"
            "aws_secret_access_key = planted-ini-secret\nregion = us-east-1\n"
            "[dead]\nscheme = s3\nendpoint = http://127.0.0.1:9/\nmax_attempts = 1\n"
            "aws_access_key_id = $PLANTED_KEY\naws_secret_access_key = $PLANTED_SECRET\n"
        )
        for name, value in (
            ("PFIO_CONFIG_PATH", str(ini)),
            ("PLANTED_KEY", "planted-variable-id"),
            ("PLANTED_SECRET", "planted-variable"),
            ("AWS_SESSION_TOKEN", "planted-session"),
        ):
            monkeypatch.setenv(name, value)
        make_tree(tmp_path / "d", {"a": b"a"})
        for url in (
            "corp://bucket/x",
            "dead://bucket/x",
            "s3://me:planted-password@bucket/x",
            "http://me:planted-password@127.0.0.1:9/x?X-Amz-Signature=planted-signature&token=planted-token",
            "s3://bucket/x?token=planted-token",
            "s3://bucket/x?versionId=1&secret=planted-token",
            "corp://bucket/planted-ini-secret",
        ):
            for command in (
                ["ls", "-l", url],
                ["ls", f"{url}*"],
                ["tree", url],
                ["find", url],
                ["du", url],
                ["stat", url],
                ["cat", url],
                ["head", url],
                ["tail", url],
                ["cp", "-r", f"{tmp_path}/d", url],
                ["cp", url, f"{tmp_path}/e"],
                ["mv", url, f"{tmp_path}/f"],
                ["sync", f"{tmp_path}/d", url],
                ["diff", url, f"{tmp_path}/d"],
                ["mkdir", url],
                ["rm", "-r", url],
            ):
                for more in ([], ["--debug", "--json"]):
                    main([*command, *more])
                    captured = capfd.readouterr()
                    assert "planted" not in captured.out + captured.err, (command, more, captured)
