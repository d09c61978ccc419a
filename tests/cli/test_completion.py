"""Completion in real shells: remote paths, whose colons end words for bash, and all else."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fsabs
from tests.servers.moto import MotoServer

pytestmark = [pytest.mark.quick, pytest.mark.timeout(240)]

KEYS = [
    "prefix-1/a.txt",
    "prefix-1/b.txt",
    "prefix-2.txt",
    "other/deep/x.txt",
    "at@sign.txt",
    "k=v/a",
    "with space.txt",
]
RC = r"""
PS1=
bind 'set bell-style none'
show() { printf '[[%s]]\n' "$READLINE_LINE"; }
bind -x '"\C-t": show'
eval "$(fsabs completion bash)"
echo [[READY]]
"""
SHOW, CLEAR = "\x14", "\x01\x0b"


class Bash:
    """An interactive bash that completes `fsabs`."""

    def __init__(self, folder: Path, **env: str) -> None:
        (folder / "bin").mkdir()
        (folder / "bin/fsabs").write_text(f'#!/bin/sh\nexec {sys.executable} -m fsabs "$@"\n')
        (folder / "bin/fsabs").chmod(0o755)
        (folder / "rc").write_text(RC)
        self._terminal, child = pty.openpty()
        variables = {**os.environ, **env, "PATH": f"{folder}/bin:{os.environ['PATH']}", "TERM": "dumb"}
        command = ["bash", "--noprofile", "--rcfile", str(folder / "rc"), "-i"]
        self._process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=variables, cwd=folder)
        os.close(child)
        assert self._shown() == "READY"

    def complete(self, line: str) -> str:
        """Return what a line is after a tab at its end."""
        os.write(self._terminal, f"{line}\t{SHOW}".encode())
        shown = self._shown()
        os.write(self._terminal, CLEAR.encode())
        return shown

    def _shown(self) -> str:
        shown, deadline = "", time.monotonic() + 60
        while (found := re.search(r"\[\[(.*)\]\]\r\n", shown)) is None:
            assert select.select([self._terminal], [], [], deadline - time.monotonic())[0], shown
            shown += os.read(self._terminal, 65536).decode()
        return found[1]

    def close(self) -> None:
        """End it."""
        os.close(self._terminal)
        self._process.wait(10)


def test_bash_completes(tmp_path: Path, moto: MotoServer) -> None:
    moto.create_bucket("completed")
    with fsabs.from_url(
        "s3://completed/", endpoint=moto.endpoint, aws_access_key_id="x", aws_secret_access_key="y"
    ) as fs:
        for key in KEYS:
            fs.write_bytes(key, b"x")
    (tmp_path / "local-file").touch()
    bash = Bash(tmp_path, S3_ENDPOINT=moto.endpoint, AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="y")
    for line, completed in {
        "fsabs ls s3://completed/pre": "fsabs ls s3://completed/prefix-",
        "fsabs ls s3://completed/prefix-2": "fsabs ls s3://completed/prefix-2.txt ",
        "fsabs ls s3://completed/prefix-1/": "fsabs ls s3://completed/prefix-1/",
        "fsabs ls s3://completed/o": "fsabs ls s3://completed/other/",
        "fsabs ls s3://completed/other/deep/": "fsabs ls s3://completed/other/deep/x.txt ",
        "fsabs ls s3://completed/at": "fsabs ls s3://completed/at@sign.txt ",
        "fsabs ls s3://completed/at@s": "fsabs ls s3://completed/at@sign.txt ",
        "fsabs ls s3://completed/k=": "fsabs ls s3://completed/k=v/",
        "fsabs ls s3://completed/w": "fsabs ls s3://completed/with%20space.txt ",
        "fsabs ls 's3://completed/prefix-2": "fsabs ls 's3://completed/prefix-2.txt' ",
        'fsabs ls "s3://completed/prefix-2': 'fsabs ls "s3://completed/prefix-2.txt" ',
        "fsabs cp -r s3://completed/other/ s3://completed/prefix-2": (
            "fsabs cp -r s3://completed/other/ s3://completed/prefix-2.txt "
        ),
        "X=1 fsabs ls s3://completed/o": "X=1 fsabs ls s3://completed/other/",
        "true | fsabs ls s3://completed/o": "true | fsabs ls s3://completed/other/",
        "fsabs ls s3://completed/none": "fsabs ls s3://completed/none",
        "fsabs ls s3://nosuchbucket/a": "fsabs ls s3://nosuchbucket/a",
        "fsabs expl": "fsabs explain ",
        "fsabs cp --no-c": "fsabs cp --no-clobber ",
        "fsabs cp --progress pl": "fsabs cp --progress plain ",
        "fsabs ls local-": "fsabs ls local-file ",
        "fsabs cp s3://completed/other/ local-": "fsabs cp s3://completed/other/ local-file ",
    }.items():
        assert bash.complete(line) == completed
    bash.close()


LINES = {
    "expl": "explain",
    "cache cl": "clear",
    "cp --no-c": "--no-clobber",
    "cp --progress pl": "plain",
    "cp --progress=pl": "--progress=plain",
    "prepare a b --prefix local c lo": "local",
    "ls memory://completed/other/d": "",
    "ls FOLDER/w": "FOLDER/with%20space/",
    "cp FOLDER/ FOLDER/a": "FOLDER/at@sign.txt",
    "nonesuch a": "",
    "ls -l --h": "--human\n--help",
}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_what_the_scripts_of_other_shells_get(shell: str, tmp_path: Path) -> None:
    (tmp_path / "with space").mkdir()
    (tmp_path / "at@sign.txt").touch()
    for line, completed in LINES.items():
        words = line.replace("FOLDER", f"file://{tmp_path}").split(" ")
        command = [sys.executable, "-m", "fsabs", "completion", shell, "--", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.strip() == completed.replace("FOLDER", f"file://{tmp_path}"), line


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/fsabs").write_text(f'#!/bin/sh\nexec {sys.executable} -m fsabs "$@"\n')
    (tmp_path / "bin/fsabs").chmod(0o755)
    (tmp_path / "local-file").touch()
    env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}
    for line, completed in {
        "fsabs expl": "explain",
        "fsabs cp --progress pl": "plain",
        f"fsabs ls file://{tmp_path}/loc": f"file://{tmp_path}/local-file",
        "fsabs ls file:///none/loc": "",
        "fsabs ls loc": "local-file",
    }.items():
        command = ["fish", "--no-config", "-c", "fsabs completion fish | source; complete -C $argv[1]", line]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, cwd=tmp_path, check=True)
        assert done.stdout.strip() == completed, line
