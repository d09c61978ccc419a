"""A real browser for the tests of pages: Debian's Chromium, headless, with an empty profile of its own for each page.

`render` opens a local page and gives what became of it: its document, what it wrote to the console, what it asked the
network for, and a picture. Nothing of pytest or of `fsabs` belongs here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.servers import debian

_PACKAGE = "chromium"
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-default-apps", "--disable-dev-shm-usage", "--disable-extensions", "--disable-sync", "--no-first-run",
    "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr",
)  # fmt: skip
_TIMEOUT = 45
# What a page may ask for; the browser asks its maker for updates and the like by itself.
_PAGE_SCHEMES = re.compile(r"^(https?|wss?|ftp)://(?!([a-z0-9.-]+\.)?(google|googleapis|gstatic)\.com/)")


class Rendered(NamedTuple):
    """What became of a page."""

    dom: str
    """The document, after its scripts have run."""
    console: list[str]
    """What was written to the console: errors of scripts and breaches of the page's policy are there, too."""
    fetched: list[str]
    """URLs of the network that were asked for."""
    picture: bytes
    """A PNG of the window."""


def missing() -> str | None:
    """Returns None when Chromium can be started here, else a sentence that names the command to run."""
    return (
        None
        if _program() is not None
        else f"The report's tests need Chromium: run `{debian.command(_PACKAGE)}` as root."
    )


def install() -> None:
    """Installs Debian's package when it is missing; needs root or a `sudo` that asks no password."""
    debian.install(missing, _PACKAGE)


def render(page: Path, width: int = 1280, height: int = 1000) -> Rendered:
    """Open a local page in a window of so many pixels; raises `RuntimeError` where the browser fails."""
    with tempfile.TemporaryDirectory(prefix="chromium-") as folder:
        picture, log = Path(folder, "page.png"), Path(folder, "net.json")
        done = subprocess.run(
            [
                str(_program()), *_QUIET, f"--user-data-dir={folder}/profile", f"--window-size={width},{height}",
                f"--screenshot={picture}", f"--log-net-log={log}", "--dump-dom", page.as_uri(),
            ],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT, check=False,
        )  # fmt: skip
        if done.returncode or not picture.exists():
            raise RuntimeError(f"{done.args} ended with {done.returncode}: {done.stderr}")
        console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        return Rendered(done.stdout, console, _asked_for(log), picture.read_bytes())


def _asked_for(log: Path) -> list[str]:
    text = log.read_text()
    try:
        events = json.loads(text)["events"]
    except ValueError:  # the browser ended before it wrote the end
        events = json.loads(text.rstrip().rstrip(",") + "]}")["events"]
    urls = {str(event.get("params", {}).get("url", "")) for event in events}
    return sorted(url for url in urls if _PAGE_SCHEMES.match(url))


def _program() -> str | None:
    return next((path for name in _PROGRAMS if (path := shutil.which(name)) is not None), None)
