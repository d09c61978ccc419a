"""What a person sees: progress and colours, NO_COLOR, interrupts; and no control characters of others."""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tarfile
import termios
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsabs.cli.progress import ProgressDisplay, progress_text
from tests import preloaded
from tests.cli.commands import fsabs, make_tree

pytestmark = [pytest.mark.quick, pytest.mark.timeout(240)]
MODULES = ("argparse", "configparser", "email.parser", "http.client", "inspect", "json", "ssl", "zipfile")
"""What commands import of others."""


def on_terminal(arguments: list[str], columns: int, code: int = 0, **env: str) -> str:
    """Run the command on a terminal, check its exit code, and return all that it shows."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environment |= {"TERM": "xterm", "TZ": "UTC", **env}
    program = preloaded.start(MODULES, ["-m", "fsabs", *arguments], (child, child, child), env=environment)
    os.close(child)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal has no process any more
        while piece := os.read(parent, 65536):
            shown += piece
    assert program.wait(60) == code, shown
    os.close(parent)
    return shown.decode()


def test_progress_is_one_line_that_fits(tmp_path: Path) -> None:
    make_tree(tmp_path / "d", {f"{number:04}{'x' * 90}": b"x" * 1000 for number in range(3000)})
    shown = on_terminal(["cp", "-r", f"{tmp_path}/d", f"{tmp_path}/e"], 80)
    lines = [line for line in re.split(r"[\r\n]+", shown) if line.strip()]
    assert lines[-1] == "copied 3,000 (3.0 MB), skipped 0, failed 0, retried 0"
    assert all(re.match(r"[\d,]+(/3,000)? files  [\d.]+ k?M?B", line) for line in lines[:-1]), lines
    assert all(len(line) < 80 for line in lines)
    assert shown.count("\n") == 1


def test_colours_and_none_with_no_color(tmp_path: Path) -> None:
    make_tree(tmp_path, {"d/a": b"", "odd\x1b[31m\nname": b""})
    coloured = on_terminal(["ls", str(tmp_path)], 80)
    assert coloured == "\x1b[1;34md/\x1b[0m\r\nodd\\x1b[31m\\nname\r\n"
    assert on_terminal(["ls", str(tmp_path)], 80, NO_COLOR="1") == "d/\r\nodd\\x1b[31m\\nname\r\n"
    assert fsabs("ls", str(tmp_path)).out == "d/\nodd\x1b[31m\nname\n"


# Clipboard, clear screen, carriage return, backspace, colours, an 8-bit control, an override of direction, a raw byte.
HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\r\b\x1b[31m\x1b[0m\x9b2J\u202e\udcff"
OURS = re.compile(r"\x1b\[(1;34|3[123]|0)m|\r\n|\n|\t")
QUOTED = r"\x1b]52;c;ZXZpbA==\x07\x1b[2J\r\x08\x1b[31m\x1b[0m\x9b2J\u202e\xff"


class _Refusing(http.server.BaseHTTPRequestHandler):
    """A store that refuses all requests, in words of its own."""

    def do_GET(self) -> None:
        body = f"<Error><Code>AccessDenied</Code><Message>no {HOSTILE[:-1]}</Message></Error>".encode()
        self.send_response(403, HOSTILE[:7])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(10)


def test_control_characters_of_others_are_quoted(tmp_path: Path, refusing: str) -> None:
    folder = tmp_path / f"d{HOSTILE}"
    make_tree(folder, {f"a{HOSTILE}": b"a", f"s{HOSTILE}/b": b"b"})
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(f"../out{HOSTILE[:-1]}", b"x")
        archive.writestr(f"in{HOSTILE[:-1]}", b"x")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        device = tarfile.TarInfo(f"dev{HOSTILE[:-1]}")
        device.type = tarfile.CHRTYPE
        tar.addfile(device)
    (tmp_path / "pfio.ini").write_text("[odd]\nscheme = memory\nprefix = x\x1b[2J\nnot\x1b[31m = 1\n")
    env = {
        "S3_ENDPOINT": refusing,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "PFIO_CONFIG_PATH": str(tmp_path / "pfio.ini"),
    }
    missing = str(folder / f"missing{HOSTILE}")
    for code, *arguments in (
        (0, "ls", "-l", str(folder), str(tmp_path)),
        (0, "find", "--print0", str(folder)),
        (0, "du", str(folder)),
        (0, "stat", str(folder / f"a{HOSTILE}")),
        (0, "explain", str(folder)),
        (1, "doctor", f"{tmp_path}/a.zip/in"),
        (1, "cat", missing, "--debug"),
        (0, "cp", "-r", "--json", "--progress=none", str(folder), str(tmp_path / "copied")),
        (1, "diff", str(folder), str(tmp_path)),
        (2, "ls", f"--x{HOSTILE}"),
        (0, "ls", f"{tmp_path}/a.zip/"),
        (1, "unpack", "--progress=none", f"{tmp_path}/a.zip", str(tmp_path / "u")),
        (1, "unpack", "--progress=none", f"{tmp_path}/a.tar", str(tmp_path / "t")),
        (1, "ls", "s3://bucket/x"),
        (1, "cat", f"{refusing}/x"),
        (0, "config", "list"),
        (1, "config", "check"),
    ):
        shown = on_terminal(arguments, 200, code, **env)
        left = OURS.sub("", shown)
        assert left.isprintable(), (arguments, shown)
        error = fsabs(*arguments, code=code, env=env).err
        assert OURS.sub("", error).isprintable(), (arguments, error)
    assert QUOTED in on_terminal(["ls", str(folder)], 200)
    assert QUOTED[:-4] in fsabs("ls", missing, code=1).err


def test_names_reach_another_program_as_they_are(tmp_path: Path) -> None:
    folder = os.fsencode(make_tree(tmp_path / "d", {f"a{HOSTILE}": b"a"}))
    for options in (["ls"], ["find"], ["find", "-0"]):
        command: list[str | bytes] = [sys.executable, "-m", "fsabs", *options, folder]
        done = subprocess.run(command, capture_output=True, timeout=60, check=True)
        assert os.fsencode(f"a{HOSTILE}") in done.stdout


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
